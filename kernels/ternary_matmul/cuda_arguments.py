"""Arguments that the CUDA kernels of ternary_matmul share."""

from __future__ import annotations

import numpy as np

from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.launch import Call

SHARED = 48 << 10
"""Bytes of shared memory that a block has on every device without an opt-in."""
KINDS = {"int32": 0, "float32": 1, "bfloat16": 2, "float16": 3}
"""The numbers of output dtypes in `store` of common.cuh."""


def arrays(call: Call) -> tuple[DeviceArray, DeviceArray, DeviceArray, DeviceArray]:
    """Activations, weights, scales of the activations, and the output."""
    inputs = call.inputs
    return inputs["activations"], inputs["weights"], inputs["act_scale"], call.outputs["out"]


def activation_row_bytes(call: Call) -> np.int64:
    """Bytes between rows of activations."""
    return np.int64(call.inputs["activations"].strides[0])


def scalars(call: Call, kind: int) -> tuple[np.float32, np.int32, np.int32, np.int32, np.int32]:
    """Scale of the weights, M, N, K, and the kind of output."""
    M, N, K = (np.int32(call.axes[axis]) for axis in "MNK")
    return np.float32(call.inputs["weight_scale"]), M, N, K, np.int32(kind)
