"""The output formats of a gate's result."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from tritmark.harness.gate.result import GateResult


class OutputFormat(StrEnum):
    """The format in which a result is written."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    """Workflow commands, and a table for the job's summary."""
    JUNIT = "junit"


def tell(result: GateResult, form: OutputFormat, console: Console, environ: Mapping[str, str]) -> None:
    """Write the result to the console's stream. GITHUB also appends it to the file that GITHUB_STEP_SUMMARY in
    `environ` names.

    Machine-readable formats are neither wrapped nor coloured.
    """
    if form is OutputFormat.TEXT:
        from tritmark.harness.gate.render_text import show

        show(result, console)
        return
    if form is OutputFormat.JSON:
        text = result.model_dump_json(indent=1) + "\n"
    elif form is OutputFormat.JUNIT:
        from tritmark.harness.gate.render_junit import junit

        text = junit(result)
    else:
        from tritmark.harness.gate.render_github import commands, summarise

        text = commands(result)
        summarise(result, environ)
    console.file.write(text)
    console.file.flush()
