"""A kernel of float_widen: float16 to float32, exactly; NaN as the quiet NaN of its sign and payload."""

from typing import Any

import numpy as np

from tritmark.harness.candidate import kernel

AT_ONCE = 1 << 14  # elements: temporary arrays count as memory


@kernel(op="float_widen", format="float16", dtype="float32")
def widen(h: Any, x: Any) -> None:
    """h is float16 (n,), x float32 (n,)."""
    with np.errstate(all="ignore"):
        for begin in range(0, h.size, AT_ONCE):
            given, made = h[begin : begin + AT_ONCE], x[begin : begin + AT_ONCE]
            made[...] = given
            nan = np.isnan(given)
            if nan.any():
                bits = given[nan].view(np.uint16).astype(np.uint32)
                quiet = (bits & 0x8000) << 16 | 0x7FC00000 | (bits & 0x1FF) << 13
                made[nan] = quiet.view(np.float32)
