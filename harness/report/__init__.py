"""tritmark.harness.report: make one self-contained page from a Record. To add a section, add a file and a line in
page.SECTIONS."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tritmark.harness.record import Record
    from tritmark.harness.report.section import PageContext

__all__ = ["build"]


def build(record: Record, folder: Path, given: PageContext | None = None) -> Path:
    """Write the report of `record` with the context `given` to `folder`; see page.build."""
    # Imported here, because the help of the command line must not load all sections.
    from tritmark.harness.report import page, section

    return page.build(record, folder, section.NOTHING if given is None else given)
