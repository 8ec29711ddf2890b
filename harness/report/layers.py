"""Effect of quantization on each weight matrix of a model: errors, time and memory."""

from __future__ import annotations

from math import fsum
from typing import Any

from tritmark.harness.record import Layer, Record, Status
from tritmark.harness.report.section import Section
from tritmark.harness.text import groups, linear


def _totals(layers: tuple[Layer, ...]) -> dict[str, Any]:
    schemes = list(dict.fromkeys((scheme.scheme, scheme.format) for layer in layers for scheme in layer.schemes))
    rows = []
    for name in schemes:
        pairs = [
            (layer, scheme) for layer in layers for scheme in layer.schemes if (scheme.scheme, scheme.format) == name
        ]
        rows.append(
            {
                "scheme": name[0],
                "format": name[1],
                "layers": len(pairs),
                "zeros": _weighted([(scheme.zeros, layer) for layer, scheme in pairs]),
                "bytes": sum(layer.bytes for layer, _ in pairs),
                "packed": sum(scheme.packed_bytes for _, scheme in pairs),
                "quantize_ns": fsum(scheme.quantize_ns or 0 for _, scheme in pairs),
            }
        )
    timed = [layer for layer in layers if layer.matmul_ns is not None and layer.float32_ns is not None]
    ternary, dense = fsum(layer.matmul_ns or 0 for layer in timed), fsum(layer.float32_ns or 0 for layer in timed)
    return {
        "schemes": rows,
        "timed": len(timed),
        "ternary": ternary,
        "dense": dense,
        "speedup": dense / ternary if ternary else None,
    }


def _weighted(pairs: list[tuple[float, Layer]]) -> float:
    weights = [layer.shape[0] * layer.shape[1] for _, layer in pairs]
    return fsum(share * weight for (share, _), weight in zip(pairs, weights, strict=True)) / (sum(weights) or 1)


def _context(record: Record) -> dict[str, Any] | None:
    if not record.layers:
        return None
    ordered = sorted(record.layers, key=lambda layer: groups.WORST_FIRST.index(layer.status))
    return {
        "layers": ordered,
        "totals": _totals(record.layers),
        "sums": [linear.sentence(each) for each in record.linear_layers],
        "quantized": any(not layer.format for layer in record.layers),
        "passed": sum(layer.status is Status.PASS for layer in ordered),
    }


SECTION = Section("layers", "Weights, layer by layer", "layers.html", _context)
