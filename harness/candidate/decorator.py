"""The decorator that makes a Python function a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

FunctionT = TypeVar("FunctionT", bound=Callable[..., object])


def kernel(
    *,
    op: str,
    dtype: str,
    format: str = "none",
    # record.HOST, written out: user files and the command line import this, and records are costly to import
    device: str = "cpu",
    framework: str = "numpy",
    alignment: int = 1,
    workspace: int | str = 0,
    multiple_of: Mapping[str, int] | None = None,
    min: Mapping[str, int] | None = None,
    max: Mapping[str, int] | None = None,
) -> Callable[[FunctionT], FunctionT]:
    """Declare the decorated function a kernel of `op` for weights in `format` and outputs of `dtype`.

    The function's parameters are the names of the op's inputs, outputs and axes, and "threads"; all are optional.
    Without "threads", NumPy's products use one thread. The function returns the outputs that are not parameters: one
    array, a tuple in the op's order, or a dict. `framework` is the kind of arrays: "numpy", "torch" or "cupy". On a
    device with its own memory, "numpy" means objects with `__cuda_array_interface__`.

    `alignment` is the alignment in bytes that arrays need, a power of two. `workspace` is the scratch memory of a call
    in bytes: a number, or an expression over the op's axes such as "8 * M * K". `multiple_of`, `min` and `max` limit
    the sizes of axes.

    The harness reads the decorator without running the file, so its values must be literals: strings, numbers, dicts.
    """

    def mark(function: FunctionT) -> FunctionT:
        return function

    return mark
