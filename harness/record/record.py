"""The Record itself."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tritmark.harness.record.machine import Machine
from tritmark.harness.record.model import Model
from tritmark.harness.record.not_judged import NotJudged
from tritmark.harness.record.proposal import Proposal
from tritmark.harness.record.run import Layer, LinearLayers, Run
from tritmark.harness.spec import KernelAccesses

SCHEMA_VERSION = 11
"""The version that is written; files of earlier versions are still read. docs/record.md lists what each one added."""


HOST = "cpu"
"""The device type of the machine itself. A Run of any other type claims a device and must prove it by a receipt."""


class Environment(Model):
    """Versions, the compiler, and environment variables that change the behaviour."""

    tritmark: str
    """Version of tritmark."""
    python: str
    """Version of Python."""
    packages: dict[str, str]
    """Version of each package that can change a figure or a verdict."""
    compiler: str
    """The compiler that built the devices' native code."""
    variables: dict[str, str]
    commit: str | None
    """The commit of tritmark that is checked out, with "-dirty" if files were changed; None outside a checkout."""
    command: tuple[str, ...]
    seed: int
    wheel: Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""
    """SHA-256 of the files that the installed wheel lists: a line `path,sha256=hash` for each, sorted. It is equal on
    every machine with the same wheel. "" for an editable installation, which lists no code, and before version 11."""


class DeviceStatus(Model):
    """Whether kernels ran on a device."""

    device: str
    ran: bool
    reason: str = ""
    """Why nothing ran there, and the next step."""
    simulated: bool = False
    """Kernels ran in a simulator, or broke there. It proves correctness and has no speed."""
    units: tuple[str, ...] = ()
    """Each unit of the device in this machine, by the `uuid` that receipts state; empty if they are in the machine's
    `gpus`."""


class Record(Model):
    """All Runs of one invocation. The file ends with a digest of itself."""

    schema_version: Annotated[int, Field(ge=1, le=SCHEMA_VERSION)] = SCHEMA_VERSION
    id: str
    created: str
    """UTC, ISO 8601."""
    suite: str
    complete: bool
    """Whether all workloads of the invocation were run."""
    environment: Environment
    machine: Machine
    lanes: tuple[DeviceStatus, ...] = ()
    """One for each device."""
    runs: tuple[Run, ...] = ()
    counts: dict[str, dict[str, int]] = Field(default_factory=dict)
    """For each dimension, the number of Runs with each status. Runs of peers are not counted, except before version 9.
    Empty before version 5."""
    not_judged: tuple[NotJudged, ...] = ()
    """What no verdict in this Record covers, as the headline states it; empty before version 8."""
    weights_path: str = ""
    """The file of weights that was judged; "" without `--weights`."""
    layers: tuple[Layer, ...] = ()
    linear_layers: tuple[LinearLayers, ...] = ()
    """One for each device and number of tokens."""
    weights_note: str = ""
    """Operations of the model beyond products with the stored weights, as its file lists them. They were not judged."""
    accesses: tuple[KernelAccesses, ...] = ()
    """How kernels access memory, as a simulator of their device traced it: simulated facts, never measured ones. Empty
    before version 10."""
    proposals: tuple[Proposal, ...] = ()
    """In order of the expected saving, the largest first. Kernels that a sibling outruns come last."""
    unadvised: tuple[str, ...] = ()
    """Missing evidence that a rule of advice needs, each with the reason and the next step."""
    addresses: str = ""
    """The rule whose proposal this invocation follows, as the user stated it."""
    digest: Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""
    """SHA-256 of the file with the digits of this digest set to zero; "" in version 1. Always the last field."""

    @property
    def own(self) -> tuple[Run, ...]:
        """The Runs that decide the verdict, the headline and the exit status: those of no peer, or all if only peers
        ran. A peer's fault does not fail the kernels beside it."""
        return tuple(run for run in self.runs if not run.peer) or self.runs
