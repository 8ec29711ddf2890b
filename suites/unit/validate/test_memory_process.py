"""The memory dimension in a candidate's own process: honest kernels pass, and only continued growth is a leak.

Dishonest kernels are in suites/exploits.
"""

from __future__ import annotations

import shutil
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tritmark.harness.candidate.opening import open_candidate
from tritmark.harness.providers import load
from tritmark.harness.record import MemoryUse, Status
from tritmark.harness.spec import Variant, Workload
from tritmark.harness.validate import memory
from tritmark.harness.validate.accuracy import judge
from tritmark.harness.validate.cases import Material
from tritmark.harness.validate.memory import STEPS, Search, Searches, confirmed_use, watched
from tritmark.harness.worker import Workers
from tritmark.kernels import PROVIDER
from tritmark.kernels.native.cpu import features

pytestmark = pytest.mark.long

AXES = {"n": 40_000, "block": 256, "E": 3, "M": 4, "N": 192, "K": 256}
SCALE = """
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void scale(const int8_t *q, float scale, float *x, int64_t n, int threads)
{
    %s
    #pragma omp parallel for num_threads(threads)
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)q[i] * scale;
}
"""
SCRATCH = "static char *kept; if (!kept) { kept = malloc(4 << 20); memset(kept, 1, 4 << 20); }"
EACH = (
    "char *taken = malloc(4 << 20); memset(taken, 1, 4 << 20); volatile char seen = taken[n]; (void)seen; free(taken);"
)
MANIFEST = """
op = "i2s_dequantize"
dtype = "float32"
function = "scale"
arguments = ["q", "scale", "x", "n", "threads"]
options = ["-O1", "-fopenmp"]
workspace = "{workspace}"
"""
NATIVE = [variant for variant in PROVIDER.variants if variant.key.device == "cpu" and variant.features <= features()]
LAST = {variant.key: variant for variant in NATIVE}


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(load(()), timeout_s=60.0) as made:
        yield made


def used(workers: Workers, variant: Variant, threads: int) -> MemoryUse:
    op = workers.installed.ops[variant.key.op]
    axes = {name: AXES[name] for name in op.axes}
    inputs = op.encode(op.generate(axes, op.input_families[0], np.random.default_rng(0)), axes, variant.key.format)
    return confirmed_use(lambda again: watched(workers, variant, again), inputs, axes, threads=threads)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("variant", LAST.values(), ids=[variant.id for variant in LAST.values()])
def test_our_kernels_pass(workers: Workers, variant: Variant, threads: int) -> None:
    found = used(workers, variant, threads)
    assert found.status is Status.PASS, found.reason
    assert found.persistent is not None
    assert found.persistent < found.persistent_floor
    assert (found.alarms, found.confirmed) == (0, 0)
    assert found.tests >= 10


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize(
    ("body", "workspace", "said"),
    [("", 0, ""), (SCRATCH, 4 << 20, ""), (EACH, 4 << 20, ""), (SCRATCH, 0, "keeps 4"), (EACH, 0, "takes 4")],
    ids=["plain", "keeps what it declares", "takes what it declares", "keeps", "takes"],
)
def test_a_kernel_with_openmp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, workspace: int, said: str
) -> None:
    monkeypatch.setenv("TRITMARK_CACHE", str(tmp_path))
    file = tmp_path / "scale.c"
    file.write_text(SCALE % body)
    file.with_suffix(".toml").write_text(MANIFEST.format(workspace=workspace))
    candidate = open_candidate(file)
    installed = load((candidate,))
    (variant,) = candidate.variants(installed)
    with Workers(installed, (candidate,), timeout_s=60.0) as workers:
        op, axes = installed.ops[variant.key.op], {"n": AXES["n"]}
        worker = workers.of(variant)
        cases = Material(op, Workload(op=op.name, axes=axes), 0).cases(variant.key)
        for threads in (1, 4):
            judged = judge(
                op, worker.variant, cases, axes, layout="aligned", threads=threads, seed=0, device=worker.device
            )
            assert judged.accuracy.status is Status.PASS, judged.accuracy.reason
            found = used(workers, variant, threads)
            assert found.status is (Status.FAIL if said else Status.PASS), found.reason
            assert said in found.reason
            worker = workers.of(variant)


def searched(grown: Callable[[int], float], name: str = "heap", first: int = 200) -> Searches:
    """Searches of a process that holds `grown(calls)` more bytes after that many calls."""
    made, found = 0, []
    for longer in (1, memory.LONGER, memory.LONGER**2):
        times = [made + longer * first * step // STEPS for step in range(STEPS + 1)]
        made = times[-1]
        values = array("q", [round(grown(each)) for each in times])
        found.append(Search(array("q", [each - times[0] for each in times]), 0.1, {name: values}, None))
        if memory._at_once(found[0], name):
            break
    idle = Search(found[-1].made, 0.1, {name: array("q", [0] * (STEPS + 1))}, None)
    return Searches(tuple(found), idle)


GROWTH: dict[str, tuple[Callable[[int], float], str, bool]] = {
    "48 bytes a call": (lambda calls: 48 * calls, "heap", True),
    "one in ten": (lambda calls: 480 * (calls // 10), "heap", True),
    "a list with an item more each call": (
        lambda calls: 8 * 1.125 ** np.ceil(np.log(calls + 1) / np.log(1.125)),
        "heap",
        True,
    ),
    "a page a call": (lambda calls: 4096 * calls, "resident", True),
    "tables": (lambda calls: 64 * calls, "kernel", True),
    "descriptors": (lambda calls: calls, "descriptors", True),
    "descriptors up to a limit": (lambda calls: min(calls, 150), "descriptors", True),
    "of the device": (lambda calls: 256 * calls, "device", True),
    "bookkeeping that fills up": (lambda calls: 48 * min(calls, 600), "heap", False),
    "free lists": (lambda calls: 40 * calls**0.5, "heap", False),
    "breath": (lambda calls: 500 * np.sin(calls / 7), "heap", False),
    "once": (lambda calls: 3 << 20 if calls > 7 else 0, "resident", False),
    "a descriptor": (lambda calls: int(calls > 3), "descriptors", False),
}


@pytest.mark.parametrize("growth", GROWTH)
def test_only_what_goes_on_is_a_leak(growth: str) -> None:
    grown, name, leaks = GROWTH[growth]
    assert bool(memory._leaks(searched(grown, name), "a call", "calls")) is leaks


def test_only_what_a_fresh_process_shows_too_is_held_against_a_kernel(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = [
        {"peak": "takes too much", "leak of calls": "leaks 9 bytes"},
        {"peak": "takes too much", "kept": "keeps it"},
    ]
    seen = iter(said)
    monkeypatch.setattr(memory, "faults", lambda observed: next(seen))
    found = used(workers, NATIVE[0], 1)
    assert found.status is Status.FAIL
    assert (found.reason, found.caught_by) == ("takes too much", ("workspace",))
    assert (found.alarms, found.confirmed) == (2, 1)
    seen = iter([{"leak of calls": "leaks 9 bytes"}, {}])
    found = used(workers, NATIVE[0], 1)
    assert found.status is Status.PASS
    assert (found.reason, found.alarms, found.confirmed) == ("", 1, 0)
