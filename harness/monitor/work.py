"""The least traffic and the operations of calls, by the formulas of their ops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tritmark.harness.spec import KernelKey

Sizes = Mapping[tuple[tuple[str, int], ...], int]


def key_of(kernel: str) -> KernelKey | None:
    """The key in the id of a variant; None for other names."""
    from tritmark.harness.spec import KernelKey

    parts = kernel.split("/", 4)
    return KernelKey(*parts[:4]) if len(parts) == 5 else None


def ordered(kernel: str, axes: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """The axes in the order of the kernel's op."""
    from tritmark.harness.providers import installed

    key = key_of(kernel)
    op = installed().ops.get(key.op) if key is not None else None
    if op is None:
        return axes
    return tuple(sorted(axes, key=lambda axis: op.axes.index(axis[0]) if axis[0] in op.axes else len(op.axes)))


def work(kernel: str, sizes: Sizes) -> tuple[int, int] | None:
    """Bytes and operations of these calls: axes to number of calls. None if the op is unknown here.

    Bytes are those of the op that `kernel` computes, at least: each input is read once and each output written once."""
    from tritmark.harness.providers import installed

    key = key_of(kernel)
    op = installed().ops.get(key.op) if key is not None else None
    if key is None or op is None or not sizes:
        return None
    nbytes = operations = 0
    try:
        for axes, calls in sizes.items():
            traffic = op.traffic(dict(axes), key)
            nbytes += calls * (traffic.read + traffic.written)
            operations += calls * traffic.operations
    except Exception:  # a kernel without a format, such as one in NumPy; formulas of other packages may raise anything
        return None
    return nbytes, operations
