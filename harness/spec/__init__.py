"""The nouns of tritmark: Op, Variant, Workload and what describes them. Frozen, and checked when they are made.

An Op is a contract (op). A Variant is one implementation of it for a KernelKey (device type, operation, format, dtype);
bound to its arguments it is a Launch, and it runs on a Device (variant, launch, device). A Workload says on which
values Op and Variant meet (workload). A Provider has all that a package brings (provider). Nothing here knows a
particular op.
"""

from __future__ import annotations

import warnings

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
)
from tritmark.harness.spec.provider import (
    PEER_ISA,
    Decoding,
    EquivalentMutants,
    FormatOracle,
    GoldenVector,
    Mutant,
    Peer,
    Provider,
    PublicCall,
    Ternarized,
    WeightType,
)
from tritmark.harness.spec.variant import (
    CodeFile,
    Constraint,
    Instances,
    MaxSize,
    MinSize,
    MultipleOf,
    Requirement,
    Tier,
    Variant,
    no_workspace,
)
from tritmark.harness.spec.workload import StoredMatrix, Workload

__all__ = [
    "INPUT_DTYPES",
    "PEER_ISA",
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
    "DeviceTransfers",
    "EquivalentMutants",
    "FormatOracle",
    "FunctionBinder",
    "GoldenVector",
    "HeldTo",
    "Instances",
    "KernelKey",
    "Launch",
    "Launched",
    "Masking",
    "MaxSize",
    "Memory",
    "MinSize",
    "MultipleOf",
    "Mutant",
    "Numbering",
    "Op",
    "Peer",
    "Pipelined",
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
    "Traffic",
    "Values",
    "Variant",
    "WeightType",
    "Workload",
    "no_workspace",
]


def __getattr__(name: str) -> object:
    if name == "Family":
        warnings.warn("Family is deprecated: use ToleranceKind", DeprecationWarning, stacklevel=2)
        return ToleranceKind
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
