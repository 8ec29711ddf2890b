"""The memory pool: reuse, figures, leaks, health, readiness."""

from __future__ import annotations

import gc
import sys
import threading
from types import ModuleType
from typing import Any

import lazy_device
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tritmark.harness.errors import DeviceError, FreedMemoryError, InsufficientMemoryError
from tritmark.kernels import i2s_quantize
from tritmark.kernels.cuda.memory.blocks import KeptBlocks, PlainBlocks
from tritmark.kernels.cuda.memory.memory import MemoryPool
from tritmark.kernels.cuda.memory.pycuda_pool import SMALL, PyCudaBlocks
from tritmark.kernels.cuda.memory.stats import PerformanceStats

Device = lazy_device.Device


class ModelPool:
    """PyCUDA's DeviceMemoryPool as in its mempool.hpp, on the fake device."""

    bits = 4

    def __init__(self, device):
        self.device = device
        self.bins: dict[int, list[Any]] = {}
        self.managed_bytes = self.active_bytes = 0

    @property
    def held_blocks(self):
        return sum(map(len, self.bins.values()))

    def bin_number(self, size):
        log = size.bit_length() - 1
        shifted = size >> (log - self.bits) if log >= self.bits else size << (self.bits - log)
        return log << self.bits | shifted & ((1 << self.bits) - 1)

    def alloc_size(self, number):
        exponent, mantissa = number >> self.bits, number & ((1 << self.bits) - 1)
        ones = max(1, 1 << (exponent - self.bits)) - 1
        return ((1 << self.bits | mantissa) << (exponent - self.bits)) | ones

    def allocate(self, size):
        number = self.bin_number(size)
        kept = self.bins.get(number)
        if kept:
            source = kept.pop()
        else:
            source = self._from_device(self.alloc_size(number))
            self.managed_bytes += self.alloc_size(number)
        self.active_bytes += size
        return ModelBlock(self, source, size)

    def _from_device(self, size):
        while True:
            try:
                return self.device.allocate(size)
            except InsufficientMemoryError:
                if not self._free_largest():
                    raise ModelMemoryError from None

    def _free_largest(self):
        number = max((number for number, kept in self.bins.items() if kept), default=None)
        if number is None:
            return False
        self.bins[number].pop().free()
        self.managed_bytes -= self.alloc_size(number)
        return True

    def free_held(self):
        while self._free_largest():
            pass

    stop_holding = free_held


class ModelMemoryError(Exception):
    """PyCUDA's MemoryError."""


class ModelBlock:
    def __init__(self, pool, source, size):
        self.pool, self.source, self.size = pool, source, size

    def __int__(self):
        return self.source.pointer

    def free(self):
        self.pool.bins.setdefault(self.pool.bin_number(self.size), []).append(self.source)
        self.pool.active_bytes -= self.size


def pycuda_blocks(device):
    """PyCudaBlocks on the model of PyCUDA's pool."""
    driver: Any = ModuleType("pycuda.driver")
    tools: Any = ModuleType("pycuda.tools")
    driver.Error, driver.MemoryError = Exception, ModelMemoryError
    tools.DeviceMemoryPool = lambda: ModelPool(device)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pycuda", ModuleType("pycuda"))
        patch.setitem(sys.modules, "pycuda.driver", driver)
        patch.setitem(sys.modules, "pycuda.tools", tools)
        patch.setattr("atexit.register", lambda *_: None)
        return PyCudaBlocks(device)


def kept_blocks(device):
    return KeptBlocks(device.allocate)


KINDS = {"plain": lambda device: PlainBlocks(device.allocate), "kept": kept_blocks, "pycuda": pycuda_blocks}


@pytest.fixture(params=KINDS)
def blocks(request):
    return KINDS[request.param]


def pool_of(blocks, memory=1 << 26):
    device = Device(memory)
    stats = PerformanceStats()
    return MemoryPool(device, stats, blocks(device)), device, stats  # type: ignore[arg-type]


def here() -> int:
    return sys._getframe(1).f_lineno


