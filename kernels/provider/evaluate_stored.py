"""Evaluation of one matrix of codes as a file stores it, with the kernels that compute from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.record import LayerScheme, Status
from tritmark.harness.spec import KernelKey, Variant
from tritmark.harness.weights import TernaryInfo, TernaryWeights
from tritmark.harness.weights.scales import fitted
from tritmark.kernels.formats import FORMATS, Format
from tritmark.kernels.ternary_matmul.api import with_receipt
from tritmark.kernels.ternary_matmul.reference import reference
from tritmark.kernels.ternary_matmul.spec import OP
from tritmark.kernels.weights.packed import PackedWeights

_ROWS: tuple[int, ...] = (2, 1, *range(3, 513))
"""Rows of activations: the first of these numbers that a kernel takes. Rows are drawn over all of int8, and one has the
largest value everywhere, so that sums in too few bits overflow."""


def evaluate_stored(
    weights: TernaryWeights, info: TernaryInfo, variants: Sequence[Variant], *, seed: int, threads: int | None
) -> dict[str, Any]:
    """The fields of a Layer that follow from products with the matrix `info`, one for each of `variants`.

    A kernel gets the file's own bytes, or the same codes and scales packed in its format. Every output must be within
    1 ulp of the exact one, or, where groups of weights have scales, within a bound that is computed beforehand. Raises
    WeightFileError and InvalidArgumentError for weights that cannot be read or multiplied. Memory: the codes, the bytes
    of the file and of the kernel's format, and a slab. Experts are evaluated one after another.
    """
    found: dict[str, Any] = {}
    zeros, largest = 0.0, 0.0
    for expert in info.expert_numbers:
        found = _evaluated(weights, info, expert, variants, seed=seed, threads=threads)
        if "schemes" not in found:
            return found
        (scheme,) = found["schemes"]
        zeros += scheme.zeros / len(info.expert_numbers)
        largest = max(largest, scheme.largest_error)
    (scheme,) = found["schemes"]
    return {**found, "schemes": (scheme.model_copy(update={"zeros": zeros, "largest_error": largest}),)}


def _evaluated(
    weights: TernaryWeights,
    info: TernaryInfo,
    expert: int,
    variants: Sequence[Variant],
    *,
    seed: int,
    threads: int | None,
) -> dict[str, Any]:
    codes, scale = weights.read_stored(info, expert)
    N, K = info.shape
    rng = np.random.default_rng([seed, N, K, expert] if info.experts else [seed, N, K])
    # As in a model, one token and several tokens take different kernels.
    taken = {variant.id: _rows(variant, info) for variant in variants}
    most = max(taken.values())
    activations = rng.integers(-128, 128, (most, K), dtype=np.int8)
    activations[1:] = 127
    act_scale = rng.uniform(1, 100, most).astype(np.float32)
    inputs = {"activations": activations, "weights": codes, "weight_scale": scale, "act_scale": act_scale}
    axes = {"M": most, "N": N, "K": K}
    exact: dict[str, dict[str, Any]] = {}
    largest = 0.0
    scales: dict[str, Any] = {}
    for variant in variants:
        format = variant.key.format
        if format not in exact:
            scales[format] = _scale(weights, info, format, scale)
            # The bound depends on whether the format has groups; the numbers are the same.
            key = KernelKey(variant.key.device, OP.name, format, "float32")
            exact[format] = reference({**inputs, "weight_scale": scales[format]}, axes, key)
        packed = _packed(weights, info, expert, format, codes, scales[format])
        rows = slice(taken[variant.id])
        y, _ = with_receipt(
            activations[rows],
            packed,
            act_scale=act_scale[rows],
            variant=variant.name,
            threads=threads,
            device=variant.key.device,
        )
        share, wrong = _judged(y, {name: each[rows] for name, each in exact[format].items()})
        if wrong:
            of = f", expert {expert}" if info.experts else ""
            return {"status": Status.FAIL, "reason": f"{variant.id}{of}: {wrong}", "kernel": variant.id}
        largest = max(largest, share)
    scheme = LayerScheme(
        scheme="as stored",
        format=info.format or f"{info.dtype}, {info.layout}",
        zeros=1 - np.count_nonzero(codes) / codes.size,
        snr_db=None,
        cosine=None,
        output_snr_db=None,
        output_cosine=None,
        packed_bytes=info.nbytes,
        largest_error=largest,
        quantize_ns=None,
    )
    return {"kernel": ", ".join(variant.id for variant in variants), "schemes": (scheme,)}


def _packed(
    weights: TernaryWeights, info: TernaryInfo, expert: int, format: str, codes: Any, scale: Any
) -> PackedWeights:
    if format == info.format:
        data = weights.packed(info, expert).reshape(FORMATS[format].packed_shape(info.shape))
    else:
        data = FORMATS[format].pack(codes, scale, tail="error")
    return PackedWeights(data, format, info.shape, scale)


def _scale(weights: TernaryWeights, info: TernaryInfo, format: str, scale: Any) -> Any:
    """The matrix's scales in the shape of the format: as many as a format of floats needs, one for master weights."""
    if info.layout is not None:
        return fitted(info.name, scale, info.shape, FORMATS[format])
    own = weights.format(info) if info.format else None
    return FORMATS[format].regrouped(scale, own) if isinstance(own, Format) else scale


def _rows(variant: Variant, info: TernaryInfo) -> int:
    N, K = info.shape

    def takes(rows: int) -> bool:
        return all(each.refusal({"M": rows, "N": N, "K": K}) is None for each in variant.constraints)

    return next((rows for rows in _ROWS if takes(rows)), _ROWS[0])


def _judged(y: npt.NDArray[np.float32], expected: dict[str, Any]) -> tuple[float, str]:
    """The largest error as a share of the bound, and a description of a violation, or ""."""
    right = expected["out"]
    bound = expected.get("out.bound", np.spacing(np.abs(right).astype(np.float32)).astype(np.float64))
    error = np.abs(y.astype(np.float64) - right)
    over = ~(error <= bound)
    if over.any():
        m, n = (int(each) for each in np.unravel_index(int(np.argmax(over)), over.shape))
        text = f"row {n} of the weights gives {y[m, n]} for token {m}, expected {right[m, n]} within {bound[m, n]}"
        return 0.0, text
    return float(np.max(np.divide(error, bound, out=np.zeros_like(error), where=bound > 0))), ""
