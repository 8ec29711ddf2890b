"""The warning on every output that is made from a Record which `tritmark verify` refutes."""

from __future__ import annotations

from collections.abc import Sequence

SUFFIX = ".not-believed"
"""Part of the names of its pages, so that none replaces a page of a believed Record."""


def distrust(faults: Sequence[str], what: str = "this Record") -> str:
    """NOT BELIEVED with the first fault; "" without faults."""
    if not faults:
        return ""
    more = f" and {len(faults) - 1:,} more" if len(faults) > 1 else ""
    return f"NOT BELIEVED: tritmark verify refutes {what}: {faults[0]}{more}"
