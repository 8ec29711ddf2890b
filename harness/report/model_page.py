"""The result of `tritmark model` as a page of its own."""

from __future__ import annotations

from pathlib import Path

from tritmark.harness.models import ModelResult
from tritmark.harness.report.model_judgement import verdict
from tritmark.harness.report.models import variables
from tritmark.harness.report.page import document, put
from tritmark.harness.text import units


def html(found: ModelResult) -> str:
    """The result as one self-contained HTML page."""
    return document("model_page.html", headline=headline(found), **variables(found))


def headline(found: ModelResult) -> str:
    """The verdict, and the decoding rate beside the fastest other engine."""
    word = verdict(found).partition(":")[0]
    own = next((each for each in found.rates if each.work == "decode"), None)
    if own is None:
        return word
    same = [
        each
        for each in found.rates
        if each.speed is not None and (each.work, each.batch, each.prompt) == (own.work, own.batch, own.prompt)
    ]
    beside = ""
    if same:
        best = max(same, key=lambda each: each.tokens_per_s)
        beside = f", {units.times(best.speed)} as fast as {best.engine}"
    return f"{word}: {units.number(own.tokens_per_s)} tokens/s decoding{beside}"


def write(found: ModelResult, folder: Path, name: str) -> dict[str, Path]:
    """Write `folder`/`name`.json and .html atomically and return their paths. Raises OSError."""
    # The result first: minutes of measurements, which an error of the page must not lose.
    result = put(folder, f"{name}.json", f"{found.model_dump_json(indent=1)}\n")
    return {"json": result, "html": put(folder, f"{name}.html", html(found))}
