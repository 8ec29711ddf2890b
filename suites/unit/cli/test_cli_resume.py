"""A run that was interrupted goes on where it ended."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import COUNT, RUN, SUITE, Outcome, only_record, with_variants

from tritmark.harness.spec import Launch, Variant

pytestmark = pytest.mark.long


@pytest.fixture
def interrupted(tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> Iterator[Outcome]:
    """A run that Ctrl-C ended at the fourth binding, in the second Run."""
    bound = 0

    def interrupt_fourth(variant: Variant) -> Variant:
        def bind(*arguments: Any) -> Launch:
            nonlocal bound
            bound += 1
            if bound == 4:
                raise KeyboardInterrupt
            return variant.bind(*arguments)

        return replace(variant, bind=bind)

    handler = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patched:
        with_variants(patched, interrupt_fourth)
        outcome = tritmark(*RUN, "--seed", "41")
    yield outcome
    signal.signal(signal.SIGINT, handler)


def test_an_interrupted_run_can_be_resumed(
    tritmark: Callable[..., Outcome], interrupted: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert interrupted.status == 130
    (partial,) = Path("results/runs").iterdir()
    id = partial.name.removesuffix(".partial")
    kept = [json.loads(path.read_text()) for path in partial.glob("run-*.json")]
    told = (
        f"Interrupted; {len(kept)} finished and kept. Continue with:\n  tritmark run --suite suite.toml --seed "
        f"41 --resume {id}\n"
    )
    assert told in interrupted.err
    (before,) = (run for run in kept if run.get("receipt"))  # the others are of kernels that this CPU cannot run
    bound: list[str] = []

    def count(variant: Variant) -> Variant:
        def bind(*arguments: Any) -> Launch:
            bound.append(variant.id)
            return variant.bind(*arguments)

        return replace(variant, bind=bind)

    with_variants(monkeypatch, count)
    outcome = tritmark(*RUN, "--resume")
    assert outcome.status == 0, outcome.err
    record = only_record()
    assert record.id == id
    assert record.environment.seed == 41, "that of the run that was interrupted"
    assert record.complete
    assert len(record.runs) == COUNT
    assert [json.loads(run.model_dump_json()) for run in record.runs if run.id == before["id"]] == [before]
    ran = [run for run in record.runs if run.receipt is not None]
    assert len(bound) == 2 * (len(ran) - 1), "what was finished is not run again"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "--resume"), "option suite was 'suite.toml' and is 'quick'"),
        ((*RUN, "--seed", "1", "--resume"), "option seed was 41 and is 1"),
        ((*RUN, "--threads", "1", "--resume"), "option threads was 0 and is 1"),
        ((*RUN, "--variant", "scalar", "--resume"), "option variant was '*' and is 'scalar'"),
    ],
)
@pytest.mark.usefixtures("interrupted")
def test_a_run_is_resumed_as_it_was_begun(
    tritmark: Callable[..., Outcome], arguments: tuple[str, ...], told: str
) -> None:
    outcome = tritmark(*arguments)
    assert outcome.status == 2
    assert told in outcome.err
    assert "It was started with: tritmark run --suite suite.toml --seed 41" in outcome.err


@pytest.mark.usefixtures("interrupted")
def test_another_suite_under_the_same_name_is_another_suite(tritmark: Callable[..., Outcome]) -> None:
    Path("suite.toml").write_text(SUITE + "# changed\n")
    outcome = tritmark(*RUN, "--resume")
    assert outcome.status == 2
    assert "option suite_digest" in outcome.err


@pytest.mark.usefixtures("interrupted")
def test_another_machine_or_version_is_refused(tritmark: Callable[..., Outcome]) -> None:
    (header,) = Path("results/runs").glob("*.partial/header.json")
    told = json.loads(header.read_text())
    told["machine"]["id"] = "another"
    told["environment"]["tritmark"] = "0.0.1"
    header.write_text(json.dumps(told))
    outcome = tritmark(*RUN, "--resume")
    assert outcome.status == 2
    assert "machine was 'another'" in outcome.err
    assert "tritmark was '0.0.1'" in outcome.err
