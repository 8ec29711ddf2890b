"""The native variants of ternary_matmul_experts: the kernels of ternary_matmul over tiles of 64 rows, for the parts of
all experts in one call (cython_ext/src/ternary_matmul/experts.c)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, Launch, MaxSize, Variant
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.formats.tile64 import Tile64
from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_matmul.cpu import FORMATS as OF_PRODUCTS
from tritmark.kernels.ternary_matmul.cpu import kept, stack_bytes
from tritmark.kernels.ternary_matmul_experts.spec import MAX_K, OP, dtypes

_MODULE = "ternary_matmul"
"""The extension module, which has the kernels of both ops."""
_SLAB = 96
"""Most rows of a part, TM_SLAB in cython_ext/src/ternary_matmul/tiles.h."""

FORMATS = {name: row for name, row in OF_PRODUCTS.items() if isinstance(BUILT_IN[name], Tile64)}
"""For each format with native kernels, its table and its constraints, as in ternary_matmul."""


def of_each(weights: npt.NDArray[Any], format: str, axes: Axes) -> npt.NDArray[Any]:
    """Packed weights as (E, bytes of an expert), a view."""
    size = BUILT_IN[format].packed_bytes((axes["N"], axes["K"]))
    return weights.reshape(-1)[: axes["E"] * size].reshape(axes["E"], size)


def _bind(format: str, isa: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    launch: Launch = cpu.native(_MODULE).TernaryMatmulExperts(
        format,
        isa,
        inputs["activations"],
        of_each(inputs["weights"], format, axes),
        axes["N"],
        inputs["weight_scale"],
        inputs["act_scale"],
        inputs["offsets"],
        outputs["out"],
        threads,
    )
    return launch


def _workspace(format: str, isa: str, axes: Axes) -> int:
    """Initial sums of the activations, the costs of the experts, and stacks."""
    part = {**axes, "M": min(_SLAB, axes["M"])}
    return kept(format, axes) + 8 * (axes["E"] + 1) + stack_bytes(format, isa, part)


def _variants() -> Iterator[Variant]:
    for format, (table, constraints) in FORMATS.items():
        limits = (MaxSize("K", MAX_K), *constraints)
        for dtype in dtypes(format):
            bind = partial(_bind, format)
            for each in cpu.variants(OP.name, format, dtype, bind, limits, table=table, module=_MODULE):
                yield replace(each, workspace=partial(_workspace, format, each.name))


VARIANTS = tuple(_variants())
