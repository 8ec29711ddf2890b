"""Things that an invocation did not judge, for its headline."""

from __future__ import annotations

from enum import StrEnum

from tritmark.harness.record.model import Model


class NotJudgedKind(StrEnum):
    """Kinds in order of severity, the most severe first. The value is the name in a headline."""

    SIMULATED = "simulated devices"
    ACCURACY = "accuracy"
    """Limits of accuracy verdicts."""
    TENSORS = "tensors"
    """Tensors of the weights that were left out."""
    WORKLOADS = "workloads"
    """Workloads of the suite that were dropped."""
    MEMORY = "memory"
    PERFORMANCE = "performance"
    ORDER = "byte order"
    """Formats that were not compared with bytes of their original packer."""


class NotJudged(Model):
    """One thing that was not judged."""

    kind: NotJudgedKind
    about: tuple[str, ...]
    """Names of formats, kernels, tensors, workloads or devices."""
    told: str
    """Reason and consequence, in a sentence without these names."""
    share: float | None = None
    """For tensors, their share of all bytes; None for other kinds."""
