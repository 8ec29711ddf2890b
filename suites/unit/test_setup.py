"""What setup.py compiles, and with which flags: nothing of it decides what a kernel computes, and much how long an
installation takes."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tritmark.harness.gate.build import _COMPILERS, _folder
from tritmark.harness.gate.compilers import cached_compilers

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "cython_ext" / "src"
TABLES = runpy.run_path(str(SOURCES / "tables.py"))
SETS = {name for of_architecture in TABLES["sets"]() for name in of_architecture} - {"scalar"}
INTRINSICS = {"immintrin.h", "arm_neon.h"}
INTRINSIC = re.compile(r"\b(_mm\w*_\w+|__m(128|256|512)\w*|v[a-z0-9]+q_[a-z0-9]+)\b")


class Compiler:
    """One of distutils' that keeps what it is called with, in order: sources, and the flags behind an object's name."""

    def __init__(self, *command: str) -> None:
        self.compiler_so = list(command)
        self.calls: list[tuple[str, list[str]]] = []

    def _setup_compile(self, *given: Any) -> tuple[Any, ...]:
        objects = {f"{each}.o": (each, Path(each).suffix) for each in given[3]}
        return None, list(objects), list(given[5]), [], objects

    def _get_cc_args(self, *given: Any) -> list[str]:
        return ["-c"]

    def _compile(self, obj: str, source: str, suffix: str, first: Any, flags: list[str], pp: Any) -> None:
        self.calls.append((source, flags))


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Those of setup.py."""
    setuptools = pytest.importorskip("setuptools", reason="setuptools is not installed")
    pytest.importorskip("Cython", reason="Cython is not installed")
    monkeypatch.chdir(ROOT)
    return {"Distribution": setuptools.Distribution, **runpy.run_path("setup.py")}


def built(
    names: dict[str, Any], monkeypatch: pytest.MonkeyPatch, folder: Path, compiler: Compiler, sources: list[str]
) -> list[tuple[str, list[str]]]:
    build = names["BuildInOnePool"](names["Distribution"]())
    build.compiler, build.build_temp, build.extensions = compiler, str(folder), []
    monkeypatch.setattr(
        names["build_ext"],
        "build_extensions",
        lambda each: each.compiler.compile(sources, extra_postargs=names["FLAGS"]),
    )
    build.build_extensions()
    return compiler.calls


@pytest.fixture(autouse=True)
def ccache_enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CCACHE_DISABLE", raising=False)


def of_sets() -> list[Path]:
    return sorted(path for path in SOURCES.rglob("*.c") if path.stem in SETS)


def test_the_intrinsics_are_compiled_once_and_go_before_vector_code_alone(
    names: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plain, avx2 = (f"cython_ext/src/{name}.c" for name in ("peers/peers", "ceilings/avx2"))
    boundary = str(names["GENERATED"] / "cython_ext" / "clock.c")
    calls = built(names, monkeypatch, tmp_path, Compiler("plain-cc"), [plain, avx2, boundary])
    header, flags = str(tmp_path / "intrinsics.h"), names["FLAGS"]
    assert len(calls) == 4
    assert dict(calls) == {
        header: flags,
        plain: flags,
        avx2: ["-include", header, *flags],
        boundary: [*flags, "-O1"],
    }
    order = [source for source, _ in calls]
    assert order.index(header) < order.index(avx2), "before what waits for it; others may be earlier"


@pytest.mark.parametrize("command", [("ccache", "gcc"), ("/usr/lib/ccache/gcc",)], ids=["before", "in place"])
def test_ccache_gets_files_that_it_can_keep(
    command: tuple[str, ...], names: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = "cython_ext/src/ceilings/avx2.c"
    assert built(names, monkeypatch, tmp_path, Compiler(*command), [source]) == [(source, names["FLAGS"])]


def test_the_compilers_of_a_gate_are_taken_for_ccache(
    names: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else it would keep none of the objects that both builds have in common."""
    for name in ("ccache", "flock", "mycc"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "mycc")
    monkeypatch.setenv("TRITMARK_CACHE", str(tmp_path / "cache"))
    assert not names["caches"](["mycc"])
    for name, value in cached_compilers(_folder() / _COMPILERS, os.environ).items():
        monkeypatch.setenv(name, value)
    assert names["caches"](["mycc"])


def test_each_boundary_is_a_module_with_the_c_files_of_its_folder(names: dict[str, Any]) -> None:
    boundaries = sorted(names["ROOM"].rglob("*.pyx"))
    assert [each.name for each in map(names["extension"], boundaries)] == [
        f"tritmark.cython_ext.{path.stem}" for path in boundaries
    ]
    folder = names["SOURCES"] / "i2s_dequantize"
    boundary, *sources = names["extension"](folder / "i2s_dequantize.pyx").sources
    assert Path(boundary).suffix == ".pyx"
    assert {Path(source).name for source in sources} == {path.name for path in folder.glob("*.c")} - {"fuzz.c"}


def test_ccache_is_found_behind_a_link(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (ccache := tmp_path / "ccache").write_text("")
    ccache.chmod(0o755)
    (tmp_path / "gcc").symlink_to(ccache)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert names["caches"](["gcc"])
    assert not names["caches"](["other"])
    monkeypatch.setenv("CCACHE_DISABLE", "1")
    assert not names["caches"](["gcc"])


@pytest.mark.nightly
def test_gcc_takes_the_compiled_header(names: dict[str, Any], tmp_path: Path) -> None:
    if not (compiler := shutil.which("gcc")):
        pytest.skip("no GCC: gcc")
    header = shutil.copy(SOURCES / "intrinsics.h", tmp_path)
    subprocess.run([compiler, *names["FLAGS"], "-c", header, "-o", f"{header}.gch"], check=True)
    source = str(SOURCES / "ceilings" / "avx2.c")
    command = [compiler, "-c", source, "-o", str(tmp_path / "x.o"), "-include", header, "-H", *names["FLAGS"]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"! {header}.gch" in done.stderr.splitlines()
    assert "immintrin.h" not in done.stderr


def test_files_of_instruction_sets_say_that_they_use_intrinsics() -> None:
    """setup.py goes by it."""
    using = [path for path in of_sets() if INTRINSIC.search(path.read_text(encoding="utf-8"))]
    assert {path.stem for path in using} >= {"sse41", "avx2", "avx512"}
    assert [path for path in using if "/intrinsics.h" not in path.read_text(encoding="utf-8")] == []


def test_plain_c_reads_no_intrinsics() -> None:
    """They take GCC 0.4 s, which is more than the rest of most such files."""
    if not (compiler := shutil.which(os.environ.get("CC", "cc"))):
        pytest.skip("no C compiler: cc")
    plain = sorted(path for path in {*SOURCES.rglob("*.c")} - set(of_sets()) if not path.stem.startswith("fuzz"))
    headers = [SOURCES / name / f"{name}.h" for name in ("activation_quantize", "ternary_quantize", "ternary_matmul")]
    read = {path: with_includes(compiler, path) for path in [*plain, *headers]}
    assert len(read) > 20
    assert [path for path, names in read.items() if names & INTRINSICS] == []
    assert any(with_includes(compiler, SOURCES / "ceilings" / f"{name}.c") & INTRINSICS for name in ("avx2", "neon"))


def with_includes(compiler: str, path: Path) -> set[str]:
    done = subprocess.run([compiler, "-std=gnu11", "-M", str(path)], capture_output=True, text=True, check=True)
    return {Path(name).name for name in done.stdout.split()}
