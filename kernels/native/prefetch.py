"""How far ahead kernels of products prefetch weights, and into which cache. The setting belongs to the process, and
does not change results.

The default is built into the kernels (ternary_matmul.h), and some formats differ from tile64. `set_prefetch` overrides
it. `tritmark tune prefetch` measures with tile64, and its result holds only for tile64. A call that has begun may end
with the previous strategy.

Kernels for AVX2, AVX-VNNI, AVX-512 and AMX use the setting for tile64, and with one row of activations for every format
except tl1 and tl2.
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
FEATURE = "avx2"
"""Kernels for instruction sets with this feature use the setting."""
PLAIN = "none"
STRATEGIES = (PLAIN, *(f"{level} {kib << 10}" for level in ("L1", "L2") for kib in (1, 2, 4, 8, 16)))
"""Distances that tuning tries; `set_prefetch` accepts others."""
_TUNED: dict[str, str] = {}
"""For each op the fastest measured strategy on this machine, if this process has loaded it."""
_SHAPES = ((640, 2560), (2560, 2560), (2560, 6912))
"""(N, K) of layers of bitnet-b1.58-2B-4T; one of them fits into an L2."""


def set_prefetch(level: str | None, distance: int = 0) -> None:
    """Set the prefetch strategy of this process's products, beginning with their next calls.

    `level` is "L1" or "L2": prefetch weights `distance` bytes ahead into that cache. "none" leaves it to the hardware.
    None restores the built-in strategy. Raises InvalidArgumentError for another level, and for a distance that is not
    a multiple of 64 from 64 to 65536 (0 with "none" and None).
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
    """The current strategy of products from tile64, such as "L2 8192" or "none"."""
    return _name(extension())


@cache
def extension() -> Any:
    """The extension module of the products, with the fastest measured strategy set."""
    loaded = import_module(f"tritmark.cython_ext.{OP}")
    prepare(loaded)
    return loaded


def prepare(module: Any) -> None:
    """Set the fastest measured strategy in that module's kernels, else the built-in one."""
    _TUNED.pop(OP, None)
    module.reset_prefetch()
    found = prefetched.chosen(DEVICE, OP, identity, _name(module))
    if found in STRATEGIES:
        module.tell_prefetch(*_parts(found), tiles_alone=True)
        _TUNED[OP] = found


def tuned_now(format: str) -> str:
    """For receipts of products from that format: the strategy in use if it was measured to be faster than the built-in
    one, else ""."""
    found = _TUNED.get(OP) if format == TILES else None
    return f"prefetch {found}" if found is not None and found == used() else ""


@cache
def identity() -> dict[str, str]:
    """What a measured strategy is valid for: the processor with its caches, and the code of the kernels."""
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
