"""Drawn mutants do harm only if their trigger fires, and mutants survive a judgement that misses a class of cases."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tritmark.harness.providers import Installed, load
from tritmark.harness.selftest import apart, drawn_mutants, population, triggers
from tritmark.harness.selftest.apart import LaunchMutant
from tritmark.harness.selftest.domain import Domain
from tritmark.harness.selftest.drawn_mutants import DrawnMutant, draw, harmful
from tritmark.harness.selftest.oracle import Oracle
from tritmark.harness.selftest.population import DrawnMutants, MutantFate, chunks, interval, judged
from tritmark.harness.selftest.right import keys, right
from tritmark.harness.selftest.struck import variant
from tritmark.harness.selftest.values import classes, forbidden
from tritmark.harness.spec import KernelKey, Mutant
from tritmark.harness.validate.guards import bits
from tritmark.harness.validate.trial import Tally

pytestmark = pytest.mark.long

CALLS = 500
OPS = (
    "i2s_quantize",
    "ternary_quantize",
    "activation_quantize",
    "ternary_matmul",
    "float_widen",
    "pack_codes",
    "unpack_codes",
    "matmul_fp16",
)


@pytest.fixture(scope="module")
def installed() -> Installed:
    return load()


def domain(installed: Installed, op: str, nth: int = 0) -> Domain:
    return Domain(right(installed, keys(installed, op)[nth]), dict.fromkeys(installed.ops[op].axes, 600), 2)


def own(installed: Installed, key: KernelKey) -> list[Mutant]:
    every = (each for provider in installed.providers.values() for each in provider.mutants())
    return [each for each in every if isinstance(each, Mutant) and each.op == key.op and each.only(key)]


def some(there: Domain, installed: Installed, count: int, seed: int = 3) -> list[DrawnMutant]:
    return [draw(there, own(installed, there.right.key), CALLS, seed, number) for number in range(count)]


@pytest.mark.parametrize("op", OPS)
def test_a_kernel_without_a_mutant_is_right_on_every_case(installed: Installed, op: str) -> None:
    for nth in range(len(keys(installed, op))):
        there, rng = domain(installed, op, nth), np.random.default_rng(11)
        for _ in range(40):
            case = there.draw(rng)
            made, _ = variant(there.right, lambda at: True, None, False, 0)
            inputs, outputs = case.laid()
            launch = made.bind(inputs, outputs, case.axes, case.threads)
            launch.run()
            assert launch.bad == -1
            for name, expected in case.expected.items():
                admitted = drawn_mutants.admits(expected, outputs[name])  # type: ignore[attr-defined]
                assert admitted or np.array_equal(bits(outputs[name]), bits(expected.values)), case.axes


@pytest.mark.parametrize("op", OPS)
def test_every_drawn_mutant_does_harm_somewhere_and_kinds_are_even(installed: Installed, op: str) -> None:
    there = domain(installed, op)
    found = some(there, installed, 2 * len(triggers.KINDS))
    kinds = Counter(each.kind for each in found)
    absent = {kind for kind in triggers.KINDS if kind not in kinds}
    assert absent <= {"report", "stride"}
    assert max(kinds.values()) <= 2 + 2 * len(absent)
    for each in found:
        assert each.text
        # The generator differs from the one of the draw, so a single try may draw no case that shows it.
        assert any(
            drawn_mutants._harms(there, each.trigger, each.effect, np.random.default_rng(seed)) for seed in range(5)
        )


def test_the_same_number_and_seed_give_the_same_mutant(installed: Installed) -> None:
    there = domain(installed, "ternary_matmul")
    assert [each.text for each in some(there, installed, 14)] == [each.text for each in some(there, installed, 14)]
    assert [each.text for each in some(there, installed, 14)] != [
        each.text for each in some(there, installed, 14, seed=4)
    ]


def test_a_mutant_does_nothing_where_its_trigger_does_not_fire(installed: Installed) -> None:
    there, rng = domain(installed, "activation_quantize"), np.random.default_rng(1)
    for each in some(there, installed, len(triggers.STATIC)):
        for _ in range(5):
            assert not harmful(there.draw(rng), replace(each.trigger, fires=lambda at: False, sure=None), each.effect)


@pytest.mark.parametrize("op", OPS)
def test_classes_of_values_can_be_imposed(installed: Installed, op: str) -> None:
    rng = np.random.default_rng(2)
    contract = installed.ops[op]
    axes = dict.fromkeys(contract.axes, 256)
    for tensor in contract.inputs:
        values = np.asarray(contract.generate(axes, "normal", rng)[tensor.name])
        for each in classes(tensor):
            assert each.holds(np.asarray(each.impose(values.copy(), rng))), each.text


def test_forbidden_elements_are_found_where_they_were_put(installed: Installed) -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        what = forbidden(installed.ops["i2s_quantize"], rng)
        assert what is not None
        values = np.zeros(97, np.float32)
        ((at, bad),) = what.places(values, rng).items()
        values[at : at + 1].view(np.uint32)[...] = np.asarray(bad).view(np.uint32)
        assert not np.isfinite(values[at])
        assert what.matches(values, at)
    assert forbidden(installed.ops["ternary_matmul"], rng) is None


def test_the_interval_is_the_exact_one() -> None:
    """If all are killed, the lower end p has p^n = 0.025. The value for 5 of 10 is in Clopper and Pearson's table."""
    low, high = interval(100, 100)
    assert high == 1
    assert low == pytest.approx(0.025 ** (1 / 100))
    assert interval(5, 10) == pytest.approx((0.1871, 0.8129), abs=1e-4)
    assert interval(0, 0) == (0.0, 1.0)


