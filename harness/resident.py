"""Arrays that lie in a device's memory already, as the public functions are handed them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt


class ResidentArray(ABC):
    """An array of another library in a device's memory; what a function makes of it is made there, by that library."""

    device: str
    """Type of the device."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]
    """In bytes."""
    owned: Any
    """The library's own array."""

    @property
    @abstractmethod
    def pointer(self) -> int:
        """Address on the device."""

    @property
    @abstractmethod
    def ndim(self) -> int:
        """Number of axes."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of elements."""

    @property
    @abstractmethod
    def writable(self) -> bool:
        """Whether a caller may have it filled."""

    @property
    @abstractmethod
    def contiguous(self) -> bool:
        """Whether it is C-contiguous."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the elements."""

    @abstractmethod
    def reshape(self, *shape: Any) -> ResidentArray:
        """The same elements in another shape, as NumPy has it. Raises ValueError where that takes a copy."""

    @abstractmethod
    def new(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> ResidentArray:
        """Another array of the library on the same device, content undefined."""

    @abstractmethod
    def assign(self, other: Any) -> None:
        """Fill this one with the elements of another of its shape and dtype; complete on return."""

    @abstractmethod
    def copied(self) -> ResidentArray:
        """The same elements in a new C-contiguous array."""

    @abstractmethod
    def sum(self, values: npt.NDArray[Any]) -> ResidentArray:
        """This one, which may be written for it, and an array of the host's, added."""

    @abstractmethod
    def element(self, index: tuple[int, ...]) -> Any:
        """One element, on the host."""


def first_on_device(values: Iterable[Any]) -> ResidentArray | None:
    """The first of them that lies in a device's memory, or None."""
    for value in values:
        # To ask an abstract class takes longer than to see what most of them are.
        if type(value) is not np.ndarray and isinstance(value, ResidentArray):
            return value
    return None
