"""Where a candidate runs: what tasks work on, in a process of its own or (`--in-process`) in this one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tritmark.harness.spec import Device, HeldTo, Launch, Op, Variant

if TYPE_CHECKING:
    from tritmark.harness.providers import Candidate, Installed


@dataclass(slots=True)
class Site:
    """One variant, what it is for, and what tasks keep between calls."""

    installed: Installed
    variant: Variant
    buffers: dict[int, Any] = field(default_factory=dict)
    """Memory that the parent asked for, by its number."""
    launches: dict[int, Launch] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    """What one task leaves for the next, by a name that the tasks agree on."""

    @property
    def op(self) -> Op:
        """The contract."""
        return self.installed.ops[self.variant.key.op]

    @property
    def device(self) -> Device:
        """What it runs on."""
        return self.installed.registry.devices[self.variant.key.device]


UNMASKED = "what tells of features all the same"
"""In `Site.kept`: see Masking.begin."""


def site(candidates: Sequence[Candidate], variant_id: str, held_to: HeldTo | None = None) -> Site:
    """The site of one variant, from what is installed here; `held_to`: see spec.Masking. Raises UsageError for a
    candidate that cannot be taken."""
    from tritmark.harness.errors import UsageError
    from tritmark.harness.providers import load

    kind = variant_id.partition("/")[0]
    unmasked: dict[str, str] = {}

    def hold(found: Installed) -> None:
        if held_to is not None:  # a kind that is held is none that has numbers
            masking = found.registry.devices[kind].masking
            assert masking is not None
            unmasked.update(masking.begin(held_to))

    installed = load(candidates, hold)
    installed.registry.number(kind)
    for variant in installed.registry.variants:
        if variant.id == variant_id:
            variant.load()
            return Site(installed, variant, kept={UNMASKED: unmasked})
    raise UsageError(
        f"{variant_id}: is not registered in the worker; a package that registers it must do so wherever it is imported"
    )
