"""tritmark.harness.report: turns a Record into one self-contained page. A section is one file and one line in build.SECTIONS."""

from __future__ import annotations

from tritmark.harness.report.build import SECTIONS, build

__all__ = ["SECTIONS", "build"]
