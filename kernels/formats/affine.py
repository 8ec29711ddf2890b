"""Quantization of floats to four levels for each group of a row: what MLX and ONNX Runtime have in common.

Both check the same inputs and store fields in the same way. Their levels, and how they round, differ: see
`quantize_affine` of each format.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.formats.base import Format, Shape
from tritmark.kernels.formats.sequential import joined_fields

LARGEST = np.float32(3)
"""The largest field."""


def checked(form: Format, op: str, x: NDArray[np.float32]) -> Shape:
    """The shape of weights that `form` can hold. Raises InvalidArgumentError for another dtype or shape, and for
    numbers that are not finite."""
    if not isinstance(x, np.ndarray) or x.dtype != np.float32:
        raise InvalidArgumentError(op=op, argument="x", found=f"a {type(x).__name__}", legal="a float32 array")
    shape = form.check_shape(op, "x", x.shape)
    if not np.isfinite(x).all():
        raise InvalidArgumentError(op=op, argument="x", found="with NaN or infinity", legal="finite numbers")
    return shape


def packed(fields: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The bytes of rounded fields, limited to 0 to 3, in this shape of fields."""
    return joined_fields(np.clip(fields, 0, LARGEST).astype(np.uint8).reshape(shape))
