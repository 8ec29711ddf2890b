"""The compile step: the choice of the compiler, the key of its cache, and faults."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tritmark.harness.errors import BadEnvironmentError, CompileError, DeviceUnavailableError, UsageError
from tritmark.kernels.cuda.driver import compile as compiler
from tritmark.kernels.cuda.kernel import Kernel

FAKE = """#!{python}
import json, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
if "--version" in sys.argv:
    print(open(os.path.join(here, "version")).read())
elif "--list-gpu-arch" in sys.argv:
    print("compute_90\\ncompute_75\\ncompute_100")
else:
    source = open(sys.argv[-1]).read()
    flags, prepended = (os.environ.get(f"NVCC_{{each}}_FLAGS") for each in ("APPEND", "PREPEND"))
    call = dict(arguments=sys.argv[1:], flags=flags, prepended=prepended, files=sorted(os.listdir(".")))
    with open(os.path.join(here, "calls"), "a") as calls:
        calls.write(json.dumps(call) + "\\n")
    time.sleep(0.05)
    if "broken" in source:
        print("kernel.cu(3): error: identifier is undefined", file=sys.stderr)
        sys.exit(2)
    with open(sys.argv[sys.argv.index("-o") + 1], "wb") as out:
        out.write(b"\\x7fELF" + source.encode())
    print("ptxas info    : Used 7 registers", file=sys.stderr)
"""
"""Behaves like nvcc where compile.py uses it, and logs its calls."""


class Nvcc:
    """A compiler that compiles nothing."""

    def __init__(self, folder: Path, version: str = "Cuda compilation tools, release 13.0, V13.0.88") -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.path = folder / "nvcc"
        self.path.write_text(FAKE.format(python=sys.executable))
        self.path.chmod(0o755)
        (folder / "version").write_text(version)

    @property
    def calls(self) -> list[dict[str, object]]:
        log = self.folder / "calls"
        return [json.loads(row) for row in log.read_text().splitlines()] if log.exists() else []


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No compiler is known, and the cache is empty."""

    def forget() -> None:
        for known in (compiler.find_nvcc, compiler._version_text, compiler.architectures):
            known.cache_clear()

    for name in ("CUDA_HOME", "CUDA_PATH", compiler.NVCC):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(compiler.CACHE, str(tmp_path / "cache"))
    forget()
    yield
    forget()


@pytest.fixture
def nvcc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Nvcc:
    made = Nvcc(tmp_path / "toolkit")
    monkeypatch.setenv(compiler.NVCC, str(made.path))
    return made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "kernels" / "op").mkdir(parents=True)
    (tmp_path / "kernels" / "common.cuh").write_text("#define SHARED 1\n")
    path = tmp_path / "kernels" / "op" / "plain.cu"
    path.write_text('#include "../common.cuh"\n#include <cuda_fp16.h>\nextern "C" __global__ void gemm_nothing() {}\n')
    return path


def kernel(path: Path, **more: Any) -> Kernel:
    fields: dict[str, Any] = {"file": str(path), "name": "gemm_nothing", "threads": 32, "registers": 32}
    return Kernel(**fields | more)


# Which compiler


def test_order_of_the_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told, home, old, path, package = (
        Nvcc(tmp_path / name / "bin") for name in ("told", "home", "old", "path", "site/nvidia/cu13")
    )
    monkeypatch.setenv(compiler.NVCC, str(told.path))
    monkeypatch.setenv("CUDA_HOME", str(home.folder.parent))
    monkeypatch.setenv("CUDA_PATH", str(old.folder.parent))
    monkeypatch.setenv("PATH", str(path.folder))
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: SimpleNamespace(submodule_search_locations=[str(tmp_path / "site" / "nvidia")]),
    )
    is_file = Path.is_file
    monkeypatch.setattr(Path, "is_file", lambda self: not str(self).startswith("/usr/local/cuda") and is_file(self))
    for expected, gone in (
        (told, compiler.NVCC),
        (home, "CUDA_HOME"),
        (old, "CUDA_PATH"),
        (path, "PATH"),
        (package, None),
    ):
        compiler.find_nvcc.cache_clear()
        assert compiler.find_nvcc() == expected.path
        if gone == "PATH":
            monkeypatch.setenv("PATH", "")
        elif gone:
            monkeypatch.delenv(gone)
    package.path.unlink()
    compiler.find_nvcc.cache_clear()
    with pytest.raises(
        DeviceUnavailableError, match=r"no CUDA compiler.*pip install 'nvidia-cuda-nvcc>=13' 'nvidia-cuda-cccl>=13'"
    ):
        compiler.find_nvcc()


