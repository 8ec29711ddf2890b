"""The one line above a Python function that makes it a kernel."""

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
    """Says that the function below it is a kernel of `op` for weights in `format` and outputs of `dtype`.

    Its parameters are named after the op's inputs, outputs and axes, or "threads"; it is given those and no others.
    Without "threads", NumPy's products take one. Outputs that it does not take it returns: one array, a tuple in the
    op's order, or a dict. `framework` says what arrays it takes and returns: "numpy", "torch" or "cupy"; on a device
    with a memory of its own "numpy" stands for objects with `__cuda_array_interface__`.

    `workspace` is the scratch memory that a call takes, in bytes: a number, or an expression over the op's axes such as
    "8 * M * K".

    The harness reads this line without running the file, so its values are written out: strings, numbers, dicts of
    these.
    """

    def mark(function: FunctionT) -> FunctionT:
        return function

    return mark
