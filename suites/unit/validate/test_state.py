"""What honest kernels leave in their process is no fault, whatever OpenMP, Python and NumPy do when they are first
used.

What dishonest ones leave is in suites/exploits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worker_tasks import leave, one_thread_more, pools, scipys_own, two_threads

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
from tritmark.kernels.cpu import features

HELPERS = Path(__file__).parents[1] / "helpers"
FILE = PythonFile(str(HELPERS / "faulty_candidates.py"))
INSTALLED = load((FILE,))
NATIVE = [
    v
    for v in INSTALLED.registry.variants
    if v.key.device == "cpu" and v.features <= features() and v.name not in {"honest"}
]
OWN = [v for v in NATIVE if v.id not in INSTALLED.added]
AXES = {"n": 4096, "block": 256, "M": 3, "N": 160, "K": 256, "rows": 5, "columns": 300}


@pytest.fixture(scope="module", params=["bound", "free"])
def workers(request: pytest.FixtureRequest) -> Iterator[Workers]:
    """With OpenMP's threads bound to their cores, as the command line has them, and not."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "bound":
            patch.setenv(*BINDING)
        with Workers(INSTALLED, (FILE,), timeout_s=30.0) as made:
            yield made


BEST = list({variant.key: variant for variant in OWN}.values())
"""The last of each key, whose instruction set is the best here."""
PLACED = [("free", variant) for variant in OWN] + [("bound", variant) for variant in BEST]


# None of them uses OpenMP, so that one of each key tells whether its binding makes a difference.
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
    "thread": r"it left 2 threads, and found 1; of 1 threads one calls",
    "timer": r"it left ITIMER_REAL at running every 100 s, and found off",
    "handler": r"it left the handler of SIGUSR2 at 0x\w+, and found the default",
    "environment": r"it left TRITMARK_LEFT in the environment at 'yes', and found None",
    "folder": r"it left the working directory at /, and found /\w+",
    "file": r"it left 1 descriptors open, beside the \d+ it found: /dev/null",
    "closed": r"it closed 1 descriptors that it found: ",
    "mapping": r"it left 1 mappings that are shared: /memfd:mine",
    "executable": r"it left 1 mappings that are writable and executable: anonymous memory at",
    "locale": r"it left the locale at ",
    "huge pages": r"it left transparent huge pages at 0, and found 1",
    "slack": r"it left the timer slack at 12345, and found \d+",
    "collector": r"it left the garbage collector at off .*, and found on",
    "errors": r"it left what NumPy does at floating-point errors at .*'over': 'raise'.*, and found .*'over': 'warn'",
    "random": r"it left the state of Python's random numbers at [0-9a-f]{8}, and found [0-9a-f]{8}",
    "numpy random": r"it left the state of NumPy's random numbers at [0-9a-f]{8}, and found [0-9a-f]{8}",
    "switch": r"it left the switch interval at 0.5 s, and found 0.005 s",
    "recursion": r"it left the recursion limit at 12345, and found \d+",
    "trace": r"it left the profile function at one of worker_tasks, and found none",
    "path": r"it left the path of modules at ",
    "locked": r"it left the memory that is locked at 4 kB, and found 0 kB",
    "name": r"it left the name of the process at left, and found ",
    "orphans": r"it left whether it takes in orphans at 0, and found 1",
    "io": r"it left the class of its input and output at .*3 .*, and found ",
    "streams": r"it left the standard streams at [0-9a-f]{8}, and found [0-9a-f]{8}",
    "signal stack": r"it left the stack for signals at 65536 bytes at 0x\w+, 0, and found ",
    "finders": r"it left what finds modules at [0-9a-f]{8}, and found [0-9a-f]{8}",
    "exceptions": r"it left the hooks of exceptions at one of builtins, one of sys, and found one of ",
    "digits": r"it left the digits of an integer at 5000, and found 4300",
    "built-in": r"it left the built-in functions at [0-9a-f]{8}, and found [0-9a-f]{8}",
    "frozen": r"it left the objects that the garbage collector passes over at \d+, and found \d+",
    "heard": r"it left what hears of the garbage collector at 1, and found 0",
    "filters": r"it left the filters of warnings at [0-9a-f]{8}, and found [0-9a-f]{8}",
    "buffer": r"it left NumPy's buffer at 16384 elements, and found 8192 elements",
    "printing": r"it left how NumPy prints at [0-9a-f]{8}, and found [0-9a-f]{8}",
    "stack": r"it left the stack of threads at 1048576 bytes, and found 0 bytes",
    "decimal": r"it left the context of decimal at 5 .*, and found 28 ",
    "logging": r"it left the level of logging at 30 50, and found 30 0",
    "sockets": r"it left the time limit of sockets at 5.0, and found None",
    "segment": r"it left 1 segments of System V: segment \d+ of 4096 bytes",
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
    assert "it left 3 threads, and found 1" in watch.end()[0]


def test_each_library_of_linear_algebra_may_keep_a_pool(workers: Workers) -> None:
    worker = of(workers)
    watch = StateWatch(worker, 2)  # type: ignore[arg-type]
    worker.call("leaving threads", two_threads)
    worker.call("importing scipy.linalg", scipys_own)
    watch.begin()
    assert watch.end() == []
    watch = StateWatch(worker, 1)  # type: ignore[arg-type]
    assert "it left 3 threads, and found 1" in watch.end()[0]


def test_a_pool_of_its_own_may_stay_beside_one_for_linear_algebra(workers: Workers) -> None:
    worker = of(workers)
    watch = StateWatch(worker, 4)  # type: ignore[arg-type]
    worker.call("starting two pools", pools, 4)
    watch.begin()
    assert watch.end() == []
    worker.call("starting another thread", one_thread_more)
    assert re.search(r"it left [58] threads, and found 1; of 4 threads one calls", watch.end()[0])


def test_threads_that_others_start_are_not_the_kernels(workers: Workers) -> None:
    worker = of(workers)
    watch = StateWatch(worker, 2)  # type: ignore[arg-type]
    watch.begin()
    with others_start_threads(worker):
        worker.call("leaving threads", two_threads)
    assert StateWatch(worker, 1).end() == []  # type: ignore[arg-type]
    worker.call("starting another thread", one_thread_more)
    assert "it left 4 threads, and found 3" in StateWatch(worker, 1).end()[0]  # type: ignore[arg-type]


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
