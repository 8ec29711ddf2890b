"""The Record: all results of one invocation in one immutable, versioned JSON file. Times are in ns, sizes in bytes.

A Run that could not be judged has a status that states it. Models reject contradictory states when they are made.
"""

from __future__ import annotations

from tritmark.harness.record.code import Code, Function
from tritmark.harness.record.contradictions import Contradiction, contradicted, contradictions
from tritmark.harness.record.digest import FileDigest, read_digest, with_digest
from tritmark.harness.record.load import MachineLoad, SensorRange, UnitSensors
from tritmark.harness.record.machine import (
    CeilingFacts,
    Gpu,
    Machine,
    NodeBandwidth,
    NumaNode,
    PrefetchFigure,
    TunedPrefetch,
)
from tritmark.harness.record.model import TOO_NOISY, Cause, Divergence, Model, Ratio, Slope, Status, Verdict, half_width
from tritmark.harness.record.not_judged import NotJudged, NotJudgedKind
from tritmark.harness.record.proposal import Fact, Gain, Proposal
from tritmark.harness.record.record import HOST, SCHEMA_VERSION, DeviceStatus, Environment, Record
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
    CeilingComparison,
    Cross,
    DeviceMemory,
    Guarded,
    Measurement,
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
    "TOO_NOISY",
    "Accuracy",
    "Cause",
    "CeilingComparison",
    "CeilingFacts",
    "Code",
    "Contradiction",
    "Cross",
    "DeviceMemory",
    "DeviceStatus",
    "Divergence",
    "Environment",
    "Fact",
    "FileDigest",
    "Function",
    "Gain",
    "Gpu",
    "Guarded",
    "Layer",
    "LayerScheme",
    "LinearLayers",
    "Machine",
    "MachineLoad",
    "Measurement",
    "MemoryUse",
    "Model",
    "NodeBandwidth",
    "NodeUse",
    "NotJudged",
    "NotJudgedKind",
    "NumaNode",
    "PeerComparison",
    "Performance",
    "PrefetchFigure",
    "Proposal",
    "Ratio",
    "Record",
    "Run",
    "Scaled",
    "SensorRange",
    "Slope",
    "Status",
    "Timing",
    "Transfer",
    "TunedPrefetch",
    "UnitSensors",
    "Verdict",
    "WorkloadFacts",
    "contradicted",
    "contradictions",
    "half_width",
    "read_digest",
    "with_digest",
]
