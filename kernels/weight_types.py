"""Tensor types of weight files that hold ternary codes, and the format of each.

I2_S does not record for which build of bitnet.cpp it was written. The default is x86, as in published files; the others
must be requested. Types with a format that is not installed are refused when they are read.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Ternarized, WeightType
from tritmark.harness.weights.ternary import PACKED_ROWS
from tritmark.kernels.absmean_quantize.api import absmean_quantize

WEIGHT_TYPES: tuple[WeightType, ...] = (
    WeightType(dtype="i2_s", layouts={"x86": "i2_s_x86", "arm": "i2_s_arm", "x86_r4": "i2_s_x86_r4"}),
    *(
        WeightType(dtype=name, layouts={"": name})
        for name in ("tq1_0", "tq2_0", "q2_0", "pq2_0", "ptq1_0", "iq1_bn", "iq2_bn", "iq2_bn_r4")
    ),
    WeightType(dtype="stq1_0", layouts={"": "stq1_0"}, written=False),
    # Type 42 if the positions of its tensors do not determine the format, and STQ1_0 under that number.
    WeightType(dtype="type_42", layouts={"g64": "q2_0", "g128": "pq2_0"}, written=False, usual=False),
    WeightType(dtype="type_42_stq", layouts={"quads": "stq1_0_quads", "stride16": "stq1_0"}, written=False),
    WeightType(dtype=PACKED_ROWS, layouts={"": "hf_pack"}),
)


def ternarize(weights: npt.NDArray[np.float32]) -> Ternarized:
    """BitNet b1.58's rule for its master weights, float32 (N, K): absmean, one scale."""
    codes, scale = absmean_quantize(weights)
    return Ternarized(codes, scale)
