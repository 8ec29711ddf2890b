"""Logical inputs of float_widen from the encoded ones; see harness.spec.Decoding."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, Decoding, KernelKey


def _decode(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    with np.errstate(invalid="ignore"):
        return {"h": np.asarray(inputs["h"]).astype(np.float32)}


DECODINGS = (Decoding(op="float_widen", decode=_decode),)
