"""What a candidate is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from tritmark.harness.spec import Variant

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed


class Candidate(Protocol):
    """A user's kernel that no installed package brings. Pickled to the process in which it runs."""

    def variants(self, installed: Installed) -> Sequence[Variant]:
        """Its variants, for ops and devices that are installed. Raises UsageError for a file that cannot be taken."""
