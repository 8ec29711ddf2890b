"""Logical inputs of hadamard_quantize and hadamard_transform from the encoded ones; see harness.spec.Decoding."""

from __future__ import annotations

from tritmark.harness.spec import Decoding
from tritmark.kernels.hadamard_quantize.spec import OPS
from tritmark.kernels.numerics.input_dtypes import decode

DECODINGS = tuple(Decoding(op=op.name, decode=decode) for op in OPS.values())
