"""Whether asv would put this machine's results under another machine's name. Times of two CPUs are never compared."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

ASV_FILE = Path("~/.asv-machine.json")


class AnotherMachineError(RuntimeError):
    """asv's machine file describes another CPU, or has no comparable description."""


def refuse_another(file: Path = ASV_FILE, results: Path | None = None) -> None:
    """Raise AnotherMachineError if asv's name for this machine belongs to another CPU.

    Checks the entry of asv's own file that it will use, and the machine stored under that name in `results` (by default
    the folder of asv's configuration).
    """
    entries = _read(file.expanduser())
    entries.pop("version", None)
    # As asv chooses: this host's entry, or the only one.
    entry = entries.get(platform.node()) or (next(iter(entries.values())) if len(entries) == 1 else None)
    if entry is None:
        return  # asv itself refuses to run, or was given --machine
    _compare(str(file), entry)
    results = results or Path(os.environ.get("ASV_CONF_DIR", "."), "results", "asv")
    kept = results / str(entry.get("machine")) / "machine.json"
    if kept.is_file():
        _compare(str(kept), _read(kept))


def here() -> dict[str, str]:
    """The facts of a machine in asv that must be equal for comparable results: CPU, architecture, logical cores."""
    cpu = ""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            cpu = value.strip()
            break
    return {"cpu": cpu, "arch": platform.machine(), "num_cpu": str(os.cpu_count())}


def _compare(where: str, entry: dict[str, Any]) -> None:
    for key, found in here().items():
        told = entry.get(key)
        if told != found:
            raise AnotherMachineError(
                f"{where} says that {entry.get('machine')!r} has {key} {told!r}; this machine has {found!r}, and "
                "results of two machines are never compared; next: tritmark history --register-machine"
            )


def _read(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as why:
        raise AnotherMachineError(
            f"{path}: no JSON ({why}); next: move it away and run tritmark history --register-machine"
        ) from why
    return told if isinstance(told, dict) else {}
