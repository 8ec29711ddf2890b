"""The native clock times users' C functions: its time agrees with that of a loop in C."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from candidate_files import INSTALLED, MANIFEST, SOURCE, native, variants

from tritmark.harness.measure.clocks import clock_for
from tritmark.harness.measure.statistics import median
from tritmark.harness.store import read
from tritmark.harness.verify import verify

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
    pytest.mark.usefixtures("compiled_files"),
]

_LOOP = """
#include <time.h>
typedef void (*function)(const int8_t *, float, float *, int64_t);
int64_t loop(function f, const int8_t *q, float s, float *x, int64_t n, int64_t c)
{
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC_RAW, &a);
    for (int64_t i = 0; i < c; i++) f(q, s, x, n);
    clock_gettime(CLOCK_MONOTONIC_RAW, &b);
    return (b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec - a.tv_nsec;
}
"""


def test_a_candidates_launch_has_the_native_clock(tmp_path: Path) -> None:
    (variant,) = variants(native(tmp_path))
    inputs = {"q": np.ones(8, np.int8), "scale": np.float32(1)}
    launch = variant.bind(inputs, {"x": np.zeros(8, np.float32)}, {"n": 8}, 1)
    assert clock_for(INSTALLED.registry.devices["cpu"], [launch]).name == "native loop"


@pytest.mark.timing
@pytest.mark.parametrize("wanted_ns", [200, 500, 1000])
def test_a_short_function_takes_what_a_loop_in_c_shows(tmp_path: Path, wanted_ns: int) -> None:
    """At most 5 % difference. Samples of 0.2 ms are interleaved. The result is the median of their ratios, then the
    median over nine placements of the arrays, then the best of five sizes (some fill L1 completely)."""
    (variant,) = variants(native(tmp_path))
    (tmp_path / "loop.c").write_text(f"#include <stdint.h>\n{_LOOP}", encoding="utf-8")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", tmp_path / "loop.so", tmp_path / "loop.c"], check=True)
    (tmp_path / "same.c").write_text(SOURCE, encoding="utf-8")
    loop = ctypes.CDLL(str(tmp_path / "loop.so")).loop
    loop.restype = ctypes.c_int64
    (library,) = {each.path for each in variant.code("", frozenset())}
    function = ctypes.CDLL(library).f

    def sizes() -> int:
        n = 256
        while True:
            q, x = np.ones(n, np.int8), np.zeros(n, np.float32)
            arguments = (
                function,
                q.ctypes.data_as(ctypes.c_void_p),
                ctypes.c_float(2),
                x.ctypes.data_as(ctypes.c_void_p),
            )
            if min(loop(*arguments, ctypes.c_int64(n), ctypes.c_int64(500)) for _ in range(5)) >= 500 * wanted_ns:
                return n
            n += n // 4

    calls, rng = 200_000 // wanted_ns, np.random.default_rng(0)

    def ratio(n: int) -> float:
        """With new addresses of the arrays each time: the addresses alone change the time by up to 6 %."""
        q = np.ones(n + 4096, np.int8)[int(rng.integers(4096)) :][:n]
        x = np.zeros(n + 1024, np.float32)[int(rng.integers(1024)) :][:n]
        launch = variant.bind({"q": q, "scale": np.float32(2)}, {"x": x}, {"n": n}, 1)
        clock = clock_for(INSTALLED.registry.devices["cpu"], [launch])
        given = q.ctypes.data_as(ctypes.c_void_p), ctypes.c_float(2), x.ctypes.data_as(ctypes.c_void_p)
        pairs = []
        for _ in range(100):
            ours = clock.sample([launch], 0, calls)
            pairs.append(ours / loop(function, *given, ctypes.c_int64(n), ctypes.c_int64(calls)))
        return median(pairs)

    assert any(
        abs(median([ratio(n) for _ in range(9)]) - 1) < 0.05 for n in (sizes() * part // 8 for part in range(4, 9))
    )


@pytest.mark.nightly
@pytest.mark.timing
def test_threads_that_a_function_keeps_are_beside_those_of_probes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenMP's threads remain for the next call, and so do the threads of the probes, in the same process."""
    manifest = MANIFEST.replace('"n"]', '"n", "threads"]\noptions = ["-fopenmp"]')
    source = SOURCE.replace(
        "int64_t n)\n{", "int64_t n, int threads)\n{\n#pragma omp parallel for num_threads(threads)"
    )
    native(tmp_path, source, manifest)
    monkeypatch.chdir(tmp_path)
    subprocess.run(  # any status: with load on the machine, figures may be doubted
        [sys.executable, "-m", "tritmark", "check", "my.c", "--threads", "2", "--out", "out"],
        check=False,
        capture_output=True,
    )
    (path,) = (tmp_path / "out" / "runs").glob("*.json")
    (run,) = (run for run in read(path).runs if run.performance.hot is not None and "my" in run.kernel)
    assert run.performance.caught_by == (), run.performance.reason
    assert verify(path).passed
