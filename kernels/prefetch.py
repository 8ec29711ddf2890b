"""How far ahead kernels of products fetch weights, and into which cache: a setting of the process, which changes no
bits.

It is what the kernels are built for (ternary_matmul.h), for some formats another than for tile64, unless `set_prefetch`
tells one. What `tritmark tune prefetch` found to be faster on this machine is found with tile64, and holds for it
alone. A call that has begun may end with the strategy before.

Kernels for AVX2, AVX-VNNI, AVX-512 and AMX obey it where they read tile64, and with one row of activations in every
format but tl1 and tl2.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from tritmark.harness import prefetched
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.machine.cpu import caches
from tritmark.harness.machine.files import line
from tritmark.harness.spec import KernelKey, Prefetching

OP, DEVICE, TILES = "ternary_matmul", "cpu", "tile64"
OBEYING = ("avx2", "avxvnni", "avx512", "amx")
"""The sets whose kernels do."""
PLAIN = "none"
STRATEGIES = (PLAIN, *(f"{level} {kib << 10}" for level in ("L1", "L2") for kib in (1, 2, 4, 8, 16)))
"""Those that are tried; any other distance can be told."""
_TUNED: dict[str, str] = {}
"""For each op the strategy that was found to be the fastest here, where this process has been told it."""
_SHAPES = ((640, 2560), (2560, 2560), (2560, 6912))
"""(N, K) of layers of bitnet-b1.58-2B-4T, of which one fits into an L2."""


def set_prefetch(level: str | None, distance: int = 0) -> None:
    """Have products of this process fetch weights `distance` bytes ahead into the cache `level`, "L1" or "L2", from
    their next calls on; "none": leave it to the hardware; None: do what they are built for.

    Raises InvalidArgumentError for another level, and for a distance that is no multiple of 64 from 64 to 65536 (of
    "none" and None, 0).
    """
    module = extension()
    levels: Mapping[str, int] = module.LEVELS
    if level is not None and level not in levels:
        raise InvalidArgumentError(
            op="set_prefetch", argument="level", found=repr(level), legal=f"None, {', '.join(map(repr, levels))}"
        )
    every: range = module.DISTANCES
    legal = every if level not in {None, PLAIN} else range(1)
    if isinstance(distance, bool) or not isinstance(distance, int) or distance not in legal:
        words = f"multiples of {every.step} from {every.start} to {every[-1]}" if legal is every else "0"
        raise InvalidArgumentError(
            op="set_prefetch", argument="distance", found=repr(distance), legal=f"{words}, with level {level!r}"
        )
    if level is None:
        module.reset_prefetch()
    else:
        module.tell_prefetch(level, distance)


def used() -> str:
    """The strategy of products from tile64 now, such as "L2 8192" or "none"."""
    return _name(extension())


@cache
def extension() -> Any:
    """The extension module of the products, whose kernels have been told what was found to be the fastest here."""
    loaded = import_module(f"tritmark.cython_ext.{OP}")
    prepare(loaded)
    return loaded


def prepare(module: Any) -> None:
    """Have the kernels of that module do what was found to be the fastest here, else what they are built for."""
    _TUNED.pop(OP, None)
    module.reset_prefetch()
    found = prefetched.chosen(DEVICE, OP, identity, _name(module))
    if found in STRATEGIES:
        module.tell_prefetch(*_parts(found), tiles_alone=True)
        _TUNED[OP] = found


def tuned_now(format: str) -> str:
    """For receipts of products from that format: the strategy that they follow because it was found to be faster here
    than the built-in one; "" where they do not."""
    found = _TUNED.get(OP) if format == TILES else None
    return f"prefetch {found}" if found is not None and found == used() else ""


@cache
def identity() -> dict[str, str]:
    """What a finding holds for: the processor with its caches, and the code of the kernels."""
    reported = [each.partition(":") for each in (line(Path("/proc/cpuinfo")) or "").partition("\n\n")[0].splitlines()]
    facts = {name.strip(): value.strip() for name, _, value in reported}
    names = [facts.get(name, "?") for name in ("vendor_id", "model name", "cpu family", "model", "stepping")]
    sizes = ", ".join(f"{name} {nbytes}" for name, nbytes in sorted(caches().items()))
    code = sha256(Path(import_module(f"tritmark.cython_ext.{OP}").__file__ or "").read_bytes()).hexdigest()
    return {"device": f"{' / '.join(names)}; {sizes}", "code": code}


def _parts(name: str) -> tuple[str, int]:
    level, _, distance = name.partition(" ")
    return level, int(distance or 0)


def _name(module: Any) -> str:
    level, distance = module.prefetch()
    return f"{level} {distance}" if distance else level


def _strategies() -> tuple[str, ...]:
    now = used()
    set_prefetch(None)
    builtin = used()
    set_prefetch(*_parts(now))
    return builtin, *(each for each in STRATEGIES if each != builtin)


def _use(name: str) -> None:
    if name:
        set_prefetch(*_parts(name))
    else:
        prepare(extension())


PREFETCHING = Prefetching(
    key=KernelKey(DEVICE, OP, TILES, "float32"),
    shapes=[{"M": 1, "N": N, "K": K} for N, K in _SHAPES],
    plain=PLAIN,
    strategies=_strategies,
    use=_use,
    used=used,
    identity=identity,
)
"""See spec.Device."""
