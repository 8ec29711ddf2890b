"""The nouns of tritmark: Op, Variant, Workload, Device, Provider. All are frozen and checked when they are made.

An Op is a contract (op). A Variant is one implementation of an Op for a KernelKey (device type, op, format, dtype).
Bound to its arguments, a Variant is a Launch, and it runs on a Device (variant, launch, device). A Workload gives the
axes and values of a Run (workload). A Provider lists everything that a package brings (provider). Nothing here depends
on a particular op.
"""

from __future__ import annotations

import warnings

from tritmark.harness.requirement import Requirement
from tritmark.harness.spec.access import (
    DEVICE_MEMORY,
    SHARED_MEMORY,
    AccessTracing,
    KernelAccesses,
    TracedAccess,
)
from tritmark.harness.spec.device import (
    ArrayChange,
    CArgument,
    Ceiling,
    ChangingClock,
    Clock,
    Device,
    DeviceTransfers,
    FunctionBinder,
    HeldTo,
    Masking,
    Memory,
    Numbering,
    Pipelined,
    Prefetching,
    ThreadTimes,
)
from tritmark.harness.spec.launch import Launch, Launched, Proof, Receipt
from tritmark.harness.spec.op import (
    INPUT_DTYPES,
    Arrays,
    Axes,
    KernelKey,
    Op,
    Sizes,
    StoredWeights,
    Tensor,
    ToleranceKind,
    Traffic,
    Values,
    axis_size,
)
from tritmark.harness.spec.provider import (
    PEER_ISA,
    Decoding,
    EquivalentMutants,
    FormatMutant,
    FormatOracle,
    GoldenVector,
    Mutant,
    Peer,
    PortableCall,
    Provider,
    PublicCall,
    Ternarized,
    Unsupported,
    WeightType,
)
from tritmark.harness.spec.stats import DeviceStats, MemoryFigures
from tritmark.harness.spec.variant import (
    CodeFile,
    Constraint,
    Instances,
    MaxSize,
    MinSize,
    MultipleOf,
    Tier,
    Variant,
    no_workspace,
)
from tritmark.harness.spec.workload import StoredMatrix, Workload

__all__ = [
    "DEVICE_MEMORY",
    "INPUT_DTYPES",
    "PEER_ISA",
    "SHARED_MEMORY",
    "AccessTracing",
    "ArrayChange",
    "Arrays",
    "Axes",
    "CArgument",
    "Ceiling",
    "ChangingClock",
    "Clock",
    "CodeFile",
    "Constraint",
    "Decoding",
    "Device",
    "DeviceStats",
    "DeviceTransfers",
    "EquivalentMutants",
    "FormatMutant",
    "FormatOracle",
    "FunctionBinder",
    "GoldenVector",
    "HeldTo",
    "Instances",
    "KernelAccesses",
    "KernelKey",
    "Launch",
    "Launched",
    "Masking",
    "MaxSize",
    "Memory",
    "MemoryFigures",
    "MinSize",
    "MultipleOf",
    "Mutant",
    "Numbering",
    "Op",
    "Peer",
    "Pipelined",
    "PortableCall",
    "Prefetching",
    "Proof",
    "Provider",
    "PublicCall",
    "Receipt",
    "Requirement",
    "Sizes",
    "StoredMatrix",
    "StoredWeights",
    "Tensor",
    "Ternarized",
    "ThreadTimes",
    "Tier",
    "ToleranceKind",
    "TracedAccess",
    "Traffic",
    "Unsupported",
    "Values",
    "Variant",
    "WeightType",
    "Workload",
    "axis_size",
    "no_workspace",
]


def __getattr__(name: str) -> object:
    if name == "Family":
        warnings.warn("Family is deprecated: use ToleranceKind", DeprecationWarning, stacklevel=2)
        return ToleranceKind
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
