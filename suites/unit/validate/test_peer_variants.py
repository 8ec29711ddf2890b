"""Variants of tier PEER: never selected, reported if missing, and judged by their own error bound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.judge.judging import Judging, ListedWorkload
from tritmark.harness.judge.planning import plan
from tritmark.harness.judge.request import Request
from tritmark.harness.providers import Installed
from tritmark.harness.record import Accuracy, Status
from tritmark.harness.registry import Registry
from tritmark.harness.spec import Arrays, Axes, Device, KernelKey, Launch, Provider, Tier, Variant, Workload
from tritmark.harness.suite import SelectedWorkload, Suite
from tritmark.harness.validate.accuracy import Judged
from tritmark.harness.validate.cases import Material, admitted
from tritmark.harness.validate.compare import BrokenReferenceError
from tritmark.harness.validate.drawn import Draw, judge_parts, merged
from tritmark.harness.worker import Workers
from tritmark.kernels import PROVIDER

KEY = KernelKey("cpu", "ternary_matmul", "tile64", "float32")
AXES = {"M": 2, "N": 64, "K": 256}
WORKLOAD = Workload(op=KEY.op, axes=AXES, family="uniform")
OP = next(op for op in PROVIDER.ops if op.name == KEY.op)
SCALAR = next(each for each in PROVIDER.variants if each.key == KEY and each.name == "scalar")


class PackedLaunch:
    """Computes at binding, and each run returns the result times a factor."""

    pointer, bad, threads_used = None, -1, 1

    def __init__(self, inputs: Arrays, outputs: Arrays, axes: Axes, factor: float) -> None:
        self._out, self._made = outputs["out"], np.empty_like(outputs["out"])
        SCALAR.bind(inputs, {"out": self._made}, axes, 1).run()
        with np.errstate(over="ignore", under="ignore"):
            self._made *= np.float32(factor)
        self.ran, self.runs = "", 0

    def run(self) -> None:
        """Write the result."""
        self._out[...] = self._made
        self.ran, self.runs = "theirs", self.runs + 1


def peer(factor: float = 1.0, share: float = 1e-3, **more: Any) -> Variant:
    """A variant whose results may be off by a share of their largest value."""

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        launch: Launch = PackedLaunch(inputs, outputs, axes, factor)
        return launch

    def bound(inputs: Arrays, axes: Axes) -> dict[str, Any]:
        most = np.abs(inputs["activations"].astype(np.float64)) @ np.abs(inputs["weights"].astype(np.float64)).T
        scale = np.float64(inputs["weight_scale"]) / inputs["act_scale"].astype(np.float64)
        return {"out": share * most * scale[:, np.newaxis]}

    made = Variant(
        key=KEY,
        name="theirs",
        tier=Tier.PEER,
        summary="",
        bind=bind,
        reports_nonfinite=False,
        packs=True,
        error_bound=bound,
    )
    return replace(made, **more)


def judged(variant: Variant, workload: Workload = WORKLOAD) -> Accuracy:
    installed = Installed({"builtin": PROVIDER})
    installed.add(variant)
    listed = ListedWorkload(KEY, workload, 0, 1, frozenset({"accuracy"}))
    with Workers(installed, isolated=False) as workers:
        return Judging(workers, listed).judge(variant).accuracy


def drawn(variant: Variant) -> Judged:
    return merged(judge_parts(OP, [(variant, None)], Draw(KEY, 8, (), 1, 1)))


TIERS = st.lists(st.sampled_from(list(Tier)), min_size=1, max_size=8)


@given(TIERS, st.data())
def test_what_is_taken_by_name_only_is_never_selected(tiers: list[Tier], data: st.DataObject) -> None:
    unused: Any = None
    device = Device(type="cpu", summary="", features=frozenset, cores=lambda: 1)
    variants = [
        Variant(key=KEY, name=f"{tier.name}{nth}", tier=tier, rank=nth, summary="", bind=unused)
        for nth, tier in enumerate(tiers)
    ]
    registry = Registry([device], variants)
    usual = [each for each in variants if each.tier >= Tier.REFERENCE]
    if usual:
        assert registry.select_best(KEY, AXES) == max(usual, key=lambda each: each.precedence)
    else:
        with pytest.raises(NoCompatibleKernelError, match="selected only by name"):
            registry.select_best(KEY, AXES)
    named = data.draw(st.sampled_from(variants))
    assert registry.select_best(KEY, AXES, named.name) == named
    assert registry.has_kernel_for("cpu", KEY.op, KEY.format, KEY.dtype) == any(t is not Tier.PEER for t in tiers)


def test_selecting_does_not_ask_whether_peers_are_there() -> None:
    def asked() -> str | None:
        raise AssertionError

    installed = Installed({"builtin": PROVIDER})
    installed.add(peer(missing=asked))
    assert installed.registry.select_best(KEY, AXES).tier is not Tier.PEER


def test_one_that_is_not_installed_is_told() -> None:
    registry = Registry(PROVIDER.devices, [peer(missing=lambda: "not installed: pip install theirs")])
    assert [why for _, why in registry.candidates(KEY)] == ["not installed: pip install theirs"]
    with pytest.raises(NoCompatibleKernelError, match="pip install theirs"):
        registry.select_best(KEY, AXES, "theirs")


def test_it_is_right_within_what_its_own_arithmetic_admits() -> None:
    found = judged(peer(factor=1 + 1e-4))
    assert (found.status, found.family) == (Status.PASS, "bounded")
    assert judged(peer(factor=1 + 1e-4, error_bound=None)).status is Status.FAIL  # held to the op's contract
    assert drawn(peer(factor=1 + 1e-4)).accuracy.status is not Status.FAIL


def test_a_wrong_one_fails_and_is_never_selected() -> None:
    wrong = peer(factor=1.5)
    assert judged(wrong).status is Status.FAIL
    assert drawn(wrong).accuracy.status is Status.FAIL
    installed = Installed({"builtin": PROVIDER})
    installed.add(wrong)
    assert installed.registry.select_best(KEY, AXES).name != wrong.name


def test_one_that_packs_gets_a_new_launch_for_other_data() -> None:
    assert judged(peer()).status is Status.PASS
    assert judged(peer(packs=False)).status is Status.FAIL
    assert drawn(peer(packs=False)).accuracy.status is Status.FAIL


def test_inputs_that_it_does_not_take_are_not_held_against_it() -> None:
    def refuses(inputs: Arrays, axes: Axes) -> dict[str, Any]:
        raise InvalidArgumentError(op="theirs", argument="act_scale", found="1e-40", legal="normal numbers")

    found = judged(peer(error_bound=refuses))
    assert found.status is Status.NOT_RUN
    assert "normal numbers" in found.reason
    assert drawn(peer(error_bound=refuses)).accuracy.status is Status.NOT_RUN


@pytest.mark.parametrize("bound", [np.inf, np.nan, -1.0])
def test_a_bound_that_would_admit_anything_is_refused(bound: float) -> None:
    cases = Material(OP, WORKLOAD, 0).cases(KEY)
    with pytest.raises(BrokenReferenceError, match="bound of out"):
        admitted(cases, peer(error_bound=lambda inputs, axes: {"out": bound}), AXES)
    assert judged(peer(error_bound=lambda inputs, axes: {"out": bound})).status is Status.ERROR


@settings(max_examples=20)
@given(st.booleans(), st.booleans(), st.sampled_from(["*", "theirs", "scalar"]), st.booleans(), st.integers(0, 2))
def test_a_suite_has_peers_where_it_says_so(there: bool, says: bool, glob: str, asked: bool, fastest: int) -> None:
    installed = Installed({"builtin": PROVIDER})
    installed.add(peer(missing=lambda: None if there else "not installed"))
    item = SelectedWorkload(WORKLOAD, ["tile64"], ["float32"], ["cpu"], fastest=fastest, peers=says)
    asks = frozenset({peer().id}) if asked else frozenset()
    groups = plan(installed, Request(suite=Suite("s", "", "", (item,)), variant=glob, peers=asks))
    names = {each.name for group in groups for each in group.variants}
    assert ("theirs" in names) == (glob != "scalar" and (glob == "theirs" or asked or (says and there)))
    assert glob == "theirs" or bool(names - {"theirs"})


@given(st.integers(1, 4), st.booleans())
@settings(max_examples=10)
def test_a_peer_neither_counts_among_the_fastest_nor_is_left_out(fastest: int, swap: bool) -> None:
    item = SelectedWorkload(WORKLOAD, ["tile64"], ["float32"], ["cpu"], fastest=fastest, peers=True)
    request = Request(suite=Suite("s", "", "", (item,)))
    other = Provider(ops=(), devices=(), variants=(peer(), replace(peer(), name="others")))
    providers = {"builtin": PROVIDER, "other": other}

    def planned(installed: Installed) -> list[str]:
        (group,) = plan(installed, request)
        return [each.name for each in group.variants]

    alone = planned(Installed({"builtin": PROVIDER}))
    both = planned(Installed(dict(reversed(providers.items())) if swap else providers))
    assert sorted(both) == sorted([*alone, "others", "theirs"])
    assert len(alone) <= fastest
