"""float_narrow in NumPy and ml_dtypes."""

from __future__ import annotations

from typing import Any

from tritmark.harness.spec import Arrays, Axes, KernelKey
from tritmark.kernels.numerics.narrowing import narrowed


def reference(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """See narrowed."""
    return {"h": narrowed(inputs["x"], key.dtype)}
