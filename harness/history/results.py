"""asv's results on disk, read with asv's own modules.

An unreadable file is renamed, so that asv does not overwrite it. Files that git tracks stay: git can restore them.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from math import isfinite
from pathlib import Path
from typing import Any

from tritmark.harness.errors import UsageError
from tritmark.harness.history.steps import missing_asv

RATIO = "track_ratio_to_anchor"
_ASIDE = ".set-aside"


@dataclass(frozen=True, slots=True)
class Value:
    """One benchmark with one set of parameters, at one commit on one machine."""

    machine: str
    environment: str
    commit: str
    date: int
    """Of the commit, milliseconds since 1970."""
    benchmark: str
    parameters: tuple[str, ...]
    value: float


def values(folder: Path, report: Callable[[str], None]) -> Iterator[Value]:
    """All ratios to the anchor in asv's results folder. `report` gets a line for each file that is left out.

    Raises UsageError if asv is not installed or the folder does not exist.
    """
    try:
        from asv.machine import Machine
        from asv.results import Results
        from asv.util import UserError, load_json
    except ImportError as why:
        raise missing_asv() from why
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; next: run asv first, or name its results with --results")
    for machine_file in sorted(folder.glob("*/machine.json")):
        try:
            machine = str(load_json(str(machine_file), api_version=Machine.api_version)["machine"])
        except (UserError, ValueError, KeyError, TypeError, OSError) as why:
            report(f"{machine_file.parent}: left out, because its machine.json cannot be read: {_words(why)}")
            continue
        for path in sorted(machine_file.parent.glob("*.json")):
            if path.name == machine_file.name:
                continue
            try:
                results = Results.load(str(path), machine_name=machine)
                found = list(_of(results, machine))
            except OSError as why:
                report(f"{path}: left out: {_words(why)}")
            except (UserError, ValueError, KeyError, TypeError, IndexError, AttributeError) as why:
                report(_set_aside(path, _words(why)))
            else:
                yield from found


def _of(results: Any, machine: str) -> Iterator[Value]:
    for key in results.get_all_result_keys():
        if not key.endswith("." + RATIO):
            continue
        parameters = results.get_result_params(key)
        for names, value in zip(product(*parameters), results.get_result_value(key, parameters), strict=True):
            # asv stores null for a set of parameters that failed and NaN for a skipped one.
            if value is not None and isfinite(value) and value > 0:
                shown = tuple(json.loads(name.replace("'", '"')) if name.startswith("'") else name for name in names)
                yield Value(machine, results.env_name, results.commit_hash, results.date, key, shown, float(value))


def _set_aside(path: Path, why: str) -> str:
    """Rename a file that is damaged or of a later asv to an unused name that asv ignores, unless git tracks it."""
    if _tracked(path):
        return f"{path}: left out, because it cannot be read ({why}); next: git checkout -- {path}"
    for number in range(1, 1000):
        aside = path.with_name(f"{path.name}{_ASIDE}" + (f"-{number}" if number > 1 else ""))
        if aside.exists():
            continue
        try:
            path.rename(aside)
        except OSError as error:
            return f"{path}: left out, and cannot be renamed ({error.strerror}): {why}"
        return f"{path}: cannot be read ({why}); renamed to {aside.name}"
    return f"{path}: left out: {why}"


def _tracked(path: Path) -> bool:
    command = ["git", "-C", str(path.parent), "ls-files", "--error-unmatch", "--", path.name]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _words(why: Exception) -> str:
    return " ".join(str(why).split()) or type(why).__name__
