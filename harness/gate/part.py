"""Builds with the extension modules of some ops alone: those of the others are not compiled.

A module that was left out has a stand-in, which leaves a mark where it is imported: then what was left out was needed
after all, and the build is made whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path

from tritmark.harness.providers import Installed

_CYTHON = ".pyx"
_MARK = ".wanted"
_STAND_IN = f'''"""Was not compiled: this build is for other ops."""

from pathlib import Path

Path(__file__).with_suffix("{_MARK}").touch()
raise ImportError(f"{{__name__}} was left out of this build, which is for other ops")
'''


@dataclass(frozen=True, slots=True)
class BuildPart:
    """Names of extension modules."""

    needed: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()

    @property
    def mark(self) -> str:
        """What tells builds with different modules apart; "" for a whole one."""
        return f"-{sha256(' '.join(sorted(self.others)).encode()).hexdigest()[:12]}" if self.others else ""


WHOLE = BuildPart()


def part_of(installed: Installed, op: str) -> BuildPart:
    """What the kernels of ops that match the glob `op` need of what is installed, and the modules that those of other
    ops alone are in."""
    of: dict[bool, set[str]] = {True: set(), False: set()}
    for variant in installed.registry.variants:
        if installed.registry.devices[variant.key.device].memory is None:
            files = (Path(file.path).name for file in variant.code("", frozenset()) if file.path)
            of[fnmatchcase(variant.key.op, op)].update(name.partition(".")[0] for name in files)
    needed, others = frozenset(of[True]), frozenset(of[False] - of[True])
    # Where nothing is known of what is needed, everything may be.
    return BuildPart(needed, others) if needed and others else WHOLE


def narrow(source: Path, part: BuildPart) -> frozenset[str]:
    """Remove the Cython source of other ops' modules, where it lies beside that of needed ones; the modules' names."""
    found = list(source.rglob(f"*{_CYTHON}"))
    rooms = {path.parent for path in found if path.stem in part.needed}
    dropped = [path for path in found if path.stem in part.others and path.parent in rooms]
    for path in dropped:
        path.unlink()
    return frozenset(path.stem for path in dropped)


def stand_in(site: Path, part: BuildPart, dropped: Iterable[str]) -> None:
    """Put a stand-in for each module that was left out of a build beside those that it needs."""
    rooms = {path.parent for name in part.needed for path in site.rglob(f"{name}.*so")}
    for room in rooms:
        for name in dropped:
            (room / f"{name}.py").write_text(_STAND_IN, encoding="utf-8")


def lacks(site: Path) -> bool:
    """Whether something asked a build for a module that was left out of it."""
    return next(site.rglob(f"*{_MARK}"), None) is not None
