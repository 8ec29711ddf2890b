"""The error bound of a product of experts, from that of one matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes
from tritmark.kernels.ternary_matmul_experts.offsets import parts

Bound = Callable[[Arrays, Axes], Mapping[str, Any]]


def of_experts(bound: Bound, inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The bound of each expert's product."""
    found = np.zeros((axes["M"], axes["N"]))
    for expert, rows in parts(inputs["offsets"], axes["M"]):
        one = {
            "activations": inputs["activations"][rows],
            "weights": inputs["weights"][expert],
            "weight_scale": inputs["weight_scale"][expert],
            "act_scale": inputs["act_scale"][rows],
        }
        found[rows] = bound(one, {"M": len(rows), "N": axes["N"], "K": axes["K"]})["out"]
    return {"out": found}
