"""What the shell is offered for an argument. Asked at each press of the key, so nothing costly is imported; where
nothing fits, the shell offers files."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tritmark.harness.errors import TritmarkError

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed


def ops(incomplete: str) -> list[str]:
    """Names of ops."""
    found = _installed()
    return _fitting(found.ops if found else (), incomplete)


def variants(incomplete: str) -> list[str]:
    """Names of variants, or ids once there is a slash."""
    found = _installed()
    every = found.registry.variants if found else ()
    return _fitting((each.id if "/" in incomplete else each.name for each in every), incomplete)


def formats(incomplete: str) -> list[str]:
    """Names of formats."""
    found = _installed()
    return _fitting(found.formats if found else (), incomplete)


def devices(incomplete: str) -> list[str]:
    """Types of devices."""
    found = _installed()
    return _fitting(found.registry.devices if found else (), incomplete)


def suites(incomplete: str) -> list[str]:
    """Names of suites; TOML files are the shell's own business."""
    found = _installed()
    return _fitting(found.suites() if found else (), incomplete)


def records(incomplete: str) -> list[str]:
    """Ids of the Records in ./results, the newest first."""
    return _fitting(sorted(_stems(".json"), reverse=True), incomplete)


def interrupted(incomplete: str) -> list[str]:
    """Ids of the invocations in ./results that were interrupted, the newest first."""
    return _fitting(sorted(_stems(".partial"), reverse=True), incomplete)


def _stems(suffix: str) -> Iterable[str]:
    # The store would import the Record's model, which takes ten times as long as all the rest.
    return (path.name.removesuffix(suffix) for path in Path("results/runs").glob(f"[0-9]*{suffix}"))


def _fitting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _installed() -> Installed | None:
    """What is installed; None where it cannot be loaded, which a command then says."""
    from tritmark.harness.providers import load

    with suppress(TritmarkError):
        return load()
    return None
