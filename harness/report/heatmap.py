"""Kernel by shape: the fraction of the ceiling that each variant reaches on each shape, as a shaded table."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tritmark.harness.record import Record, Run
from tritmark.harness.report.section import Section
from tritmark.harness.text import groups

_MOST_SHAPES = 12
_MOST_KERNELS = 24
_LEVELS = 8


def level(fraction: float) -> int:
    """Shade and bar height of a cell: 0 to 7, one step for each eighth of the ceiling."""
    return min(_LEVELS - 1, max(0, int(fraction * _LEVELS)))


def _fraction(run: Run) -> float | None:
    return groups.part(run.performance.cold or run.performance.hot)


def _cell(runs: list[Run], shape: str, least: float) -> dict[str, Any] | None:
    """The cell of the fastest Run at this shape. `least` is the least time over all variants."""
    run = min((each for each in runs if groups.shape(each.workload) == shape), key=groups.median_ns, default=None)
    if run is None:
        return None
    fraction = _fraction(run) or 0.0
    return {"value": fraction, "level": level(fraction), "best": groups.median_ns(run) == least}


def _group(key: tuple[str, ...], runs: list[Run]) -> dict[str, Any]:
    by_shape: dict[str, list[Run]] = {}
    for run in runs:
        by_shape.setdefault(groups.shape(run.workload), []).append(run)
    # Keep the shapes that most variants have; the tables have all.
    shared = Counter({shape: len({run.variant for run in same}) for shape, same in by_shape.items()})
    kept = {
        shape
        for shape, _ in sorted(shared.items(), key=lambda item: (-item[1], -_size(by_shape[item[0]][0])))[:_MOST_SHAPES]
    }
    shapes = sorted(kept, key=lambda shape: tuple(by_shape[shape][0].workload.axes.values()))
    variants = groups.by_variant(runs)
    kept_variants = list(variants.items())[:_MOST_KERNELS]
    least = {
        shape: min(
            (groups.median_ns(run) for _, same in kept_variants for run in same if groups.shape(run.workload) == shape),
            default=0.0,
        )
        for shape in shapes
    }
    rows = [
        {
            "variant": variant,
            "kernel": same[0].kernel,
            "cells": [_cell(same, shape, least[shape]) for shape in shapes],
        }
        for variant, same in kept_variants
    ]
    titles = [next((run.workload.title for run in by_shape[shape] if run.workload.title), "") for shape in shapes]
    return {
        "key": key,
        "shapes": list(zip(shapes, titles, strict=True)),
        "rows": rows,
        "left_out": len(by_shape) - len(shapes),
        "variants_left_out": len(variants) - len(rows),
    }


def _size(run: Run) -> int:
    return run.performance.read + run.performance.written


def _context(record: Record) -> dict[str, Any] | None:
    found = groups.by_key(groups.steady(groups.sound(record)))
    if not found:
        return None
    several = len({device for device, *_ in found}) > 1
    return {"maps": [_group(key if several else key[1:], runs) for key, runs in found.items()]}


SECTION = Section(
    "shapes", "Kernel by shape", "heatmap.html", _context, about="percent of the ceiling, variant by shape"
)