def test_told_compiler_must_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for wrong in (tmp_path / "absent", tmp_path):
        monkeypatch.setenv(compiler.NVCC, str(wrong))
        with pytest.raises(UsageError, match="legal: the path of an executable nvcc"):
            compiler.find_nvcc()


def test_compiler_and_architectures(nvcc: Nvcc) -> None:
    assert compiler.compiler() == "nvcc 13.0.88"
    assert compiler.architectures() == ("sm_75", "sm_90", "sm_100")


# The cache


def test_compiled_once(nvcc: Nvcc, source: Path) -> None:
    first, second = (compiler.compile_kernel(kernel(source), "sm_90") for _ in range(2))
    assert (first.cached, second.cached) == (False, True)
    assert first.code == second.code == b"\x7fELF" + source.read_bytes()
    assert first.hash == second.hash
    assert second.report == first.report
    assert "Used 7 registers" in first.report
    (call,) = nvcc.calls
    assert call["arguments"] == [
        "-cubin",
        "-Xptxas",
        "-v",
        *compiler.OPTIONS,
        "-arch=sm_90",
        "-o",
        "out.cubin",
        "op/plain.cu",
    ]
    assert call["files"] == ["common.cuh", "op"]
    assert stat.S_IMODE(compiler.cache_folder().stat().st_mode) == 0o700
    assert sorted(path.suffix for path in compiler.cache_folder().iterdir()) == [".cubin", ".lock"]


def test_what_the_cache_is_keyed_by(nvcc: Nvcc, source: Path) -> None:
    def compiled(arch: str = "sm_90", **more: object) -> bool:
        return not compiler.compile_kernel(kernel(source, **more), arch).cached

    assert compiled()
    assert not compiled()
    assert not compiled(name="gemm_other", registers=8), "the whole source is compiled, whichever kernel of it is meant"
    assert compiled("sm_80")
    assert compiled(defines=(("BLOCK", "64"),))
    assert compiled(defines=(("BLOCK", "128"),))
    assert compiled(options=("-maxrregcount=32",))
    common = source.parent.parent / "common.cuh"
    common.write_text("#define SHARED 2\n")
    assert compiled(), "a header changed"
    source.write_text(source.read_text() + "// more\n")
    assert compiled()
    (nvcc.folder / "version").write_text("Cuda compilation tools, release 13.1, V13.1.5")
    compiler._version_text.cache_clear()
    assert compiled(), "another compiler"
    assert not compiled()


def test_own_architecture_goes_alone(nvcc: Nvcc, source: Path) -> None:
    compiler.compile_kernel(
        kernel(source, options=("-gencode=arch=compute_90a,code=sm_90a",), defines=(("N", "3"),)), "sm_90"
    )
    (call,) = nvcc.calls
    arguments = call["arguments"]
    assert isinstance(arguments, list)
    assert "-gencode=arch=compute_90a,code=sm_90a" in arguments
    assert "-arch=sm_90" not in arguments
    assert "-DN=3" in arguments


@pytest.mark.parametrize("damage", [b"", b"no digest", None], ids=["empty", "text", "one bit"])
def test_damaged_file_is_compiled_anew(nvcc: Nvcc, source: Path, damage: bytes | None) -> None:
    good = compiler.compile_kernel(kernel(source), "sm_90")
    (stored,) = compiler.cache_folder().glob("*.cubin")
    content = bytearray(stored.read_bytes())
    content[-1] ^= 1
    stored.write_bytes(bytes(content) if damage is None else damage)
    again = compiler.compile_kernel(kernel(source), "sm_90")
    assert (again.code, again.cached) == (good.code, False)
    assert compiler.compile_kernel(kernel(source), "sm_90").cached


def test_many_at_once_compile_once(nvcc: Nvcc, source: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: compiler.compile_kernel(kernel(source), "sm_90"), range(8)))
    assert len({cubin.hash for cubin in made}) == 1
    assert len(nvcc.calls) == 1


def test_folder_of_others_is_refused(nvcc: Nvcc, source: Path) -> None:
    compiler.compile_kernel(kernel(source), "sm_90")
    compiler.cache_folder().chmod(0o777)
    with pytest.raises(UsageError, match=f"can be written by, others.*{compiler.CACHE}"):
        compiler.compile_kernel(kernel(source), "sm_90")


