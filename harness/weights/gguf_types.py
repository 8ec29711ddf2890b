"""The sizes of GGUF tensor types, by number.

The gguf package has the table of ggml's types. Its import takes 100 ms, so it is imported with the first GGUF file.
Types that it lacks, or lacked in older versions, come from microsoft/BitNet's ggml, ggml-org/ggml include/ggml.h,
ikawrakow/ik_llama.cpp and PrismML-Eng/llama.cpp; file types come from the llama.h of each.
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import NamedTuple


class GgufType(NamedTuple):
    """The block size and bytes of a tensor type."""

    dtype: str
    block_elements: int
    block_bytes: int
    row_bytes: int = 0
    """Bytes of the scale of each row."""
    trailer_bytes: int = 0
    """Bytes after all blocks."""
    file_type: int | None = None
    """general.file_type of a model that is mostly of this type, if it has one."""

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Size in bytes of a tensor of this shape."""
        blocks = math.prod(shape) // self.block_elements
        return blocks * self.block_bytes + math.prod(shape[:-1]) * self.row_bytes + self.trailer_bytes


Q2_0 = GgufType("q2_0", 64, 18, file_type=41)
PQ2_0 = GgufType("pq2_0", 128, 34, file_type=141)
STQ1_0 = GgufType("stq1_0", 256, 42)
_OTHERS = {
    # bitnet.cpp: 4 codes a byte, and 32 bytes with the scale at the end.
    36: GgufType("i2_s", 4, 1, trailer_bytes=32, file_type=40),
    # One of three meanings, see type_42.py.
    42: Q2_0,
    43: STQ1_0,
    # ik_llama.cpp: a scale for each row, float16 and float32; iq2_bn_r4 interleaves four rows.
    134: GgufType("iq1_bn", 64, 13, row_bytes=2, file_type=136),
    135: GgufType("iq2_bn", 64, 16, row_bytes=4, file_type=137),
    # PrismML.
    142: PQ2_0,
    143: GgufType("ptq1_0", 128, 28, file_type=143),
    335: GgufType("iq2_bn_r4", 64, 16, row_bytes=4, file_type=337),
}
_FILE_TYPES = {"float32": 0, "float16": 1, "bfloat16": 32, "tq1_0": 36, "tq2_0": 37}
I8_S, TL1, TL2 = 37, 38, 39
"""bitnet.cpp's numbers of int8 values (see i8_s.py) and of its types for look-up kernels. ggml has MXFP4 under the
last."""
_USERS = {
    37: "I8_S of bitnet.cpp, int8 values",
    38: "TL1 of bitnet.cpp",
    39: "TL2 of bitnet.cpp, MXFP4 of ggml",
    40: "NVFP4 of ggml",
    41: "Q1_0 of ggml, which is binary",
}
"""Projects that use the numbers of types that are not read."""
_UNREAD = re.compile(r"type_(\d+)")


@cache
def gguf_types() -> dict[int, GgufType]:
    """Every type of known size, by number."""
    from gguf.constants import GGML_QUANT_SIZES

    plain = {"F": "float", "I": "int", "BF": "bfloat"}
    table = {}
    for code, (elements, size) in GGML_QUANT_SIZES.items():
        letters = code.name.rstrip("0123456789")
        dtype = plain[letters] + code.name[len(letters) :] if letters in plain else code.name.lower()
        table[int(code)] = GgufType(dtype, elements, size, file_type=_FILE_TYPES.get(dtype))
    return {**table, **_OTHERS}


def unread_type(code: int) -> str:
    """The dtype of a tensor whose type has no known size; its bytes extend to the next tensor."""
    return f"type_{code}"


def number_of(dtype: str) -> int | None:
    """GGUF's number of the type; None for a dtype that GGUF does not have."""
    match = _UNREAD.match(dtype)
    if match is not None:
        return int(match[1])
    return next((number for number, type in gguf_types().items() if type.dtype == dtype), None)


def is_unread(dtype: str) -> bool:
    """Whether a tensor of this dtype cannot be read."""
    return _UNREAD.fullmatch(dtype) is not None


def described(dtype: str) -> str:
    """The dtype for messages; for a type that is not read, its number and the project that uses it."""
    match = _UNREAD.fullmatch(dtype)
    if match is None:
        return dtype
    user = _USERS.get(int(match[1]))
    return f"GGUF type {match[1]}" + (f" ({user})" if user else "")
