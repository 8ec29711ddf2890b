"""Memory of the simulated devices: host memory, with gaps between allocations, so that an access outside of one is
seen."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from functools import cache
from weakref import finalize

from tritmark.harness.errors import DeviceFaultError, DeviceUnavailableError, InsufficientMemoryError
from tritmark.kernels.cuda.simulator import runtime

_ALIGNMENT = 256
_GAP = 4096
"""Bytes after each allocation that belong to none."""
_AREA = 1 << 35


class SimulatorAllocation:
    """Device memory: host memory between gaps that no kernel may touch."""

    def __init__(self, arena: SimulatedMemory, pointer: int, nbytes: int) -> None:
        self.pointer = pointer
        self.nbytes = nbytes
        self._give_back = finalize(self, arena.free, pointer)
        self._give_back.atexit = False

    def free(self) -> None:
        """Give it back; kernels may not touch it from here on."""
        self._give_back()


class SimulatedMemory:
    """The device's memory. Addresses go round in an area that is larger, so that freed memory is not soon used
    again."""

    def __init__(self) -> None:
        self.used: Counter[int] = Counter()
        """Bytes that each context has allocated, by its number: what one leaves behind is not another's."""
        self._owners: dict[int, tuple[int, int]] = {}
        """The device and the context of each allocation, by their numbers."""
        self._base = runtime.library().tritmark_begin(_AREA)
        if not self._base:
            raise DeviceUnavailableError(
                "the system refuses the simulator its address space (128 GiB, of which only what is used takes memory)",
                next_step="lift `ulimit -v`, or set vm.overcommit_memory to 0 or 1",
            )
        self._next = self._base + _GAP
        self._live: list[tuple[int, int]] = []
        """(pointer, bytes), sorted."""

    def allocate(self, nbytes: int, most: int, poison: int, owner: int, context: int) -> int:
        """Address of new memory of a device, where its context uses no more than `most` bytes with that."""
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
        """The first address from `start` on with so many bytes that are free, 0 for none."""
        for pointer, nbytes in self._live[bisect_right(self._live, (start, 0)) :]:
            if start + room <= pointer:
                break
            start = pointer + -(-nbytes // _ALIGNMENT) * _ALIGNMENT + _GAP
        return start if start + room <= self._base + _AREA else 0

    def free(self, pointer: int) -> None:
        """Give an allocation back."""
        with runtime.LOCK:
            at = bisect_right(self._live, (pointer, 0))
            if at < len(self._live) and self._live[at][0] == pointer:
                nbytes = self._live.pop(at)[1]
                _, context = self._owners.pop(pointer)
                self.used[context] -= nbytes
                runtime.library().tritmark_free(pointer, nbytes)

    def near(self, address: int) -> tuple[int, int] | None:
        """The allocation that holds the address, or ends shortly before it, or begins shortly after it."""
        with runtime.LOCK:  # another thread allocates and frees
            at = bisect_right(self._live, (address, 1 << 62))
            for pointer, nbytes in self._live[max(0, at - 1) : at + 1]:
                if pointer - _GAP < address < pointer + nbytes + _GAP:
                    return pointer, nbytes
            return None

    def owner(self, address: int) -> int | None:
        """The number of the device whose allocation holds the address, or is near it."""
        with runtime.LOCK:
            found = self.near(address)
            return None if found is None else self._owners[found[0]][0]

    def must_hold(self, pointer: int, nbytes: int, what: str, owner: int) -> None:
        """Raises DeviceFaultError where so many bytes from there are not within one allocation of the device."""
        with runtime.LOCK:
            found = self.near(pointer)
            of = owner if found is None else self._owners[found[0]][0]
        if nbytes and (found is None or pointer < found[0] or pointer + nbytes > sum(found)):
            raise DeviceFaultError(
                f"simulated: {what} of {nbytes} bytes at {pointer:#x} is outside every allocation",
                next_step="mend address or size",
            )
        if of != owner:
            raise DeviceFaultError(
                f"simulated: {what} of GPU {owner} at {pointer:#x} is in the memory of GPU {of}",
                next_step="copy it there first",
            )


@cache
def arena() -> SimulatedMemory:
    """The memory of all simulated devices, which is the process's."""
    return SimulatedMemory()
