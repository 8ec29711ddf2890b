"""The ops: each is a folder here, found by its name in the list below."""

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
    """The modules with these names that an op has, op by op: `spec`, `cpu`, `cuda`, `cuda_gpu_int2`, `cuda_scaled`,
    `mutants`, `decoding`."""
    for op in NAMES:
        for name in names:
            if Path(__file__).with_name(op).joinpath(f"{name}.py").is_file():
                yield import_module(f"{__package__}.{op}.{name}")


def files(name: str) -> list[Path]:
    """The files of that name that ops have, op by op."""
    found = (Path(__file__).with_name(op) / name for op in NAMES)
    return [path for path in found if path.is_file()]
