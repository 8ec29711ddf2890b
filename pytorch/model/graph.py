"""Whether a model of transformers computes the graph that its folder describes: each part on its own inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from tritmark.harness.models import JudgedGraph
from tritmark.torch.model.capture import Pass, captured
from tritmark.torch.model.graph_walk import Walk
from tritmark.torch.model.loading import eager
from tritmark.torch.model.reference.architecture import NotJudgedError, architecture_of
from tritmark.torch.model.reference.tensors import tensors_of
from tritmark.torch.model.stepping import cache_name


def judged_graph(
    model: Any, folder: Path, tokens: torch.Tensor, *, mask: torch.Tensor | None = None, cache: Any = None
) -> JudgedGraph:
    """Judge each part of a model of transformers on the inputs that it gets for tokens (B, T), beside float64 values of
    the folder's tensors and config.json, within the bound of its roundings.

    `mask` (B, T): 0 for padding, whose rows are not judged. With `cache`, an empty Cache, the last token is a pass of
    its own. A compiled model is judged by its modules, not by its compiled code. An architecture without a reference
    is no error: `why_not` has the reason. Raises WeightFileError for a folder that cannot be read.
    """
    model = getattr(model, "_orig_mod", model)
    kind, count = type(model).__name__, int(tokens.numel())
    try:
        graph = architecture_of(folder)
        dtype = str(model.get_input_embeddings().weight.dtype).removeprefix("torch.")
        with tensors_of(folder, graph, dtype) as tensors, torch.no_grad(), _full_precision():
            walk = Walk(model, graph, tensors, dtype)
            start = 0
            for each, seen in _passes(model, tokens, mask, cache):
                walk.judge(seen, each, start, mask)
                start += each.shape[1]
            found = walk.found()
    except NotJudgedError as error:
        return JudgedGraph(architecture=kind, tokens=count, parts=(), why_not=str(error))
    return JudgedGraph(architecture=kind, tokens=count, parts=found)


def _passes(
    model: Any, tokens: torch.Tensor, mask: torch.Tensor | None, cache: Any
) -> Iterator[tuple[torch.Tensor, Pass]]:
    options = {} if cache is None else {cache_name(model): cache, "use_cache": True}
    end, first = tokens.shape[1], tokens.shape[1] if cache is None else tokens.shape[1] - 1
    for part in (slice(0, first), slice(first, end)):
        if part.start < part.stop:
            seen_mask = {} if mask is None else {"attention_mask": mask[:, : part.stop]}
            with captured(model) as seen:
                out = model(tokens[:, part], **seen_mask, **{"use_cache": False, **options})
            seen.logits = out.logits
            yield tokens[:, part], seen


@contextmanager
def _full_precision() -> Iterator[None]:
    """Without the modes in which products of a GPU have less than float32 sums, and without torch.compile."""
    matmul = torch.backends.cuda.matmul
    names = ("allow_tf32", "allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction")
    before = {name: getattr(matmul, name) for name in names}
    try:
        for name in names:
            setattr(matmul, name, False)
        with eager():
            yield
    finally:
        for name, value in before.items():
            setattr(matmul, name, value)
