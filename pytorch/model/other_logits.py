"""Another engine's logits of the same file, beside those of the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tritmark.harness.errors import UsageError
from tritmark.harness.models import JudgedLogits
from tritmark.harness.record import Status
from tritmark.torch.model.reference.architecture import Architecture, NotJudgedError, architecture_of, dtype_of
from tritmark.torch.model.reference.forward import DrawnRoundings, Forward
from tritmark.torch.model.reference.hypotheses import hypotheses
from tritmark.torch.model.reference.tensors import Floats, ModelTensors, tensors_of

_SAMPLES = 19
"""Passes with drawn roundings: other roundings are farther than all of them in 5 % of cases."""
_LEGAL = "an .npz file with tokens (T,), integers, and logits (T, vocabulary), floats"


def judged_logits(folder: Path, path: Path) -> JudgedLogits:
    """Judge an .npz file with `tokens` (T,) and `logits` (T, vocabulary): whether the logits are as close to the
    reference as other roundings of the checkpoint's dtype would be, and otherwise which known fault explains them.

    Raises UsageError for another file, and WeightFileError for a folder that cannot be read.
    """
    tokens, logits = _read(path)
    try:
        graph = architecture_of(folder)
        with tensors_of(folder, graph, "float32") as tensors:
            ulp = float(torch.finfo(getattr(torch, dtype_of(folder))).eps)
            vocabulary = tensors.rows_of("model.embed_tokens.weight")
            least, most = int(np.min(tokens)), int(np.max(tokens))
            if not 0 <= least <= most < vocabulary:
                raise UsageError(f"{path}: tokens {least} to {most}; legal: 0 to {vocabulary - 1}")
            passes = Forward(tensors, graph, DrawnRoundings(_SAMPLES, ulp)).logits(tokens)
            exact = passes[0]
            if exact.shape != logits.shape:
                found = f"{path}: logits of shape {logits.shape}"
                raise UsageError(f"{found}; legal: {exact.shape}, (tokens, vocabulary) of the model")
            spread = max(_distance(exact, each) for each in passes[1:])
            distance = _distance(exact, logits)
            tried = {} if distance <= spread else _tried(graph, tensors, tokens, logits)
            nearest = min(tried, key=tried.__getitem__, default="")
    except NotJudgedError as error:
        return JudgedLogits(file=str(path), tokens=len(tokens), status=Status.NOT_RUN, why_not=str(error))
    p, q = _log_softmax(exact), _log_softmax(logits)
    return JudgedLogits(
        file=str(path),
        tokens=len(tokens),
        status=Status.PASS if distance <= spread else Status.FAIL,
        kl=float((np.exp(p) * (p - q)).sum(-1).mean()),
        top1=float((p.argmax(-1) == q.argmax(-1)).mean()),
        distance=distance,
        spread=spread,
        samples=_SAMPLES,
        fault=nearest if tried and tried[nearest] <= spread else "",
        tried=tuple(tried),
    )


def _tried(graph: Architecture, tensors: ModelTensors, tokens: NDArray[np.int64], logits: Floats) -> dict[str, float]:
    """The distance of these logits from the reference with each known fault."""
    return {
        name: _distance(Forward(tensors, other, changed=changed).logits(tokens)[0], logits)
        for name, other, changed in hypotheses(graph, tensors)
    }


def _read(path: Path) -> tuple[NDArray[np.int64], Floats]:
    try:
        with np.load(path, allow_pickle=False) as found:
            tokens, logits = (found[name] for name in ("tokens", "logits"))
    except (OSError, EOFError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise UsageError(f"{path}: {error}; legal: {_LEGAL}") from error
    _require(path, tokens.ndim == 1 and np.issubdtype(tokens.dtype, np.integer), "tokens", tokens)
    fits = logits.ndim == 2 and len(logits) == len(tokens) and np.issubdtype(logits.dtype, np.floating)
    _require(path, fits, "logits", logits)
    if not len(tokens) or not np.isfinite(logits).all():
        raise UsageError(f"{path}: no tokens, or a logit that is NaN or infinite; legal: {_LEGAL}")
    return tokens.astype(np.int64), logits.astype(np.float64)


def _require(path: Path, fits: bool, name: str, found: Any) -> None:
    if not fits:
        raise UsageError(f"{path}: {name} is {found.dtype} of shape {found.shape}; legal: {_LEGAL}")


def _distance(reference: Floats, other: Floats) -> float:
    a, b = (each - each.mean(-1, keepdims=True) for each in (reference, other))
    return float(np.linalg.norm(a - b) / np.linalg.norm(a))


def _log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(-1, keepdims=True)
    found: Floats = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return found