def fates(killed: int, count: int) -> DrawnMutants:
    key = KernelKey("cpu", "an_op", "none", "int8")
    return DrawnMutants(
        1, [MutantFate(key, nth, "shape", "a mutant", "caught" if nth < killed else "", nth) for nth in range(count)]
    )


def test_the_goal_is_missed_where_the_interval_lies_under_it() -> None:
    assert fates(0, 0).passed
    assert fates(24, 24).passed
    assert fates(480, 500).passed is (interval(480, 500)[1] >= population.GOAL) is False
    assert fates(485, 500).passed is (interval(485, 500)[1] >= population.GOAL) is True
    assert not replace(fates(24, 24), alarms=["it fails"]).passed
    assert [each.number for each in fates(3, 5).survivors] == [3, 4]
    assert fates(3, 5).by("kind") == {"shape": (3, 5)}


@pytest.mark.nightly
def test_a_judgement_that_compares_nothing_kills_less(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    chunk, *_ = chunks(installed, "quick", "i2s_quantize", 7, count=24)

    done = judged(installed, chunk)
    assert not done.alarms
    assert len(done.fates) == 24
    assert any(each.killed for each in done.fates)
    assert all(each.struck for each in done.fates if each.killed)
    monkeypatch.setattr(Tally, "add", lambda *_: None)
    blind = judged(installed, chunk)
    assert sum(each.killed for each in blind.fates) < sum(each.killed for each in done.fates)


def test_a_judgement_that_fails_a_right_kernel_is_an_alarm(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunk, *_ = chunks(installed, "quick", "i2s_quantize", 7, count=2)
    monkeypatch.setattr(Oracle, "judged", lambda self, candidates: ["on principle" for _ in candidates])
    done = judged(installed, chunk)
    assert done.alarms == (f"{chunk.key}: on principle",)
    assert not done.fates


@pytest.mark.parametrize("kind", apart.KINDS)
def test_what_outputs_do_not_show_is_drawn_again_in_another_process(installed: Installed, kind: str) -> None:
    key = keys(installed, "i2s_quantize")[0]
    every = [LaunchMutant(key, kind, number, 5) for number in range(30)]
    assert len({each.text for each in every}) > 5
    for each in every:
        again = pickle.loads(pickle.dumps(each))
        (made,) = again.variants(installed)
        assert made.summary == each.text
        assert made.key == key


def test_a_kernel_that_leaves_something_behind_is_killed_and_an_honest_one_is_not(installed: Installed) -> None:
    *_, chunk = chunks(installed, "quick", "i2s_quantize", 7, count=1)
    done = judged(installed, replace(chunk, apart="state", numbers=tuple(range(5))))
    assert not done.alarms
    assert [each.text for each in done.fates if not each.killed] == []
    assert {each.kind for each in done.fates} == {"state"}


def test_a_kernel_that_loses_memory_is_killed_and_an_honest_one_is_not(installed: Installed) -> None:
    *_, chunk = chunks(installed, "quick", "i2s_quantize", 5, count=1)
    losing = [number for number in range(12) if "loses" in LaunchMutant(chunk.key, "memory", number, chunk.seed).text]
    done = judged(installed, replace(chunk, apart="memory", numbers=tuple(losing[:2])))
    assert not done.alarms
    assert [each.text for each in done.fates if not each.killed] == []
