"""ternary_matmul_experts in NumPy: for each expert the reference of ternary_matmul, of its rows and weights.

So int32 outputs are exact, products with one scale for an expert are rounded once, and those with a scale for each
group have the bound of ternary_matmul (kernels/ternary_matmul/reference.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, KernelKey
from tritmark.kernels.ternary_matmul import reference as one
from tritmark.kernels.ternary_matmul.reference import Sums, accumulate
from tritmark.kernels.ternary_matmul_experts.offsets import parts


def reference(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The outputs of each expert's rows, see ternary_matmul; with a scale for each group of weights also
    `out.bound`."""
    return product(inputs, axes, key, accumulate)


def product(inputs: Arrays, axes: Axes, key: KernelKey, sums: Sums) -> dict[str, Any]:
    """The outputs, with `sums(activations, codes)` as the sums of columns that share a scale."""
    M, N, K = axes["M"], axes["N"], axes["K"]
    made: dict[str, Any] = {}
    for expert, rows in parts(inputs["offsets"], M):
        of_expert = {
            "activations": inputs["activations"][rows],
            "weights": inputs["weights"][expert],
            "weight_scale": inputs["weight_scale"][expert],
            "act_scale": inputs["act_scale"][rows],
        }
        computed = one.product(of_expert, {"M": len(rows), "N": N, "K": K}, key, sums)
        for name, values in computed.items():
            made.setdefault(name, np.empty((M, N), values.dtype))[rows] = values
    return made
