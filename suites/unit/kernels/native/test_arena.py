"""An arena: arrays lie back to back in huge pages, and what the system refused is reported."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tritmark.harness.machine import memory
from tritmark.harness.measure.buffers import ALIGNMENT, HUGE
from tritmark.kernels.native import arena, huge_pages
from tritmark.kernels.native.arena import ArenaPages, WeightArena, huge_bytes, why_small

SIZES = (3 * HUGE + 100, 1, ALIGNMENT, 700_001, HUGE)
HAS_HUGE = pytest.mark.skipif(
    memory.huge_pages() not in {"always", "madvise"}, reason="this machine's transparent huge pages are off"
)


def filled(nbytes: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(nbytes).integers(0, 256, nbytes, dtype=np.uint8)


def test_arrays_lie_back_to_back() -> None:
    made = WeightArena(SIZES)
    copies = [made.copied(filled(nbytes)) for nbytes in SIZES]
    ends = [0, *np.cumsum([-(-nbytes // ALIGNMENT) * ALIGNMENT for nbytes in SIZES])]
    first = copies[0].ctypes.data
    assert first % HUGE == 0
    assert [each.ctypes.data - first for each in copies] == ends[:-1]
    assert all(np.array_equal(each, filled(nbytes)) for each, nbytes in zip(copies, SIZES, strict=True))


@HAS_HUGE
def test_huge_pages_are_counted_as_linux_does() -> None:
    made = WeightArena(SIZES)
    copies = [made.copied(filled(nbytes)) for nbytes in SIZES]
    found = made.pages()
    assert found.nbytes == made.nbytes == sum(-(-each.nbytes // ALIGNMENT) * ALIGNMENT for each in copies)
    # A machine may be short of huge pages, which is then reported.
    assert (found.huge_nbytes == found.nbytes) == (found.why == "")


def test_memory_outside_of_huge_pages_is_not_counted() -> None:
    small = np.zeros(1000, np.uint8)
    assert huge_bytes(small.ctypes.data) in {0, *range(HUGE, 1 << 34, HUGE)}
    assert huge_bytes(1) == 0
    assert huge_bytes(small.ctypes.data, Path("/no/such/file")) == 0


def test_the_mapping_of_the_address_is_read(tmp_path: Path) -> None:
    smaps = tmp_path / "smaps"
    smaps.write_text(
        "1000-3000 rw-p 00000000 00:00 0\nRss: 8 kB\nAnonHugePages:      0 kB\n"
        "200000-800000 rw-p 00000000 00:00 0\nRss: 6144 kB\nAnonHugePages:   4096 kB\n"
    )
    assert huge_bytes(0x2000, smaps) == 0
    assert huge_bytes(0x200000, smaps) == huge_bytes(0x7FFFFF, smaps) == 4 << 20
    assert huge_bytes(0x800000, smaps) == 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("always madvise [never]", "are off; next: echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage"),
        (None, "this Linux kernel has no transparent huge pages"),
        ("always [madvise] never", "no more free ones; next: "),
    ],
)
def test_the_reason_names_the_next_step(tmp_path: Path, text: str | None, found: str) -> None:
    if text is not None:
        place = tmp_path / memory.THP
        place.parent.mkdir(parents=True)
        place.write_text(text)
    assert found in why_small(tmp_path)


OFF = """
import ctypes, numpy as np
from tritmark.kernels import QuantizedLinear, gather_weights, pack_weights
assert ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) == 0  # PR_SET_THP_DISABLE
codes = np.random.default_rng(0).integers(-1, 2, (640, 2560), dtype=np.int8)
print(gather_weights([QuantizedLinear(pack_weights(codes, 0.5))]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_a_process_without_huge_pages_reports_it() -> None:
    if ctypes.CDLL(None).prctl(42, 0, 0, 0, 0) != 0:
        pytest.skip("they are off for this process, too")
    done = subprocess.run([sys.executable, "-W", "error", "-c", OFF], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "0 % of it in huge pages: " in done.stdout
    if memory.huge_pages() in {"always", "madvise"}:
        assert "PR_SET_THP_DISABLE" in done.stdout


def test_what_the_process_may_not_reserve_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(nbytes: int) -> huge_pages.Slab:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(huge_pages, "Slab", refused)
    with pytest.raises(OSError, match="Cannot allocate"):
        WeightArena(SIZES)


def test_small_pages_are_collapsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = WeightArena([HUGE])
    kept = made.copied(filled(HUGE))
    asked: list[str] = []
    monkeypatch.setattr(made._slab, "collapse", lambda: asked.append("collapse"))
    monkeypatch.setattr(arena, "huge_bytes", lambda address: HUGE if asked else 0)
    assert made.pages() == ArenaPages(HUGE, HUGE)
    made.pages()
    assert asked == ["collapse"]
    assert np.array_equal(kept, filled(HUGE))


def test_text() -> None:
    assert str(ArenaPages(2 << 20, 2 << 20)) == "2.00 MiB of packed weights in one arena, 100.0 % of it in huge pages"
    assert str(ArenaPages(2 << 20, 0, "off")).endswith("0.0 % of it in huge pages: off")
