"""The verdict from a Record: codes, speeds, score, and the three next steps."""

from __future__ import annotations

from typing import Any

import pytest
from made_up_records import small_record
from rich.console import Console

from tritmark.harness.check import CheckVerdict
from tritmark.harness.check.summary import STEPS, check_verdict
from tritmark.harness.record import Accuracy, Divergence, MemoryUse, Record, Run, Status
from tritmark.harness.spec import Variant
from tritmark.kernels import PROVIDER


def variants(record: Record) -> list[Variant]:
    ids = {run.kernel for run in record.runs}
    return [each for each in PROVIDER.variants if each.id in ids]


def timed(record: Record) -> Run:
    return next(run for run in record.runs if run.performance.cold and run.performance.hot)


@pytest.fixture
def record() -> Record:
    return small_record()


def verdict(record: Record, mine: Variant, *others: Variant) -> CheckVerdict:
    return check_verdict(record, [mine], others[:1], others[1:], seconds=1.0, path="r.json")


def own(record: Record) -> Variant:
    (found,) = (each for each in PROVIDER.variants if each.id == timed(record).kernel)
    return found


def changed(record: Record, **dimensions: Any) -> Record:
    """The Record with other verdicts of the timed kernel."""
    kernel = timed(record).kernel
    return record.model_copy(
        update={
            "runs": tuple(run.model_copy(update=dimensions) if run.kernel == kernel else run for run in record.runs)
        }
    )


def test_of_a_kernel_beside_itself(record: Record) -> None:
    mine = own(record)
    found = verdict(record, mine, mine, mine)
    assert found.passed
    assert found.kernel.best == found.kernel.baseline == mine.id
    assert found.kernel.speed
    for speed in found.kernel.speed:
        assert speed.speedup in {None, 1.0}
        assert speed.score in {None, 0.0}, "the baseline's speed is 0"
    assert len(found.next) <= STEPS
    assert len({each.rule for each in found.next}) == len(found.next)
    assert CheckVerdict.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(
    ("dimension", "made", "code"),
    [
        ("accuracy", Accuracy(status=Status.FAIL, reason="no", caught_by=("values", "zones")), "accuracy.values"),
        ("accuracy", Accuracy(status=Status.ERROR, reason="no", caught_by=("crash",)), "accuracy.crash"),
        ("memory", MemoryUse(status=Status.FAIL, reason="no", caught_by=("leak",)), "memory.leak"),
        ("memory", MemoryUse(status=Status.AMBIGUOUS, reason="unclear"), "memory.ambiguous"),
    ],
)
def test_codes_name_the_dimension_and_the_guard(record: Record, dimension: str, made: Any, code: str) -> None:
    found = verdict(changed(record, **{dimension: made}), own(record))
    assert found.code == code
    assert found.passed is (made.status is Status.AMBIGUOUS)
    assert bool(found) is found.passed
    assert code in repr(found)
    if dimension == "accuracy":
        assert (found.kernel.speed, found.score) == ((), None), "an incorrect kernel has no speed"


def test_markup_and_html_in_a_reason_are_text(record: Record) -> None:
    first = Divergence(output="<b>", index=(1,), expected="0", found="<script>")
    bad = Accuracy(status=Status.FAIL, reason="<script>[red]\x1b[1m", caught_by=("values",), first=first)
    found = verdict(changed(record, accuracy=bad), own(record))
    assert "<script>" not in found._repr_html_()
    assert "\x1b" not in str(found)
    console = Console(width=200)
    with console.capture() as captured:
        console.print(found)
    assert "[red]" in captured.get()


def test_a_kernel_that_calls_another_one_is_marked_and_has_no_score(record: Record) -> None:
    mine = own(record)
    marked = timed(record).accuracy.model_copy(update={"borrowed": ("the installed op",), "limits": ("not ranked",)})
    changed_record = changed(record, accuracy=marked)
    found = verdict(changed_record, mine, mine, mine)
    assert (found.code, found.status, found.passed) == ("borrowed", Status.PASS, True)
    assert found.kernel.borrowed == ("the installed op",)
    assert "not ranked" in found.kernel.limits
    assert found.kernel.speed
    assert found.score is None
    assert "PASS (borrowed)" in repr(found)
    assert "not ranked" in str(found)
    failed = changed(changed_record, memory=MemoryUse(status=Status.FAIL, reason="no", caught_by=("leak",)))
    assert verdict(failed, mine).code == "memory.leak", "a fault comes first"
