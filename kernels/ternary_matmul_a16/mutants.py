"""Mutants of ternary_matmul_a16."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.selftest.mutants import TILE
from tritmark.harness.spec import Arrays, Axes, EquivalentMutants, KernelKey, Mutant
from tritmark.kernels.ternary_matmul.scales import grouped, weight_scales
from tritmark.kernels.ternary_matmul_a16.reference import scaled_weights
from tritmark.kernels.ternary_matmul_a16.spec import NAMES

Array = npt.NDArray[Any]


def _product(inputs: Arrays, axes: Axes, key: KernelKey, **changed: Any) -> dict[str, Any]:
    """Correct outputs of changed inputs. The scales of groups stay those of the original inputs."""
    scales = weight_scales(inputs, axes, key.weight_format).astype(np.float64)
    of = {**inputs, "weight_scale": scales, **changed}
    activations = of["activations"].astype(np.float64)
    form = grouped(key.weight_format)
    if form is None:
        return {"out": activations @ of["weights"].T.astype(np.float64) * of["weight_scale"]}
    return {"out": activations @ (of["weights"] * np.repeat(of["weight_scale"], form.group, axis=1)).T}


def _narrow_sums(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Sums kept in the activations' dtype, one product after the other."""
    a, w, one = inputs["activations"], inputs["weights"], np.float64(1)
    if grouped(key.weight_format) is None:
        one = np.float64(inputs["weight_scale"])
    else:
        w = scaled_weights(inputs, axes, key.weight_format)
    sums = np.zeros((axes["M"], axes["N"]), a.dtype)
    for k in range(axes["K"]):
        sums = (sums + np.outer(a[:, k].astype(np.float32), w[:, k].astype(np.float32))).astype(a.dtype)
    return {"out": sums.astype(np.float64) * one}


def _narrow_output(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The product rounded to bfloat16 at the end."""
    out = _product(inputs, axes, key)["out"].astype(np.float32).astype(named_dtype("bfloat16"))
    return {"out": out.astype(np.float64)}


def _quantized(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Activations rounded to int8 first, as for W2A8."""
    a = inputs["activations"].astype(np.float64)
    scale = 127 / np.maximum(np.abs(a).max(axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return _product(inputs, axes, key, activations=np.rint(a * scale) / scale)


def _uncorrected(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Fields w + 1 used as codes."""
    return _product(inputs, axes, key, weights=inputs["weights"] + np.int8(1))


def _fields_reversed(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The four weights of each byte of a word in the wrong order."""
    w = inputs["weights"].copy()
    whole = axes["K"] // 16 * 16
    w[:, :whole] = w[:, :whole].reshape(axes["N"], -1, 4, 4)[:, :, ::-1].reshape(axes["N"], whole)
    return _product(inputs, axes, key, weights=w)


def _halves_exchanged(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Each pair of weights in the wrong order."""
    w = inputs["weights"].copy()
    whole = axes["K"] // 2 * 2
    w[:, :whole] = w[:, :whole].reshape(axes["N"], -1, 2)[:, :, ::-1].reshape(axes["N"], whole)
    return _product(inputs, axes, key, weights=w)


def _divided(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Divided by the scale of the weights."""
    scales = weight_scales(inputs, axes, key.weight_format).astype(np.float64)
    return _product(inputs, axes, key, weight_scale=1 / scales)


def _last_product_missing(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    return _product(inputs, axes, key, weights=_without_last(inputs, 1))


def _last_group_missing(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    form = grouped(key.weight_format)
    assert form is not None
    return _product(inputs, axes, key, weights=_without_last(inputs, form.group))


def _without_last(inputs: Arrays, count: int) -> Array:
    """The weights, with 0 in that many last columns."""
    w: Array = inputs["weights"].copy()
    w[:, -count:] = 0
    return w


def _next_groups_scale(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Each group with the scale of the next one; the last of a row with the first of the next row."""
    scales = weight_scales(inputs, axes, key.weight_format)
    return _product(inputs, axes, key, weight_scale=np.roll(scales.reshape(-1), -1).reshape(scales.shape))


def _next_rows_scale(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Each group with the scale of the same group of the next row."""
    return _product(inputs, axes, key, weight_scale=np.roll(weight_scales(inputs, axes, key.weight_format), -1, axis=0))


def _first_scale(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """All groups of a row with the first scale."""
    scales = weight_scales(inputs, axes, key.weight_format)
    return _product(inputs, axes, key, weight_scale=np.broadcast_to(scales[:, :1], scales.shape))


def _no_denormal_scales(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Scales below float16's normal numbers read as zero."""
    scales = weight_scales(inputs, axes, key.weight_format)
    kept = np.where(np.abs(scales) < np.finfo(np.float16).tiny, np.float32(0), scales)
    return _product(inputs, axes, key, weight_scale=kept)


def _is_wider(key: KernelKey) -> bool:
    return key.dtype != "bfloat16"


def _has_groups(key: KernelKey) -> bool:
    return grouped(key.weight_format) is not None


def _has_no_tail(key: KernelKey) -> bool:
    """Whether a row is always a multiple of the unit after which the mutant drops the rest."""
    form = grouped(key.weight_format)
    return form is not None and form.group % (4 * TILE) == 0


_ANY = (
    ("sums in the activations' dtype", _narrow_sums),
    ("activations rounded to int8", _quantized),
    ("fields not corrected by 1", _uncorrected),
    ("fields of a byte reversed", _fields_reversed),
    ("weights of a pair exchanged", _halves_exchanged),
    ("divided by the scale", _divided),
    ("the last product missing", _last_product_missing),
)
_OF_GROUPS = (
    ("scales of the groups one on", _next_groups_scale, False),
    ("scales of the rows one on", _next_rows_scale, False),
    ("the first scale for all of a row", _first_scale, False),
    ("the last group missing", _last_group_missing, False),
    ("denormal scales of groups read as zero", _no_denormal_scales, True),
)

MUTANTS: tuple[Mutant | EquivalentMutants, ...] = (
    *(Mutant(op=op, name=name, compute=compute) for op in NAMES.values() for name, compute in _ANY),
    *(
        Mutant(op=op, name="the product rounded to bfloat16", compute=_narrow_output, only=_is_wider)
        for op in NAMES.values()
    ),
    *(
        Mutant(op=op, name=name, compute=compute, only=_has_groups, drawn=drawn)
        for op in NAMES.values()
        for name, compute, drawn in _OF_GROUPS
    ),
    *(
        EquivalentMutants(
            op=op,
            mutant=f"input {name}: tail not read",
            only=_has_no_tail,
            reason="rows are whole groups of the weights' format",
        )
        for op in NAMES.values()
        for name in ("activations", "weights")
    ),
    *(
        EquivalentMutants(
            op=op,
            mutant="input weight_scale: one unit of the last place larger",
            reason="the bound of the sum in float32 admits more roundings than that",
        )
        for op in NAMES.values()
    ),
)
