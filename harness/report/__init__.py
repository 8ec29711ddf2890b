"""tritmark.harness.report: turns a Record into one self-contained page. A section is one file and one line in
page.SECTIONS."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tritmark.harness.record import Record
    from tritmark.harness.report.section import PageContext

__all__ = ["build"]


def build(record: Record, folder: Path, given: PageContext | None = None) -> Path:
    """Write the report of `record`, and of what is `given` beside it, to `folder`; see page.build."""
    # The sections are many, and the command line wants nothing of them to show its help.
    from tritmark.harness.report import page, section

    return page.build(record, folder, section.NOTHING if given is None else given)
