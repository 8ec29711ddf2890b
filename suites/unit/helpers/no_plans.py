"""Plans of calls that are never there."""

from __future__ import annotations

from typing import Any


class NoPlans:
    """Declines everything, and keeps nothing."""

    last: Any = None

    def run(self, *_: Any) -> None:
        return None

    def current(self, _: Any) -> bool:
        return False

    def __contains__(self, _: Any) -> bool:
        return True
