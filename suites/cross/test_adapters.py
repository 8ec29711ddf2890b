"""Libraries built by the user, with adapters: the test library has bitnet.cpp's function, correct and with its
overflow."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Never

import numpy as np
import pytest
from made_up_records import record_of
from typer.testing import CliRunner

from tritmark.harness.candidate.adapted import AdaptedLibrary
from tritmark.harness.cli import app, execute
from tritmark.harness.errors import DeviceUnavailableError, UsageError
from tritmark.harness.judge.judges import Limits, Task, judged
from tritmark.harness.judge.judging import Judgement, ListedWorkload
from tritmark.harness.judge.request import Request
from tritmark.harness.league import turns
from tritmark.harness.providers import Candidate, Installed, load
from tritmark.harness.record import Record, Status
from tritmark.harness.spec import Tier, Variant, Workload
from tritmark.harness.validate.accuracy import Judged
from tritmark.harness.validate.drawn import Draw
from tritmark.kernels import OPS
from tritmark.kernels.peers import adapters, libggml, libik

OP = next(op for op in OPS if op.name == "ternary_matmul")

SOURCE = """
#include <stddef.h>
#include <stdint.h>

/* Blocks of 128 columns in 32 bytes: column 32 j + i is in byte i, from bit 6 - 2 j on. */
void ggml_vec_dot_i2_i8_s(
    int n, float *s, size_t bs, const void *vx, size_t bx, const void *vy, size_t by, int nrc)
{
    const uint8_t *x = vx;
    const int8_t *y = vy;
    int32_t sum = 0;
    for (int b = 0; b < n / 128; b++)
        for (int j = 0; j < 4; j++)
            for (int i = 0; i < 32; i++)
                sum = (SUM)(sum + (x[32 * b + i] >> (6 - 2 * j) & 3) * y[128 * b + 32 * j + i]);
    *s = (float)sum;
}
"""


SEVERAL = """
int calls;

/* A row of weights times `nrc` of activations, as builds of bitnet.cpp have it. */
void _Z24ggml_vec_dot_i2_i8_s_Nx1iPfmPKvmS1_mi(
    int n, float *s, size_t bs, const void *vx, size_t bx, const void *vy, size_t by, int nrc)
{
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    for (int r = 0; r < nrc; r++)
        ggml_vec_dot_i2_i8_s(n, s + r * bs, bs, vx, bx, (const int8_t *)vy + r * by, by, 1);
}
"""


def built(folder: Path, kind: str, source: str = SOURCE) -> Path:
    """Sums are kept in that C type."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: neither gcc nor cc is on PATH")
    path = folder / f"lib{kind}.so"
    code = folder / f"{kind}.c"
    code.write_text(source)
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", f"-DSUM={kind}", str(code), "-o", str(path)], check=True)
    return path


def accuracy(variant: Variant, library: AdaptedLibrary, on: Workload | None) -> Status:
    installed = load((library,))
    what = (
        Draw(variant.key, 6, (), 1, 2) if on is None else ListedWorkload(variant.key, on, 1, 2, frozenset({"accuracy"}))
    )
    ((_, _, found),) = judged(installed, [Task((variant.id,), what)], Limits((library,), True, 60.0, 1 << 30))
    assert isinstance(found, Judged | Judgement)
    return found.accuracy.status


LONG = Workload(op=OP.name, axes={"M": 1, "N": 32, "K": 4096}, family="constant")


def test_a_right_library_passes(tmp_path: Path) -> None:
    library = AdaptedLibrary("bitnet.cpp", str(built(tmp_path, "int32_t")))
    found = library.variants(load())
    assert {(each.key.format, each.name, each.tier) for each in found} == {
        ("tile64", "bitnet.cpp:i2_s", Tier.PEER),
        ("i2_s_x86", "bitnet.cpp:i2_s", Tier.PEER),
    }
    for variant in found:
        assert accuracy(variant, library, LONG) is Status.PASS
        assert accuracy(variant, library, None) is not Status.FAIL


@pytest.mark.parametrize(("M", "calls"), [(15, 0), (16, 1), (37, 2)])
def test_what_takes_several_rows_is_called_where_there_are_as_many(tmp_path: Path, M: int, calls: int) -> None:
    library = AdaptedLibrary("bitnet.cpp", str(built(tmp_path, "int32_t", SOURCE + SEVERAL)))
    axes = {"M": M, "N": 50, "K": 256}
    inputs = OP.generate(axes, "uniform", np.random.default_rng(4))
    for variant in library.variants(load()):
        out = np.full((M, 50), np.nan, np.float32)
        variant.load()
        launch = variant.bind(OP.encode(inputs, axes, variant.key.format), {"out": out}, axes, 2)
        counted = ctypes.c_int.in_dll(ctypes.CDLL(library.path), "calls")
        counted.value = 0
        launch.run()
        assert counted.value == 50 * calls
        assert variant.error_bound is not None
        off = np.abs(out - OP.reference(inputs, axes, variant.key)["out"])
        assert (off <= np.broadcast_to(variant.error_bound(inputs, axes)["out"], off.shape)).all()


