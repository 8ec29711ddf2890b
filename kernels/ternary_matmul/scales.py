"""The scales of weights, in formats with a scale for each row or for each group of weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import Arrays, Axes
from tritmark.kernels.formats import FORMATS, Format

_LEADING = 4
"""Codes of a row or group that determine its scale: few, so that most weights can be incorrect without a change of the
scale."""
_STEPS = 256
"""Scales are that many different multiples of the drawn number. If float16 holds the number, it holds all of them."""
_MIX = np.uint32(2654435761)
"""2^32 over the golden ratio: products with it spread neighbouring integers over all values of their upper bits
(Knuth, 6.4)."""


def grouped(format: str) -> Format | None:
    """The format of that name if its bytes have a scale for each group of a row's weights, else None."""
    form = FORMATS.get(format)
    return form if form is not None and form.scale_per == "group" and form.scale_stored else None


def weight_scales(inputs: Arrays, axes: Axes, format: str) -> npt.NDArray[np.float32]:
    """The scales of the weights as the format stores them: float32 of its `scale_shape`; one if it stores none.

    The inputs' `weight_scale` is one number for every format. A format with several scales has that number, clipped to
    the range of the stored dtype, times a factor of 1 to 2 with either sign. The factor follows from the first codes of
    the row or group and its position in the row. So neighbours differ, and equal rows have equal scales. A
    `weight_scale` that is an array stays unchanged.

    Raises InvalidArgumentError for a shape that the format does not take, and for a format without ternary codes.
    """
    scale, form = np.asarray(inputs["weight_scale"], np.float32), FORMATS.get(format)
    if form is not None and not form.ternary:
        legal = "a format with codes -1, 0, 1"
        raise InvalidArgumentError(op="ternary_matmul", argument="weights", found=f"in {format}", legal=legal)
    if scale.ndim or form is None or form.scale_per == "tensor" or not form.scale_stored:
        return scale
    shape = form.check_shape("ternary_matmul", "weights", (axes["N"], axes["K"]))
    fields = inputs["weights"].reshape(shape[0], -1, form.group or shape[1])[:, :, :_LEADING] + np.int8(1)
    leading = (fields * 3 ** np.arange(fields.shape[2])).sum(axis=2)
    mixed = (leading + 3**_LEADING * np.arange(fields.shape[1])).astype(np.uint32) * _MIX
    factors = np.where(mixed & 1 << 16, -1.0, 1.0) * (1 + (mixed >> 24) / _STEPS)
    info = np.finfo(form.scale_dtype)
    # The least scale keeps a few bits, and twice the greatest is still finite.
    within = np.clip(np.float64(scale), 16 * float(info.smallest_subnormal), float(info.max) / 2)
    stored: npt.NDArray[Any] = (within * factors).astype(form.scale_dtype)
    return stored.astype(np.float32).reshape(form.scale_shape(shape))
