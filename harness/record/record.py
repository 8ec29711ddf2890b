"""The Record itself."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tritmark.harness.record.machine import Machine
from tritmark.harness.record.model import Model
from tritmark.harness.record.not_judged import NotJudged
from tritmark.harness.record.proposal import Proposal
from tritmark.harness.record.run import Layer, LinearLayers, Run

SCHEMA_VERSION = 9
"""1: one device, the host. 2: GPUs, receipts of launches, the probe's samples, and a digest. 3: memory and
cross-validation. 4: compiled code, thread scaling, proposals. 5: drawn cases, what they reached and the rarest fault
they would have shown; doubted figures. 6: the guards that spoke, what caused a NOT RUN, and a device's own units. 7:
linear layers as they are stored. 8: limits of verdicts, and what was not judged. 9: what else the machine did while a
Run was timed, ceilings that were measured again, and laps whose outputs were judged.
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


class DeviceStatus(Model):
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
    lanes: tuple[DeviceStatus, ...] = ()
    runs: tuple[Run, ...] = ()
    counts: dict[str, dict[str, int]] = Field(default_factory=dict)
    """For each dimension how many own Runs ended in which status; empty before version 5, of all Runs before version
    9."""
    not_judged: tuple[NotJudged, ...] = ()
    """What no verdict here covers, as the headline says; empty before version 8."""
    weights_path: str = ""
    layers: tuple[Layer, ...] = ()
    linear_layers: tuple[LinearLayers, ...] = ()
    """For each device and number of tokens."""
    weights_note: str = ""
    """What the model does beyond products with the stored weights, as its file says: nothing of it was judged."""
    proposals: tuple[Proposal, ...] = ()
    """The largest expected saving first; those of kernels that a sibling outruns come last."""
    unadvised: tuple[str, ...] = ()
    """What advice would have needed and was not there, each with the reason and the next step."""
    addresses: str = ""
    """The rule whose proposal this invocation follows, as its user said."""
    digest: Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""
    """SHA-256 of the file with this digest's digits as zeros; "" in version 1 and in what was not written yet. Stays
    the last field."""

    @property
    def own(self) -> tuple[Run, ...]:
        """The Runs that verdict, headline and exit status rest on: all that are no peers', or all where only peers were
        asked about. What is wrong with others' kernels is no fault of those beside them."""
        return tuple(run for run in self.runs if not run.peer) or self.runs
