"""What stands over everything that is made of a Record which `tritmark verify` refutes."""

from __future__ import annotations

from collections.abc import Sequence

SUFFIX = ".not-believed"
"""In the names of its pages, so that none of them takes the place of a genuine one."""


def distrust(faults: Sequence[str], what: str = "this Record") -> str:
    """NOT BELIEVED, and why; "" where there are no faults."""
    if not faults:
        return ""
    more = f" and {len(faults) - 1:,} more" if len(faults) > 1 else ""
    return f"NOT BELIEVED: tritmark verify refutes {what}: {faults[0]}{more}"
