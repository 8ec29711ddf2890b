"""Headline, counts, page and exit status of a Record agree for any verdicts."""

from __future__ import annotations

import re
from functools import cache
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_records import clean_runs, record_of, some_layers

from tritmark.harness.cli import exit_status
from tritmark.harness.cli.outcome import status_of
from tritmark.harness.cli.tables import verdict
from tritmark.harness.record import (
    DIMENSIONS,
    Accuracy,
    Cause,
    Cross,
    MemoryUse,
    Performance,
    Record,
    Run,
    Status,
    Verdict,
)
from tritmark.harness.report import landing, markdown, summary
from tritmark.harness.text import groups
from tritmark.harness.text.outcome import FAILED, deciding, outcome

KINDS: dict[str, type[Verdict]] = {
    "accuracy": Accuracy,
    "performance": Performance,
    "memory": MemoryUse,
    "cross": Cross,
}
STATUS = st.sampled_from(Status)
WEIGHTED = st.one_of(st.just(Status.PASS), STATUS)
"""Records without a failure must occur too."""


@cache
def plain() -> tuple[Run, ...]:
    return tuple(clean_runs(Random(3), edges=1)[:6])


@cache
def layers() -> tuple[Any, ...]:
    return tuple(some_layers(Random(3))[:3])


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Up to six Runs and three layers with any statuses and causes; some Runs are of peers."""
    runs = []
    for run in draw(st.lists(st.sampled_from(plain()), max_size=6, unique_by=lambda run: run.id)):
        update: dict[str, Any] = {"peer": draw(st.booleans())}
        for name, kind in KINDS.items():
            status = draw(WEIGHTED)
            cause = draw(st.sampled_from([None, *Cause])) if status is Status.NOT_RUN else None
            given_ = {"status": status, "reason": f"{name} {status.value}", "cause": cause}
            old = run.verdict(name).model_dump() if name == "performance" and draw(st.booleans()) else {}
            update[name] = kind.model_validate({**old, **given_})
        runs.append(run.model_copy(update=update))
    found = [
        layer.model_copy(update={"status": draw(WEIGHTED), "reason": "as drawn"})
        for layer in draw(st.lists(st.sampled_from(layers()), max_size=3, unique_by=lambda layer: layer.name))
    ]
    record = record_of(runs, tuple(found))
    return record.model_copy(update={"counts": groups.counted(record.own)})


def number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1].replace(",", "")) if found else 0


@settings(max_examples=5 * settings().max_examples, deadline=None)
@given(record=records())
def test_they_agree(record: Record) -> None:
    ended = outcome(record)
    statuses = [run.verdict(name).status for run in record.own for name in DIMENSIONS]
    statuses += [layer.status for layer in record.layers]
    failed = any(status in FAILED for status in statuses)
    # The status in the terminal, on the page, in Markdown and on the landing page.
    word = str(verdict(record)).partition(":")[0]
    assert word == summary.status(record) == landing.row(record, "x.html").status
    assert markdown.markdown(record).startswith(f"### {word}: {summary.headline(record)}")
    # The exit status.
    relaxed, strict = (status_of(record, strict=each) for each in (False, True))
    assert (relaxed == exit_status.FAILED) is (strict == exit_status.FAILED) is (word == "FAIL") is failed
    assert (relaxed == exit_status.UNTRIED) is (not statuses)
    assert (strict == exit_status.AMBIGUOUS) is (word == "AMBIGUOUS")
    assert relaxed in {exit_status.FAILED, exit_status.UNTRIED, exit_status.PASSED}
    if word == "PASS":
        assert strict in {exit_status.PASSED, exit_status.UNJUDGED}
    # The counts.
    told = summary.headline(record)
    counted = number(r"([\d,]+) of [\d,]+ Runs? failed", told) + number(r"([\d,]+) of [\d,]+ layers? failed", told)
    assert counted == ended.count(*FAILED) == landing.row(record, "x.html").failed
    assert bool(counted) is failed
    assert ("no failure in" in told.lower()) or failed or not statuses
    assert any(counts.get(status.value) for counts in record.counts.values() for status in FAILED) is any(
        run.verdict(name).failed for run in record.own for name in DIMENSIONS
    )
    assert sum(ended.runs.values()) == len(record.own)


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(record=records(), peers=records())
def test_peers_change_nothing(record: Record, peers: Record) -> None:
    own = [run.model_copy(update={"peer": False}) for run in record.runs]
    theirs = [run.model_copy(update={"peer": True, "id": f"their {run.id}"}) for run in peers.runs]
    alone, beside = record_of(own, record.layers), record_of([*own, *theirs], record.layers)
    if not own:
        return
    assert outcome(alone).status is outcome(beside).status
    assert [status_of(alone, strict=each) for each in (False, True)] == [
        status_of(beside, strict=each) for each in (False, True)
    ]
    assert outcome(alone).runs == outcome(beside).runs


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(record=records(), mine=st.sets(st.integers(0, 5)))
def test_a_check_of_some_of_them_agrees(record: Record, mine: set[int]) -> None:
    """Failures of kernels beside a user's kernels are in the headline and in the exit status."""
    own = record.model_copy(update={"runs": tuple(run for at, run in enumerate(record.runs) if at in mine)})
    text = str(verdict(own, of=record))
    status = status_of(deciding(own, record), strict=False)
    assert (status == exit_status.FAILED) is text.startswith("FAIL: ")
    beside = [run for run in record.own if run not in own.runs and not run.passed]
    assert ("built-in kernel" in text) is bool(beside)
