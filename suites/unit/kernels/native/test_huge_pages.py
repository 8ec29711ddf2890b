"""Packed weights lie side by side in advised memory, and it goes back when they die."""

from __future__ import annotations

import errno
import gc
import re
import threading
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.measure.buffers import ALIGNMENT, HUGE
from tritmark.kernels import pack_weights
from tritmark.kernels.native import huge_pages
from tritmark.kernels.native.huge_pages import LEAST_BYTES, SLAB_BYTES, HugePages, Slab

Bytes = npt.NDArray[np.uint8]


def filled(nbytes: int, seed: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


def mapped(address: int) -> dict[str, str]:
    """What the kernel has of the mapping that holds an address; nothing where there is none."""
    found: dict[str, str] = {}
    inside = False
    for line in Path("/proc/self/smaps").read_text(encoding="ascii", errors="replace").splitlines():
        if span := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            if found:
                break
            inside = int(span[1], 16) <= address < int(span[2], 16)
        elif inside:
            name, _, value = line.partition(":")
            found[name] = value.strip()
    return found


def resident(address: int) -> int:
    """Bytes of the mapping there that take memory."""
    return 1024 * int(mapped(address).get("Rss", "0 kB").split()[0])


def test_a_copy_has_the_values_the_shape_and_a_cache_line_of_its_own() -> None:
    pages = HugePages()
    for nbytes in (LEAST_BYTES, LEAST_BYTES + 1, 3 * HUGE + 5, SLAB_BYTES + 3):
        values = filled(nbytes, nbytes).reshape(1, nbytes)
        made = pages.copied(values)
        assert made.ctypes.data % ALIGNMENT == 0
        assert made.shape == values.shape
        assert made.flags.writeable
        assert np.array_equal(made, values)


def test_small_weights_stay_where_they_are() -> None:
    values = filled(LEAST_BYTES - 1, 0)
    assert HugePages().copied(values) is values


def test_weights_share_huge_pages_whatever_lies_between_their_calls() -> None:
    pages, kept = HugePages(), []
    sizes = np.random.default_rng(3).integers(LEAST_BYTES, 1 << 20, 40)
    for number, nbytes in enumerate(sizes):
        kept.append((pages.copied(filled(nbytes, number)), np.empty(nbytes // 3, np.uint8)))
    slabs = {made.ctypes.data // HUGE for made, _ in kept} | {
        (made.ctypes.data + made.nbytes - 1) // HUGE for made, _ in kept
    }
    aligned = sum(-(-int(nbytes) // ALIGNMENT) * ALIGNMENT for nbytes in sizes)
    assert len(slabs) == -(-aligned // HUGE), "the least number of pages that hold them"
    flags = mapped(kept[0][0].ctypes.data)["VmFlags"].split()
    assert "hg" in flags, f"advised to be of huge pages: {flags}"


def test_a_slab_goes_back_with_its_last_weights() -> None:
    pages = HugePages()
    kept = [pages.copied(filled(1 << 20, seed)) for seed in range(8)]
    at = kept[0].ctypes.data
    assert resident(at) >= 8 << 20
    del kept[::2]
    assert mapped(at)
    kept.clear()
    gc.collect()
    assert not mapped(at)


def test_pages_go_back_before_their_slab_does() -> None:
    pages = HugePages()
    first, second = pages.copied(filled(4 * HUGE, 1)), pages.copied(filled(4 * HUGE, 2))
    assert second.ctypes.data == first.ctypes.data + 4 * HUGE
    before = resident(second.ctypes.data)
    del first
    assert before - resident(second.ctypes.data) == 4 * HUGE
    assert np.array_equal(second, filled(4 * HUGE, 2))


def test_a_page_stays_as_long_as_any_weights_are_in_it() -> None:
    pages = HugePages()
    half = HUGE // 2
    first, second, third = (pages.copied(filled(half, seed)) for seed in (1, 2, 3))
    before = resident(second.ctypes.data)
    del first
    assert resident(second.ctypes.data) == before
    assert np.array_equal(second, filled(half, 2))
    del second
    assert before - resident(third.ctypes.data) == HUGE
    assert np.array_equal(third, filled(half, 3))


def test_views_of_views_keep_the_memory() -> None:
    pages = HugePages()
    made = pages.copied(filled(HUGE, 4))
    view = made.reshape(-1, 64)[5:, ::2].view(np.int8)[1:]
    expected = filled(HUGE, 4).reshape(-1, 64)[5:, ::2].view(np.int8)[1:]
    del made
    gc.collect()
    other = pages.copied(filled(HUGE, 5))
    assert np.array_equal(view, expected)
    assert np.array_equal(other, filled(HUGE, 5))


@pytest.mark.nightly
def test_what_was_freed_is_taken_again() -> None:
    pages = HugePages()
    kept = pages.copied(filled(LEAST_BYTES, 0))
    places = {pages.copied(filled(3 * HUGE, seed)).ctypes.data // SLAB_BYTES for seed in range(100)}
    assert len(places) == 1
    assert np.array_equal(kept, filled(LEAST_BYTES, 0))


def test_weights_that_die_in_the_midst_of_a_call_are_freed_after_it() -> None:
    """As the garbage collector may have it."""
    pages = HugePages()
    kept, made = pages.copied(filled(HUGE, 1)), pages.copied(filled(HUGE, 2))
    at = made.ctypes.data
    with pages._lock:
        del made
        assert resident(at) >= 2 * HUGE
    assert pages.copied(filled(LEAST_BYTES, 3)).ctypes.data == at, "what was freed is taken first"
    assert np.array_equal(kept, filled(HUGE, 1))


def test_a_child_process_is_not_kept_waiting() -> None:
    pages = HugePages()
    assert pages._lock.acquire(blocking=False)  # by a thread that is not in the child
    pages.after_fork()
    assert np.array_equal(pages.copied(filled(HUGE, 1)), filled(HUGE, 1))


def test_without_address_space_weights_stay_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(nbytes: int) -> Slab:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(huge_pages, "Slab", refused)
    values = filled(HUGE, 1)
    assert HugePages().copied(values) is values


@pytest.mark.nightly
def test_threads_share_slabs() -> None:
    pages = HugePages()
    wrong: list[int] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        kept: dict[int, Bytes] = {}
        for number in range(60):
            key = seed * 1000 + number
            kept[key] = pages.copied(filled(int(rng.integers(LEAST_BYTES, HUGE)), key))
            if len(kept) > 5:
                old, made = kept.popitem() if rng.random() < 0.3 else (next(iter(kept)), kept.pop(next(iter(kept))))
                if not np.array_equal(made, filled(made.nbytes, old)):
                    wrong.append(old)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    pages._collect()
    assert not wrong
    assert not pages._slabs


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3 * HUGE // ALIGNMENT)), max_size=60), st.randoms())
def test_no_two_lie_in_one_place(calls: list[tuple[bool, int]], random: Random) -> None:
    slab = Slab(SLAB_BYTES)
    taken: dict[int, int] = {}
    for frees, lines in calls:
        if frees and taken:
            dead = random.choice(sorted(taken))
            slab.give_back(dead, taken.pop(dead))
            continue
        begin = slab.take(lines * ALIGNMENT)
        gaps, at = [], 0
        for other, nbytes in sorted(taken.items()):
            gaps.append(other - at)
            at = other + nbytes
        gaps.append(SLAB_BYTES - at)
        assert (begin is None) == (max(gaps) < lines * ALIGNMENT)
        if begin is not None:
            end = begin + lines * ALIGNMENT
            assert all(end <= other or other + nbytes <= begin for other, nbytes in taken.items())
            assert 0 <= begin <= end <= SLAB_BYTES
            taken[begin] = lines * ALIGNMENT
    for left, nbytes in taken.items():
        slab.give_back(left, nbytes)
    assert slab.unused


@pytest.mark.parametrize("format", ["tile64", "i2_s_x86"])
def test_packed_weights_lie_there(format: str) -> None:
    """Those of `pack_weights`, and those that are repacked for a kernel."""
    codes = np.random.default_rng(0).integers(-1, 2, (640, 2560), dtype=np.int8)
    weights = pack_weights(codes, 1.0, format=format)
    for data in (weights.data, weights.packed_as("tl2" if format == "tile64" else "tile64")):
        assert "hg" in mapped(data.ctypes.data)["VmFlags"].split()
        assert data.ctypes.data % ALIGNMENT == 0
    assert np.array_equal(weights.unpack()[0], codes)
