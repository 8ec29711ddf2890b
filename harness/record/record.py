"""The Record itself."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tritmark.harness.record.machine import Machine
from tritmark.harness.record.model import Model, Status
from tritmark.harness.record.proposal import Proposal
from tritmark.harness.record.run import Layer, LinearLayers, Run

SCHEMA_VERSION = 7
"""1: one device, the host. 2: GPUs, receipts of launches, the probe's samples, and a digest. 3: memory and
cross-validation. 4: compiled code, thread scaling, proposals. 5: drawn cases, what they reached and the rarest fault
they would have shown; doubted figures. 6: the guards that spoke, what caused a NOT RUN, and a device's own units. 7:
linear layers as they are stored.
Files of earlier versions are still read."""


HOST = "cpu"
"""The device type that is the machine itself; a Run of any other type claims a device, and has to prove it."""


class Environment(Model):
    """What ran: versions, the compiler, variables that change the behaviour."""

    tritmark: str
    python: str
    packages: dict[str, str]
    compiler: str
    variables: dict[str, str]
    commit: str | None
    command: tuple[str, ...]
    seed: int


class Lane(Model):
    """Whether a device's part ran, and if not, why and what to do."""

    device: str
    ran: bool
    reason: str = ""
    simulated: bool = False
    """A simulator stood in for the device: what ran proves correctness and claims no speed."""
    units: tuple[str, ...] = ()
    """Each unit of the device in this machine, as receipts name it in `uuid`; empty where these are the machine's
    GPUs."""


class Record(Model):
    """All Runs of one invocation. Its file ends with a digest of itself, see `with_digest`."""

    schema_version: Annotated[int, Field(ge=1, le=SCHEMA_VERSION)] = SCHEMA_VERSION
    id: str
    created: str
    """UTC, ISO 8601."""
    suite: str
    complete: bool
    environment: Environment
    machine: Machine
    lanes: tuple[Lane, ...] = ()
    runs: tuple[Run, ...] = ()
    counts: dict[str, dict[str, int]] = Field(default_factory=dict)
    """For each dimension how many Runs ended in which status; empty before version 5."""
    weights_path: str = ""
    layers: tuple[Layer, ...] = ()
    linear_layers: tuple[LinearLayers, ...] = ()
    """For each device and number of tokens."""
    proposals: tuple[Proposal, ...] = ()
    """The most certain gain first; those of kernels that a sibling outruns come last."""
    unadvised: tuple[str, ...] = ()
    """What advice would have needed and was not there, each with the reason and the next step."""
    addresses: str = ""
    """The rule whose proposal this invocation follows, as its user said."""
    digest: Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""
    """SHA-256 of the file with this digest's digits as zeros; "" in version 1 and in what was not written yet. Stays
    the last field."""

    @property
    def passed(self) -> bool:
        """Every Run and layer passed, and there was at least one. Of others' kernels only where there are no others
        beside them: what is wrong with these is no fault of what was asked about."""
        runs = [run for run in self.runs if not run.peer] or self.runs
        fine = all(run.passed for run in runs) and all(layer.status is Status.PASS for layer in self.layers)
        return fine and bool(self.runs or self.layers)
