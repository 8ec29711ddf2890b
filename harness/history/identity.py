"""What asv calls this machine: a name that is the same for all machines whose times can be compared, and no other's."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from tritmark.harness.errors import UsageError
from tritmark.harness.history.steps import missing_asv

_MARKS = re.compile(r"\((?:r|tm|c)\)|\b(?:cpu|processor|core)\b|@.*|\d+-core", re.IGNORECASE)


def machine_name() -> str:
    """The CPU in a few letters and the id of Records' machines, such as "amd-epyc-9r14-2-cores-0123456789ab"."""
    from tritmark.harness.record.facts import machine_facts

    facts = machine_facts()
    cpu = "-".join(re.findall(r"[a-z0-9]+", _MARKS.sub(" ", facts.cpu).lower()))
    return f"{cpu or facts.architecture}-{facts.logical_cores}-cores-{facts.id}"


def register(file: Path | None = None) -> str:
    """Tell asv (in ~/.asv-machine.json, or `file`) to file what it measures here under `machine_name`; that name.

    asv looks machines up by this host's name, which stays in that file: results carry the other. Raises UsageError
    without asv.
    """
    try:
        from asv.machine import Machine, MachineCollection
        from asv.util import UserError
    except ImportError as why:
        raise missing_asv() from why
    name = machine_name()
    reported = Machine.get_defaults() | {"machine": name}
    try:
        for host in (platform.node(), name):
            MachineCollection.save(host, reported, _path=None if file is None else str(file))
    except (UserError, OSError) as why:
        where = file or MachineCollection.get_machine_file_path()
        raise UsageError(f"{where}: cannot be read or written ({why}); next: move it away and try again") from why
    return name
