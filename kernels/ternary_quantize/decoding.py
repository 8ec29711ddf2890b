"""Logical inputs of ternary_quantize from the encoded ones; see harness.spec.Decoding."""

from __future__ import annotations

from tritmark.harness.spec import Decoding
from tritmark.kernels.numerics.input_dtypes import decode

DECODINGS = (Decoding(op="ternary_quantize", decode=decode),)
