"""Mutants of ternary_matmul."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.selftest.mutants import TILE
from tritmark.harness.spec import Arrays, Axes, EquivalentMutants, KernelKey, MultipleOf, Mutant
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.formats.tl_layout import TL
from tritmark.kernels.ternary_matmul import cpu
from tritmark.kernels.ternary_matmul.reference import Sums, accumulate, product, reference
from tritmark.kernels.ternary_matmul.scales import grouped, weight_scales

LANES = 16

Array = npt.NDArray[Any]


def _int16(every: int, saturates: bool, x: Array, w: Array) -> Array:
    """Products with w + 1 summed in 16 lanes of int16 and flushed after `every` values, as in the original of I2_S."""
    fields = (w + 1).astype(np.int8)
    acc = np.zeros((len(x), len(w)), np.int64)
    for start in range(0, x.shape[1], every):
        for lane in range(LANES):
            part = slice(start + lane, min(start + every, x.shape[1]), LANES)
            if x[:, part].shape[1]:
                sums = accumulate(x[:, part], fields[:, part])
                acc += np.clip(sums, -(1 << 15), (1 << 15) - 1) if saturates else sums.astype(np.int16)
    acc -= x.sum(axis=1, dtype=np.int64)[:, np.newaxis]
    return acc


def _int16_products(x: Array, w: Array) -> Array:
    """Products summed in int16, flushed every 256: too late by one if all are -128 times -1, since 256 times 128 is
    2**15."""
    acc = np.zeros((len(x), len(w)), np.int64)
    for start in range(0, x.shape[1], 256):
        acc += accumulate(x[:, start : start + 256], w[:, start : start + 256]).astype(np.int16)
    return acc


def _float32_sums(x: Array, w: Array) -> Array:
    """Sums in one float32, which holds integers up to 2**24."""
    wide = w.astype(np.float32)
    return np.stack([np.add.accumulate(row * wide, axis=1)[:, -1] for row in x.astype(np.float32)]).astype(np.int64)


def _uncorrected(x: Array, w: Array) -> Array:
    """Fields w + 1 used as codes."""
    return accumulate(x, (w + 1).astype(np.int8))


def _corrected_by_row_0(x: Array, w: Array) -> Array:
    """The sum of the activations of row 0 in place of each row's."""
    sums, acc = x.sum(axis=1, dtype=np.int64), accumulate(x, w)
    acc += (sums - sums[0])[:, np.newaxis]
    return acc


def _128_lost(x: Array, w: Array) -> Array:
    """-128 has no opposite in int8: times -1 it stays -128."""
    acc = accumulate(x, w)
    acc -= 256 * ((x == -128).astype(np.int64) @ (w < 0).astype(np.int64).T)
    return acc


