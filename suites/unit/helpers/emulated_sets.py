"""What tests of products with instructions that this processor may lack share: these in C, and what they need here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from matmul_driver import HERE, Builder, Edit

from tritmark.kernels.native import cpu

SETS = [isa.name for isa in cpu.KERNELS["ternary_matmul"]]
"""All of the table are linked, whatever is called."""


def lacking(*features: str) -> bool:
    return shutil.which("cc") is None or not cpu.features() >= set(features)


needs_avx2 = pytest.mark.skipif(lacking("avx2", "f16c"), reason="needs a C compiler and AVX2")
needs_avx512 = pytest.mark.skipif(lacking("avx512f", "avx512bw", "avx512vnni"), reason="needs a C compiler and AVX-512")
IN_C = (
    # So that the compiler has no such instruction either.
    Edit("isas.h", '"avx2,f16c,avxvnni"', '"avx2,f16c"'),
    Edit("ternary_matmul/tiles_avxvnni.h", "_mm256_dpbusd_avx_epi32", "dpbusd"),
    Edit("ternary_matmul/tile80/avxvnni.c", "_mm256_dpbusd_avx_epi32", "dpbusd"),
    Edit("ternary_matmul/dots_dpbusd.h", "_mm256_dpbusd_avx_epi32", "dpbusd"),
    # And few rows and few products go by AMX's tiles, too.
    Edit("ternary_matmul/ternary_matmul.h", "TM_AMX_ROWS = 6,", "TM_AMX_ROWS = 1,"),
    Edit("ternary_matmul/ternary_matmul.h", "TM_AMX_PRODUCTS = 1 << 19,", "TM_AMX_PRODUCTS = 1,"),
)


def emulated(folder: Path) -> Builder:
    """Of all kernels with those instructions in C. What -O1 takes AMX wins back, whose tiles are loops."""
    flags, own = ["-O0", "-DTM_TILES_EMULATED"], {"amx.c": ["-O1"]}
    return Builder("cc", folder, SETS, flags, first=HERE / "dpbusd.h", own=own)