def test_memory_goes_back_with_the_last_view(blocks):
    pool, device, _ = pool_of(blocks)
    array = pool.array((100, 3), np.float32)
    view = array.view((3,), offset=12)
    assert view.pointer == array.pointer + 12
    assert pool.figures().live == 1
    assert pool.figures().requested == 1200
    del array
    assert pool.figures().live == 1
    del view
    assert pool.figures().live == 0
    assert pool.figures().active == 0
    pool.release()
    assert not device.live


@pytest.mark.parametrize("kind", ["kept", "pycuda"])
@pytest.mark.parametrize("nbytes", [1000, 100_000])
def test_same_size_is_served_again(kind, nbytes):
    pool, device, stats = pool_of(KINDS[kind])
    for _ in range(5):
        pool.array((nbytes,), np.uint8)
    assert (stats.cache_hits, stats.cache_misses) == (4, 1)
    held = [pool.array((nbytes,), np.uint8) for _ in range(2)]
    assert (stats.cache_hits, stats.cache_misses) == (5, 2)
    assert len(device.live) == len(held)
    pool.array((2 * nbytes,), np.uint8)
    assert (stats.cache_hits, stats.cache_misses) == (5, 3)
    held.clear()
    held = [pool.array((nbytes,), np.uint8) for _ in range(2)]
    assert (stats.cache_hits, stats.cache_misses) == (7, 3)
    held.clear()
    pool.release()
    assert not device.live


def test_preallocated_sizes_are_hits():
    pool, _, stats = pool_of(kept_blocks)
    pool.preallocate([1 << 20, 1 << 20, 300])
    stats.reset()
    held = [pool.array((1 << 20,), np.uint8), pool.array((1 << 18,), np.float32), pool.array((300,), np.int8)]
    assert (stats.cache_hits, stats.cache_misses) == (3, 0)
    assert pool.figures().active == pool.figures().held
    assert len(held) == pool.figures().live


@given(st.integers(1, 1 << 40))
def test_rounding_is_small_and_aligned(nbytes):
    device = Device()
    kept, both = kept_blocks(device), pycuda_blocks(device)
    assert kept.size(nbytes) >= nbytes
    assert kept.size(nbytes) % 256 == 0
    assert kept.size(kept.size(nbytes)) == kept.size(nbytes)
    assert kept.size(nbytes) - nbytes < max(256, nbytes / 256)
    assert both.size(nbytes) >= nbytes
    # The size of a block shows which half it belongs to.
    assert (both.size(nbytes) >= SMALL) == (nbytes > SMALL - 256)
    if nbytes >= SMALL:
        assert both.size(nbytes) == kept.size(nbytes)


@pytest.mark.parametrize("power", [16, 20, 28, 30, 33])
def test_powers_of_two_cost_nothing(power):
    assert pycuda_blocks(Device()).size(1 << power) == 1 << power


def test_pycudas_own_pool_would_waste_a_sixteenth():
    model = ModelPool(None)
    assert model.alloc_size(model.bin_number(1 << 30)) == (1 << 30) + (1 << 26) - 1


def test_planted_leak_is_named(blocks):
    pool, _, _ = pool_of(blocks)
    kept = [pool.array((7,), np.float32, label="weights")]
    line = here() - 1
    kept += [pool.array((2, 5), np.int8) for _ in range(3)]
    report = pool.leaks()
    assert report
    assert report.nbytes == 28 + 30
    assert report.allocations[0].site == f"{__file__}:{line}"
    assert report.allocations[0].shape == (7,)
    assert report.sites == {f"{__file__}:{line + 2}": (3, 30), f"{__file__}:{line}": (1, 28)}
    assert f'28 bytes, float32 (7,) "weights", of {__file__}:{line}, 0.' in str(report)
    assert "4 allocations of 58 bytes were never freed" in str(report)
    kept.clear()
    assert not pool.leaks()
    assert str(pool.leaks()) == "nothing leaks"