def _summed(sums: Sums, inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Correct outputs of these sums."""
    return product(inputs, axes, key, sums)


def _changed(inputs: Arrays, axes: Axes, key: KernelKey, **changed: Any) -> dict[str, Any]:
    """Correct outputs of changed inputs. The scales of groups stay those of the original inputs."""
    return reference({**inputs, "weight_scale": weight_scales(inputs, axes, key.weight_format), **changed}, axes, key)


def _fields_reversed(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The four codes of a byte in reverse order."""
    w = inputs["weights"].copy()
    whole = axes["K"] // 4 * 4
    w[:, :whole] = w[:, :whole].reshape(axes["N"], -1, 4)[:, :, ::-1].reshape(axes["N"], whole)
    return _changed(inputs, axes, key, weights=w)


def _multiplied(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Multiplied by the activations' scale in place of divided."""
    return reference({**inputs, "act_scale": 1 / inputs["act_scale"].astype(np.float64)}, axes, key)


def _product_of_scales(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The quotient of the scales rounded to float32 before the product: it overflows or is denormal although the output
    is neither."""
    scales = weight_scales(inputs, axes, key.weight_format)
    quotient = (scales / inputs["act_scale"][:, np.newaxis]).astype(np.float64)
    return {"out": accumulate(inputs["activations"], inputs["weights"]) * quotient}


def _flushed_scales(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Denormal scales replaced by the least normal number: like flushing them, but without a division by 0."""
    least, act_scale = np.finfo(np.float32).tiny, inputs["act_scale"]
    scales = weight_scales(inputs, axes, key.weight_format)
    kept = np.where(np.abs(scales) < least, np.copysign(least, scales), scales)
    return _changed(inputs, axes, key, weight_scale=kept.astype(np.float32), act_scale=np.maximum(act_scale, least))


def _flushed_outputs(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Outputs that are denormal in float32 and bfloat16 flushed to zero."""
    out = np.asarray(reference(inputs, axes, key)["out"])
    return {"out": np.where(np.abs(out) < np.finfo(np.float32).tiny, 0.0, out)}


def _next_scales(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Each row or group with the scale of the next one."""
    scales = weight_scales(inputs, axes, key.weight_format)
    return _changed(inputs, axes, key, weight_scale=np.roll(scales.reshape(-1), -1).reshape(scales.shape))


def _one_scale(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """All of a row times its first scale, after the sum."""
    scales = weight_scales(inputs, axes, key.weight_format)
    return _changed(inputs, axes, key, weight_scale=np.broadcast_to(scales[:, :1], scales.shape))


def _next_rows_scales(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Each row with the scales of the next row's groups."""
    scales = weight_scales(inputs, axes, key.weight_format)
    return _changed(inputs, axes, key, weight_scale=np.roll(scales, -1, axis=0))


def _without_groups(dropped: str, inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The sum without its last group, or without the first half: begun anew at a block of groups."""
    scales = weight_scales(inputs, axes, key.weight_format).copy()
    half = scales.shape[1] // 2
    scales[:, slice(-1, None) if dropped == "last" else slice(half)] = 0
    return _changed(inputs, axes, key, weight_scale=scales)


def _first_rows_scale(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Every four interleaved rows times the scale of the first."""
    scales = weight_scales(inputs, axes, key.weight_format)
    return _changed(inputs, axes, key, weight_scale=scales[np.arange(axes["N"]) // 4 * 4])


def _no_denormal_scales(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Scales below float16's normal numbers read as zero."""
    scales = weight_scales(inputs, axes, key.weight_format)
    return _changed(
        inputs, axes, key, weight_scale=np.where(np.abs(scales) < np.finfo(np.float16).tiny, np.float32(0), scales)
    )


def _narrow_sums(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The sum over the groups kept in bfloat16."""
    bfloat16, form = named_dtype("bfloat16"), FORMATS[key.weight_format]
    scales, total = weight_scales(inputs, axes, key.weight_format), np.zeros((axes["M"], axes["N"]), np.float32)
    for g, start in enumerate(range(0, axes["K"], form.group)):
        columns = slice(start, start + form.group)
        part = accumulate(inputs["activations"][:, columns], inputs["weights"][:, columns])
        total = (total + part * scales[:, g]).astype(bfloat16).astype(np.float32)
    return {"out": total / inputs["act_scale"].astype(np.float64)[:, np.newaxis]}


def _is_float(key: KernelKey) -> bool:
    return key.dtype != "int32"


def _is_int(key: KernelKey) -> bool:
    return key.dtype == "int32"


def _is_bfloat16(key: KernelKey) -> bool:
    return key.dtype == "bfloat16"


def _has_groups(key: KernelKey) -> bool:
    return grouped(key.weight_format) is not None


def _has_float16_groups(key: KernelKey) -> bool:
    form = grouped(key.weight_format)
    return form is not None and form.scale_dtype == "float16"


def _has_whole_rows(key: KernelKey) -> bool:
    return not _has_groups(key)


def _has_256_summed(key: KernelKey) -> bool:
    """Whether 256 products may share a sum."""
    form = grouped(key.weight_format)
    return form is None or form.group >= 256


def _is_float_of_whole_rows(key: KernelKey) -> bool:
    return _is_float(key) and _has_whole_rows(key)


def _is_float_of_row_scales(key: KernelKey) -> bool:
    form = FORMATS.get(key.weight_format)
    return _is_float(key) and form is not None and form.scale_per == "row"


def _is_int_of_few_rows(key: KernelKey) -> bool:
    """Whether sums above 2^24 fit the arrays of mutants: 32 rows of 2^17 weights do not."""
    return _is_int(key) and not isinstance(FORMATS.get(key.weight_format), TL)


def _has_no_tail(key: KernelKey) -> bool:
    """Whether a row is always a multiple of the unit after which the mutant drops the rest."""
    form = FORMATS.get(key.weight_format)
    if form is not None and form.scale_per == "group" and form.column_multiple % (4 * TILE) == 0:
        return True
    _, limits = cpu.FORMATS.get(key.weight_format, ("", ()))
    return any(
        isinstance(limit, MultipleOf) and limit.axis == "K" and limit.factor % (4 * TILE) == 0 for limit in limits
    )


_OP = "ternary_matmul"

MUTANTS: tuple[Mutant | EquivalentMutants, ...] = (
    *(
        # A group of 256 has none of the lengths at which such sums overflow.
        Mutant(
            op=_OP,
            name=f"int16 sums, {how} after {every} values",
            compute=partial(_summed, partial(_int16, every, saturates)),
            only=_has_whole_rows,
        )
        for every in (2176, 4096, 32768)
        for how, saturates in (("wrapping", False), ("saturating", True))
    ),
    Mutant(op=_OP, name="sums in float32", compute=partial(_summed, _float32_sums), only=_is_int_of_few_rows),
    Mutant(op=_OP, name="fields not corrected by 1", compute=partial(_summed, _uncorrected)),
    Mutant(op=_OP, name="corrected by the sum of row 0", compute=partial(_summed, _corrected_by_row_0)),
    Mutant(op=_OP, name="fields of a byte reversed", compute=_fields_reversed),
    Mutant(op=_OP, name="times the activations' scale", compute=_multiplied, only=_is_float),
    Mutant(
        op=_OP,
        name="int16 products, flushed every 256",
        compute=partial(_summed, _int16_products),
        only=_has_256_summed,
    ),
    Mutant(
        op=_OP,
        name="quotient of the scales in float32",
        compute=_product_of_scales,
        only=_is_float_of_whole_rows,
        drawn=True,
    ),
    Mutant(op=_OP, name="denormal scales flushed", compute=_flushed_scales, only=_is_float, drawn=True),
    Mutant(op=_OP, name="denormal outputs flushed", compute=_flushed_outputs, only=_is_float, drawn=True),
    Mutant(op=_OP, name="-128 times -1 is -128", compute=partial(_summed, _128_lost)),
    Mutant(op=_OP, name="scales of the rows one on", compute=_next_scales, only=_is_float_of_row_scales),
    Mutant(op=_OP, name="the first row's scale for four", compute=_first_rows_scale, only=_is_float_of_row_scales),
    Mutant(op=_OP, name="scales of the groups one on", compute=_next_scales, only=_has_groups),
    Mutant(op=_OP, name="the first scale for all of a row", compute=_one_scale, only=_has_groups),
    Mutant(op=_OP, name="scales of the next row's groups", compute=_next_rows_scales, only=_has_groups),
    Mutant(op=_OP, name="the last group not added", compute=partial(_without_groups, "last"), only=_has_groups),
    Mutant(op=_OP, name="sum begun anew at a group", compute=partial(_without_groups, "first"), only=_has_groups),
    Mutant(op=_OP, name="sum over the groups in bfloat16", compute=_narrow_sums, only=_has_groups),
    Mutant(
        op=_OP,
        name="denormal scales of groups read as zero",
        compute=_no_denormal_scales,
        only=_has_float16_groups,
        drawn=True,
    ),
    EquivalentMutants(op=_OP, mutant="input *_scale: *", only=_is_int, reason="int32 outputs are the sums themselves"),
    EquivalentMutants(
        op=_OP,
        mutant="input *_scale: one unit of the last place larger",
        only=_is_bfloat16,
        reason="a unit of float32's last place is far less than the one of bfloat16's that the contract admits",
    ),
    EquivalentMutants(
        op=_OP,
        mutant="input activations: tail not read",
        only=_has_no_tail,
        reason="rows are whole blocks of the weights' format",
    ),
    EquivalentMutants(
        op=_OP,
        mutant="input weights: tail not read",
        only=_has_no_tail,
        reason="rows are whole blocks of the weights' format",
    ),
    EquivalentMutants(
        op=_OP,
        mutant="input act_scale: one unit of the last place larger",
        only=_has_groups,
        reason="the sum over groups may have more roundings than that",
    ),
    EquivalentMutants(
        op=_OP,
        mutant="input weight_scale: one unit of the last place larger",
        only=_has_float16_groups,
        reason="float16 scales do not hold it",
    ),
)
