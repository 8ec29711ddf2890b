"""Memory that tells what a candidate did to it: canary zones around every array, poison in outputs, a copy to compare
inputs with.

Every array stands flush between two zones of at least ZONE bytes filled with a seeded pattern; a byte of it that
changed is a write outside the array, down to one byte past either end. The pattern is inverted from one run to the
next, so a write that repeats what stood there is seen in the second. Between rows that lie apart every byte is the
greatest or the least that an int8 can be, by turns: whoever takes such rows for dense reads few of them, and more
moderate ones could leave a result within the error that a narrow float is allowed. Zones see writes within their reach
only, and only after the run. Where the candidate has a process of its own (harness.worker), the array can also lie
flush against a page that traps: any access beyond that edge, a read too, ends the process. Else a read outside is not
seen; what it finds differs from run to run, so a result that depends on it is wrong in one of them.

For a device with a memory of its own, array and zones lie in a buffer there. All of it is copied there before a run and
back after it, and judged on the host. Where a simulator sees every access, an array begins or ends with its allocation,
to the byte: a read outside by one byte is seen too, whatever becomes of what it found.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import strides_of
from tritmark.harness.errors import UsageError
from tritmark.harness.spec import Memory
from tritmark.harness.worker.remote import RemoteMemory, SharedMemory
from tritmark.harness.worker.shared import Edge

ZONE = 4096
"""Least bytes of canary on either side of an array."""

ALIGNMENT = 64
"""Alignment in bytes of an "aligned" array; an "unaligned" one begins one element past it."""

MEMORY_ALIGNMENT = 256
"""Alignment in bytes of the buffers of a device's own memory; no array can be promised a larger one."""

LAYOUTS = ("aligned", "unaligned")
"""In "unaligned", the rows of an array whose contract lets them lie apart do so."""

_PATTERN = 1 << 16
_EXTREMES = (0x7F, 0x80)
_RANDOM = np.random.default_rng(0).integers(0, 256, 2 * _PATTERN + 1, dtype=np.uint8)
"""Drawn once: each array's pattern is a part of it."""


def layout_offset(layout: str, itemsize: int) -> int:
    """Bytes past ALIGNMENT at which arrays of that element size begin. Raises UsageError for an unknown layout."""
    if layout not in LAYOUTS:
        raise UsageError(f"unknown layout {layout!r}; legal: {', '.join(LAYOUTS)}")
    return 0 if layout == "aligned" else itemsize


