"""Memory of the simulated devices: host memory with gaps between allocations, so that an access outside of one is
detected."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from functools import cache
from weakref import finalize

from tritmark.harness.errors import DeviceFaultError, DeviceUnavailableError, InsufficientMemoryError
from tritmark.kernels.cuda.simulator import runtime

_ALIGNMENT = 256
_GAP = 4096
"""Unused bytes after each allocation."""
_AREA = 1 << 35


class SimulatorAllocation:
    """Device memory: host memory between gaps that no kernel may access."""

    def __init__(self, arena: SimulatedMemory, pointer: int, nbytes: int) -> None:
        self.pointer = pointer
        self.nbytes = nbytes
        self._give_back = finalize(self, arena.free, pointer)
        self._give_back.atexit = False

    def free(self) -> None:
        """Free the memory; kernels may not access it afterwards."""
        self._give_back()


class SimulatedMemory:
    """The memory of the devices. Addresses rotate in a larger area, so that freed memory is not reused soon."""

    def __init__(self) -> None:
        self.used: Counter[int] = Counter()
        """Allocated bytes by number of the context; memory that one context leaks does not count for another."""
        self._owners: dict[int, tuple[int, int]] = {}
        """Numbers of the device and context of each allocation."""
        self._base = runtime.library().tritmark_begin(_AREA)
        if not self._base:
            raise DeviceUnavailableError(
                "the system refuses the simulator's address space of 128 GiB, of which only used pages take memory",
                next_step="lift `ulimit -v`, or set vm.overcommit_memory to 0 or 1",
            )
        self._next = self._base + _GAP
        self._live: list[tuple[int, int]] = []
        """(pointer, bytes), sorted."""

    def allocate(self, nbytes: int, most: int, poison: int, owner: int, context: int) -> int:
        """Address of new memory of a device. Its context may use at most `most` bytes, including this."""
        with runtime.LOCK:
            room = -(-nbytes // _ALIGNMENT) * _ALIGNMENT + _GAP
            found = self._from(self._next, room) or self._from(self._base + _GAP, room)
            if self.used[context] + nbytes > most or not found:
                raise InsufficientMemoryError(
                    what="an allocation on the simulated GPU",
                    required=nbytes,
                    available=max(0, most - self.used[context]),
                    next_step="free memory, or use less",
                )
            insort(self._live, (found, nbytes))
            self.used[context] += nbytes
            self._owners[found] = owner, context
            self._next = found + room
            runtime.library().tritmark_allocate(found, nbytes, poison)
            return found

    def _from(self, start: int, room: int) -> int:
        """The first address from `start` with so many free bytes, 0 for none."""
        for pointer, nbytes in self._live[bisect_right(self._live, (start, 0)) :]:
            if start + room <= pointer:
                break
            start = pointer + -(-nbytes // _ALIGNMENT) * _ALIGNMENT + _GAP
        return start if start + room <= self._base + _AREA else 0

    def free(self, pointer: int) -> None:
        """Free an allocation."""
        with runtime.LOCK:
            at = bisect_right(self._live, (pointer, 0))
            if at < len(self._live) and self._live[at][0] == pointer:
                nbytes = self._live.pop(at)[1]
                _, context = self._owners.pop(pointer)
                self.used[context] -= nbytes
                runtime.library().tritmark_free(pointer, nbytes)

    def near(self, address: int) -> tuple[int, int] | None:
        """The allocation that contains the address, or is less than a gap away from it."""
        with runtime.LOCK:  # another thread may allocate and free
            at = bisect_right(self._live, (address, 1 << 62))
            for pointer, nbytes in self._live[max(0, at - 1) : at + 1]:
                if pointer - _GAP < address < pointer + nbytes + _GAP:
                    return pointer, nbytes
            return None

    def owner(self, address: int) -> int | None:
        """The number of the device whose allocation contains the address, or is near it."""
        with runtime.LOCK:
            found = self.near(address)
            return None if found is None else self._owners[found[0]][0]

    def must_hold(self, pointer: int, nbytes: int, what: str, owner: int) -> None:
        """Raises DeviceFaultError unless these bytes are within one allocation of the device."""
        with runtime.LOCK:
            found = self.near(pointer)
            of = owner if found is None else self._owners[found[0]][0]
        if nbytes and (found is None or pointer < found[0] or pointer + nbytes > sum(found)):
            raise DeviceFaultError(
                f"simulated: {what} of {nbytes} bytes at {pointer:#x} is outside every allocation",
                next_step="correct the address or size",
            )
        if of != owner:
            raise DeviceFaultError(
                f"simulated: {what} of GPU {owner} at {pointer:#x} is in the memory of GPU {of}",
                next_step="copy it there first",
            )


@cache
def arena() -> SimulatedMemory:
    """The memory of all simulated devices of the process."""
    return SimulatedMemory()
