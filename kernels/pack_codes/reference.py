"""pack_codes in NumPy."""

from __future__ import annotations

from typing import Any

from tritmark.harness.spec import Arrays, Axes, KernelKey
from tritmark.kernels.formats import FORMATS


def reference(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The format's own packer. `scales` are (N, blocks); a format with one scale for the tensor takes the first."""
    return {"packed": packed(key.weight_format, inputs["codes"], inputs["scales"])}


def packed(format: str, codes: Any, scales: Any) -> Any:
    """Codes in the bytes of a format, with as many of the scales as it holds."""
    form = FORMATS[format]
    return form.pack(codes, scales if form.scale_per != "tensor" else scales[0, 0], tail="error")
