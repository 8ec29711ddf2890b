"""Kernels and shapes of the history, as parameters of asv: an op as OP/FORMAT/DTYPE, a variant as DEVICE:NAME, a shape
as its axes.

They are in this checkout's folders of ops, `kernels/<op>/history.toml`, and of their formats,
`cython_ext/src/<op>/<format>/history.toml`: older commits are measured at them, too.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .isas import ISAS

DRY = "TRITMARK_HISTORY_DRY" in os.environ
"""Set to check only that every benchmark runs, without keeping figures. Shapes are then small, since most of the time
is spent on making large arrays."""

FOLLOWED: tuple[dict[str, Any], ...] = tuple(
    tomllib.loads(path.read_text(encoding="utf-8"))
    for pattern in ("kernels/*/history.toml", "cython_ext/src/*/*/history.toml")
    for path in sorted(Path(__file__).parents[2].glob(pattern))
)
"""Of each such file: kernels of each device, names of CUDA variants, `axes` for about n values (a product has the
LAYERS), families of inputs, and small axes by format."""


def _ops(device: str, *, vectors: bool) -> tuple[str, ...]:
    return tuple(op for each in FOLLOWED if ("axes" in each) == vectors for op in each.get(device, ()))


def _variants(*, vectors: bool) -> tuple[str, ...]:
    names = [name for each in FOLLOWED if ("axes" in each) == vectors for name in each.get("cuda_variants", ())]
    return tuple(f"cuda:{name}" for name in dict.fromkeys(names))


def _followed(op: str) -> dict[str, Any]:
    """The entry of OP/FORMAT/DTYPE."""
    return next(each for each in FOLLOWED if op in (*each.get("cpu", ()), *each.get("cuda", ())))


VECTOR_OPS = _ops("cpu", vectors=True)
SIZES = (1 << 12, 1 << 15) if DRY else (1 << 16, 1 << 21)
"""Numbers of values: within the caches, and beyond."""

PRODUCT_OPS = _ops("cpu", vectors=False)
LAYERS = ("M=1 N=320 K=768", "M=4 N=320 K=768") if DRY else ("M=1 N=2560 K=6912", "M=32 N=2560 K=2560")
"""Layers of bitnet-b1.58-2B-4T: one token, and a batch."""

CPU = tuple(f"cpu:{isa}" for isa in ISAS)

CUDA_VECTOR_OPS = _ops("cuda", vectors=True)
CUDA_VECTOR = _variants(vectors=True)
CUDA_SIZES = (1 << 25,)

CUDA_PRODUCT_OPS = _ops("cuda", vectors=False)
CUDA_PRODUCT = _variants(vectors=False)

PARAMETERS = ("op", "variant", "shape")

SMALL_VECTOR = 100_003
_SMALL_PRODUCT = "M=3 N=130 K=257"
"""Multiples of nothing: kernels fail there first, and the reference is fast."""


def vector_shape(op: str, n: int) -> str:
    """The axes of `op` for about `n` values."""
    return str(_followed(op)["axes"]).format(n=n, rows=max(1, n // 2560))


def places(op: str, sizes: Iterable[int]) -> tuple[str, ...]:
    """The shapes at which `op` is measured: of these sizes, or the layers."""
    return tuple(vector_shape(op, n) for n in sizes) if "axes" in _followed(op) else LAYERS


def families(op: str) -> tuple[str, ...]:
    """The families of its inputs."""
    return tuple(_followed(op).get("families", ("normal",)))


def small_product(op: str) -> str:
    """The axes of a small product."""
    small = {format: axes for each in FOLLOWED for format, axes in each.get("small", {}).items()}
    return str(small.get(op.split("/")[1], _SMALL_PRODUCT))
