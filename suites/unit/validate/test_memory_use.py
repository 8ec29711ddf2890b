"""The memory dimension: planted leaks, hidden scratch memory and overhead fail, and honest kernels pass."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from time import sleep
from typing import Any

import numpy as np
import pytest
from memory_here import memory_use

from tritmark.harness.measure import heap
from tritmark.harness.record import MemoryUse, Status
from tritmark.harness.spec import Arrays, Axes, KernelKey, Op, Variant
from tritmark.harness.validate import memory, memory_tasks
from tritmark.harness.validate.memory import bits_per_weight
from tritmark.harness.worker import peak
from tritmark.kernels import PROVIDER
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.native.cpu import DEVICE, features

pytestmark = pytest.mark.long

AXES = {"n": 4096, "block": 256, "E": 3, "M": 4, "N": 64, "K": 256}
LARGE = 1 << 20
"""Bytes above the noise of any reading."""
KEY = KernelKey("cpu", "i2s_dequantize", "none", "float32")
OPS = {op.name: op for op in PROVIDER.ops}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer calls than in production."""
    monkeypatch.setattr(memory, "BUDGET_S", 0.05)


def material(op: Op, format: str, axes: Axes = AXES) -> tuple[dict[str, int], dict[str, Any]]:
    """The op's axes, and inputs encoded for a format."""
    own = {name: axes[name] for name in op.axes}
    return own, op.encode(op.generate(own, op.input_families[0], np.random.default_rng(0)), own, format)


class Scaled:
    """i2s_dequantize in NumPy, in place. `more` runs in each call too."""

    ran = "planted"
    threads_used = 1
    bad = -1
    pointer = None

    def __init__(self, inputs: Arrays, outputs: Arrays, more: Callable[[], object]) -> None:
        self.inputs, self.outputs, self.more = inputs, outputs, more
        self.runs = 0

    def run(self) -> None:
        self.runs += 1
        np.multiply(self.inputs["q"], self.inputs["scale"], out=self.outputs["x"])
        self.more()


def planted(
    more: Callable[[], object] = lambda: None, bound: Callable[[], object] = lambda: None, **change: Any
) -> Variant:
    """A variant that does `more` in each call, and calls `bound` whenever it is bound."""

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Scaled:
        launch = Scaled(inputs, outputs, more)
        launch.kept = bound()  # type: ignore[attr-defined]
        return launch

    template = next(each for each in PROVIDER.variants if each.key == KEY)
    return replace(template, name="planted", bind=bind, features=frozenset(), **change)


def used(variant: Variant, axes: Axes = AXES) -> MemoryUse:
    own, inputs = material(OPS[variant.key.op], variant.key.format, axes)
    return memory_use(DEVICE, OPS[variant.key.op], variant, inputs, own, threads=1)


def malloc(nbytes: int) -> Callable[[], object]:
    """C's malloc, whose memory is never freed."""
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes = (ctypes.c_size_t,)
    return lambda: library.malloc(nbytes)


def test_a_leak_of_16_bytes_a_call_is_found() -> None:
    found = used(planted(malloc(16)))
    assert found.status is Status.FAIL
    # 16 bytes take a chunk of 32 of glibc's heap, and as many of the process's pages, a few of which are there already.
    assert found.leak is not None
    assert 16 <= found.leak.low <= found.leak.high <= 40
    assert found.calls >= 20
    told = re.search(r"leaks ([0-9.]+) bytes a call \(95 %: ([0-9.]+) to ([0-9.]+)\)", found.reason)
    assert told is not None
    assert all(16 <= float(bound) <= 40 for bound in told.groups())
    assert f"over {found.calls} calls" in found.reason


def test_a_growing_list_is_found() -> None:
    kept: list[object] = []
    found = used(planted(lambda: kept.append(object())))
    assert found.status is Status.FAIL
    assert "leaks" in found.reason


