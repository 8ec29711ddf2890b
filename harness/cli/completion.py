"""Shell completion of arguments. It runs at each press of the tab key, so it imports little. Without a match the shell
offers files."""

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
    """Names of variants; ids if `incomplete` has a slash."""
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
    """Names of suites; the shell completes TOML files."""
    found = _installed()
    return _fitting(found.suites() if found else (), incomplete)


def records(incomplete: str) -> list[str]:
    """Ids of the Records in ./results, the newest first."""
    return _fitting(sorted(_stems(".json"), reverse=True), incomplete)


def interrupted(incomplete: str) -> list[str]:
    """Ids of the invocations in ./results that were interrupted, the newest first."""
    return _fitting(sorted(_stems(".partial"), reverse=True), incomplete)


def _stems(suffix: str) -> Iterable[str]:
    # The store imports the Record's model, which takes ten times as long as everything else here.
    return (path.name.removesuffix(suffix) for path in Path("results/runs").glob(f"[0-9]*{suffix}"))


def _fitting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _installed() -> Installed | None:
    """The installed packages; None if they cannot be loaded, which the command then reports."""
    from tritmark.harness.providers import load

    with suppress(TritmarkError):
        return load()
    return None
