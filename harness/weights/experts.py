"""How often a token multiplies with a matrix: experts are matrices of which a token reads some.

GGUF files state the counts as `ARCHITECTURE.expert_count` and `expert_used_count`, nodes QMoE of ONNX as `k`, and other
models in config.json.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tritmark.harness.weights.gguf_values import value_of
from tritmark.harness.weights.small_json import read_json
from tritmark.harness.weights.source import WeightSource
from tritmark.harness.weights.ternary import TernaryInfo

_ALL = ("expert_count", "num_experts", "num_local_experts", "n_routed_experts")
_USED = ("expert_used_count", "num_experts_per_tok", "num_experts_per_token", "moe_topk")
_OF_ONE = re.compile(r"(^|\.)experts\.\d+\.")
_LARGEST = 1 << 20
_DEPTH = 2


class Experts:
    """The counts of experts in a source."""

    def __init__(self, source: WeightSource) -> None:
        """Raises WeightFileError for counts that contradict each other."""
        found: dict[str, int] = {}
        for key, value in _facts(source):
            known = "all" if key in _ALL else "used" if key in _USED else ""
            if not known or isinstance(value, bool) or not isinstance(value, int) or value < 1:
                continue
            if found.setdefault(known, value) != value:
                text = f"{key} {value}, and {found[known]} elsewhere in the metadata"
                raise source.file_error(text, "one number of experts")
        self.all, self.used = found.get("all"), found.get("used")
        if self.all is not None and self.used is not None and self.used > self.all:
            raise source.file_error(f"{self.used} of {self.all} experts for a token", "at most all experts")
        self._source = source

    def reads(self, info: TernaryInfo) -> float | None:
        """How many products of this shape a token needs, on average over the experts; None if the metadata does not
        state it. Raises WeightFileError for a tensor with another number of experts than stated."""
        if info.experts:
            if self.all is not None and self.all != info.experts:
                legal = f"{self.all}, as the metadata states"
                raise self._source.error(info.name, f"{info.experts} experts", legal)
            return self.used
        if _OF_ONE.search(info.name) is None:
            return 1
        return self.used / self.all if self.used is not None and self.all is not None else None


def is_expert(info: TernaryInfo) -> bool:
    """Whether the matrix is an expert, or several."""
    return bool(info.experts) or _OF_ONE.search(info.name) is not None


def _facts(source: WeightSource) -> Iterator[tuple[str, object]]:
    for each in source.header.pairs:
        end = each.key.rpartition(".")[2]
        if end in {*_ALL, *_USED}:
            yield end, value_of(source, each)
    for product in source.header.experts.values():
        yield "num_experts_per_tok", product.used
    path = source.folder / "config.json"
    if source.suffix != ".gguf" and path.exists():
        yield from _within(read_json(Path(path), _LARGEST), 0)


def _within(config: object, depth: int) -> Iterator[tuple[str, object]]:
    if not isinstance(config, dict):
        return
    for key, value in config.items():
        if isinstance(value, dict) and depth < _DEPTH:
            yield from _within(value, depth + 1)
        else:
            yield key, value
