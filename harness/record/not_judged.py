"""What an invocation did not judge, as its headline says."""

from __future__ import annotations

from enum import StrEnum

from tritmark.harness.record.model import Model


class NotJudgedKind(StrEnum):
    """Kinds of what was not judged, the graver first; the value is its name in a headline."""

    SIMULATED = "simulated devices"
    ACCURACY = "accuracy"
    """What accuracy verdicts do not cover."""
    TENSORS = "tensors"
    """Of the weights, left out."""
    WORKLOADS = "workloads"
    """Of the suite, dropped."""
    MEMORY = "memory"
    PERFORMANCE = "performance"
    ORDER = "byte order"
    """Of formats that no bytes of their original packer were compared with."""


class NotJudged(Model):
    """One thing that was not judged, and of what."""

    kind: NotJudgedKind
    about: tuple[str, ...]
    """Names: of formats, kernels, tensors, workloads or devices."""
    told: str
    """Why, and what follows, in a sentence without these names."""
    share: float | None = None
    """Of tensors: their part of the bytes of all; None of everything else."""