def test_leaks_since_and_watch(blocks):
    pool, _, _ = pool_of(blocks)
    before = pool.array((4096,), np.uint8)
    with pool.watch() as watch:
        pool.array((1 << 16,), np.uint8)
        pool.array((1 << 17,), np.uint8)
        left = pool.array((512,), np.uint8)
        assert [each.nbytes for each in watch.leaks().allocations] == [512]
    assert 1 << 17 <= watch.peak <= 1.004 * (1 << 17) + 512
    pool.array((1 << 18,), np.uint8)
    assert watch.peak < 1 << 18
    del left
    assert not watch.leaks()
    assert pool.leaks().nbytes == before.nbytes


def test_planted_overallocation_is_seen():
    pool, _, _ = pool_of(kept_blocks)
    allowed = pool.required_bytes([1 << 16, 1 << 18]) * 101 // 100

    def op(extra):
        arrays = [pool.array((size,), np.uint8) for size in (1 << 16, 1 << 18, *extra)]
        del arrays

    with pool.watch() as honest:
        op([])
    with pool.watch() as greedy:
        op([8192])
    assert honest.peak <= allowed < greedy.peak


def test_double_free_names_both_places():
    pool, device, _ = pool_of(kept_blocks)
    array = pool.array((5,), np.float64)
    made = here() - 1
    array.owner.free()
    freed = here() - 1
    with pytest.raises(FreedMemoryError) as caught:
        array.owner.free()
    again = here() - 1
    for line in (made, freed, again):
        assert f"{__file__}:{line}" in str(caught.value)
    figures = pool.figures()
    assert (figures.live, figures.active) == (0, 0)
    del array
    gc.collect()
    assert pool.figures().idle == device.used


def test_use_after_free_is_an_error():
    pool, _, _ = pool_of(kept_blocks)
    array = pool.array((5,), np.float32)
    view = array.view((2,))
    array.owner.free()
    for use in (
        array.numpy,
        lambda: view.write(np.zeros(2, np.float32)),
        lambda: array.view((1,)),
        lambda: view.pointer,
    ):
        with pytest.raises(FreedMemoryError, match="was used after"):
            use()


def test_misaligned_memory_is_refused():
    pool, device, _ = pool_of(kept_blocks)
    device.shift = 64
    with pytest.raises(DeviceError, match="256"):
        pool.array((5,), np.float32)
    assert pool.figures().live == 0


def test_out_of_memory_releases_what_is_idle_and_tries_again(blocks):
    pool, device, _ = pool_of(blocks, memory=1 << 20)
    for size in (700_000, 40_000):
        pool.array((size,), np.uint8)
    big = pool.array((1_000_000,), np.uint8)
    assert device.used < 1 << 20
    with pytest.raises(InsufficientMemoryError) as caught:
        pool.array((30, 10_000), np.float32)
    assert caught.value.required >= 1_200_000
    assert caught.value.available == (1 << 20) - pool.figures().held
    assert "float32 (30, 10000)" in str(caught.value)
    assert caught.value.next_step
    assert pool.figures().refused == 1
    assert pool.figures().live == 1
    del big
    pool.array((1_000_000,), np.uint8)


def test_small_blocks_when_memory_is_short():
    """PyCUDA's pool frees its kept blocks itself; the figures follow."""
    pool, device, stats = pool_of(pycuda_blocks, memory=1 << 16)
    kept = [pool.array((5000,), np.uint8) for _ in range(8)]
    kept.clear()
    held = [pool.array((60_000,), np.uint8)]
    assert pool.figures().held == device.used
    with pytest.raises(InsufficientMemoryError):
        pool.array((9000,), np.uint8)
    held.clear()
    held = [pool.array((9000,), np.uint8), pool.array((900,), np.uint8)]
    assert pool.figures().held == device.used
    assert stats.cache_misses == device.allocations
    kept = [pool.array((5000,), np.uint8) for _ in range(9)]
    kept.clear()
    # Needs some of the idle memory, and PyCUDA's pool frees no more than that.
    held.append(pool.array((30_000,), np.uint8))
    assert pool.figures().held == device.used
    assert pool.figures().fragmentation >= 0
    held += [pool.array((5000,), np.uint8) for _ in range(3)]
    assert stats.cache_misses == device.allocations
    assert len(held) == pool.figures().live


