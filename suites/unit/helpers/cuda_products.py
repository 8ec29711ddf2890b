"""Shared parts of the tests of CUDA products: data, the correct product, and a run of one variant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Variant
from tritmark.kernels import FORMATS

if TYPE_CHECKING:
    from tritmark.kernels.cuda.context import CudaContext

DTYPES = {
    "int32": np.dtype(np.int32),
    "float32": np.dtype(np.float32),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
}
Data = tuple[npt.NDArray[np.int8], npt.NDArray[np.int8], Any, npt.NDArray[np.float32]]
"""Activations (M, K), codes (N, K), the scale or scales of the weights, and those of the activations (M,)."""


def data_of(M: int, N: int, K: int, seed: int = 0) -> Data:
    """Drawn over all values."""
    rng = np.random.default_rng(seed)
    activations = rng.integers(-128, 128, (M, K), dtype=np.int8)
    codes = rng.integers(-1, 2, (N, K), dtype=np.int8)
    return activations, codes, np.float32(rng.uniform(1e-3, 10)), rng.uniform(1e-2, 1e3, M).astype(np.float32)


def expected(data: Data, dtype: str) -> npt.NDArray[Any]:
    """The bits that a kernel must return."""
    activations, codes, weight_scale, act_scale = data
    # float64 holds these sums exactly, and NumPy multiplies it fast.
    acc = activations.astype(np.float64) @ codes.astype(np.float64).T
    if dtype == "int32":
        return acc.astype(np.int32)
    factors = np.float64(weight_scale) / act_scale.astype(np.float64)
    with np.errstate(over="ignore"):  # above float16's largest number
        return (acc * factors[:, np.newaxis]).astype(np.float32).astype(DTYPES[dtype])


def product(
    context: CudaContext, variant: Variant, data: Data, there: Any = None, *, constant: bool = True
) -> npt.NDArray[Any]:
    """`there`: the activations on the device, if they are no plain copy. `constant`: how the weights are marked."""
    activations, codes, weight_scale, act_scale = data
    M, (N, K) = len(act_scale), codes.shape
    # Fill the output first: it may hold the result of an earlier call with the same data.
    out = context.upload(np.full((M, N), 85, DTYPES[variant.key.dtype]))
    inputs: dict[str, Any] = {
        "activations": context.upload(activations) if there is None else there,
        "weights": context.upload(FORMATS[variant.key.format].pack(codes, weight_scale)),
        "weight_scale": np.float32(1) if np.ndim(weight_scale) else weight_scale,
        "act_scale": context.upload(act_scale),
    }
    if not constant:
        inputs["weights"].mark_output()
    launch = variant.bind(inputs, {"out": out}, {"M": M, "N": N, "K": K}, 1)
    launch.run()
    assert launch.ran == variant.name
    found: npt.NDArray[Any] = out.numpy()
    return found


def same(found: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> None:
    """Bit for bit."""
    assert found.dtype == wanted.dtype
    assert np.array_equal(found.view(np.uint8), wanted.view(np.uint8))
