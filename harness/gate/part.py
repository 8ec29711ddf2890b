"""Partial builds: only the extension modules of the selected ops are compiled.

Each module that was left out has a stand-in. If a stand-in is imported, it leaves a mark file: the module is needed,
and the gate makes the whole build.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path

from tritmark.harness.providers import Installed

_CYTHON = ".pyx"
MARK = ".wanted"
_STAND_IN = f'''"""Not compiled: this build is for other ops."""

from pathlib import Path

Path(__file__).with_suffix("{MARK}").touch()
raise ImportError(f"{{__name__}} was left out of this build, which is for other ops")
'''


@dataclass(frozen=True, slots=True)
class BuildPart:
    """Names of the extension modules that are needed, and of those that may be left out."""

    needed: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()

    @property
    def mark(self) -> str:
        """A hash in the build's folder name that identifies the modules left out; "" for a whole build."""
        return f"-{sha256(' '.join(sorted(self.others)).encode()).hexdigest()[:12]}" if self.others else ""


WHOLE = BuildPart()


def part_of(installed: Installed, op: str) -> BuildPart:
    """The installed modules that kernels need whose op matches the glob `op`, and the modules that only other ops
    need."""
    of: dict[bool, set[str]] = {True: set(), False: set()}
    for variant in installed.registry.variants:
        if installed.registry.devices[variant.key.device].memory is None:
            files = (Path(file.path).name for file in variant.code("", frozenset()) if file.path)
            of[fnmatchcase(variant.key.op, op)].update(name.partition(".")[0] for name in files)
    needed, others = frozenset(of[True]), frozenset(of[False] - of[True])
    # If no needed module is known, every module may be needed.
    return BuildPart(needed, others) if needed and others else WHOLE


def narrow(source: Path, part: BuildPart) -> frozenset[str]:
    """Remove the Cython sources of other ops' modules from the top folders of needed ones: elsewhere are examples and
    tests. Returns the removed modules' names."""
    found = [path.relative_to(source) for path in source.rglob(f"*{_CYTHON}")]
    rooms = {path.parts[0] for path in found if path.stem in part.needed}
    dropped = [path for path in found if path.stem in part.others and path.parts[0] in rooms]
    for path in dropped:
        (source / path).unlink()
    return frozenset(path.stem for path in dropped)


def stand_in(site: Path, part: BuildPart, dropped: Iterable[str]) -> None:
    """Write a stand-in for each module that was left out, beside the needed modules."""
    rooms = {path.parent for name in part.needed for path in site.rglob(f"{name}.*so")}
    for room in rooms:
        for name in dropped:
            (room / f"{name}.py").write_text(_STAND_IN, encoding="utf-8")


def lacks(site: Path) -> bool:
    """Whether code imported a module that was left out of the build."""
    return next(site.rglob(f"*{MARK}"), None) is not None
