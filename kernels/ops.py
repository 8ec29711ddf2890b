"""The ops: each is a folder here, and its name below is all that it takes to be found."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

NAMES = (
    "i2s_quantize",
    "i2s_dequantize",
    "ternary_quantize",
    "absmean_quantize",
    "activation_quantize",
    "float_narrow",
    "float_widen",
    "pack_codes",
    "unpack_codes",
    "ternary_matmul",
    "ternary_matmul_a16",
    "ternary_linear",
    "matmul",
)
"""Folders, in the order in which reports show their ops."""


def modules(*names: str) -> Iterator[ModuleType]:
    """Those modules of each op, where it has them, op by op: `spec`, `cpu`, `cuda`, `cuda_gpu_int2`, `cuda_scaled`,
    `mutants`."""
    for op in NAMES:
        for name in names:
            if Path(__file__).with_name(op).joinpath(f"{name}.py").is_file():
                yield import_module(f"{__package__}.{op}.{name}")
