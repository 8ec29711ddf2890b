"""The CUDA variants of unpack_codes."""

from __future__ import annotations

from tritmark.kernels.pack_codes.cuda import variants
from tritmark.kernels.unpack_codes.spec import OP

VARIANTS = variants(
    OP, "int8", "unpack_codes/unpack.cu", "unpack", ("packed", "codes", "scales"), "16 codes a thread, 16-byte stores"
)
