"""Mutants of pack_codes and unpack_codes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, EquivalentMutants, KernelKey, Mutant
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.pack_codes.reference import reference as packed
from tritmark.kernels.unpack_codes.reference import reference as unpacked


def _one_scale(key: KernelKey) -> bool:
    return FORMATS[key.weight_format].scale_per == "tensor"


def _many_scales(key: KernelKey) -> bool:
    return not _one_scale(key)


def _bits_exchanged(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The two halves of each byte exchanged."""
    found = packed(inputs, axes, key)["packed"]
    return {"packed": found << 4 | found >> 4}


def _fields_uncorrected(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Fields w in place of w + 1."""
    found = packed(inputs, axes, key)["packed"]
    return {"packed": found - np.uint8(0x55)}


def _lanes_reversed(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The fields of a byte in reverse order."""
    found = packed(inputs, axes, key)["packed"]
    return {"packed": (found & 3) << 6 | (found & 12) << 2 | found >> 2 & 12 | found >> 6}


def _next_scale(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Each block with the scale of the next."""
    return packed({**inputs, "scales": np.roll(inputs["scales"], -1, axis=1)}, axes, key)


def _truncated(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Scales truncated to float16 in place of rounded."""
    scales = inputs["scales"]
    half = scales.astype(np.float16)
    half = np.where(np.abs(half.astype(np.float32)) > np.abs(scales), np.nextafter(half, np.float16(0)), half)
    return packed({**inputs, "scales": half.astype(np.float32)}, axes, key)


def _codes_as_fields(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    found = unpacked(inputs, axes, key)
    return {**found, "codes": found["codes"] + 1}


def _codes_reversed(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The codes of a byte in reverse order; here they are 4 adjacent bytes."""
    found = unpacked(inputs, axes, key)
    codes = found["codes"].copy().reshape(-1)
    whole = codes.size // 4 * 4
    codes[:whole] = codes[:whole].reshape(-1, 4)[:, ::-1].reshape(-1)
    return {**found, "codes": codes.reshape(found["codes"].shape)}


def _next_scale_unpacked(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    found = unpacked(inputs, axes, key)
    return {**found, "scales": np.roll(found["scales"], -1, axis=1)}


_FULL = "the format takes no shape with a tail"


def _no_tail_in_rows(key: KernelKey) -> bool:
    return FORMATS[key.weight_format].column_multiple % 64 == 0


def _no_tail(key: KernelKey) -> bool:
    form = FORMATS[key.weight_format]
    return _no_tail_in_rows(key) or (form.drops_tail and form.block % 64 == 0)


MUTANTS: tuple[Mutant | EquivalentMutants, ...] = (
    Mutant(op="pack_codes", name="halves of a byte exchanged", compute=_bits_exchanged),
    Mutant(op="pack_codes", name="fields not raised by 1", compute=_fields_uncorrected),
    Mutant(op="pack_codes", name="fields of a byte reversed", compute=_lanes_reversed),
    Mutant(op="pack_codes", name="the next block's scale", compute=_next_scale, only=_many_scales),
    Mutant(op="pack_codes", name="scales truncated to float16", compute=_truncated, only=_many_scales),
    Mutant(op="unpack_codes", name="fields not lowered by 1", compute=_codes_as_fields),
    Mutant(op="unpack_codes", name="fields of a byte reversed", compute=_codes_reversed),
    Mutant(op="unpack_codes", name="the next block's scale", compute=_next_scale_unpacked, only=_many_scales),
    EquivalentMutants(op="pack_codes", mutant="input codes: tail not read", only=_no_tail_in_rows, reason=_FULL),
    EquivalentMutants(op="unpack_codes", mutant="input packed: tail not read", only=_no_tail_in_rows, reason=_FULL),
    EquivalentMutants(op="unpack_codes", mutant="output codes: tail never written", only=_no_tail, reason=_FULL),
    *(
        EquivalentMutants(op=op, mutant=mutant, only=_one_scale, reason=reason)
        for op in ("pack_codes", "unpack_codes")
        for mutant, reason in (
            ("input scales: sign lost", "the format takes no negative scale"),
            ("input scales: *", "the format takes the first of the scales"),
        )
    ),
    EquivalentMutants(op="unpack_codes", mutant="output scales: *", only=_one_scale, reason="the format has one scale"),
)
