"""asv's name of this machine: equal for machines with comparable times, and only for these."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from tritmark.harness.errors import UsageError
from tritmark.harness.history.steps import missing_asv

_MARKS = re.compile(r"\((?:r|tm|c)\)|\b(?:cpu|processor|core)\b|@.*|\d+-core", re.IGNORECASE)


def machine_name() -> str:
    """The CPU, its cores and the machine id of Records, such as "amd-epyc-9r14-2-cores-0123456789ab"."""
    from tritmark.harness.record.facts import machine_facts

    facts = machine_facts()
    cpu = "-".join(re.findall(r"[a-z0-9]+", _MARKS.sub(" ", facts.cpu).lower()))
    return f"{cpu or facts.architecture}-{facts.logical_cores}-cores-{facts.id}"


def register(file: Path | None = None) -> str:
    """Register `machine_name` for this host in ~/.asv-machine.json, or in `file`, and return it.

    asv finds the entry by the name of the host. Its results have the registered name. Raises UsageError if asv is not
    installed or the file cannot be read or written.
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
