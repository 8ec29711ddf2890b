"""Memory that the parent shares with a candidate's process: what may be written there, that it is used again, and
runs of which many go in one message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worker_tasks import bytes_of, make_writable, overwrite, peek, poke

from tritmark.harness.candidate import PythonFile
from tritmark.harness.errors import CandidateError, WorkerError
from tritmark.harness.providers import load
from tritmark.harness.spec import Variant
from tritmark.harness.worker import Worker, Workers
from tritmark.harness.worker.process import WorkerProcess
from tritmark.harness.worker.remote import RemoteLaunch, SharedMemory
from tritmark.harness.worker.shared import PAGE

HELPERS = Path(__file__).parents[1] / "helpers"
FILE = PythonFile(str(HELPERS / "faulty_candidates.py"))
SIZES = (1, 63, 4096, 5000, 70_000)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(load((FILE,)), (FILE,), timeout_s=30.0) as made:
        yield made


def of(workers: Workers, name: str = "honest") -> Worker:
    return workers.of(named(workers, name))


def named(workers: Workers, name: str) -> Variant:
    (found,) = (each for each in workers.installed.registry.variants if each.id == f"cpu/i2s_quantize/none/int8/{name}")
    return found


def memory(worker: Worker) -> SharedMemory:
    assert worker.device.memory is not None
    made = worker.device.memory()
    assert isinstance(made, SharedMemory)
    return made


@pytest.mark.parametrize("edge", ["start", "end"])
@pytest.mark.parametrize("nbytes", SIZES)
def test_what_may_only_be_read_is_read_there_and_written_here(workers: Workers, nbytes: int, edge: Any) -> None:
    worker = of(workers)
    shared = memory(worker)
    values = np.arange(nbytes, dtype=np.uint64).astype(np.uint8)
    for _ in range(2):  # the second lies where the first one lay
        buffer = shared.allocate(nbytes, edge, writable=False)
        shared.write(buffer, values)
        assert worker.call("reading", bytes_of, shared.view(buffer, 0, (nbytes,), np.uint8)) == (
            values.tobytes(),
            False,
        )
        values = values[::-1].copy()
        shared.write(buffer, values)
        assert worker.call("reading", bytes_of, shared.view(buffer, 0, (nbytes,), np.uint8)) == (
            values.tobytes(),
            False,
        )


def test_numpy_refuses_to_write_it(workers: Workers) -> None:
    worker = of(workers)
    handle = memory(worker).view(memory(worker).allocate(100, writable=False), 0, (100,), np.uint8)
    with pytest.raises(CandidateError, match="read-only"):
        worker.call("writing", overwrite, handle)


@pytest.mark.parametrize("task", [poke, make_writable])
@pytest.mark.parametrize("at", [0, 99])
def test_native_code_dies_of_writing_it(workers: Workers, task: Any, at: int) -> None:
    worker = of(workers)
    handle = memory(worker).view(memory(worker).allocate(100, writable=False), at, (1,), np.uint8)
    with pytest.raises((WorkerError, CandidateError), match=r"SIGSEGV|Permission denied"):
        worker.call("writing", task, handle)
    workers.renew(worker.variant)


@pytest.mark.parametrize(("edge", "beyond"), [("start", -1), ("end", 1)])
@pytest.mark.parametrize("writable", [True, False])
def test_buffers_of_kept_blocks_lie_flush_too(workers: Workers, edge: Any, beyond: int, writable: bool) -> None:
    worker = of(workers)
    for nbytes in (5000, 4999, 4097):  # all take the block of the first
        shared = memory(worker)
        buffer = shared.allocate(nbytes, edge, writable=writable)
        inside = 0 if beyond < 0 else nbytes - 1
        handle = shared.view(buffer, inside, (1,), np.uint8)
        assert len(worker.call("reading", peek, handle, 0)) == 1
    with pytest.raises(WorkerError, match="SIGSEGV"):
        worker.call("reading", peek, handle, beyond)
    workers.renew(worker.variant)


def test_blocks_are_used_again_and_two_never_share_one(workers: Workers) -> None:
    worker = of(workers)
    shared = memory(worker)
    kinds = [(nbytes, edge, writable) for nbytes in SIZES for edge in ("start", "end") for writable in (True, False)]
    made = {}
    for _ in range(3):
        held = [shared.allocate(nbytes, edge, writable=writable) for nbytes, edge, writable in kinds]  # type: ignore[arg-type]
        numbers = [buffer.number for buffer in held]
        assert len(set(numbers)) == len(numbers)
        for index, buffer in enumerate(held):
            buffer.bytes[...] = index
        for index, buffer in enumerate(held):
            handle = shared.view(buffer, 0, (buffer.nbytes,), np.uint8)
            assert worker.call("reading", bytes_of, handle)[0] == bytes([index]) * buffer.nbytes
        made[tuple(sorted(numbers))] = True
        del held, buffer, handle
    assert len(made) == 1


def test_a_large_buffer_goes_back(workers: Workers) -> None:
    shared = memory(of(workers))
    one = shared.allocate(80 << 20).number
    assert shared.allocate(80 << 20).number != one


def test_kept_blocks_go_with_their_process(workers: Workers) -> None:
    worker = of(workers)
    shared = memory(worker)
    old = shared.allocate(100)
    shared.write(shared.allocate(100), np.zeros(100, np.uint8))
    with pytest.raises(WorkerError):
        worker.call("writing", poke, shared.view(shared.allocate(100, writable=False), 0, (1,), np.uint8))
    fresh = shared.allocate(100)
    del old
    again = shared.allocate(100)
    for buffer in (fresh, again):
        assert len(worker.call("reading", bytes_of, shared.view(buffer, 0, (100,), np.uint8))[0]) == 100


def bound(workers: Workers, name: str, n: int, threads: int = 1) -> tuple[RemoteLaunch, Any, Any]:
    worker = of(workers, name)
    shared = memory(worker)
    x, q = shared.allocate(4 * n, writable=False), shared.allocate(n)
    x.bytes[...] = np.linspace(-3, 3, n, dtype=np.float32).view(np.uint8)
    inputs = {"x": shared.view(x, 0, (n,), np.float32), "scale": 1.0}
    launch = worker.variant.bind(inputs, {"q": shared.view(q, 0, (n,), np.int8)}, {"n": n}, threads)
    assert isinstance(launch, RemoteLaunch)
    return launch, x, q


def test_many_runs_in_one_message_leave_every_output(workers: Workers) -> None:
    n, runs = 1000, 7
    launch, x, q = bound(workers, "honest", n)
    shared = memory(of(workers)).shared
    into, poison = shared.allocate(runs * n), shared.allocate(n)
    poison.bytes[...] = q.bytes[...] = 77
    told = launch.run_many(runs, {"q": into}, {"q": poison})
    expected = np.rint(np.clip(x.bytes.view(np.float32), -2, 1)).astype(np.int8)
    assert (into.bytes.view(np.int8).reshape(runs, n) == expected).all()
    assert (q.bytes == 77).all()
    assert [each.runs for each in told] == list(range(1, runs + 1))
    assert launch.runs == runs
    launch.run()
    assert launch.runs == runs + 1
    assert (q.bytes.view(np.int8) == expected).all()


def test_a_small_trial_takes_one_message(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """New buffers, a new launch and ten judged runs, so that thousands of trials a second are possible."""
    n, runs = 200, 10
    shared = memory(of(workers)).shared
    into, poison = shared.allocate(runs * n), shared.allocate(n)
    call, messages = WorkerProcess.call, []

    def counted(self: WorkerProcess, what: str, timeout_s: float, request: Any) -> Any:
        messages.append(what)
        return call(self, what, timeout_s, request)

    monkeypatch.setattr(WorkerProcess, "call", counted)
    for _ in range(5):
        launch, _, _ = bound(workers, "honest", n)
        launch.run_many(runs, {"q": into}, {"q": poison})
        del launch
    # The memory is attached by the first trial, and used again by the others.
    assert [what for what in messages if what != "attaching memory"] == ["runs"] * 5
    assert "attaching memory" not in messages[messages.index("runs") :]


def test_pages(workers: Workers) -> None:
    """An array that is smaller than its block shows no more of it than itself."""
    shared = memory(of(workers))
    shared.allocate(9 * PAGE).bytes[...] = 1
    assert shared.allocate(8 * PAGE + 1).bytes.nbytes == 8 * PAGE + 1
