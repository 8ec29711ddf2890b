"""Proposals for whole models: the part that loses most beyond its least time comes first."""

from __future__ import annotations

import pytest
from made_up_model_results import result, split

from tritmark.harness.model_advice import proposals
from tritmark.harness.models import StepPart


def test_the_part_that_loses_most_comes_first() -> None:
    found = proposals(result(splits=(split(),)))
    assert [each.part for each in found] == ["Python", "attention", "rest", "head"]  # q, k, v are at their least time
    assert found[0].gain == pytest.approx(10 / (10 - 2.2))
    assert found[3].lost_ms == pytest.approx(0.5)
    assert "at most 1.28x" in str(found[0])


def test_the_longest_part_is_not_proposed_at_its_least_time() -> None:
    parts = (StepPart(name="down", ms=9, share=0.9, nbytes=1, least_ms=8.95), StepPart(name="norms", ms=1, share=0.1))
    assert [each.part for each in proposals(result(splits=(split(parts=parts),)))] == ["norms"]


@pytest.mark.parametrize(
    ("work", "part", "operations", "rule"),
    [
        ("decode", "down", 5, "model-linears-decode"),
        ("prompt", "down", 5, "model-linears-prompt"),
        ("decode", "down", 0, "model-kept-linears"),
        ("decode", "experts: gate, up", 5, "model-linears-decode"),
        ("decode", "idle", 0, "model-idle"),
        ("decode", "router", 0, "model-rest"),
    ],
)
def test_each_part_has_its_rule(work: str, part: str, operations: int, rule: str) -> None:
    one = split(work, parts=(StepPart(name=part, ms=9, share=0.9, operations=operations),))
    assert [each.rule for each in proposals(result(splits=(one,)))] == [rule]
