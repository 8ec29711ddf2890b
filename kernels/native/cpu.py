"""The CPU as a device: its instruction sets, and the variants of the native kernels of each op."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from tritmark.harness.errors import UsageError
from tritmark.harness.nearest import nearest
from tritmark.harness.spec import (
    Arrays,
    Axes,
    CArgument,
    Ceiling,
    Clock,
    CodeFile,
    Constraint,
    Device,
    KernelKey,
    Launch,
    Prefetching,
    Proof,
    ThreadTimes,
    Tier,
    Variant,
    no_workspace,
)
from tritmark.kernels.native import extensions, prefetch
from tritmark.kernels.native.masking import MASKING

FORCE = "TRITMARK_FORCE_ISA"

native = extensions.native
variable: Callable[[bytes], str | None] = native("cpu").variable
"""The current value of an environment variable, read faster than through os.environ."""
_FORCE = FORCE.encode()


class Isa(NamedTuple):
    """An instruction set, as cython_ext/src/isas.h lists it."""

    name: str
    rank: int
    """The set with the higher rank is preferred."""
    features: frozenset[str]
    """Required CPU features, by their CPUID names."""
    tier: Tier
    summary: str


def _listed() -> tuple[dict[str, Isa], dict[str, tuple[Isa, ...]]]:
    sets: dict[str, Isa] = {}
    kernels: dict[str, list[Isa]] = {}
    for op, (name, rank, needed, tier, summary) in native("cpu").kernels():
        isa = sets.setdefault(name, Isa(name, rank, frozenset(needed), Tier[tier], summary))
        kernels.setdefault(op, []).append(isa)
    rising = sorted(sets.values(), key=lambda isa: isa.rank)
    return {isa.name: isa for isa in rising}, {
        op: tuple(isa for isa in rising if isa in found) for op, found in kernels.items()
    }


ISAS, KERNELS = _listed()
"""The instruction sets that have kernels, and the sets for which each op has a kernel, and so have the "probe" of the
ceilings and the "rms_norm" of PyTorch's modules; both in ascending rank."""


def best(op: str) -> str:
    """The best instruction set of this CPU for which the op has a kernel. TRITMARK_FORCE_ISA is ignored."""
    return [isa.name for isa in KERNELS[op] if isa.features <= features()][-1]


_OWN: dict[str, str] = {}
"""The extension module of each of this package's variants, by id. A variant of another package may have the name of an
instruction set too."""

Bind = Callable[[str, Arrays, Arrays, Axes, int], Launch]


def variants(
    op: str,
    format: str,
    dtype: str,
    bind: Bind,
    constraints: tuple[Constraint, ...] = (),
    *,
    table: str | None = None,
    module: str | None = None,
    workspace: Callable[[Axes], int] = no_workspace,
) -> tuple[Variant, ...]:
    """One Variant for each instruction set for which a native op has a kernel. The first argument of `bind` is the name
    of the instruction set. `table` is the name of the kernels in isas.h, and `module` the extension module that has
    them, by default the op's name; `workspace` is that of Variant."""
    made = tuple(
        Variant(
            key=KernelKey("cpu", op, format, dtype),
            name=isa.name,
            tier=isa.tier,
            rank=isa.rank,
            summary=isa.summary,
            features=isa.features,
            constraints=constraints,
            workspace=workspace,
            bind=partial(bind, isa.name),
            code=partial(_code, module or op, table or op, isa.name),
        )
        for isa in KERNELS[table or op]
    )
    _OWN.update((variant.id, module or op) for variant in made)
    return made


def _code(
    module: str, table: str, isa: str, target: str, binaries: frozenset[str] = frozenset()
) -> tuple[CodeFile, ...]:
    """The extension module, which is located but not loaded, and the function that isas.h names for the instruction
    set."""
    import platform
    from importlib.util import find_spec

    found = find_spec(f"tritmark.cython_ext.{module}")
    if found is None or not found.origin:
        return ()
    machine = platform.machine().replace("_", "-")
    return (
        CodeFile(
            kind="native", name=f"{module} ({isa})", entries=(f"tm_{table}_{isa}",), target=machine, path=found.origin
        ),
    )


