"""The Record: everything one invocation found, as one immutable, versioned JSON file. Times are nanoseconds, sizes
bytes.

A Run that could not be judged has a status that says so; contradictory states are rejected when they are made.
"""

from __future__ import annotations

from tritmark.harness.record.code import Code, Function
from tritmark.harness.record.digest import FileDigest, read_digest, with_digest
from tritmark.harness.record.machine import (
    CeilingFacts,
    Gpu,
    Machine,
    NodeBandwidth,
    NumaNode,
    PrefetchFigure,
    TunedPrefetch,
)
from tritmark.harness.record.model import Cause, Divergence, Model, Ratio, Slope, Status, Verdict
from tritmark.harness.record.proposal import Fact, Gain, Proposal
from tritmark.harness.record.record import HOST, SCHEMA_VERSION, Environment, Lane, Record
from tritmark.harness.record.run import (
    DIMENSIONS,
    Layer,
    LayerScheme,
    LinearLayers,
    NodeUse,
    Run,
    Scaled,
    WorkloadFacts,
)
from tritmark.harness.record.verdicts import (
    Accuracy,
    Against,
    Cross,
    DeviceMemory,
    Footing,
    Guarded,
    MemoryUse,
    PeerComparison,
    Performance,
    Timing,
    Transfer,
)

__all__ = [
    "DIMENSIONS",
    "HOST",
    "SCHEMA_VERSION",
    "Accuracy",
    "Against",
    "Cause",
    "CeilingFacts",
    "Code",
    "Cross",
    "DeviceMemory",
    "Divergence",
    "Environment",
    "Fact",
    "FileDigest",
    "Footing",
    "Function",
    "Gain",
    "Gpu",
    "Guarded",
    "Lane",
    "Layer",
    "LayerScheme",
    "LinearLayers",
    "Machine",
    "MemoryUse",
    "Model",
    "NodeBandwidth",
    "NodeUse",
    "NumaNode",
    "PeerComparison",
    "Performance",
    "PrefetchFigure",
    "Proposal",
    "Ratio",
    "Record",
    "Run",
    "Scaled",
    "Slope",
    "Status",
    "Timing",
    "Transfer",
    "TunedPrefetch",
    "Verdict",
    "WorkloadFacts",
    "read_digest",
    "with_digest",
]
