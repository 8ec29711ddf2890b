"""The result for GitHub: workflow commands that annotate a run, and a Markdown summary of the job."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tritmark.harness.errors import UsageError
from tritmark.harness.gate.result import Benchmark, GateResult, Outcome
from tritmark.harness.gate.wording import build, change, conclusion, counts, kernel, percent, place, sorted_benchmarks
from tritmark.harness.text.visible import visible

SUMMARY = "GITHUB_STEP_SUMMARY"
_LARGEST = 900_000
"""Bytes of a summary at most: GitHub drops a summary larger than 1 MiB."""
_SPECIAL = re.compile(r"[^\w \n/=.,+%();–-]|_")


def commands(result: GateResult) -> str:
    """A workflow command for each benchmark that changed, one a line, and the conclusion. The worst come first, because
    GitHub shows ten of a kind."""
    lines = [f"::warning title=Not compared::{_data(visible(note))}" for note in result.notes]
    lines += [
        _annotation(each, strict=result.strict)
        for each in sorted_benchmarks(result)
        if each.outcome in _levels(result.strict)
    ]
    lines.append(f"{_data(counts(result))}. {_data(conclusion(result))}")
    return "\n".join(lines) + "\n"


def _levels(strict: bool) -> Mapping[Outcome, str]:
    return {
        Outcome.ERROR: "error",
        Outcome.DIFFERS: "error",
        Outcome.SLOWER: "error",
        Outcome.AMBIGUOUS: "error" if strict else "warning",
        Outcome.FASTER: "notice",
    }


def _annotation(each: Benchmark, *, strict: bool) -> str:
    # No file is named: a benchmark has none, and GitHub would attach the note to line 1 of any file given here.
    title = f"{each.outcome.value} {kernel(each)}"
    text = f"{place(each)}: {f'{change(each.ratio)}; ' if each.ratio else ''}{visible(each.reason)}"
    return f"::{_levels(strict)[each.outcome]} title={_property(title)}::{_data(text)}"


def _data(text: str) -> str:
    """The text, escaped as the message of a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """The text, escaped as a property of a workflow command."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def summarise(result: GateResult, environ: Mapping[str, str]) -> None:
    """Append the summary to the file that GITHUB_STEP_SUMMARY names, if it is set. Raises UsageError if the file cannot
    be written."""
    path = environ.get(SUMMARY)
    if not path:
        return
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(summary(result))
    except OSError as error:
        raise UsageError(
            f"{SUMMARY} is {path!r}, which cannot be written: {error.strerror}; legal: a writable file"
        ) from None


def summary(result: GateResult) -> str:
    """Markdown: the conclusion, a table of benchmarks that are not SAME, and a folded table of the others."""
    lines = [
        f"### {markdown(conclusion(result))}",
        "",
        *(f"**{markdown(note)}**\n" for note in result.notes),
        (
            f"{markdown(counts(result))}. HEAD <code>{markdown(build(result.head))}</code>, BASE "
            f"<code>{markdown(build(result.base))}</code>."
        ),
        "",
    ]
    ordered = sorted_benchmarks(result)
    same = [each for each in ordered if each.outcome is Outcome.SAME]
    lines += _table([each for each in ordered if each.outcome is not Outcome.SAME])
    if same:
        lines += [f"<details><summary>{len(same)} SAME</summary>", "", *_table(same), "</details>", ""]
    return "\n".join(lines) + "\n"


def _table(benchmarks: list[Benchmark]) -> list[str]:
    if not benchmarks:
        return []
    lines = ["| outcome | kernel | shape | change (95 %) | detectable | reason |", "|---|---|---|---:|---:|---|"]
    size = 0
    for count, each in enumerate(benchmarks):
        cells = (
            place(each),
            "same code" if each.identical else change(each.ratio),
            percent(each.smallest),
            visible(each.reason),
        )
        line = f"| {each.outcome.value} | <code>{markdown(kernel(each))}</code> | {' | '.join(map(markdown, cells))} |"
        size += len(line.encode()) + 1
        if size > _LARGEST / 2:
            return [*lines, "", f"{len(benchmarks) - count} more do not fit.", ""]
        lines.append(line)
    return [*lines, ""]


def markdown(text: str) -> str:
    """The text on one line, with possible Markdown and HTML markup as character references."""
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", visible(text)).replace("\n", "<br>")
