"""Changes that honest kernels leave in their process at the first use of OpenMP, Python and NumPy are no fault.

Dishonest kernels are in suites/exploits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worker_tasks import busy_thread, leave, one_thread_more, pools, scipys_own, two_threads

from tritmark.harness.candidate import PythonFile
from tritmark.harness.machine.cpu import BINDING
from tritmark.harness.providers import load
from tritmark.harness.record import Status
from tritmark.harness.spec import Variant, Workload
from tritmark.harness.validate.accuracy import judge
from tritmark.harness.validate.cases import Material
from tritmark.harness.validate.state import StateWatch, others_start_threads
from tritmark.harness.worker import Worker, Workers
from tritmark.harness.worker.floating import changed
from tritmark.kernels.native.cpu import features

HELPERS = Path(__file__).parents[1] / "helpers"
FILE = PythonFile(str(HELPERS / "faulty_candidates.py"))
INSTALLED = load((FILE,))
NATIVE = [
    v
    for v in INSTALLED.registry.variants
    if v.key.device == "cpu" and v.features <= features() and v.name not in {"honest"}
]
OWN = [v for v in NATIVE if v.id not in INSTALLED.added]
AXES = {"n": 4096, "block": 256, "E": 3, "M": 3, "N": 160, "K": 256, "rows": 5, "columns": 300}


@pytest.fixture(scope="module", params=["bound", "free"])
def workers(request: pytest.FixtureRequest) -> Iterator[Workers]:
    """With OpenMP's threads bound to their cores, as on the command line, and unbound."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "bound":
            patch.setenv(*BINDING)
        with Workers(INSTALLED, (FILE,), timeout_s=30.0) as made:
            yield made


BEST = list({variant.key: variant for variant in OWN}.values())
"""The last variant of each key, with the best instruction set here."""
PLACED = [("free", variant) for variant in OWN] + [("bound", variant) for variant in BEST]


# None of them uses OpenMP, so one of each key shows whether binding makes a difference.
@pytest.mark.long
@pytest.mark.parametrize(
    ("workers", "variant"), PLACED, indirect=["workers"], ids=[f"{how}-{variant.id}" for how, variant in PLACED]
)
def test_our_kernels_leave_nothing_with_any_number_of_threads(workers: Workers, variant: Variant) -> None:
    op = INSTALLED.ops[variant.key.op]
    axes = {name: AXES[name] for name in op.axes}
    assert [limit.refusal(axes) for limit in variant.constraints if limit.refusal(axes)] == []
    cases = Material(op, Workload(op=op.name, axes=axes, family=op.input_families[0]), 0).cases(variant.key)
    worker = workers.of(variant)
    for threads in (1, 3, 2, 7):
        found = judge(
            op, worker.variant, cases, axes, layout="aligned", threads=threads, seed=threads, device=worker.device
        )
        assert found.accuracy.status is Status.PASS, found.accuracy.reason


def of(workers: Workers) -> Worker:
    (variant,) = (each for each in INSTALLED.registry.variants if each.name == "honest" and each.id in INSTALLED.added)
    workers.renew(variant)
    return workers.of(variant)


LEFT = {
    "thread": r"it left 2 threads \(before: 1\); a pool may have at most 0 beside",
    "timer": r"it changed ITIMER_REAL from off to running every 100 s",
    "handler": r"it changed the handler of SIGUSR2 from the default to 0x\w+",
    "environment": r"it changed TRITMARK_LEFT in the environment from None to 'yes'",
    "folder": r"it changed the working directory from /\w+.* to /;",
    "file": r"it left 1 descriptors open \(before: \d+\): /dev/null",
    "closed": r"it closed 1 descriptors that were open before: ",
    "mapping": r"it left 1 shared mappings: /memfd:mine",
    "executable": r"it left 1 writable executable mappings: anonymous memory at",
    "locale": r"it changed the locale from ",
    "huge pages": r"it changed transparent huge pages from 1 to 0",
    "slack": r"it changed the timer slack from \d+ to 12345",
    "collector": r"it changed the garbage collector from on .* to off ",
    "errors": r"it changed what NumPy does at floating-point errors from .*'over': 'warn'.* to .*'over': 'raise'",
    "random": r"it changed the state of Python's random numbers from [0-9a-f]{8} to [0-9a-f]{8}",
    "numpy random": r"it changed the state of NumPy's random numbers from [0-9a-f]{8} to [0-9a-f]{8}",
    "switch": r"it changed the switch interval from 0.005 s to 0.5 s",
    "recursion": r"it changed the recursion limit from \d+ to 12345",
    "trace": r"it changed the profile function from none to one of worker_tasks",
    "path": r"it changed the path of modules from ",
    "locked": r"it changed the locked memory from 0 kB to 4 kB",
    "name": r"it changed the name of the process from .* to left",
    "orphans": r"it changed whether it takes in orphans from 1 to 0",
    "io": r"it changed the I/O priority class from .* to .*3 .*",
    "streams": r"it changed the standard streams from [0-9a-f]{8} to [0-9a-f]{8}",
    "signal stack": r"it changed the stack for signals from .* to 65536 bytes at 0x\w+, 0",
    "finders": r"it changed what finds modules from [0-9a-f]{8} to [0-9a-f]{8}",
    "exceptions": r"it changed the hooks of exceptions from one of .* to one of builtins, one of sys",
    "digits": r"it changed the digits of an integer from 4300 to 5000",
    "built-in": r"it changed the built-in functions from [0-9a-f]{8} to [0-9a-f]{8}",
    "frozen": r"it changed the objects that the garbage collector passes over from \d+ to \d+",
    "heard": r"it changed what hears of the garbage collector from 0 to 1",
    "filters": r"it changed the filters of warnings from [0-9a-f]{8} to [0-9a-f]{8}",
    "buffer": r"it changed NumPy's buffer from 8192 elements to 16384 elements",
    "printing": r"it changed how NumPy prints from [0-9a-f]{8} to [0-9a-f]{8}",
    "stack": r"it changed the stack of threads from 0 bytes to 1048576 bytes",
    "decimal": r"it changed the context of decimal from 28 .* to 5 .*",
    "logging": r"it changed the level of logging from 30 0 to 30 50",
    "sockets": r"it changed the time limit of sockets from None to 5.0",
    "segment": r"it left 1 System V segments: segment \d+ of 4096 bytes",
}