@pytest.mark.nightly
def test_a_leaked_mapping_is_found() -> None:
    kept: list[mmap.mmap] = []

    def leak() -> None:
        sleep(1e-5)  # the searches make as many calls as fit their time, and the system limits the number of mappings
        if len(kept) < 40_000:
            kept.append(mmap.mmap(-1, 2 * mmap.PAGESIZE))

    found = used(planted(leak))
    assert len(kept) < 40_000
    assert found.status is Status.FAIL
    assert "never unmaps them" in found.reason or "leaks" in found.reason


def test_what_is_lost_with_each_launch_is_found() -> None:
    found = used(planted(bound=malloc(1000)))
    assert found.status is Status.FAIL
    assert "of each dropped launch" in found.reason
    assert found.leak is not None
    assert found.leak.low <= 0


def slow_launches(most: int) -> MemoryUse:
    """Use by launches of 10 ms, of which the first `most` keep 8 KiB each."""
    kept: list[object] = []

    def bound() -> None:
        sleep(0.01)
        if len(kept) < most:
            kept.append(np.ones(1024))

    return used(planted(bound=bound))


@pytest.mark.nightly
def test_a_cache_that_fills_over_many_slow_launches_is_no_leak() -> None:
    # Full in the second search: 8 first launches, 24 for the peaks, and 11 and 44 in the first two searches.
    assert "leaks" not in slow_launches(80).reason


@pytest.mark.nightly
def test_a_leak_of_slow_launches_is_found_in_searches_of_increasing_length() -> None:
    found = slow_launches(10_000)
    assert found.status is Status.FAIL
    launches = re.search(r"of each dropped launch .* over ([0-9]+) launches", found.reason)
    assert launches is not None
    assert int(launches[1]) >= memory.STEPS * memory.LONGER


