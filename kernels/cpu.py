"""The CPU as a device: its instruction sets, and the variants that an op's native kernels make."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from typing import Any

from tritmark.harness.errors import UsageError
from tritmark.harness.spec import Arrays, Axes, Ceiling, Clock, CodeFile, Constraint, Device, KernelKey, Launch, Tier, Variant

ISAS: Mapping[str, tuple[Tier, frozenset[str], str]] = {
    "scalar": (Tier.BASELINE, frozenset(), "plain C"),
    "sse41": (Tier.OPTIMIZED, frozenset({"sse4.1"}), "SSE4.1, 16-byte vectors"),
    "avx2": (Tier.HIGHLY_OPTIMIZED, frozenset({"avx2", "f16c"}), "AVX2, 32-byte vectors"),
    "avx512": (
        Tier.EXTREMELY_OPTIMIZED,
        frozenset({"avx2", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"}),
        "AVX-512 with VNNI, 64-byte vectors",
    ),
}
"""Instruction sets in rising order, as cython_ext/src/isa.h has them: tier, CPU features needed, summary."""

FORCE = "TRITMARK_FORCE_ISA"


@cache
def native(module: str) -> Any:
    """The extension module of that name, imported at its first use: importing tritmark.kernels loads no native code."""
    return import_module(f"tritmark.cython_ext.{module}")


Bind = Callable[[str, Arrays, Arrays, Axes, int], Launch]


def variants(op: str, format: str, dtype: str, bind: Bind, constraints: tuple[Constraint, ...] = ()) -> tuple[Variant, ...]:
    """One Variant for each instruction set of a native op; `bind` takes the instruction set's name first."""
    return tuple(
        Variant(
            key=KernelKey("cpu", op, format, dtype),
            name=isa,
            tier=tier,
            summary=summary,
            features=features,
            constraints=constraints,
            bind=partial(bind, isa),
            code=partial(_code, op, isa),
        )
        for isa, (tier, features, summary) in ISAS.items()
    )


def _code(op: str, isa: str, target: str, binaries: frozenset[str] = frozenset()) -> tuple[CodeFile, ...]:
    """The extension module, which is found and not loaded, and the function that isa.h names for the instruction set."""
    import platform
    from importlib.util import find_spec

    found = find_spec(f"tritmark.cython_ext.{op}")
    if found is None or not found.origin:
        return ()
    machine = platform.machine().replace("_", "-")
    return (CodeFile(kind="native", name=f"{op} ({isa})", entries=(f"tm_{op}_{isa}",), target=machine, path=found.origin),)


@cache
def features() -> frozenset[str]:
    """What this CPU and its operating system support, of what the kernels ask for."""
    return frozenset(native("cpu").features())


def forced() -> str | None:
    """The instruction set that TRITMARK_FORCE_ISA names, or None. Raises UsageError for a name that does not exist."""
    isa = os.environ.get(FORCE, "").strip().lower()
    if not isa:
        return None
    if isa not in ISAS:
        raise UsageError(f"{FORCE} is {isa!r}; legal: {', '.join(ISAS)}")
    return isa


@cache
def cores() -> int:
    """Physical cores that this process may use: the default number of threads."""
    from tritmark.harness.machine.cpu import physical_cores

    return physical_cores()


@cache
def l2_bytes() -> int:
    """Size of one core's L2 cache in bytes: outputs past it are written around the caches."""
    return int(native("cpu").l2_bytes())


@cache
def code_hash(variant_id: str) -> str:
    """SHA-256 of the extension module that holds the variant's code; "" for a variant that is none of this package's."""
    if variant_id.rpartition("/")[2] not in ISAS:
        return ""
    import hashlib
    from pathlib import Path

    path = native(variant_id.split("/")[1]).__file__
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _clock() -> Clock:
    clock: Clock = native("clock").NativeClock()
    return clock


def _ceilings() -> Mapping[str, Ceiling]:
    from tritmark.kernels.ceilings import CEILINGS

    return CEILINGS


DEVICE = Device(
    type="cpu",
    summary="this machine's processor",
    features=features,
    clock=_clock,
    ceilings=_ceilings,
    cores=cores,
    forced=forced,
    code_hash=code_hash,
    compiler=lambda: str(native("cpu").compiler()),
)
