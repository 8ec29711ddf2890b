"""unpack_codes in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, KernelKey
from tritmark.kernels.formats import FORMATS


def reference(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The original codes, and the scales as the format stores them: rounded to float16 if it does so."""
    form, scales = FORMATS[key.weight_format], inputs["scales"]
    kept = scales if form.scale_per != "tensor" else scales[:1, :1]
    return {"codes": inputs["packed"], "scales": kept.astype(form.scale_dtype).astype(np.float32)}
