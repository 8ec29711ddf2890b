"""Logical inputs of ternary_matmul_a16 from the encoded ones; see harness.spec.Decoding."""

from __future__ import annotations

from tritmark.harness.spec import Decoding
from tritmark.kernels.ternary_matmul.decoding import decode
from tritmark.kernels.ternary_matmul_a16.spec import OPS

DECODINGS = tuple(Decoding(op=op.name, decode=decode) for op in OPS.values())
