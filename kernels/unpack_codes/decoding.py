"""Logical inputs of unpack_codes from the encoded ones; see harness.spec.Decoding."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, Decoding, KernelKey
from tritmark.kernels.formats import FORMATS


def _decode(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    codes, scales = FORMATS[key.format].unpack(inputs["packed"], (axes["N"], axes["K"]))
    return {
        "packed": codes,
        "scales": np.asarray(scales, np.float32).reshape((1, 1) if np.ndim(scales) == 0 else np.shape(scales)),
    }


DECODINGS = (Decoding(op="unpack_codes", decode=_decode),)
