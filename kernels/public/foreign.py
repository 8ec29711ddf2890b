"""Arrays of other libraries as arguments of the public functions. They are read in place, through DLPack or
__cuda_array_interface__, and results are arrays of the same library."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

import numpy as np

from tritmark.harness.errors import DeviceError, InvalidArgumentError
from tritmark.harness.monitor import hook
from tritmark.harness.resident import ResidentArray
from tritmark.kernels.dispatch.array_library import ArrayLibrary, library_of

P = ParamSpec("P")
R = TypeVar("R")

_HOSTS = frozenset((1, 3))
"""DLPack device types of memory that the CPU can read: its own, and pinned memory."""
_OUTPUT = "out"
"""The name of the output argument."""
AUTO = "auto"
"""The `device` of calls whose device is chosen, see auto_device. Arrays on a GPU are used there."""
WIDE = 16
"""Alignment of addresses on a GPU in bytes, for vector loads of kernels."""
_GPU = 2
"""DLPack device type of an NVIDIA GPU."""


def takes_any_array(function: Callable[P, R]) -> Callable[P, R]:
    """A public function that also takes arrays of other libraries. If the first argument is a NumPy array, the call is
    unchanged. Calls with arrays on a GPU run there, regardless of the default of `device`."""
    return _public(function)


def with_plans(function: Callable[P, R]) -> Callable[P, R]:
    """takes_any_array for a function that finds plans, and that therefore reports calls with NumPy arrays to a monitor
    itself."""
    return _public(function, reports=True)


def _public(function: Callable[P, R], *, reports: bool = False) -> Callable[P, R]:
    placed, name = "device" in signature(function).parameters, function.__name__

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        plain = args and type(args[0]) is np.ndarray
        if plain and reports:
            return function(*args, **kwargs)
        watch = hook.active
        if watch is not None and (thread := watch.begin()) is not None:
            watched: R = watch.call(thread, name, function if plain else adopted, args, kwargs)
            return watched
        return function(*args, **kwargs) if plain else adopted(*args, **kwargs)

    def adopted(*args: P.args, **kwargs: P.kwargs) -> R:
        given = AdoptedArguments(name)
        taken = [given.take(value) for value in args]
        named = {name: given.take(value, fill=name == _OUTPUT) for name, value in kwargs.items()}
        if given.device and placed and named.get("device", AUTO) == AUTO:
            named["device"] = given.device
        made = function(*taken, **named)
        found: R = given.give(made)
        return found

    return call


class AdoptedArguments:
    """The arguments of one call."""

    def __init__(self, op: str) -> None:
        self.device = ""
        """The device of the first array in a device's memory, "" for none."""
        self._op = op
        self._library: ArrayLibrary | None = None
        self._origin: dict[int, tuple[Any, Any]] = {}
        """By the id of the substitute: the substitute, and the library's own array."""

    def take(self, value: Any, *, fill: bool = False) -> Any:
        """The argument as the function takes it. An input on a GPU that is strided or not aligned to 16 bytes is copied
        there; an output (`fill`) is not. Raises InvalidArgumentError if the library does not export the array."""
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self.take(each) for each in value))
        library = library_of(value)
        if library is None:
            return value
        if not value.shape:
            return value.item()
        try:
            kind, index = value.__dlpack_device__()
            found = library.host(value) if kind in _HOSTS else self._resident(library, value, int(kind), index, fill)
        except (InvalidArgumentError, DeviceError):
            raise
        except (BufferError, RuntimeError, TypeError, ValueError) as why:
            raise InvalidArgumentError(
                op=self._op, argument=f"a {type(value).__name__}", found=f"not handed out ({why})", legal="one that is"
            ) from None
        self._library = self._library or library
        self._origin[id(found)] = found, value
        return found

    def give(self, value: Any) -> Any:
        """A result as an array of the library."""
        if isinstance(value, tuple):
            made = tuple(self.give(each) for each in value)
            return type(value)(*made) if hasattr(value, "_fields") else made
        if id(value) in self._origin:
            return self._origin[id(value)][1]
        if isinstance(value, ResidentArray):
            return value.owned
        if isinstance(value, np.ndarray) and self._library is not None and not self.device:
            return self._library.given(value)
        return value

    def _resident(self, library: ArrayLibrary, value: Any, kind: int, index: int, fill: bool) -> ResidentArray:
        if kind != _GPU:
            raise BufferError(f"it is on a device of DLPack's type {kind}")
        from tritmark.kernels.cuda.sharing.foreign_array import foreign_array

        found = foreign_array(library, value, index)
        if not fill and found.size and (not found.contiguous or found.pointer % WIDE):
            found = foreign_array(library, library.copied(value), index)
        self.device = self.device or found.device
        return found
