"""The exit status under --strict, what counts as not judged, and the counts of verdicts."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from made_up_records import clean_runs, record_of

from tritmark.harness.cli import exit_status
from tritmark.harness.cli.outcome import status_of, unjudged
from tritmark.harness.judge.judging import DRAWN, NOT_MEASURED, NOT_RIGHT, SIMULATED, UNTIMED, LeftOut, refused, unasked
from tritmark.harness.providers import load
from tritmark.harness.record import Accuracy, Cause, Cross, MemoryUse, Performance, Run, Status, Verdict
from tritmark.harness.text.groups import counted, not_run

FIELDS: dict[str, type[Verdict]] = {
    "accuracy": Accuracy,
    "performance": Performance,
    "memory": MemoryUse,
    "cross": Cross,
}
LACKING = LeftOut("this cpu lacks avx512vnni", Cause.MACHINE)
FORCED = LeftOut("the environment allows only scalar on this cpu", Cause.ENVIRONMENT)
NOT_ASKED = unasked("memory", frozenset({"accuracy"}))
UNFIT = "it needs arrays aligned to 64 bytes, but x is unaligned"


PageContext = str | LeftOut | Verdict | None


def runs(**reasons: PageContext) -> list[Run]:
    """Two Runs of one kernel, PASS except the given dimensions: why they are NOT RUN, or a verdict."""
    made = [run for run in clean_runs(Random(1), edges=1, isas=("avx2",)) if run.op == "i2s_quantize"][:2]
    passed = {name: kind(status=Status.PASS) for name, kind in FIELDS.items()}
    given = {
        name: what
        if isinstance(what, Verdict)
        else (what if isinstance(what, LeftOut) else LeftOut(str(what))).verdict(FIELDS[name])
        for name, what in reasons.items()
    }
    return [run.model_copy(update={**passed, **given}) for run in made]


def ended(found: list[Run], strict: bool = True) -> int:
    return status_of(record_of(found), strict=strict)


@pytest.mark.parametrize(
    "reasons",
    [
        {},
        {"performance": NOT_MEASURED, "memory": NOT_MEASURED, "cross": NOT_MEASURED},
        {"performance": NOT_ASKED, "memory": NOT_ASKED},
        {"performance": SIMULATED},
        {"performance": UNTIMED},
        {"performance": DRAWN, "memory": DRAWN, "cross": DRAWN},
        {"cross": "no peer has this op in this format and dtype"},
        {"cross": "ggml: is not installed"},
        dict.fromkeys(FIELDS, LACKING),
        dict.fromkeys(FIELDS, FORCED),
    ],
)
def test_what_was_chosen_or_cannot_be_here_is_let_through(reasons: dict[str, PageContext]) -> None:
    assert ended(runs(**reasons)) == exit_status.PASSED


@pytest.mark.parametrize(
    "words", ["this cpu lacks avx512vnni", "not requested: --dimension accuracy", "simulated: it has no speed"]
)
def test_words_alone_let_nothing_through(words: str) -> None:
    assert ended(runs(performance=words)) == exit_status.UNJUDGED


@pytest.mark.parametrize("forced", [None, "scalar", "avx2"])
@pytest.mark.parametrize("needs", [frozenset(), frozenset({"nothing has this"})])
@pytest.mark.parametrize("refusal", [None, "whatever it says"])
def test_why_a_variant_is_not_run(forced: str | None, needs: frozenset[str], refusal: str | None) -> None:
    variant = replace(load().registry.variants[0], name="avx2", features=needs)
    device = replace(load().registry.devices["cpu"], forced=lambda: forced)
    found = refused(device, variant, {variant.id: refusal})
    if forced == "scalar":
        assert found == FORCED
    elif refusal is None:
        assert found is None
    else:
        assert found == LeftOut(refusal, Cause.MACHINE if needs else None)


@pytest.mark.parametrize(
    "reasons",
    [
        {"accuracy": UNFIT},
        {"performance": "no clock can be read"},
        {"memory": "no heap can be watched"},
        {"accuracy": UNFIT, "performance": NOT_RIGHT, "memory": NOT_RIGHT, "cross": NOT_RIGHT},
        {"accuracy": "the workload cannot be encoded: K must be a multiple of 128"},
        {"performance": NOT_RIGHT},
    ],
)
def test_what_nobody_judged_is_not_let_through(reasons: dict[str, PageContext]) -> None:
    assert ended(runs(**reasons)) == exit_status.UNJUDGED == 5
    assert ended(runs(**reasons), strict=False) == exit_status.PASSED


def test_one_judged_run_of_a_kernel_is_enough() -> None:
    first, second = runs()
    unfit = second.model_copy(update={"accuracy": Accuracy(status=Status.NOT_RUN, reason=UNFIT)})
    assert ended([first, unfit]) == exit_status.PASSED
    other = unfit.model_copy(update={"kernel": "cpu/i2s_quantize/none/int8/other"})
    assert [each.kernel for each in unjudged([first, other])] == [other.kernel]


@pytest.mark.parametrize("dimension", FIELDS)
def test_ambiguous_comes_before_not_run_and_after_failed(dimension: str) -> None:
    doubt: Any = FIELDS[dimension](status=Status.AMBIGUOUS, reason="noise")
    other = "memory" if dimension != "memory" else "performance"
    found = runs(**{dimension: doubt, other: "nothing to watch it with"})
    assert ended(found) == exit_status.AMBIGUOUS == 4
    assert ended(found, strict=False) == exit_status.PASSED
    wrong = found[0].model_copy(update={"accuracy": Accuracy(status=Status.FAIL, reason="wrong")})
    assert ended([wrong, *found[1:]]) == exit_status.FAILED


def test_the_counts_and_the_causes() -> None:
    found = [
        *runs(memory="no heap", cross="no heap"),
        *runs(accuracy=Accuracy(status=Status.AMBIGUOUS, reason="noise")),
    ]
    assert counted(found)["accuracy"] == {"ambiguous": 2, "pass": 2}
    assert counted(found)["memory"] == {"not run": 2, "pass": 2}
    assert not_run(found) == [("memory, cross", "no heap", 2, 1)]
