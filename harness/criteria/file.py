"""The report as a file, with a digest of itself: a change by hand is detected."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from tritmark.harness.criteria.model import CriteriaReport
from tritmark.harness.errors import UsageError

_DIGEST = "digest"


def text_of(report: CriteriaReport) -> str:
    """The text of the report's file."""
    table = report.model_dump(mode="json")
    return f"{json.dumps({**table, _DIGEST: _digest(table)}, indent=1, ensure_ascii=False)}\n"


def read_report(path: Path) -> CriteriaReport:
    """Read a report. Raises UsageError if the file cannot be read, was changed, or contradicts itself."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        claimed = table.pop(_DIGEST, None)
        report = CriteriaReport.model_validate(table)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: not a report of `tritmark criteria`: {error}") from None
    if claimed != _digest(table):
        raise UsageError(f"{path}: was changed after it was written: its digest does not match")
    return report


def _digest(table: dict[str, object]) -> str:
    return f"sha256:{sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()}"
