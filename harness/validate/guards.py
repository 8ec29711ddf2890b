"""Memory that shows what a candidate wrote: canary zones around each array, poison in outputs, and a copy of the
inputs.

Each array lies directly between two zones of ZONE bytes or more, filled with a seeded pattern. A changed byte is a
write outside the array, detected down to one byte past either end. The pattern is inverted before each run, so a write
that repeats the old byte is detected in the second run. Gaps between strided rows hold the least or the greatest int8,
alternating: a kernel that takes such rows for dense reads few of these bytes, and moderate values could stay within the
error that a narrow float is allowed.

Zones detect only writes within their reach, after the run. In a process of its own (harness.worker) an array can also
lie directly at a guard page: any access beyond that edge, also a read, ends the process. Elsewhere a read outside the
array is not detected. The bytes there differ from run to run, so a result that depends on them is incorrect in one of
the runs.

On a device with its own memory, array and zones lie in a buffer there. All of it is copied to the device before a run,
copied back after it, and judged on the host. In a simulator that checks every access, an array begins or ends with its
allocation, so a read one byte outside is detected too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import strides_of
from tritmark.harness.errors import UsageError
from tritmark.harness.spec import Memory
from tritmark.harness.text.units import counted
from tritmark.harness.worker.remote import RemoteMemory, SharedMemory
from tritmark.harness.worker.shared import Edge

ZONE = 4096
"""Least number of canary bytes on either side of an array."""

ALIGNMENT = 64
"""Alignment in bytes of an "aligned" array. An "unaligned" one begins one element past it."""

MEMORY_ALIGNMENT = 256
"""Alignment in bytes of buffers in a device's own memory. No array can have a larger one."""

LAYOUTS = ("aligned", "unaligned")
"""In "unaligned", arrays whose contract admits strided rows have gaps between their rows."""

_PATTERN = 1 << 16
_EXTREMES = (0x7F, 0x80)
_RANDOM = np.random.default_rng(0).integers(0, 256, 2 * _PATTERN + 1, dtype=np.uint8)
"""Drawn once: the pattern of each array is a part of it."""


def layout_offset(layout: str, itemsize: int) -> int:
    """Bytes past ALIGNMENT at which arrays of that element size begin. Raises UsageError for an unknown layout."""
    if layout not in LAYOUTS:
        raise UsageError(f"unknown layout {layout!r}; legal: {', '.join(LAYOUTS)}")
    return 0 if layout == "aligned" else itemsize


class GuardedArray:
    """One array between two canary zones.

    - `shape`, `dtype`: of the array.
    - `seed`: fixes the patterns.
    - `alignment`, `offset`: the array begins `offset` bytes past a multiple of `alignment`.
    - `gap`: canary bytes between its rows (2-D only).
    - `memory`: the device's own memory, None for the host's.
    - `edge`: the end at which a guard page replaces the zone, in a worker's memory. Where accesses outside an
      allocation trap, the end that the array shares with its allocation.
    - `flush`: an array with a page behind it ends exactly there. By default some canary bytes remain if its size is not
      a multiple of the alignment.
    - `writable`: whether the launch may write the array and its zones. If not, an array of a worker lies in pages that
      trap the attempt.

    `array` is judged. A launch is bound to `handle`: the same array on the host, or its mirror in the device's memory.
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
            # Counted from the edge, where a page begins. Without an edge at an odd multiple of the alignment: no kernel
            # may rely on more.
            after = ZONE if edge != "end" else 0 if flush else (-span - offset) % alignment
            start = {"start": offset, "end": ZONE, None: ZONE + alignment + offset}[edge]
            self._raw = np.empty(start + span + after, np.uint8)
        elif alignment > MEMORY_ALIGNMENT:
            raise ValueError(f"alignment {alignment}: device memory aligns to at most {MEMORY_ALIGNMENT} bytes")
        else:
            # At an odd multiple of the alignment: no kernel may rely on more.
            start = -(-ZONE // MEMORY_ALIGNMENT) * MEMORY_ALIGNMENT + alignment % MEMORY_ALIGNMENT + offset
            after = ZONE
            if (
                isinstance(memory, RemoteMemory) and memory.traps
            ):  # bytes outside the allocation trap, so there is no zone at that end
                start, after = offset if edge == "start" else start, 0 if edge == "end" else ZONE
            self._raw = np.empty(start + span + after, np.uint8)
        self._before = self._raw[:start]
        self._after = self._raw[start + span :]
        inside = self._raw[start : start + span]
        strides = (row + gap, *strides_of(shape[1:], dtype.itemsize)) if gap else strides_of(shape, dtype.itemsize)
        self.array: npt.NDArray[Any] = np.ndarray(shape, dtype, buffer=inside, strides=strides)
        # No gap follows the last row: the zone begins there.
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
        """Fill the zones with the inverse of their last pattern."""
        np.invert(self._pattern, out=self._pattern)
        self._extreme = np.invert(self._extreme)
        for zone in (self._before, self._after):
            zone[...] = self._fill(zone.shape)
        if self._gaps is not None:
            self._gaps[...] = self._extreme

    @property
    def mirrored(self) -> tuple[Any, npt.NDArray[np.uint8]]:
        """The array with its zones: on the device, and on the host."""
        return self._mirror, self._raw

    def push(self) -> None:
        """Copy the array with its zones to the device. Does nothing if the array lies on the host."""
        if self._memory is not None:
            self._memory.write(self._mirror, self._raw)

    def pull(self) -> None:
        """Copy the array with its zones back from the device."""
        if self._memory is not None:
            self._memory.read(self._mirror, self._raw)

    def poison(self) -> None:
        """Fill the array with the pattern that `arm` inverts, so no element keeps its poison from one run to the
        next."""
        poison = self._fill((self.array.nbytes,)).copy().view(self.array.dtype).reshape(self.array.shape)
        self.array[...] = poison
        self._poison = poison

    def unwritten(self) -> npt.NDArray[np.bool_]:
        """Which elements still hold their poison, bit for bit; flat, in C order. An element that holds it in two runs
        was not written."""
        if self._poison is None:
            raise ValueError("the array was never poisoned; call poison() before the run")
        same: npt.NDArray[np.bool_] = bits(self._poison) == bits(self.array)
        return same

    def broken(self) -> str:
        """Description of the changes in the zones; "" if there are none."""
        found = []
        if self._untouched:
            return ""
        changed = np.flatnonzero(self._before != self._fill(self._before.shape))
        if changed.size:
            nearest = self._before.size - int(changed[-1])
            found.append(
                f"{counted(changed.size, 'byte')} before its start changed, the nearest {nearest} away from it"
            )
        changed = np.flatnonzero(self._after != self._fill(self._after.shape))
        if changed.size:
            found.append(
                f"{counted(changed.size, 'byte')} past its end changed, the nearest {int(changed[0]) + 1} away from it"
            )
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
    """The elements as unsigned integers of their size, flat and in C order: NaN equals itself, and -0.0 differs from
    0.0."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(f"u{array.dtype.itemsize}")
