"""Arrays in device memory, as arguments of the public functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt


class ResidentArray(ABC):
    """An array of another library in device memory. That library also allocates the outputs, on the same device."""

    device: str
    """Type of the device."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]
    """In bytes."""
    owned: Any
    """The array object of the library."""

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
        """Whether it may be an output."""

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
        """The same elements in another shape, as in NumPy. Raises ValueError if that takes a copy."""

    @abstractmethod
    def new(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> ResidentArray:
        """A new array of the library on the same device, with undefined content."""

    @abstractmethod
    def assign(self, other: Any) -> None:
        """Copy the elements of another array of the same shape and dtype; complete on return."""

    @abstractmethod
    def copied(self) -> ResidentArray:
        """The same elements in a new C-contiguous array."""

    @abstractmethod
    def sum(self, values: npt.NDArray[Any]) -> ResidentArray:
        """The sum of this array and a host array; may overwrite this one."""

    @abstractmethod
    def element(self, index: tuple[int, ...]) -> Any:
        """One element, on the host."""


def first_on_device(values: Iterable[Any]) -> ResidentArray | None:
    """The first of them in device memory, or None."""
    for value in values:
        # isinstance with an abstract class is slow, and most arguments are NumPy arrays.
        if type(value) is not np.ndarray and isinstance(value, ResidentArray):
            return value
    return None
