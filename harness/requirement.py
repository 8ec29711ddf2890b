"""The goal of a measured choice. A module of its own, since the command line starts without NumPy and harness.spec."""

from __future__ import annotations

from enum import StrEnum


class Requirement(StrEnum):
    """The goal of a measured choice between variants (see harness.selection)."""

    __hash__ = str.__hash__  # each call of a kernel hashes it, and the hash of an Enum is slow Python code

    LATENCY = "latency"
    """The time of a cold call, as when a model calls its layers in order; hot if the arrays are too small to be
    cold."""
    THROUGHPUT = "throughput"
    """The time of a hot call: the same arrays as the call before."""
    MEMORY = "memory"
    """Bytes of the encoded inputs (weights packed) and of the workspace; among equals, the latency."""
    EXACTNESS = "exactness"
    """The latency, among variants whose outputs are exact or rounded once."""