def test_readiness_tells_both_figures_and_allocates_nothing(blocks):
    pool, device, _ = pool_of(blocks, memory=1 << 20)
    pool.array((1 << 18,), np.uint8)  # idle or freed: it counts as available
    required = pool.required_bytes([1 << 19, 1 << 18, 0])
    assert required == (1 << 19) + (1 << 18)
    used = pool.figures().held
    pool.ensure_ready("an op", required)
    with pytest.raises(InsufficientMemoryError) as caught:
        pool.ensure_ready("an op", (1 << 20) + 1)
    assert (caught.value.required, caught.value.available) == ((1 << 20) + 1, 1 << 20)
    assert device.used == used
    held = pool.array((1 << 19,), np.uint8)
    with pytest.raises(InsufficientMemoryError):
        pool.ensure_ready("an op", required)
    assert held.nbytes == 1 << 19


def test_the_device_is_asked_only_where_what_is_idle_does_not_do():
    pool, device, _ = pool_of(kept_blocks)
    asked, memory = [], device.memory

    def counted():
        asked.append(1)
        return memory()

    device.memory = counted
    pool.array((1 << 18,), np.uint8)
    for required, times in ((1 << 18, 0), ((1 << 18) + 1, 1), (1, 1)):
        pool.ensure_ready("an op", required)
        assert len(asked) == times
    held = pool.array((1 << 18,), np.uint8)
    pool.ensure_ready("an op", 1)
    assert len(asked) == 2
    assert held.nbytes == 1 << 18


def test_fragmentation():
    pool, _, _ = pool_of(kept_blocks)
    assert pool.figures().fragmentation == 0
    arrays = [pool.array((1 << 16,), np.uint8), pool.array((1 << 17,), np.uint8), pool.array((1 << 18,), np.uint8)]
    assert pool.figures().fragmentation == 0
    del arrays[0], arrays[0]
    # Both are idle, and the smaller one cannot extend the larger one.
    assert pool.figures().fragmentation == (1 << 16) / (7 << 16)
    rounded = pool.array((1,), np.uint8)
    assert pool.figures().fragmentation == pytest.approx(((1 << 16) + 255) / ((7 << 16) + 256))
    assert rounded.nbytes == 1


def test_idle_memory_stays_within_the_most_that_was_in_use():
    pool, device, _ = pool_of(kept_blocks)
    for power in range(10, 22):
        pool.array((1 << power,), np.uint8)
        figures = pool.figures()
        assert figures.idle <= figures.most_active
        assert device.used == figures.held


def test_health():
    pool, device, _ = pool_of(kept_blocks, memory=1 << 20)
    held = pool.array((1 << 19,), np.uint8)
    health = pool.check_memory_health()
    assert health.healthy
    assert (health.free, health.total) == (1 << 19, 1 << 20)
    assert health.oldest.nbytes == 1 << 19
    assert pool.check_memory_health(older_than_s=0.0).reasons[0].startswith("524288 bytes, uint8")
    del held
    pool.release()
    device.total = 1 << 18  # another process took the rest
    health = pool.check_memory_health()
    assert not health.healthy
    assert "262144 bytes are missing" in health.reasons[0]


def test_health_of_a_device_that_counts_less_than_the_pool_holds():
    pool, device, _ = pool_of(kept_blocks)
    held = pool.array((1 << 19,), np.uint8)
    device.simulated = False
    device.memory = lambda: (1 << 20, 1 << 20)
    assert "the device reports 0 in use" in pool.check_memory_health().reasons[0]
    assert held.nbytes == 1 << 19


def test_health_of_a_device_that_does_not_answer():
    pool, device, _ = pool_of(kept_blocks)

    def broken():
        raise DeviceError("it fell off the bus", next_step="reboot")

    device.memory = broken
    health = pool.check_memory_health()
    assert not health.healthy
    assert "it fell off the bus" in health.reasons[0]


