"""A library that a user has built of a project that an installed package has an adapter for: NAME=PATH."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tritmark.harness.errors import UsageError

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed
    from tritmark.harness.spec import Variant


@dataclass(frozen=True, slots=True)
class AdaptedLibrary:
    """Its products are peers. Pickled to the processes in which they run."""

    adapter: str
    path: str

    @classmethod
    def named(cls, text: str) -> AdaptedLibrary:
        """From NAME=PATH. Raises UsageError for anything else."""
        adapter, equals, path = text.partition("=")
        if not (adapter and equals and path):
            raise UsageError(f"--peer is {text!r}; legal: NAME=PATH, such as bitnet.cpp=build/libbitnet.so")
        return cls(adapter, path)

    def variants(self, installed: Installed) -> Sequence[Variant]:
        """See Candidate. Raises UsageError for an adapter that no package has, and for a library that it cannot
        call."""
        brought = [each.adapters for each in installed.providers.values() if each.adapters is not None]
        if not brought:
            raise UsageError(f"--peer {self.adapter}: no package has adapters")
        return [variant for adapters in brought for variant in adapters(self.adapter, self.path)]