def test_what_is_kept_from_the_first_call_on_is_no_leak_and_has_to_be_declared() -> None:
    def cached(**declared: Any) -> MemoryUse:
        kept: list[object] = []
        return used(planted(lambda: kept or kept.append(np.ones(LARGE // 8)), **declared))  # type: ignore[func-returns-value]

    hidden = cached()
    assert hidden.status is Status.FAIL
    assert (
        f"keeps {hidden.persistent} bytes of the host's memory beyond inputs and outputs and declares 0"
        in hidden.reason
    )
    assert "leaks" not in hidden.reason
    honest = cached(workspace=lambda axes: LARGE)
    assert honest.status is Status.PASS, honest.reason
    assert honest.persistent is not None
    assert abs(honest.persistent - LARGE) < honest.persistent_floor


def test_each_further_thread_may_go_down_its_stack_by_what_every_thread_has() -> None:
    """As frames of a kernel on 15 more threads do, if earlier frames were no deeper."""
    variant, threads = planted(), 16
    own, inputs = material(OPS[variant.key.op], variant.key.format)
    here = memory_tasks.LocalPlace(OPS[variant.key.op], DEVICE, variant)
    seen = memory.observe(lambda task, *args: task(here, *args), os.getpid(), inputs, own, threads=threads)
    memory_tasks.release(here)
    least = (threads - 1) * memory.LEAST_STACK
    assert seen.persistent_floor >= seen.host_floor + least
    assert not memory.faults(replace(seen, persistent=seen.host_floor + least))
    assert set(memory.faults(replace(seen, persistent=seen.persistent_floor + 1))) == {"kept"}


@pytest.mark.parametrize("call", [2, 3, memory.FIRST])
def test_what_is_kept_from_a_later_call_on_has_to_be_declared_too(call: int) -> None:
    kept: list[object] = []
    calls = iter(range(1, 1 << 30))
    found = used(planted(lambda: kept.append(np.ones(LARGE // 8)) if next(calls) == call else None))
    assert found.status is Status.FAIL
    assert "beyond inputs and outputs and declares 0, from its first calls on" in found.reason


@pytest.mark.parametrize("every", [2, 3, memory.FIRST])
def test_what_some_calls_take_is_seen(every: int) -> None:
    calls = iter(range(1, 1 << 30))
    found = used(planted(lambda: np.ones(LARGE, np.uint8) if next(calls) % every == 0 else None))
    assert found.status is Status.FAIL
    assert "of the host's memory beyond inputs and outputs and declares 0" in found.reason


def test_a_cache_that_is_filled_late_is_no_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "BUDGET_S", 0.0)
    monkeypatch.setattr(memory_tasks, "_PILOT_S", 0.0)
    kept: list[object] = []
    # In the middle of the first search.
    found = used(planted(lambda: kept.append(np.ones(64)) if len(kept) < memory.STEPS else None))
    assert found.calls == memory.STEPS
    assert found.status is Status.PASS, found.reason


def test_a_heap_that_breathes_is_no_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    """As glibc's heap does beside launches that take megabytes: it grows in part of the first search, and then
    stops."""
    searching: list[str] = []
    batch = memory_tasks.batch

    def told(place: memory_tasks.Place, kind: memory_tasks.Kind, *args: Any) -> Any:
        searching.append(kind)
        return batch(place, kind, *args)

    monkeypatch.setattr(memory_tasks, "batch", told)
    launches, kept = iter(range(1 << 30)), list[object]()

    def bound() -> None:
        if searching[-1:] == ["launch"] and (nth := next(launches)) < memory.STEPS and nth % 2:
            kept.append(np.ones(LARGE, np.uint8))

    found = used(planted(bound=bound))
    assert len(kept) == memory.STEPS // 2
    assert found.status is Status.PASS, found.reason


def test_what_the_system_may_miscount_is_not_held_against_a_kernel() -> None:
    # More than twice its inputs, in pages that the count may miss.
    found = used(planted(lambda: np.ones(80_000, np.uint8)), {"n": 1024, "block": 256})
    assert found.status is Status.PASS, found.reason
    assert found.floor is not None
    assert found.floor >= 64 * mmap.PAGESIZE


HUGE_HEAP = """
import numpy as np
import os
from tritmark.harness.measure.heap import trim
from tritmark.harness.worker.peak import peak, small_pages
np.ones(30 << 20, np.uint8)  # from now on glibc takes as much from the heap
large = np.ones(12 << 20, np.uint8)  # NumPy asks for huge pages there
above = np.ones(200_000, np.uint8)
del large
with small_pages():
    print(min(trim() or peak(os.getpid(), lambda: np.ones(2 << 20, np.uint8)) for _ in range(3)))
"""


def test_huge_pages_that_numpy_asked_for_earlier_do_not_count() -> None:
    done = subprocess.run([sys.executable, "-c", HUGE_HEAP], capture_output=True, text=True, check=True)
    assert 2 * LARGE <= int(done.stdout) + 64 * mmap.PAGESIZE <= 2 * LARGE + 128 * mmap.PAGESIZE


def test_temporary_arrays_are_no_leak() -> None:
    found = used(planted(lambda: np.cumsum(np.ones(100)).astype(np.float32) * 2))
    assert found.status is Status.PASS, found.reason
    assert found.allocated is not None
    assert found.allocated >= 800
    assert found.leak is not None
    assert found.leak.low <= 0


def test_cycles_are_no_leak() -> None:
    def cycle() -> None:
        one: list[object] = []
        one.append(one)

    found = used(planted(bound=cycle))
    assert found.status is Status.PASS, found.reason


def test_scratch_memory_has_to_be_declared() -> None:
    scratch = lambda: np.ones(LARGE, np.uint8)  # noqa: E731
    axes = {"n": LARGE}
    honest = used(planted(scratch, workspace=lambda axes: 2 * LARGE), axes)
    assert honest.status is Status.PASS, honest.reason
    assert honest.allocated is not None
    assert LARGE <= honest.allocated <= LARGE + 1000
    assert honest.host_peak is not None
    assert LARGE / 2 <= honest.host_peak <= 2 * LARGE
    assert honest.overhead is not None
    assert 0 < honest.overhead < 2
    hidden = used(planted(scratch), axes)
    assert hidden.status is Status.FAIL
    assert (
        f"takes {hidden.host_peak} bytes of the host's memory beyond inputs and outputs and declares 0" in hidden.reason
    )
    bound = used(planted(bound=scratch), axes)
    assert bound.status is Status.FAIL
    assert "declares 0" in bound.reason


@pytest.mark.nightly
def test_thirty_times_the_inputs_are_too_much_even_where_declared() -> None:
    found = used(planted(lambda: np.ones(30 * LARGE, np.uint8), workspace=lambda axes: 31 * LARGE), {"n": LARGE})
    assert found.status is Status.FAIL
    assert found.overhead is not None
    assert 28 < found.overhead < 31
    assert f"takes {found.overhead:.1f} times its {LARGE} bytes of inputs" in found.reason
    assert "declares" not in found.reason


def test_pages_touched_in_each_call_are_counted() -> None:
    def touch() -> None:
        with mmap.mmap(-1, 64 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as mapping:
            for start in range(0, len(mapping), mmap.PAGESIZE):
                mapping[start] = 1

    found = used(planted(touch, workspace=lambda axes: LARGE))
    assert found.page_faults is not None
    assert 64 <= found.page_faults < 70


_HERE = [each for each in PROVIDER.variants if each.key.device == "cpu" and each.features <= features()]
NATIVE = {
    each.id: each for each in [*(each for each in _HERE if each.name == "scalar"), *{v.key: v for v in _HERE}.values()]
}
"""The plain kernel and the best one of each key."""


@pytest.mark.parametrize("variant", NATIVE.values(), ids=NATIVE)
def test_honest_native_kernels_pass(variant: Variant) -> None:
    op = OPS[variant.key.op]
    own, inputs = material(op, variant.key.format)
    found = memory_use(DEVICE, op, variant, inputs, own, threads=2)
    assert found.status is Status.PASS, found.reason
    assert found.calls >= memory.STEPS
    assert found.leak is not None


def test_a_slow_kernel_is_called_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "BUDGET_S", 0.0)
    assert used(planted()).calls == memory.STEPS


def test_a_system_that_tells_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(heap, "STATM", tmp_path / "statm")
    monkeypatch.setattr(peak, "PROC", tmp_path)
    found = used(planted())
    assert found.status is Status.NOT_RUN
    assert (found.host_peak, found.persistent, found.leak, found.overhead) == (None, None, None, None)
    assert "the memory that first calls keep is not known" in found.reason
    assert f"{tmp_path}/PID/status: No such file or directory" in found.reason


def test_without_mallinfo_resident_memory_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_malloc", lambda: None)
    kept: list[object] = []
    found = used(planted(lambda: kept.append(np.ones(4096, np.uint8))))
    assert found.status is Status.FAIL
    assert "leaks" in found.reason


@pytest.mark.parametrize("format", ["i2_s_x86", "row16", "tq2_0"])
def test_bits_per_weight_are_the_format_s(format: str) -> None:
    for name in ("pack_codes", "unpack_codes"):
        axes, inputs = material(OPS[name], format)
        expected = FORMATS[format].bits_per_weight((axes["N"], axes["K"]))
        assert bits_per_weight(OPS[name], KernelKey("cuda", name, format, "uint8"), axes, inputs) == expected
    axes, inputs = material(OPS["ternary_matmul"], format)
    assert (
        bits_per_weight(OPS["ternary_matmul"], KernelKey("cpu", "ternary_matmul", format, "int32"), axes, inputs)
        == expected
    )


def test_ops_without_weights_have_no_bits_per_weight() -> None:
    axes, inputs = material(OPS["activation_quantize"], "none")
    assert (
        bits_per_weight(
            OPS["activation_quantize"], KernelKey("cpu", "activation_quantize", "none", "int8"), axes, inputs
        )
        is None
    )
