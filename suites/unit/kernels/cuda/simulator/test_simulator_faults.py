"""The simulator detects and names every fault that is planted in planted.cu beside this file, and reports none in the
same kernels without it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tritmark.harness.errors import (
    CompileError,
    DeviceFaultError,
    DeviceUnavailableError,
    InsufficientMemoryError,
    LaunchError,
)
from tritmark.kernels.cuda.kernel import Kernel
from tritmark.kernels.cuda.simulator import SimulatorBackend

SOURCE = Path(__file__).with_name("planted.cu")
SHARED_RACE = (
    r"race on shared memory: (read|write) of 4 bytes that (\(\d+, 0, 0\)|another thread) has (read|written) without a "
)
PLANTED = {
    "race_in_warp": SHARED_RACE + "__syncwarp or barrier between",
    "race_across_warps": SHARED_RACE,
    "race_behind_syncwarp": SHARED_RACE + "barrier between",
    "race_of_writers": "race on shared memory: write of 4 bytes that .* has written",
    "race_of_bytes": "race on shared memory: .* has (read|written)",
    "race_with_atomic": "race on shared memory: (read|atomic operation) of 4 bytes that .* has (read|written)",
    "race_on_device_memory": "race on device memory: (read|write) of 4 bytes that .* has written .* argument 1 ",
    "outside_read": (
        r"out-of-bounds read of 4 bytes of device memory, byte 256 of argument 1 \(256 bytes\); .* thread "
        r"\(63, 0, 0\)"
    ),
    "outside_write": (
        r"out-of-bounds write of 4 bytes of device memory, byte 256 of argument 1 \(256 bytes\); .* thread "
        r"\(0, 0, 0\)"
    ),
    "outside_before": (
        r"out-of-bounds write of 4 bytes of device memory, byte -4 of argument 1 \(256 bytes\); .* thread "
        r"\(0, 0, 0\)"
    ),
    "outside_nowhere": r"out-of-bounds write of 4 bytes, outside all device memory, address 0x40; .* \(9, 0, 0\)",
    "outside_shared": (
        r"out-of-bounds write of 4 bytes of shared memory, byte 64 of first \(64 bytes\); .* "
        r"thread \(15, 0, 0\)"
    ),
    "outside_dynamic": (
        r"out-of-bounds write of 4 bytes of shared memory, byte 256 of the dynamic shared memory; .* thread "
        r"\(63, 0, 0\)"
    ),
    "unwritten_shared": (
        r"read of 4 bytes of shared memory that was never written, byte 252 of all \(256 bytes\); .* thread "
        r"\(0, 0, 0\)"
    ),
    "barrier_in_branch": "divergent barrier",
    "barrier_at_two_places": (
        r"divergent barrier: the thread is at __syncthreads in line \d+, thread .* waits at "
        r"__syncthreads in line"
    ),
    "barrier_after_exit": "divergent barrier: .* exited",
    "misaligned": "misaligned read of 16 bytes of device memory, byte .* of argument 1",
    "misaligned_ldg": "misaligned read of 8 bytes of device memory, byte .* of argument 1",
    "misaligned_shared": "misaligned read of 16 bytes of shared memory",
    "mask_of_exited": "the mask 0xffffffff of __shfl_sync.* exited",
    "mask_without_caller": r"the mask 0x7fffffff of __shfl_sync does not name the calling lane \(31\)",
    "mask_differs": "divergent warp: __any_sync",
    "deadlock": (
        "divergent barrier|deadlock: the thread waits in __syncwarp with mask 0xffffffff for lane 0, which "
        "waits elsewhere"
    ),
    "trap": r"the kernel called __trap.* thread \(3, 0, 0\)",
}
KERNELS = re.findall(r"void planted_(\w+)\(", SOURCE.read_text())


@pytest.fixture
def backend() -> SimulatorBackend:
    return SimulatorBackend()


def run(
    backend: SimulatorBackend, name: str, broken: int, *, n: int = 64, blocks: int = 1, shared: int = 256, seed: int = 0
) -> np.ndarray:
    backend.seed = seed
    function = backend.function(Kernel(file=str(SOURCE), name=f"planted_{name}", threads=64, registers=32))
    memory = backend.allocate(4 * n)
    backend.write(memory.pointer, np.arange(n, dtype=np.int32))
    args = backend.arguments(function, [np.uint64(memory.pointer), np.int32(n), np.int32(broken)])
    backend.enqueue(function, (blocks, 1, 1), (64, 1, 1), args, shared, backend.stream)
    found = np.empty(n, np.int32)
    backend.read(memory.pointer, found)
    return found


def test_every_planted_fault_is_expected() -> None:
    assert {*PLANTED, "endless", "program"} == set(KERNELS)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", PLANTED)
def test_fault_is_found_and_named(backend: SimulatorBackend, name: str, seed: int) -> None:
    with pytest.raises(DeviceFaultError, match=PLANTED[name]) as caught:
        run(backend, name, 1, seed=seed)
    assert caught.value.found.startswith(f"simulated: planted_{name}: ")
    assert re.search(r"planted\.cu:\d+", caught.value.found)
    assert "the simulator can continue" in caught.value.next_step
    run(backend, name, 0, seed=seed)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", PLANTED)
def test_right_kernel_is_not_accused(backend: SimulatorBackend, name: str, seed: int) -> None:
    first = run(backend, name, 0, seed=seed)
    np.testing.assert_array_equal(run(backend, name, 0, seed=100 + seed), first)


def test_line_is_that_of_the_access(backend: SimulatorBackend) -> None:
    lines = SOURCE.read_text().splitlines()
    with pytest.raises(DeviceFaultError) as caught:
        run(backend, "outside_write", 1)
    at = re.search(r"planted\.cu:(\d+)$", caught.value.found)
    assert at is not None
    assert lines[int(at[1]) - 1].strip() == "data[i] = i;"


# Programs for a few threads of two warps: in each step each of them does nothing or accesses some bytes, then some of
# them synchronize.
ACTORS = (0, 1, 17, 33)
KINDS = {"nothing": 0, "read": 1, "write": 2, "atomic": 3}
MEETINGS = {"none": 0, "warp": 1, "block": 2, "half": 3}
ACCESS = st.tuples(st.sampled_from(["read", "write", "atomic"]), st.sampled_from([1, 2, 4, 8]), st.integers(0, 7)).map(
    lambda access: (
        (access[0], 4, access[2] // 4 * 4)
        if access[0] == "atomic"
        else (*access[:2], access[2] // access[1] * access[1])
    )
)
STEP = st.dictionaries(st.sampled_from(ACTORS), ACCESS, max_size=3)


def _has_race(steps: list[tuple[dict[int, tuple[str, int, int]], str]]) -> bool:
    """By the definition: two threads, the same byte, not both reading and not both atomic, without a chain of
    synchronizations between them."""
    before: list[tuple[int, str, range, set[int]]] = []
    for does, meeting in steps:
        for thread, (kind, size, first) in does.items():
            for other, other_kind, where, known_to in before:
                harmless = kind == other_kind and kind != "write"
                if (
                    not harmless
                    and other != thread
                    and thread not in known_to
                    and set(where) & set(range(first, first + size))
                ):
                    return True
            before.append((thread, kind, range(first, first + size), {thread}))
        together = {"none": 1, "half": 16, "warp": 32, "block": 64}[meeting]
        for _, _, _, known_to in before:
            met = {thread // together for thread in known_to}
            known_to |= {thread for thread in ACTORS if thread // together in met}
    return False


@settings(max_examples=400)
@given(st.lists(st.tuples(STEP, st.sampled_from(["none", "warp", "block"])), max_size=6), st.integers(0, 1000))
def test_races_are_those_of_the_definition(steps: list[tuple[dict[int, tuple[str, int, int]], str]], seed: int) -> None:
    assert _accused(steps, seed) == _has_race(steps)


@settings(max_examples=400)
@given(st.lists(st.tuples(STEP, st.sampled_from(["none", "half", "warp"])), max_size=8), st.integers(0, 1000))
def test_no_race_is_made_up_where_parts_of_a_warp_meet(
    steps: list[tuple[dict[int, tuple[str, int, int]], str]], seed: int
) -> None:
    assert _has_race(steps) or not _accused(steps, seed)


def _accused(steps: list[tuple[dict[int, tuple[str, int, int]], str]], seed: int) -> bool:
    program = np.zeros((len(steps) + 1, 65, 3), np.int32)
    for i, (does, meeting) in enumerate(steps):
        program[i, 64, 0] = MEETINGS[meeting]
        for thread, (kind, size, first) in does.items():
            program[i, thread] = KINDS[kind], size, first
    backend = SimulatorBackend()
    backend.seed = seed
    function = backend.function(Kernel(file=str(SOURCE), name="planted_program", threads=64, registers=32))
    memory = backend.allocate(program.nbytes)
    backend.write(memory.pointer, program)
    args = backend.arguments(function, [np.uint64(memory.pointer), np.int32(len(steps)), np.int32(0)])
    try:
        backend.enqueue(function, (1, 1, 1), (64, 1, 1), args, 0, backend.stream)
    except DeviceFaultError as fault:
        return "race on shared memory" in fault.found
    return False


def test_endless_kernel_ends(backend: SimulatorBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_SIMULATOR_SECONDS", "0")
    function = backend.function(Kernel(file=str(SOURCE), name="planted_endless", threads=64, registers=32))
    memory = backend.allocate(256)
    backend.fill(memory.pointer, 0, 256)
    args = backend.arguments(function, [np.uint64(memory.pointer), np.int32(64), np.int32(1)])
    with pytest.raises(DeviceFaultError, match="has not ended after 0 seconds"):
        backend.enqueue(function, (1, 1, 1), (64, 1, 1), args, 0, backend.stream)


def test_freed_memory(backend: SimulatorBackend) -> None:
    function = backend.function(Kernel(file=str(SOURCE), name="planted_outside_write", threads=64, registers=32))
    memory = backend.allocate(256)
    args = backend.arguments(function, [np.uint64(memory.pointer), np.int32(64), np.int32(0)])
    backend.enqueue(function, (1, 1, 1), (64, 1, 1), args, 0, backend.stream)
    memory.free()
    with pytest.raises(DeviceFaultError, match="write of 4 bytes of device memory that was freed"):
        backend.enqueue(function, (1, 1, 1), (64, 1, 1), args, 0, backend.stream)
    with pytest.raises(DeviceFaultError, match="outside every allocation"):
        backend.write(memory.pointer, np.zeros(64, np.int32))


def test_memory_that_nobody_has_written(backend: SimulatorBackend) -> None:
    function = backend.function(Kernel(file=str(SOURCE), name="planted_outside_read", threads=64, registers=32))
    memory = backend.allocate(256)
    args = backend.arguments(function, [np.uint64(memory.pointer), np.int32(64), np.int32(0)])
    with pytest.raises(DeviceFaultError, match="read of 4 bytes of device memory that was never written"):
        backend.enqueue(function, (1, 1, 1), (64, 1, 1), args, 0, backend.stream)
    backend.write(memory.pointer, np.zeros(64, np.int32))
    backend.enqueue(function, (1, 1, 1), (64, 1, 1), args, 0, backend.stream)


@pytest.mark.parametrize(
    ("grid", "block", "shared"),
    [
        ((1, 1, 1), (65, 1, 1), 0),
        ((1, 1, 1), (1, 1, 65), 0),
        ((1, 1, 1), (0, 1, 1), 0),
        ((0, 1, 1), (1, 1, 1), 0),
        ((1, 65536, 1), (1, 1, 1), 0),
        ((1, 1, 1), (1, 1, 1), 232449),
    ],
)
def test_limits(
    backend: SimulatorBackend, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int
) -> None:
    function = backend.function(Kernel(file=str(SOURCE), name="planted_endless", threads=64, registers=32))
    with pytest.raises(LaunchError, match="planted_endless"):
        backend.enqueue(
            function,
            grid,
            block,
            backend.arguments(function, [np.uint64(0), np.int32(0), np.int32(0)]),
            shared,
            backend.stream,
        )


@pytest.mark.parametrize(
    "args",
    [
        [np.uint64(0)],
        [np.uint64(0), np.int32(0), np.int64(0)],
        [np.uint64(0), np.int32(0), np.float32(0)],
        [np.int64(0), np.int32(0), np.int32(0)],
    ],
)
def test_arguments_that_the_source_does_not_have(backend: SimulatorBackend, args: list[np.generic]) -> None:
    function = backend.function(Kernel(file=str(SOURCE), name="planted_endless", threads=64, registers=32))
    with pytest.raises(LaunchError, match="argument"):
        backend.arguments(function, args)


def test_memory_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    used = SimulatorBackend()
    taken = used.info.memory - used.memory()[0]
    monkeypatch.setenv("TRITMARK_SIMULATOR_MEMORY", str(taken + 1000))
    small = SimulatorBackend()
    held = small.allocate(600)
    with pytest.raises(InsufficientMemoryError) as caught:
        small.allocate(600)
    assert (caught.value.required, caught.value.available) == (600, 400)
    held.free()
    small.allocate(600)


def test_what_cannot_be_simulated(backend: SimulatorBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceUnavailableError, match="cannot be simulated"):
        backend.function(Kernel(file=str(SOURCE), name="planted_trap", threads=64, registers=32, simulated=False))
    with pytest.raises(CompileError, match="missing"):
        backend.function(Kernel(file=str(SOURCE), name="missing", threads=64, registers=32))
    monkeypatch.setenv("TRITMARK_SIMULATOR_CAPABILITY", "7.5")
    old = SimulatorBackend()
    assert old.info.arch == "sm_75"
    with pytest.raises(DeviceUnavailableError, match=r"needs compute capability 8\.0 or newer; the simulator has 7\.5"):
        old.function(Kernel(file=str(SOURCE), name="planted_trap", threads=64, registers=32, capability=(8, 0)))


def test_source_that_does_not_compile(backend: SimulatorBackend, tmp_path: Path) -> None:
    (tmp_path / "wrong.cu").write_text('extern "C" __global__ void wrong(int *x) { x[0] = no_such_thing; }\n')
    with pytest.raises(CompileError, match="no_such_thing"):
        backend.function(Kernel(file=str(tmp_path / "wrong.cu"), name="wrong", threads=64, registers=32))