@pytest.mark.parametrize("older_than_s", [None, 1e9])
def test_health_of_a_thousand_allocations(benchmark, monkeypatch, older_than_s):
    """Queries the device once and allocates nothing; `--benchmark-only` shows its time."""
    pool, device, _ = pool_of(kept_blocks, memory=1 << 34)
    asked = []

    def memory():
        asked.append(1)
        return 1 << 33, 1 << 34

    monkeypatch.setattr(device, "memory", memory)
    held = [pool.array((256 + step,), np.uint8) for step in range(0, 1 << 15, 32)]
    for step in range(1, 1000):
        pool.array((256 * step,), np.uint8)
    device.graveyard.clear()
    allocations = device.allocations
    assert pool.check_memory_health(older_than_s).healthy
    assert (len(asked), device.allocations) == (1, allocations)
    health = benchmark(pool.check_memory_health, older_than_s)
    assert health.figures.live == len(held)


def test_on_the_device(cuda):
    """The pool of the context: on a GPU, or in the simulator."""
    pool = cuda.pool
    pool.release()
    with pool.watch() as watch:
        values = np.arange(100_003, dtype=np.float32)
        array = cuda.upload(values)
        assert array.pointer % 256 == 0
        np.testing.assert_array_equal(array.numpy(), values)
        assert len(watch.leaks().allocations) == 1
        assert watch.leaks().allocations[0].file == __file__
        assert watch.peak <= 1.01 * values.nbytes
        array.owner.free()
        with pytest.raises(FreedMemoryError):
            array.numpy()
    assert not watch.leaks()
    health = pool.check_memory_health()
    assert health.healthy, health.reasons
    free, _ = cuda.backend.memory()
    with pytest.raises(InsufficientMemoryError):
        pool.ensure_ready("all of it and more", free + pool.figures().idle + (1 << 40))
    with pytest.raises(InsufficientMemoryError):
        pool.array((1 << 50,), np.uint8)


def test_a_hundred_thousand_calls_leave_nothing(blocks):
    pool, device, stats = pool_of(blocks)
    sizes = [300, 1000, 5000, 70_000]
    for step in range(100):
        pool.array((sizes[step % 4],), np.uint8)
    used = device.used
    gc.collect()
    objects = len(gc.get_objects())
    for step in range(100_000 if blocks is kept_blocks else 5_000):
        pool.array((sizes[step % 4],), np.uint8)
        device.graveyard.clear()
    gc.collect()
    assert len(gc.get_objects()) <= objects + 50
    assert device.used == used
    assert pool.figures().live == 0
    assert stats.cache_hits + stats.cache_misses == pool.figures().allocations


def test_calls_leave_nothing_on_the_device(cuda):
    """On a GPU, 100,000 calls."""
    x = np.ones(1000, np.float32)
    for _ in range(50):
        i2s_quantize(x, 1.0, device="cuda")
    gc.collect()
    (free, _), before = cuda.backend.memory(), cuda.pool.figures()
    for _ in range(1000 if cuda.backend.simulated else 100_000):
        i2s_quantize(x, 1.0, device="cuda")
    gc.collect()
    after = cuda.pool.figures()
    assert cuda.backend.memory()[0] >= free
    assert (after.held, after.live) == (before.held, before.live)


def test_arrays_of_other_threads_and_of_cycles_go_back():
    pool, device, _ = pool_of(kept_blocks)

    def work():
        for _ in range(200):
            cycle = [pool.array((1024,), np.uint8)]
            cycle.append(cycle)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    figures = pool.figures()
    assert (figures.live, figures.active, figures.allocations) == (0, 0, 800)
    assert figures.held == device.used


class DriversAllocation:
    """As DriverAllocation: freed by `free` or with the object."""

    def __init__(self, nbytes, freed):
        self.pointer, self.nbytes, self.freed = 256, nbytes, freed

    def free(self):
        self.freed.append(self)

    def __del__(self):
        if self not in self.freed:
            self.free()