class GuardedArray:
    """One array between two canary zones.

    `shape` and `dtype` are the array's. `offset` is how many bytes past a multiple of `alignment` it begins. `gap` is
    how many bytes of canary lie between its rows (2-D only). `seed` fixes the patterns. `memory` is the device's own,
    None for the host's. `edge`: the end at which a page that traps takes the zone's place, where the memory is a
    worker's; where accesses outside of that memory's allocations trap, the end that the array shares with its own. With
    `flush` an array ends right at the page behind it, wherever that has it begin; else past the end of one that is not
    a multiple of the alignment there remain some bytes of canary. `writable`: whether who is handed the array may write
    it or its zones; where not, an array of a worker's lies in pages that trap the attempt.

    `array` is what is judged, `handle` what a launch is bound to: the same array on the host, its mirror in the
    device's memory else.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        seed: int,
        alignment: int = ALIGNMENT,
        offset: int = 0,
        gap: int = 0,
        memory: Memory | None = None,
        edge: Edge | None = None,
        flush: bool = False,
        writable: bool = True,
    ) -> None:
        row = math.prod(shape[1:]) * dtype.itemsize if gap else math.prod(shape) * dtype.itemsize
        rows = shape[0] if gap else 1
        span = rows * row + (rows - 1) * gap
        self._memory = memory
        if memory is None:
            self._raw = np.empty(ZONE + alignment + offset + span + ZONE, np.uint8)
            start = ZONE + -(self._raw.ctypes.data + ZONE) % alignment + offset
        elif isinstance(memory, SharedMemory):
            # Counted from the edge, where a page begins. At an odd multiple of the alignment where there is no edge:
            # nothing beyond it may be relied on.
            after = ZONE if edge != "end" else 0 if flush else (-span - offset) % alignment
            start = {"start": offset, "end": ZONE, None: ZONE + alignment + offset}[edge]
            self._raw = np.empty(start + span + after, np.uint8)
        elif alignment > MEMORY_ALIGNMENT:
            raise ValueError(f"alignment {alignment}; device memory has {MEMORY_ALIGNMENT}")
        else:
            # At an odd multiple of the alignment: nothing beyond it may be relied on.
            start = -(-ZONE // MEMORY_ALIGNMENT) * MEMORY_ALIGNMENT + alignment % MEMORY_ALIGNMENT + offset
            after = ZONE
            if (
                isinstance(memory, RemoteMemory) and memory.traps
            ):  # what is no part of an allocation: there is no zone at that end
                start, after = offset if edge == "start" else start, 0 if edge == "end" else ZONE
            self._raw = np.empty(start + span + after, np.uint8)
        self._before = self._raw[:start]
        self._after = self._raw[start + span :]
        inside = self._raw[start : start + span]
        strides = (row + gap, *strides_of(shape[1:], dtype.itemsize)) if gap else strides_of(shape, dtype.itemsize)
        self.array: npt.NDArray[Any] = np.ndarray(shape, dtype, buffer=inside, strides=strides)
        # The last row has no gap after it: its end is the zone's beginning.
        self._gaps: npt.NDArray[np.uint8] | None = None
        if gap and rows > 1:
            self._gaps = np.ndarray((rows - 1, gap), np.uint8, buffer=inside, offset=row, strides=(row + gap, 1))
        begin = seed % _PATTERN
        self._pattern = _RANDOM[begin : begin + _PATTERN + 1].copy()
        self._extreme = np.uint8(_EXTREMES[seed % len(_EXTREMES)])
        self._poison: npt.NDArray[Any] | None = None
        self._mirror: Any = None
        self.handle: Any = self.array[...]
        self.handle.setflags(write=writable)
        if memory is not None:
            if isinstance(memory, SharedMemory):
                self._mirror = memory.allocate(self._raw.nbytes, "end" if edge == "end" else "start", writable=writable)
            else:
                self._mirror = memory.allocate(self._raw.nbytes)
            self.handle = memory.view(self._mirror, start, shape, dtype, strides if gap else None)
        self.arm()

    def arm(self) -> None:
        """Fill the zones with the inverse of the pattern that stood there before."""
        np.invert(self._pattern, out=self._pattern)
        self._extreme = np.invert(self._extreme)
        for zone in (self._before, self._after):
            zone[...] = self._fill(zone.shape)
        if self._gaps is not None:
            self._gaps[...] = self._extreme

    @property
    def mirrored(self) -> tuple[Any, npt.NDArray[np.uint8]]:
        """The array and all around it, on the device and here."""
        return self._mirror, self._raw

    def push(self) -> None:
        """Copy the array and all around it to the device; nothing where it lies on the host."""
        if self._memory is not None:
            self._memory.write(self._mirror, self._raw)

    def pull(self) -> None:
        """Copy the array and all around it back from the device."""
        if self._memory is not None:
            self._memory.read(self._mirror, self._raw)

    def poison(self) -> None:
        """Fill the array with the pattern that `arm` inverts, so that no element keeps its poison from one run to
        the next."""
        poison = self._fill((self.array.nbytes,)).copy().view(self.array.dtype).reshape(self.array.shape)
        self.array[...] = poison
        self._poison = poison

    def unwritten(self) -> npt.NDArray[np.bool_]:
        """Which elements still hold their poison, bit for bit; flat, in C order. An element that does so in two runs
        was not written."""
        if self._poison is None:
            raise ValueError("the array was never poisoned")
        same: npt.NDArray[np.bool_] = bits(self._poison) == bits(self.array)
        return same

    def broken(self) -> str:
        """Where the zones changed, in words; "" where they did not."""
        found = []
        if self._untouched:
            return ""
        changed = np.flatnonzero(self._before != self._fill(self._before.shape))
        if changed.size:
            nearest = self._before.size - int(changed[-1])
            found.append(f"{changed.size} bytes before its start changed, the nearest {nearest} away from it")
        changed = np.flatnonzero(self._after != self._fill(self._after.shape))
        if changed.size:
            found.append(f"{changed.size} bytes past its end changed, the nearest {int(changed[0]) + 1} away from it")
        if self._gaps is not None:
            rows = np.flatnonzero((self._gaps != self._extreme).any(axis=1))
            if rows.size:
                found.append(f"bytes between its rows changed, first after row {int(rows[0])}")
        return ", ".join(found)

    @property
    def _untouched(self) -> bool:
        zones = (self._before, self._after)
        return all(np.array_equal(zone, self._fill(zone.shape)) for zone in zones) and (
            self._gaps is None or bool((self._gaps == self._extreme).all())
        )

    def _fill(self, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
        size = math.prod(shape)
        return self._pattern[:size] if size <= self._pattern.size else np.resize(self._pattern, size)


def bits(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The elements as unsigned integers of their size, flat and in C order: NaN equals itself and -0.0 is not 0.0."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(f"u{array.dtype.itemsize}")
