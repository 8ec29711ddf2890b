"""Ways to compute ternary_matmul wrongly."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, Fault, Harmless, KernelKey
from tritmark.kernels.ternary_matmul.reference import accumulate, reference

LANES = 16


def _scaled(acc: npt.NDArray[Any], inputs: Arrays, key: KernelKey) -> dict[str, Any]:
    """Outputs of these sums, right from there on."""
    if key.dtype == "int32":
        return {"out": acc}
    return {"out": acc * (np.float64(inputs["weight_scale"]) / inputs["act_scale"].astype(np.float64))[:, np.newaxis]}


def _int16(every: int, saturates: bool, inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Products with w + 1 summed in 16 lanes of int16, flushed every so many values, as I2_S is by its original."""
    x, fields = inputs["activations"], (inputs["weights"] + 1).astype(np.int8)
    acc = np.zeros((axes["M"], axes["N"]), np.int64)
    for start in range(0, axes["K"], every):
        for lane in range(LANES):
            part = slice(start + lane, min(start + every, axes["K"]), LANES)
            if x[:, part].shape[1]:
                sums = accumulate(x[:, part], fields[:, part])
                acc += np.clip(sums, -(1 << 15), (1 << 15) - 1) if saturates else sums.astype(np.int16)
    return _scaled(acc - x.sum(axis=1, dtype=np.int64)[:, np.newaxis], inputs, key)


def _int16_products(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Products summed in int16, flushed every 256: too late by one where all are -128 times -1, for 256 times 128 is 2**15."""
    x, w = inputs["activations"], inputs["weights"]
    acc = np.zeros((axes["M"], axes["N"]), np.int64)
    for start in range(0, axes["K"], 256):
        acc += accumulate(x[:, start : start + 256], w[:, start : start + 256]).astype(np.int16)
    return _scaled(acc, inputs, key)


def _product_of_scales(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The quotient of the scales rounded to float32 before the product: it overflows, or is denormal, where the output is neither."""
    quotient = (np.float32(inputs["weight_scale"]) / inputs["act_scale"]).astype(np.float64)
    return {"out": accumulate(inputs["activations"], inputs["weights"]) * quotient[:, np.newaxis]}


def _flushed_scales(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Scales that are denormal taken for the least that is not, as a processor does that flushes them, and keeps off a division by 0."""
    least = np.finfo(np.float32).tiny
    scales = {name: np.maximum(inputs[name], least).astype(np.float32) for name in ("weight_scale", "act_scale")}
    return reference({**inputs, **scales}, axes, key)


def _flushed_outputs(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Outputs that are denormal in float32 and bfloat16 taken for zero."""
    out = np.asarray(reference(inputs, axes, key)["out"])
    return {"out": np.where(np.abs(out) < np.finfo(np.float32).tiny, 0.0, out)}


def _float32_sums(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Sums in one float32, which holds integers up to 2**24."""
    x, w = inputs["activations"].astype(np.float32), inputs["weights"].astype(np.float32)
    acc = np.stack([np.add.accumulate(row * w, axis=1)[:, -1] for row in x])
    return _scaled(acc.astype(np.int64), inputs, key)


def _uncorrected(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Fields w + 1 taken for codes."""
    return _scaled(accumulate(inputs["activations"], (inputs["weights"] + 1).astype(np.int8)), inputs, key)


def _corrected_by_row_0(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The sum of the activations of row 0 in place of each row's."""
    sums = inputs["activations"].sum(axis=1, dtype=np.int64)
    return _scaled(accumulate(inputs["activations"], inputs["weights"]) + (sums - sums[0])[:, np.newaxis], inputs, key)


def _fields_reversed(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The four codes of a byte in the other order."""
    w = inputs["weights"].copy()
    whole = axes["K"] // 4 * 4
    w[:, :whole] = w[:, :whole].reshape(axes["N"], -1, 4)[:, :, ::-1].reshape(axes["N"], whole)
    return reference({**inputs, "weights": w}, axes, key)


def _multiplied(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Times the activations' scale, not divided by it."""
    return reference({**inputs, "act_scale": 1 / inputs["act_scale"].astype(np.float64)}, axes, key)


def _128_lost(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """-128 has no opposite in int8: times -1 it stays -128."""
    x, w = inputs["activations"], inputs["weights"]
    extra = (x == -128).astype(np.int64) @ (w < 0).astype(np.int64).T
    return _scaled(accumulate(x, w) - 256 * extra, inputs, key)


def _is_float(key: KernelKey) -> bool:
    return key.dtype != "int32"


def _is_int(key: KernelKey) -> bool:
    return key.dtype == "int32"


def _is_bfloat16(key: KernelKey) -> bool:
    return key.dtype == "bfloat16"


_OP = "ternary_matmul"

FAULTS: tuple[Fault | Harmless, ...] = (
    *(
        Fault(op=_OP, name=f"int16 sums, {how} after {every} values", compute=partial(_int16, every, saturates))
        for every in (2176, 4096, 32768)
        for how, saturates in (("wrapping", False), ("saturating", True))
    ),
    Fault(op=_OP, name="sums in float32", compute=_float32_sums, only=_is_int),
    Fault(op=_OP, name="fields not corrected by 1", compute=_uncorrected),
    Fault(op=_OP, name="corrected by the sum of row 0", compute=_corrected_by_row_0),
    Fault(op=_OP, name="fields of a byte reversed", compute=_fields_reversed),
    Fault(op=_OP, name="times the activations' scale", compute=_multiplied, only=_is_float),
    Fault(op=_OP, name="int16 products, flushed every 256", compute=_int16_products),
    Fault(op=_OP, name="quotient of the scales in float32", compute=_product_of_scales, only=_is_float, drawn=True),
    Fault(op=_OP, name="denormal scales flushed", compute=_flushed_scales, only=_is_float, drawn=True),
    Fault(op=_OP, name="denormal outputs flushed", compute=_flushed_outputs, only=_is_float, drawn=True),
    Fault(op=_OP, name="-128 times -1 is -128", compute=_128_lost),
    Harmless(op=_OP, fault="input *_scale: *", only=_is_int, reason="int32 outputs are the sums themselves"),
    Harmless(
        op=_OP,
        fault="input *_scale: one unit of the last place larger",
        only=_is_bfloat16,
        reason="a unit of float32's last place is far less than the one of bfloat16's that the contract admits",
    ),
)