def test_unusable_cache_is_said_and_done_without(
    nvcc: Nvcc, source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(compiler.CACHE, str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING):
        assert not compiler.compile_kernel(kernel(source), "sm_90").cached
    assert "nothing can be kept in" in caplog.text
    assert compiler.CACHE in caplog.text


def test_full_disk_is_said_and_leaves_nothing_behind(
    nvcc: Nvcc, source: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with caplog.at_level(logging.WARNING):
        assert compiler.compile_kernel(kernel(source), "sm_90").code.startswith(b"\x7fELF")
    assert "No space left on device" in caplog.text
    assert [path.suffix for path in compiler.cache_folder().iterdir()] == [".lock"]


def test_users_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(compiler.CACHE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compiler.cache_folder() == tmp_path / "tritmark" / "cubin"


# Sources and errors


def test_local_sources(tmp_path: Path) -> None:
    for name, text in {
        "a/b/top.cu": (
            '#include "near.cuh"\n  #  include "../far.cuh"\n#include "absent.h"\n#include <cuda.h>\n// #include '
            '"not.cuh"\n'
        ),
        "a/b/near.cuh": '#include "near.cuh"\n#include "deep/one.cuh"\n',
        "a/b/deep/one.cuh": '#include "../../far.cuh"\n',
        "a/far.cuh": "",
        "a/b/not.cuh": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [str(name) for name in compiler.local_sources(tmp_path / "a/b/top.cu")] == [
        "b/top.cu",
        "b/near.cuh",
        "far.cuh",
        "b/deep/one.cuh",
    ]
    with pytest.raises(CompileError, match="cannot be read"):
        compiler.local_sources(tmp_path / "absent.cu")


@pytest.mark.parametrize("name", ["NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS"])
def test_options_of_the_installation_reach_nvcc_and_the_key(
    nvcc: Nvcc, source: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    compiler.compile_kernel(kernel(source), "sm_90")
    for flags in ("-ccbin=g++-13", "-ccbin=g++-12"):
        monkeypatch.setenv(name, flags)
        assert not compiler.compile_kernel(kernel(source), "sm_90").cached
        assert compiler.compile_kernel(kernel(source), "sm_90").cached
        assert nvcc.calls[-1]["flags" if "APPEND" in name else "prepended"] == flags
    monkeypatch.delenv(name)
    assert compiler.compile_kernel(kernel(source), "sm_90").cached
    assert len(nvcc.calls) == 3


def test_compile_error_has_the_compilers_words(nvcc: Nvcc, source: Path) -> None:
    source.write_text("broken\n")
    with pytest.raises(CompileError) as caught:
        compiler.compile_kernel(kernel(source), "sm_90")
    assert "plain.cu does not compile" in caught.value.found
    assert "identifier is undefined" in caught.value.found
    assert caught.value.next_step
    assert not list(compiler.cache_folder().glob("*.cubin"))


def test_compiler_that_does_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: Path) -> None:
    path = tmp_path / "nvcc"
    path.write_text("not a program\n")
    path.chmod(0o755)
    monkeypatch.setenv(compiler.NVCC, str(path))
    with pytest.raises(BadEnvironmentError, match=compiler.NVCC):
        compiler.compile_kernel(kernel(source), "sm_90")


# The real compiler


@pytest.fixture
def real() -> None:
    try:
        compiler.compiler()
    except DeviceUnavailableError as why:
        if os.environ.get("TRITMARK_REQUIRE_NVCC"):
            raise
        pytest.skip(str(why))


@pytest.mark.usefixtures("real")
def test_code_does_not_depend_on_the_place(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "quite" / "another" / "place"
    shutil.copytree(source.parent.parent, elsewhere)
    here = compiler.compile_kernel(kernel(source), compiler.architectures()[-1])
    monkeypatch.setenv(compiler.CACHE, str(tmp_path / "other"))
    there = compiler.compile_kernel(kernel(elsewhere / "op" / "plain.cu"), compiler.architectures()[-1])
    assert not there.cached
    assert here.hash == there.hash


@pytest.mark.usefixtures("real")
def test_unknown_architecture_names_the_known(source: Path) -> None:
    with pytest.raises(BadEnvironmentError, match=r"(?s)sm_10'.*supports sm_") as caught:
        compiler.compile_kernel(kernel(source), "sm_10")
    assert "sm_80" in caught.value.next_step


@pytest.mark.usefixtures("real")
def test_multiply_and_add_are_not_fused(source: Path) -> None:
    """The options of every kernel keep the rounding of products: the PTX has a mul and an add, and no fma."""
    import subprocess

    source.write_text('extern "C" __global__ void gemm_nothing(float *y, float a, float b) { *y = a * b + *y; }\n')
    for options, fused in ((compiler.OPTIONS, False), ((), True)):
        ptx = source.with_suffix(".ptx")
        subprocess.run([compiler.find_nvcc(), "-ptx", *options, "-o", ptx, source], check=True)
        assert ("fma.rn" in ptx.read_text()) == fused