def test_the_league_judges_it_and_takes_it_by_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Judged on every workload, and known in the processes that interleave kernels."""
    library = AdaptedLibrary("bitnet.cpp", str(built(tmp_path, "int32_t")))
    asked: list[Request] = []

    def executed(installed: Installed, request: Request, *_: object) -> Record:
        asked.append(request)
        return record_of([])

    def workers(installed: Installed, candidates: tuple[Candidate, ...]) -> Never:
        assert {each.id for each in library.variants(load())} <= {each.id for each in installed.registry.variants}
        assert candidates == (library,)
        raise DeviceUnavailableError("enough", next_step="none")

    monkeypatch.setattr(execute, "executed", executed)
    monkeypatch.setattr(turns, "Workers", workers)
    command = ["league", "--device", "cpu", "--peer", f"bitnet.cpp={library.path}", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, command)
    assert str(done.exception).startswith("enough"), done.output
    (request,) = asked
    assert request.candidates == (library,)
    assert request.peers == {each.id for each in library.variants(load())}


def test_sums_that_overflow_int16_fail(tmp_path: Path) -> None:
    library = AdaptedLibrary("bitnet.cpp", str(built(tmp_path, "int16_t")))
    for variant in library.variants(load()):
        assert accuracy(variant, library, LONG) is Status.FAIL
        assert load((library,)).registry.select_best(variant.key, LONG.axes).name != variant.name


def test_a_function_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = built(tmp_path, "int", "int ggml_vec_dot_i2_i8(void) { return 0; }")
    with pytest.raises(UsageError, match=r"has no function ggml_vec_dot_i2_i8_s, which the adapter bitnet.cpp calls"):
        AdaptedLibrary("bitnet.cpp", str(path)).variants(load())
    for name in adapters.NAMES:
        with pytest.raises(UsageError, match="has no function"):
            adapters.variants(name, str(path))


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "lib.so"
    text.write_text("no library")
    with pytest.raises(UsageError, match="not an ELF file"):
        adapters.variants("bitnet.cpp", str(text))
    with pytest.raises(UsageError, match="No such file"):
        adapters.variants("bitnet.cpp", str(tmp_path / "none.so"))
    with pytest.raises(UsageError, match=r"unknown adapter 'bitnet'.*bitnet\.cpp"):
        adapters.variants("bitnet", str(text))
    for wrong in ("bitnet.cpp", "=lib.so", "bitnet.cpp="):
        with pytest.raises(UsageError, match="NAME=PATH"):
            AdaptedLibrary.named(wrong)


def test_a_library_that_lacks_what_it_needs_is_told_when_it_is_loaded(tmp_path: Path) -> None:
    source = "void elsewhere(void); void ggml_vec_dot_i2_i8_s(void) { elsewhere(); }"
    path = built(tmp_path, "void", source)
    linked = tmp_path / "libother.so"
    (tmp_path / "other.c").write_text("void elsewhere(void) {}")
    subprocess.run(["gcc", "-shared", "-fPIC", str(tmp_path / "other.c"), "-o", str(linked)], check=True)
    subprocess.run(["gcc", "-shared", "-fPIC", str(tmp_path / "void.c"), str(linked), "-o", str(path)], check=True)
    linked.unlink()
    (variant, *_) = adapters.variants("bitnet.cpp", str(path))
    with pytest.raises(DeviceUnavailableError, match=r"libother\.so"):
        variant.load()


@pytest.mark.parametrize("name", ["ggml", "ik_llama"])
def test_libraries_of_wheels_are_taken_as_built_ones(name: str) -> None:
    found = libggml.find() if name == "ggml" else libik.find()
    if isinstance(found, str):
        pytest.skip(found)
    path = found.paths[1] if isinstance(found, libggml.Found) else found.library
    if isinstance(found, libik.Wheel):
        ctypes.CDLL(str(found.openmp), mode=ctypes.RTLD_GLOBAL)  # the wheel has its own copy
    library = AdaptedLibrary(name, str(path))
    workload = Workload(op=OP.name, axes={"M": 3, "N": 64, "K": 768}, family="uniform")
    for variant in library.variants(load()):
        out = np.zeros((3, 64), np.float32)
        inputs = OP.generate(workload.axes, "uniform", np.random.default_rng(2))
        variant.load()
        variant.bind(OP.encode(inputs, workload.axes, variant.key.format), {"out": out}, workload.axes, 2).run()
        assert variant.error_bound is not None
        off = np.abs(out - OP.reference(inputs, workload.axes, variant.key)["out"])
        assert (off <= np.broadcast_to(variant.error_bound(inputs, workload.axes)["out"], off.shape)).all(), (
            variant.name
        )
