"""Judges the graph of a model by its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tritmark.harness.errors import UsageError
from tritmark.harness.models import JudgedGraph, JudgedLogits
from tritmark.torch.model.graph import judged_graph
from tritmark.torch.model.other_logits import judged_logits
from tritmark.torch.model.stepping import empty_cache

_TOKENS = 32
"""Tokens of the text on which the graph is judged: float64 products of all weights take a while."""


def judged_source(
    model: Any, source: str, tokens: torch.Tensor, logits: str
) -> tuple[JudgedGraph, JudgedLogits | None]:
    """The graph of a model, of which the last token has a pass of its own with the cache, and another engine's `logits`
    if a file is named. Raises UsageError for logits without a folder to compare with."""
    folder = _folder_of(source)
    if folder is None:
        if logits:
            raise UsageError(
                f"--logits {logits}: {source} is no folder; legal: a folder of transformers, or OWNER/NAME"
            )
        why = "the reference reads folders of transformers, and this is a file"
        return JudgedGraph(architecture=type(model).__name__, tokens=0, parts=(), why_not=why), None
    given = tokens[:, :_TOKENS]
    graph = judged_graph(model, folder, given, cache=empty_cache(model))
    return graph, judged_logits(folder, Path(logits)) if logits else None


def _folder_of(source: str) -> Path | None:
    """The folder of a source; for a name of Hugging Face that of its downloaded files."""
    path = Path(source)
    if path.exists():
        return path if path.is_dir() else None
    from transformers.utils.hub import cached_file

    found = cached_file(source, "config.json")
    return None if found is None else Path(found).parent