@cache
def features() -> frozenset[str]:
    """The CPU features that kernels may require and that this CPU and its operating system support."""
    return frozenset(native("cpu").features())


def forced() -> str | None:
    """The instruction set that TRITMARK_FORCE_ISA names, or None. Raises UsageError for a name that does not exist."""
    isa = (variable(_FORCE) or "").strip().lower()
    if not isa:
        return None
    if isa not in ISAS:
        raise UsageError(f"{FORCE} is {isa!r}; {nearest(isa, ISAS)}")
    return isa


@cache
def cores() -> int:
    """The default number of threads: see kernels/native/threads.py."""
    from tritmark.kernels.native.threads import default

    return default()


@cache
def l2_bytes() -> int:
    """Size of one core's L2 cache in bytes. Larger outputs are written with non-temporal stores."""
    return int(native("cpu").l2_bytes())


def own(variant: Variant) -> bool:
    """Whether it is one of this package's native variants."""
    return variant.id in _OWN


@cache
def code_hash(variant_id: str) -> str:
    """SHA-256 of the extension module that holds the variant's code; "" for a variant of another package."""
    if variant_id not in _OWN:
        return ""
    return _file_hash(_OWN[variant_id])


def _clock() -> Clock:
    clock: Clock = native("clock").NativeClock()
    return clock


def _function(name: str, address: int, arguments: Sequence[CArgument], threads: int, owners: object) -> Launch:
    launch: Launch = native("function").FunctionCall(name, address, arguments, threads, owners)
    return launch


def _thread_times(calls: Callable[[], object]) -> ThreadTimes | None:
    from tritmark.kernels.native.threads import watched

    return watched(native("pool"), calls)


@cache
def _ceilings() -> Mapping[str, Ceiling]:
    from tritmark.kernels.native.ceilings import ceilings

    *lesser, isa = [each.name for each in KERNELS["probe"] if each.features <= features()]
    return ceilings(native("ceilings"), isa, lesser)


def _prefetching() -> Sequence[Prefetching]:
    return (prefetch.PREFETCHING,) if prefetch.FEATURE in ISAS[best(prefetch.OP)].features else ()


def _proof(launch: Launch) -> Proof | None:
    """Proof that a product used a prefetch strategy other than the built-in one; None if it did not."""
    products = sys.modules.get(f"tritmark.cython_ext.{prefetch.OP}")
    found = (
        prefetch.tuned_now(launch.format) if products is not None and isinstance(launch, products.TernaryMatmul) else ""
    )
    return Proof(tuned=found) if found else None


@cache
def _identity() -> Mapping[str, str]:
    """What the times of kernels depend on, apart from their own code: the processor, its instruction sets, the cores
    and caches that this process may use, and the shared thread pool."""
    from tritmark.harness.machine import cpu

    caches = (f"{name} {nbytes}" for name, nbytes in sorted(cpu.caches().items()))
    return {
        "device": "; ".join([cpu.model(), f"{cores()} cores", *caches]),
        "features": " ".join(sorted(features())),
        "pool": _file_hash("pool"),
    }


def _file_hash(module: str) -> str:
    """SHA-256 of an extension module."""
    import hashlib
    from pathlib import Path

    return hashlib.sha256(Path(native(module).__file__).read_bytes()).hexdigest()


def _placed(values: Any, node: int) -> Any:
    from tritmark.kernels.native.placement import placed

    return placed(values, node)


DEVICE = Device(
    type="cpu",
    summary="this machine's processor",
    features=features,
    clock=_clock,
    ceilings=_ceilings,
    cores=cores,
    forced=forced,
    ladder=lambda: {isa.name: isa.features for isa in ISAS.values()},
    code_hash=code_hash,
    compiler=lambda: str(native("cpu").compiler()),
    prefetching=_prefetching,
    proof=_proof,
    identity=_identity,
    placed=_placed,
    thread_times=_thread_times,
    function=_function,
    masking=MASKING,
)