def test_memory_in_a_cycle_is_kept_and_not_freed_by_the_driver():
    """The garbage collector calls the finalizers of all objects of a cycle, also of those that one of them saves."""
    freed: list[Any] = []
    pool, _, stats = pool_of(lambda _: KeptBlocks(lambda nbytes: DriversAllocation(nbytes, freed)))
    try:
        array = pool.array((1 << 20,), np.uint8)
        raise ValueError("the frame of a caller, which its traceback refers to")
    except ValueError as error:
        cycle: Any = [error, array]
        cycle.append(cycle)
    del array, cycle
    gc.collect()
    assert pool.figures().live == 0
    again = pool.array((1 << 20,), np.uint8)
    assert stats.cache_hits == 1
    assert not freed
    del again
    pool.release()
    assert len(freed) == 1


class Pool(RuleBasedStateMachine):
    """Any order of requests and frees."""

    LIMIT = 1 << 20
    SIZES = st.one_of(
        st.sampled_from([1, 256, 300, 5000, 65_280, 65_536, 70_000, 200_000, 400_000]),
        st.integers(1, 70_000),
        st.integers(1, LIMIT + 5000),
    )

    @initialize(kind=st.sampled_from(sorted(KINDS)))
    def make(self, kind):
        self.pool, self.device, self.stats = pool_of(KINDS[kind], self.LIMIT)
        self.keeps = kind != "plain"
        self.held = []
        self.made = 0
        self.most = 0

    @rule(nbytes=SIZES)
    def allocate(self, nbytes):
        size = self.pool.required_bytes([nbytes])
        active = self.pool.figures().active
        if active + size > self.LIMIT:
            with pytest.raises(InsufficientMemoryError) as caught:
                self.pool.array((nbytes,), np.uint8)
            assert caught.value.required == size
            assert caught.value.available == self.LIMIT - active
            return
        self.held.append(self.pool.array((nbytes,), np.uint8))
        self.made += 1
        self.most = max(self.most, active + size)

    @rule(sizes=st.lists(st.integers(1, 100_000), max_size=3))
    def preallocate(self, sizes):
        required = self.pool.required_bytes(sizes)
        active = self.pool.figures().active
        if active + required <= self.LIMIT:
            self.pool.preallocate(sizes)
            self.made += len(sizes)
            self.most = max(self.most, active + required)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), explicit=st.booleans())
    def give_back(self, data, explicit):
        array = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        if explicit:
            array.owner.free()
            with pytest.raises(FreedMemoryError):
                array.owner.free()

    @rule()
    def release(self):
        self.pool.release()
        assert self.pool.figures().idle == 0

    @invariant()
    def adds_up(self):
        if not hasattr(self, "pool"):
            return
        figures = self.pool.figures()
        assert figures.requested == sum(array.nbytes for array in self.held)
        assert figures.active == sum(array.owner.allocated.taken for array in self.held)
        assert figures.active == self.pool.required_bytes(array.nbytes for array in self.held)
        assert figures.held == figures.active + figures.idle == self.device.used
        assert figures.live == len(self.held) == len(self.pool.leaks().allocations)
        assert figures.allocations == self.made == self.stats.cache_hits + self.stats.cache_misses
        assert self.stats.cache_misses == self.device.allocations
        assert figures.most_active == self.most
        assert figures.most_held >= figures.held
        assert 0 <= figures.fragmentation <= 1
        assert self.keeps or not figures.idle

    @invariant()
    def nothing_overlaps(self):
        if not hasattr(self, "pool"):
            return
        ends = 0
        for array in sorted(self.held, key=lambda array: array.pointer):
            assert array.pointer % 256 == 0
            assert array.pointer >= ends
            ends = array.pointer + array.owner.allocated.taken
            self.device.at(array.pointer, array.nbytes)  # all of it is allocated

    def teardown(self):
        if hasattr(self, "pool"):
            self.held.clear()
            self.pool.release()
            assert not self.device.live


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
