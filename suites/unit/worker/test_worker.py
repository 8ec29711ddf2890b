"""A candidate's process may do anything: what became of it is said, and the next one is not concerned."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from worker_tasks import (
    address_space,
    forged,
    hoard,
    identify,
    its_cores,
    last_words,
    open_descriptors,
    raise_as,
    summed,
    threads_at_once,
    threads_of_a_product,
)

from tritmark.harness.candidate import PythonFile
from tritmark.harness.errors import BadEnvironmentError, CandidateError, Failure, UsageError, WorkerError
from tritmark.harness.machine.cpu import affinity
from tritmark.harness.providers import Installed, load
from tritmark.harness.record import Accuracy, Status
from tritmark.harness.spec import Tier, Variant, Workload
from tritmark.harness.validate.accuracy import judge
from tritmark.harness.validate.cases import Material
from tritmark.harness.worker import Workers, process
from tritmark.harness.worker.channel import LARGE
from tritmark.harness.worker.process import CONTEXT, prepare
from tritmark.harness.worker.serve import serve

pytestmark = [pytest.mark.timing, pytest.mark.interpreter]

HELPERS = Path(__file__).parents[1] / "helpers"
FILE = PythonFile(str(HELPERS / "faulty_candidates.py"))
TIMEOUT_S = 0.5
MEMORY = 1 << 30


@pytest.fixture(scope="module")
def installed() -> Installed:
    return load((FILE,))


@pytest.fixture(scope="module")
def workers(installed: Installed) -> Iterator[Workers]:
    with Workers(installed, (FILE,), timeout_s=TIMEOUT_S, memory_bytes=MEMORY) as made:
        made.of(named(installed, "honest")).call("nothing", identify, timeout_s=60)  # the server is there from here on
        yield made


def named(installed: Installed, name: str) -> Variant:
    (found,) = (each for each in installed.registry.variants if each.id == f"cpu/i2s_quantize/none/int8/{name}")
    return found


def lives(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def judged(workers: Workers, name: str, layout: str = "aligned", n: int = 1031) -> Accuracy:
    variant = named(workers.installed, name)
    op = workers.installed.ops[variant.key.op]
    workload = Workload(op=op.name, axes={"n": n}, layout=layout)
    worker = workers.of(variant)
    cases = Material(op, workload, 0).cases(variant.key)
    return judge(
        op, worker.variant, cases, workload.axes, layout=layout, threads=1, seed=0, device=worker.device
    ).accuracy


def test_an_honest_kernel_passes_with_every_guard(workers: Workers) -> None:
    for layout in ("aligned", "unaligned"):
        found = judged(workers, "honest", layout)
        assert found.status is Status.PASS, found.reason
        assert found.guards == ("poison", "zones", "inputs", "pages", "state", "nonfinite")


def test_it_runs_in_another_process_which_is_kept(workers: Workers) -> None:
    worker = workers.of(named(workers.installed, "honest"))
    one, other = worker.call("nothing", identify), worker.call("nothing", identify)
    assert one == other
    assert one[0] != os.getpid()
    assert one[1] == "cpu/i2s_quantize/none/int8/honest"


def test_it_has_every_core_that_the_harness_had(workers: Workers) -> None:
    """OpenMP binds the process that loads it to one core, and what that starts would stay there."""
    before, cores = os.sched_getaffinity(0), affinity()
    variant = named(workers.installed, "zeros")
    workers.renew(variant)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert workers.of(variant).call("nothing", its_cores) == cores
    finally:
        os.sched_setaffinity(0, before)
        workers.renew(variant)


def test_products_of_numpy_take_one_thread(workers: Workers) -> None:
    workers.renew(named(workers.installed, "honest"))
    assert workers.of(named(workers.installed, "honest")).call("multiplying", threads_of_a_product) == 1


def test_its_memory_is_not_counted_from_here(workers: Workers) -> None:
    memory = workers.of(named(workers.installed, "honest")).device.memory
    assert memory is not None
    with memory().watch() as watch:
        assert watch.held is None
    assert watch.peak is None


def test_wrong_values_are_told_as_ever(workers: Workers) -> None:
    found = judged(workers, "zeros")
    assert found.status is Status.FAIL
    assert found.first is not None
    assert found.first.found == "0"


@pytest.mark.parametrize(
    ("name", "guard", "told"),
    [
        ("segfault", "crash", "killed by SIGSEGV"),
        ("abort", "crash", "killed by SIGABRT"),
        ("floating_point", "crash", "killed by SIGFPE"),
        ("endless", "hang", f"did not return from a run within {TIMEOUT_S} s"),
        ("deaf", "hang", f"did not return from a run within {TIMEOUT_S} s"),
        ("thirty_gigabytes", "memory", "MemoryError: Unable to allocate 30.0 GiB"),
        ("leave", "exit", "ended with exit status 0 in a run"),
        ("system_exit", "error", "SystemExit: 4"),
        ("interrupt", "error", "KeyboardInterrupt: "),
        ("speechless", "error", "Mute: (no text)"),
        ("close_all", "exit|protocol", "in a run"),
        ("babble", "protocol", "sent data that is not the result of a run"),
    ],
)
def test_what_became_of_it_is_told_and_the_next_run_is_clean(
    workers: Workers, name: str, guard: str, told: str
) -> None:
    found = judged(workers, name)
    assert found.status is Status.ERROR
    assert told in found.reason
    (spoke,) = found.caught_by
    assert spoke in guard.split("|")
    assert "guard pages" not in found.reason
    workers.renew(named(workers.installed, name))
    assert judged(workers, "honest").status is Status.PASS


@pytest.mark.parametrize(
    ("name", "told"), [("past_the_end", "past the end of q"), ("before_the_start", "before the start of x")]
)
def test_reads_beyond_an_array_are_told_with_its_name(workers: Workers, name: str, told: str) -> None:
    found = judged(workers, name, "unaligned" if name == "past_the_end" else "aligned")
    assert found.status is Status.ERROR
    assert found.reason.endswith(f"guard pages: it reads or writes {told}")
    assert set(found.caught_by) == {"crash", "pages"}


@pytest.mark.parametrize(
    ("name", "told"), [("assigns", "destination is read-only"), ("takes_a_buffer", "buffer is not writable")]
)
def test_a_refused_write_to_an_input_is_told_with_its_name_in_whatever_words(
    workers: Workers, name: str, told: str
) -> None:
    found = judged(workers, name)
    assert found.status is Status.ERROR
    assert told in found.reason
    assert found.reason.endswith("guard inputs: it writes the input x; inputs are read-only")
    assert set(found.caught_by) == {"error", "inputs"}


def test_what_it_printed_last_is_kept(workers: Workers) -> None:
    worker = workers.of(named(workers.installed, "honest"))
    with pytest.raises(WorkerError) as caught:
        worker.call("printing", last_words)
    assert caught.value.kind is Failure.CRASH
    assert "my last words" in caught.value.log


def test_memory_that_is_really_taken_ends_it(workers: Workers) -> None:
    worker = workers.of(named(workers.installed, "honest"))
    # Under the limit of addresses, for it lets go of nothing else; the resident limit is what is looked at.
    with pytest.raises((WorkerError, CandidateError)) as caught:
        worker.call("hoarding", hoard, 2 * MEMORY, timeout_s=60)
    assert "MemoryError" in str(caught.value) or caught.value.kind is Failure.MEMORY  # type: ignore[attr-defined]


def test_a_process_without_a_descriptor_left_has_leaked_them(installed: Installed) -> None:
    with Workers(installed, (FILE,), timeout_s=60) as some:
        with pytest.raises(CandidateError, match="Too many open files") as caught:
            some.of(named(installed, "honest")).call("opening", open_descriptors)
        assert caught.value.kind is Failure.LEAK


def test_arrays_go_through_shared_memory_and_are_read_only(workers: Workers) -> None:
    rng = np.random.default_rng(1)
    arrays = {
        "small": rng.standard_normal(8),
        "large": rng.standard_normal(LARGE),
        "rows": rng.standard_normal((200, 600))[:, ::2],
    }
    arrays["large"].setflags(write=False)
    for _ in range(2):
        found = workers.of(named(workers.installed, "honest")).call("adding", summed, arrays)
        for name, array in arrays.items():
            assert found[name] == (pytest.approx(float(array.sum())), array.nbytes < LARGE)


def test_a_reply_cannot_call_anything(workers: Workers) -> None:
    with pytest.raises(WorkerError, match=r"may not hold posix\.system") as caught:
        workers.of(named(workers.installed, "honest")).call("forging", forged)
    assert caught.value.kind is Failure.PROTOCOL


@pytest.mark.parametrize("kind", [*Failure, "clock", 7, [Failure.MEMORY]], ids=str)
def test_what_was_raised_cannot_pass_for_what_only_the_parent_sees(workers: Workers, kind: object) -> None:
    if kind is Failure.ENVIRONMENT:  # ends the command, so a forger gains nothing
        with pytest.raises(BadEnvironmentError):
            workers.of(named(workers.installed, "honest")).call("forging", raise_as, kind)
        with pytest.raises(BadEnvironmentError):
            workers.must_be_fair()
        workers.at_fault = None
        return
    with pytest.raises(CandidateError, match="Forged: whatever") as caught:
        workers.of(named(workers.installed, "honest")).call("forging", raise_as, kind)
    right = isinstance(kind, Failure) and kind in {Failure.MEMORY, Failure.DEVICE, Failure.LEAK, Failure.ERROR}
    assert caught.value.kind is (kind if right else Failure.ERROR)


def test_few_processes_wait(installed: Installed) -> None:
    with Workers(installed, (FILE,), timeout_s=30) as some:
        here = (
            variant
            for variant in installed.registry.variants
            if variant.key.device == "cpu" and variant.missing() is None
        )
        pids = [some.of(variant).call("nothing", identify)[0] for variant in islice(here, 12)]
        alive = [pid for pid in pids if lives(pid)]
        assert len(set(pids)) == 12
        assert len(alive) <= 8
    time.sleep(0.1)
    assert not [pid for pid in pids if lives(pid)]


def test_in_process_there_is_no_process(installed: Installed) -> None:
    with Workers(installed, (FILE,), isolated=False) as here:
        assert here.of(named(installed, "honest")).call("nothing", identify)[0] == os.getpid()
        assert judged(here, "honest").guards == ("poison", "zones", "inputs", "nonfinite")


def test_starting_one_is_quick(installed: Installed, workers: Workers) -> None:
    """Well under 0.7 s once the server is there; the median of several, for others may be busy."""
    taken = []
    for _ in range(5):
        begun = time.perf_counter()
        workers.of(named(installed, "zeros")).call("nothing", identify)
        taken.append(time.perf_counter() - begun)
        workers.renew(named(installed, "zeros"))
    assert sorted(taken)[2] < 0.7


def test_a_file_that_cannot_be_taken(tmp_path: Path) -> None:
    for text, told in (("1 / 0", "ZeroDivisionError"), ("VARIANTS = 3", "VARIANTS is 3"), ("", "VARIANTS is None")):
        path = tmp_path / "candidate.py"
        path.write_text(text)
        with pytest.raises(UsageError, match=told):
            load((PythonFile(str(path)),))


def test_workers_end_with_the_harness(tmp_path: Path) -> None:
    """SIGKILL to the harness alone, while a kernel hangs: nothing of it is left a moment later."""
    script = tmp_path / "harness.py"
    script.write_text(
        textwrap.dedent(f"""
        from tritmark.harness.candidate import PythonFile
        from tritmark.harness.providers import load
        from tritmark.harness.worker import Workers
        from worker_tasks import hang, identify

        def main():
            candidate = PythonFile({FILE.path!r})
            installed = load((candidate,))
            with Workers(installed, (candidate,), timeout_s=60) as workers:
                variant = next(each for each in installed.registry.variants if each.name == "honest")
                print(workers.of(variant).call("nothing", identify)[0], flush=True)
                workers.of(variant).call("hanging", hang)

        if __name__ == "__main__":
            main()
        """)
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HELPERS), os.environ.get("PYTHONPATH", "")])),
    }
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment) as harness:
        assert harness.stdout is not None
        worker = int(harness.stdout.readline())
        time.sleep(0.2)
        assert lives(worker)
        harness.kill()
    for _ in range(100):
        if not lives(worker):
            return
        time.sleep(0.05)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker outlived the harness by 5 s")


def test_a_process_whose_parent_is_gone_at_once_says_nothing() -> None:
    """As where Ctrl-C comes twice while it starts: it would print a traceback, and end with 1."""
    prepare()
    mine, its = CONTEXT.Pipe(duplex=True)
    process = CONTEXT.Process(target=serve, args=(its, (), "", dict(os.environ), affinity(), 0))
    process.start()
    its.close()
    mine.close()
    process.join(60)
    assert process.exitcode == 0


def test_addresses_of_a_peer_are_not_counted(installed: Installed) -> None:
    """The memory of its many threads is what it takes, not what it reserves."""
    variant = named(installed, "honest")
    with Workers(installed, (FILE,), timeout_s=60, memory_bytes=MEMORY) as own:
        assert own.of(variant).call("limit", address_space) != resource.RLIM_INFINITY
    with Workers(installed, (FILE,), timeout_s=60, memory_bytes=MEMORY) as own:
        assert own.of(replace(variant, tier=Tier.PEER)).call("limit", address_space) == resource.RLIM_INFINITY


def test_addresses_that_threads_reserve_are_not_counted(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack and a heap for each, of which little is touched: on 32 cores honest kernels could not be timed."""
    there = affinity()
    monkeypatch.setattr(process, "affinity", lambda: there | frozenset(range(64)))
    with Workers(installed, (FILE,), timeout_s=60, memory_bytes=128 << 20) as own:
        own.of(named(installed, "honest")).call("threads", threads_at_once, 2 * 64)