@pytest.mark.parametrize("what", LEFT)
def test_what_is_left_is_told_with_what_was_there(workers: Workers, what: str) -> None:
    worker = of(workers)
    watch = StateWatch(worker)  # type: ignore[arg-type]
    worker.call("leaving something", leave, "nothing")
    watch.begin()
    worker.call("leaving something", leave, what)
    (fault,) = watch.end()
    assert fault.startswith("guard state: ")
    assert re.search(LEFT[what], fault), fault


@pytest.mark.parametrize("what", ["file", "mapping", "executable"])
def test_a_first_use_may_leave_files_and_mappings(workers: Workers, what: str) -> None:
    worker = of(workers)
    watch = StateWatch(worker)  # type: ignore[arg-type]
    worker.call("leaving something", leave, what)
    watch.begin()
    assert watch.end() == []


def test_a_pool_of_threads_may_stay_and_no_more(workers: Workers) -> None:
    worker = of(workers)
    watch = StateWatch(worker, 3)  # type: ignore[arg-type]
    worker.call("leaving threads", two_threads)
    watch.begin()
    assert watch.end() == []
    watch = StateWatch(worker, 2)  # type: ignore[arg-type]
    assert "it left 3 threads (before: 1)" in watch.end()[0]


def test_a_thread_that_waits_for_a_core_gets_the_time_to_end(workers: Workers) -> None:
    worker = of(workers)
    watch = StateWatch(worker, 1)  # type: ignore[arg-type]
    watch.begin()
    worker.call("leaving a thread that ends", busy_thread, 1.5)
    assert watch.end() == []


def test_each_library_of_linear_algebra_may_keep_a_pool(workers: Workers) -> None:
    worker = of(workers)
    watch = StateWatch(worker, 2)  # type: ignore[arg-type]
    worker.call("leaving threads", two_threads)
    worker.call("importing scipy.linalg", scipys_own)
    watch.begin()
    assert watch.end() == []
    watch = StateWatch(worker, 1)  # type: ignore[arg-type]
    assert "it left 3 threads (before: 1)" in watch.end()[0]


def test_a_pool_of_its_own_may_stay_beside_one_for_linear_algebra(workers: Workers) -> None:
    worker = of(workers)
    watch = StateWatch(worker, 4)  # type: ignore[arg-type]
    worker.call("starting two pools", pools, 4)
    watch.begin()
    assert watch.end() == []
    worker.call("starting another thread", one_thread_more)
    assert re.search(r"it left [58] threads \(before: 1\); a pool may have at most 3 beside", watch.end()[0])


def test_threads_that_others_start_are_not_the_kernels(workers: Workers) -> None:
    worker = of(workers)
    watch = StateWatch(worker, 2)  # type: ignore[arg-type]
    watch.begin()
    with others_start_threads(worker):
        worker.call("leaving threads", two_threads)
    assert StateWatch(worker, 1).end() == []  # type: ignore[arg-type]
    worker.call("starting another thread", one_thread_more)
    assert "it left 4 threads (before: 3)" in StateWatch(worker, 1).end()[0]  # type: ignore[arg-type]


def test_blocks_of_the_harness_are_no_files_of_a_candidate(workers: Workers) -> None:
    worker = of(workers)
    assert worker.device.memory is not None
    memory: Any = worker.device.memory()
    watch = StateWatch(worker)  # type: ignore[arg-type]
    watch.begin()
    kept = [memory.allocate(5000, writable=writable) for writable in (True, False) for _ in range(10)]
    assert watch.end() == []
    del kept


def test_floating_point_settings_are_read_here_and_set_back() -> None:
    import ctypes

    library = ctypes.CDLL(None)
    assert changed() is None
    before = library.fegetround()
    library.fesetround({"x86_64": 0xC00}.get(os.uname().machine, 0xC00000))
    found = changed()
    assert found is not None
    assert found.described()["the rounding mode"] == "toward zero"
    assert library.fegetround() == before
    assert changed() is None
    np.float32(1)  # nothing was left
