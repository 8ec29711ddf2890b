"""Peers that can be limited to an instruction set, and peers that cannot."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tritmark.harness.errors import DeviceUnavailableError, UsageError
from tritmark.harness.spec import PEER_ISA, Peer, Variant
from tritmark.kernels.native.cpu import ISAS, features
from tritmark.kernels.peers import PEERS, isa, libggml, libik, torch_cpu
from tritmark.kernels.peers.products import VARIANTS

_TORCH = """
import os
read = {name: os.environ.get(name) for name in ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")}
int8, ones, set_num_threads, _int_mm = 0, lambda *a, **k: None, lambda n: None, lambda a, b: None
"""


def library(folder: Path, **has: int) -> Path:
    """A library that only reports for what it was compiled."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, made = folder / "told.c", folder / "libtold.so"
    functions = (f"int ggml_cpu_has_{name}(void) {{ return {value}; }}\n" for name, value in has.items())
    source.write_text("int anything;\n" + "".join(functions))
    subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(made)], check=True)
    return made


def test_nothing_is_refused_where_nothing_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PEER_ISA, raising=False)
    assert isa.asked() is None
    assert isa.beyond(lambda: frozenset({"avx512f"})) is None


def test_a_library_that_is_compiled_for_more_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = library(tmp_path, avx2=1, fma=1, avx512=1, avx512_vnni=0)
    assert isa.compiled(path) == frozenset({"avx2", "fma", "avx512f"})
    monkeypatch.setenv(PEER_ISA, "avx2")
    assert isa.beyond(lambda: isa.compiled(path)) == "cannot be held to avx2: it uses avx512f"
    monkeypatch.setenv(PEER_ISA, "avx512")
    assert isa.beyond(lambda: isa.compiled(path)) is None


def test_a_build_says_its_version_and_its_instruction_sets(tmp_path: Path) -> None:
    path = library(tmp_path, avx2=1, fma=1)
    assert isa.version(path) == ""
    assert isa.in_words(lambda: isa.compiled(path)) == "compiled for avx2, fma"
    assert isa.in_words(frozenset) == "compiled for no extension"
    assert isa.in_words(isa.dispatches) == "instruction sets chosen at run time"
    assert isa.in_words(lambda: "it could not be asked") == "it could not be asked"
    assert isa.version(tmp_path / "none.so") == ""


def test_a_library_that_is_compiled_for_as_much_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = library(tmp_path, avx=1, avx2=1, fma=1, f16c=1, avx512=0)
    monkeypatch.setenv(PEER_ISA, "avx2")
    assert isa.beyond(lambda: isa.compiled(path)) is None
    monkeypatch.setenv(PEER_ISA, "sse41")
    assert isa.beyond(lambda: isa.compiled(path)) == "cannot be held to sse41: it uses avx, avx2, f16c, fma"


def test_a_library_that_does_not_tell_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PEER_ISA, "avx512")
    path = library(tmp_path)
    assert "libtold.so does not tell for what it is compiled" in str(isa.beyond(lambda: isa.compiled(path)))
    (tmp_path / "none.so").write_bytes(b"no library")
    assert "none.so could not be asked" in str(isa.beyond(lambda: isa.compiled(tmp_path / "none.so")))


def test_wheels_tell_what_they_are_compiled_for(ggml: None) -> None:
    for needs in (libggml.needs, libik.needs):
        found = needs()
        assert not isinstance(found, str) or "not installed" in found, found
        assert isinstance(found, str) or found <= set(isa._TELLS.values())


def test_what_dispatches_by_itself_is_refused_below_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    best = [each.name for each in ISAS.values() if each.features <= features()][-1]
    for name in ("scalar", best):
        monkeypatch.setenv(PEER_ISA, name)
        everything: tuple[Peer | Variant, ...] = (*PEERS, *VARIANTS)
        for each in everything:
            if not each.name.startswith(("onnxruntime", "gguf")):
                continue
            why = each.missing() or ""
            assert "not installed" in why or ("cannot be held to scalar" in why) == (name == "scalar"), (each.name, why)


@pytest.mark.nightly
def test_an_unknown_name_is_answered_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PEER_ISA, "avx22")
    with pytest.raises(UsageError, match=r"did you mean 'avx2'\? legal: scalar"):
        isa.asked()
    done = tritmark("run", "--suite", "smoke", "--peer-isa", "avx521")
    assert done.returncode == 2
    assert "did you mean 'avx512'?" in done.stderr


def tritmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != PEER_ISA}
    command = [sys.executable, "-m", "tritmark.harness", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_a_run_says_why_a_peer_was_not_run(ort: None, tmp_path: Path) -> None:
    asked = ("run", "--suite", "smoke", "--variant", "onnxruntime-int8", "--out", str(tmp_path))
    done = tritmark(*asked, "--peer-isa", "scalar")
    assert done.returncode == 2
    assert "cannot be held to scalar: it uses " in done.stderr


@pytest.mark.nightly
def test_torch_is_told_before_it_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(_TORCH)
    code = "from tritmark.kernels.peers import torch_cpu; torch_cpu.load(); import torch; print(torch.read)"
    limits = {each.name: isa.variables(each) for each in ISAS.values()}
    assert not limits["scalar"]
    for name, values in limits.items():
        if not values:
            continue
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), PEER_ISA: name}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
        assert done.stdout.strip() == str(values)


def test_torch_that_is_loaded_already_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PEER_ISA, "avx2")
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setitem(sys.modules, "torch", object())
    with pytest.raises(DeviceUnavailableError, match="loaded already"):
        isa.mask()
    monkeypatch.setenv(PEER_ISA, "scalar")
    monkeypatch.setattr(torch_cpu, "is_installed", lambda package: True)
    assert "oneDNN knows sse41" in str(torch_cpu.missing())
