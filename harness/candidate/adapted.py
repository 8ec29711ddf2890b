"""A user's build of a third-party library for which an installed package has an adapter: NAME=PATH."""

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
    """The library's products, as peers. It is pickled to the processes that run them."""

    adapter: str
    path: str

    @classmethod
    def named(cls, text: str) -> AdaptedLibrary:
        """Parse NAME=PATH. Raises UsageError for any other text."""
        adapter, equals, path = text.partition("=")
        if not (adapter and equals and path):
            raise UsageError(f"--peer is {text!r}; legal: NAME=PATH, such as bitnet.cpp=build/libbitnet.so")
        return cls(adapter, path)

    def variants(self, installed: Installed) -> Sequence[Variant]:
        """See Candidate. Raises UsageError for an unknown adapter, and for a library that the adapter cannot call."""
        brought = [each.adapters for each in installed.providers.values() if each.adapters is not None]
        if not brought:
            raise UsageError(f"--peer {self.adapter}: no installed package has adapters; next: omit --peer")
        return [variant for adapters in brought for variant in adapters(self.adapter, self.path)]
