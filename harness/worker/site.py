"""The Site of a candidate: the state that tasks work on, in its own process or (`--in-process`) in this one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tritmark.harness.spec import Device, HeldTo, Launch, Op, Variant

if TYPE_CHECKING:
    from tritmark.harness.providers import Candidate, Installed


@dataclass(slots=True)
class Site:
    """One variant, its op and device, and state that tasks keep between calls."""

    installed: Installed
    variant: Variant
    buffers: dict[int, Any] = field(default_factory=dict)
    """Memory that the parent requested, by number."""
    launches: dict[int, Launch] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    """State that one task leaves for the next, by a name that the tasks share."""

    @property
    def op(self) -> Op:
        """The contract."""
        return self.installed.ops[self.variant.key.op]

    @property
    def device(self) -> Device:
        """The device that it runs on."""
        return self.installed.registry.devices[self.variant.key.device]


UNMASKED = "what tells of features all the same"
"""In `Site.kept`: see Masking.begin."""


def site(candidates: Sequence[Candidate], variant_id: str, held_to: HeldTo | None = None) -> Site:
    """The site of one variant, from the installed packages and the candidates. `held_to`: see spec.Masking. Raises
    UsageError for an invalid candidate."""
    from tritmark.harness.errors import UsageError
    from tritmark.harness.providers import load

    kind = variant_id.partition("/")[0]
    unmasked: dict[str, str] = {}

    def hold(found: Installed) -> None:
        if held_to is not None:  # kinds of device with masking have no numbers
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
        f"{variant_id}: is not registered in the worker process; a package must register its kernels on every import"
    )
