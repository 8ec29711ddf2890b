"""Choices between variants on a made-up device, whose clock says what the test wants: what is wrong, slower, not told
apart from noise, or of another machine or code is never taken, and the built-in table is used then."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tritmark.harness import caches, tuned
from tritmark.harness.autotune.ties import taken as broken
from tritmark.harness.cli import app
from tritmark.harness.cli.exit_status import PASSED
from tritmark.harness.errors import NoCompatibleKernelError, UsageError
from tritmark.harness.gate import json_rpc
from tritmark.harness.providers import Installed
from tritmark.harness.record import Ratio
from tritmark.harness.registry import Registry, fewest, shape_class
from tritmark.harness.selection import measure as measuring
from tritmark.harness.selection.measure import MeasuredChoice, measure
from tritmark.harness.selection.questions import questions
from tritmark.harness.spec import (
    Arrays,
    Axes,
    Device,
    KernelKey,
    Launch,
    Numbering,
    Op,
    Provider,
    Requirement,
    Tier,
    Variant,
)
from tritmark.harness.validate.ceiling import LAYOUT_NOISE
from tritmark.harness.worker import Workers
from tritmark.kernels import OPS

(QUANTIZE,) = (op for op in OPS if op.name == "activation_quantize")
OP = replace(QUANTIZE, interchangeable=lambda axes, format: format != "closed")
KEY = KernelKey("made", OP.name, "one", "int8")
OTHER = replace(KEY, format="two")
AXES = {"M": 3, "K": 40}
MACHINE = {"device": "a made-up one", "features": "some"}
NAMES = ("slowest", "slow", "plain", "best")
"""Variants by rising tier: the last is the built-in choice."""

Spoil = Callable[[Mapping[str, Any], Arrays, Axes], None]
"""Does something wrong to outputs, given inputs and axes."""


class Made:
    """A launch of the op's reference, which takes as long as it is told."""

    pointer, threads_used, bad, ran = 1, 1, -1, "made"

    def __init__(
        self,
        ns: Callable[[Axes, int], float],
        spoil: Spoil | None,
        inputs: Arrays,
        outputs: Arrays,
        axes: Axes,
        threads: int,
    ) -> None:
        self.ns, self.runs = ns(axes, threads), 0
        self._spoil, self._arguments = spoil, (inputs, outputs, axes)

    def run(self) -> None:
        inputs, outputs, axes = self._arguments
        if self.ns < 0:
            raise ValueError("it cannot be launched")
        for name, values in OP.reference(inputs, axes, KEY).items():
            if name in outputs:
                outputs[name][...] = np.asarray(values).astype(outputs[name].dtype)
        if self._spoil is not None:
            self._spoil(outputs, inputs, axes)
        self.runs += 1


class Clock:
    """Says what a launch is told to take, and some noise."""

    name = "made-up time"

    def __init__(self, noise: float, seed: int) -> None:
        self._noise, self._rng = noise, np.random.default_rng(seed)

    def sample(self, launches: Sequence[Launch], first: int, calls: int) -> int:
        told = launches[first]
        assert isinstance(told, Made)
        return round(1000 * calls * told.ns * float(np.exp(self._noise * self._rng.standard_normal())))


Ns = float | Callable[[Axes, int], float]


def made_variant(name: str, ns: Ns, spoil: Spoil | None = None, key: KernelKey = KEY, **more: Any) -> Variant:
    """A variant that takes so long; its code's hash is its name's."""
    told = ns if callable(ns) else lambda axes, threads: ns
    fields: dict[str, Any] = {
        "tier": Tier(NAMES.index(name)) if name in NAMES else Tier.REFERENCE,
        "code_hash": f"code of {name}",
        "summary": "",
    }
    return Variant(key=key, name=name, bind=partial(Made, told, spoil), **(fields | more))


def made(*variants: Variant, noise: float = 0.0, seed: int = 0, op: Op = OP, **more: Any) -> Installed:
    """A device with these variants."""
    fields: dict[str, Any] = {
        "features": frozenset,
        "cores": lambda: 2,
        "clock": lambda: Clock(noise, seed),
        "identity": lambda: MACHINE,
    }
    device = Device(type="made", summary="", **(fields | more))
    return Installed({"made": Provider(ops=(op,), variants=variants, devices=(device,))})


def usual(**more: Any) -> Installed:
    """The one below the built-in choice is quicker."""
    return made(made_variant("slow", 1.5), made_variant("plain", 0.8), made_variant("best", 1.0), **more)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of choices of its own."""
    monkeypatch.setenv(caches.CACHE, str(tmp_path))
    monkeypatch.delenv(tuned.SELECT, raising=False)
    monkeypatch.setattr(measuring, "SCREENING_S", 0.02)
    monkeypatch.setattr(measuring, "CONFIRMING_S", 0.1)
    tuned.forget()
    return tuned.path()


def run(
    installed: Installed,
    requirement: Requirement = Requirement.THROUGHPUT,
    keys: Sequence[KernelKey] = (KEY,),
    axes: Axes = AXES,
    threads: int | None = None,
    seconds: float = 60,
) -> MeasuredChoice:
    asked = installed.registry.question(keys, axes, requirement, threads)
    with Workers(installed, isolated=False) as workers:
        return measure(workers, asked, seconds=seconds, seed=0)


def taken(
    known: Registry, requirement: Requirement = Requirement.THROUGHPUT, axes: Axes = AXES, threads: int | None = None
) -> str:
    return known.select_best(KEY, axes, requirement=requirement, threads=threads).name


def one_off(outputs: Mapping[str, Any], inputs: Arrays, axes: Axes) -> None:
    outputs["q"].reshape(-1)[-1] ^= 1


def wrong_for_zeros(outputs: Mapping[str, Any], inputs: Arrays, axes: Axes) -> None:
    if not inputs["x"].any():
        outputs["q"].reshape(-1)[0] = 1


def wrong_with_few_rows(outputs: Mapping[str, Any], inputs: Arrays, axes: Axes) -> None:
    if axes["M"] == 3:
        outputs["q"].reshape(-1)[0] ^= 1


def test_the_built_in_table_is_used_until_something_was_measured() -> None:
    installed = usual()
    assert taken(installed.registry) == "best"
    found = run(installed)
    assert (found.chosen, taken(installed.registry)) == (f"{KEY}/plain", "plain")
    assert found.ratio is not None
    assert found.ratio.median == pytest.approx(0.8, rel=1e-3)
    chosen = installed.registry.select_best(KEY, AXES, requirement=Requirement.THROUGHPUT)
    assert chosen.tuned == f"{KEY}/plain for throughput"
    # Who asks for nothing, or for a name, gets what the table says.
    assert installed.registry.select_best(KEY, AXES).name == "best"
    assert installed.registry.select_best(KEY, AXES, "slow", requirement=Requirement.THROUGHPUT).name == "slow"


def test_a_choice_holds_for_its_class_of_shapes_threads_and_requirement() -> None:
    installed = usual()
    run(installed)
    known = installed.registry
    assert [taken(known, axes={**AXES, "M": rows}) for rows in (2, 3, 4, 5)] == ["best", "plain", "plain", "best"]
    assert taken(known, axes={**AXES, "K": 41}) == "best"
    assert taken(known, threads=2) == "plain"
    assert taken(known, threads=1) == "best"
    assert [taken(known, each) for each in Requirement if each is not Requirement.THROUGHPUT] == ["best"] * 3


@given(st.integers(1, 10**6))
def test_the_classes_of_rows_do_not_overlap(rows: int) -> None:
    axes = {"M": rows, "K": 7}
    most, least = shape_class(axes), fewest(axes)
    assert least["M"] <= rows <= most["M"] < 2 * least["M"]
    assert shape_class(least) == shape_class(most) == most
    assert fewest(most) == least
    assert most["K"] == least["K"] == 7
    assert rows == 1 or shape_class({**axes, "M": least["M"] - 1}) != most


@pytest.mark.parametrize("spoil", [one_off, wrong_for_zeros, wrong_with_few_rows])
def test_a_fast_kernel_that_is_wrong_is_never_kept(spoil: Spoil) -> None:
    installed = made(made_variant("slow", 0.6, spoil), made_variant("plain", 0.8), made_variant("best", 1.0))
    found = run(installed)
    assert taken(installed.registry) == "plain"
    assert found.failed == {f"{KEY}/slow"}
    assert "elements" in found.why[f"{KEY}/slow"]


def test_nothing_is_kept_beside_a_built_in_choice_that_is_wrong(place: Path) -> None:
    found = run(made(made_variant("plain", 0.5), made_variant("best", 1.0, one_off)))
    assert (found.chosen, found.note) == ("", "the built-in choice is incorrect")
    assert not place.exists()


def test_what_cannot_be_launched_is_told() -> None:
    installed = made(made_variant("slow", -1.0), made_variant("plain", 0.8), made_variant("best", 1.0))
    found = run(installed)
    assert found.why[f"{KEY}/slow"] == "ValueError: it cannot be launched"
    assert taken(installed.registry) == "plain"


@pytest.mark.parametrize("ns", [1.0, 0.999, 1.02])
def test_what_is_no_faster_than_noise_is_not_taken(ns: float) -> None:
    for seed in range(4):
        installed = made(made_variant("plain", ns), made_variant("best", 1.0), noise=0.02, seed=seed)
        assert run(installed).chosen == f"{KEY}/best"
        assert taken(installed.registry) == "best"


@pytest.mark.parametrize(
    ("ratios", "chosen"),
    [
        ({"plain": [(0.5, 0.01)]}, "plain"),
        ({"plain": [(0.5, 0.4)]}, ""),  # surely faster, and by how much is not known
        ({"plain": [(0.9, 0.9)]}, ""),
        ({"plain": [(0.5, 0.4), (0.5, 0.01)]}, "plain"),  # the second look shows it
        ({"plain": [(3.0, 0.3)]}, "best"),  # surely slower
        ({"plain": [(0.9, 0.9)], "slow": [(0.8, 0.01)]}, "slow"),  # the others are compared
    ],
)
def test_what_is_too_noisy_is_not_chosen(
    ratios: dict[str, list[tuple[float, float]]], chosen: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its median over what it had to beat, and half of the interval as a share of that; the last is repeated."""
    left = {name: list(of) for name, of in ratios.items()}

    def raced(site: Any, *arguments: Any) -> Ratio:
        of = left[site.variant.name]
        middle, half = of.pop(0) if len(of) > 1 else of[0]
        return Ratio(median=middle, low=middle * (1 - half), high=middle * (1 + half), pairs=9)

    monkeypatch.setattr(measuring, "by_turns_task", raced)
    found = run(made(*(made_variant(name, 1.0) for name in ratios), made_variant("best", 1.0)))
    assert found.chosen == (f"{KEY}/{chosen}" if chosen else "")
    assert place.exists() is bool(chosen)
    if not chosen:
        assert found.note == "too noisy to choose, twice: one/plain; repeat on a quiet machine"
        assert "(too noisy)" in found.why[f"{KEY}/plain"]


def test_what_is_slower_at_the_other_end_of_the_class_is_not_taken() -> None:
    few = made_variant("plain", lambda axes, threads: 1.1 if axes["M"] == 3 else 0.5)
    installed = made(few, made_variant("slow", 0.9), made_variant("best", 1.0))
    found = run(installed)
    assert "with the fewest rows of the class" in found.why[few.id]
    assert found.chosen == f"{KEY}/slow"


def test_a_number_of_threads_has_a_choice_of_its_own() -> None:
    alone = made_variant("plain", lambda axes, threads: 0.5 if threads == 1 else 2.0)
    installed = made(alone, made_variant("best", 1.0))
    run(installed, threads=1)
    run(installed, threads=2)
    assert [taken(installed.registry, threads=count) for count in (1, 2)] == ["plain", "best"]


def test_the_format_is_chosen_where_it_is_anybodys_to_choose() -> None:
    quick = made_variant("plain", 0.7, key=OTHER)
    installed = made(made_variant("slow", 0.9), made_variant("best", 1.0), quick)
    found = run(installed, keys=(KEY, OTHER))
    assert found.chosen == quick.id
    best = installed.registry.measured((KEY, OTHER), AXES, Requirement.THROUGHPUT, None)
    assert best is not None
    assert best.id == quick.id
    assert taken(installed.registry) == "best"  # which is another question


def test_the_least_memory_is_chosen_though_it_be_slower() -> None:
    small = made_variant("slow", 1.5, key=OTHER)
    smaller = made_variant("plain", 1.9, key=OTHER)
    roomy = made_variant("best", 1.0, workspace=lambda axes: 1000)
    found = run(made(small, smaller, roomy), Requirement.MEMORY, (KEY, OTHER))
    assert found.chosen == small.id
    assert found.ratio is not None
    assert found.ratio.median == pytest.approx(1.5, rel=1e-3)
    assert found.why[roomy.id].endswith(f"; the least is {AXES['K'] * 4 * 4}")


def test_what_is_held_to_a_bound_is_not_exact() -> None:
    bounded = made_variant("plain", 0.5, error_bound=lambda inputs, axes: {"scale": np.float64(0)})
    installed = made(bounded, made_variant("slow", 0.8), made_variant("best", 1.0))
    found = run(installed, Requirement.EXACTNESS)
    assert found.chosen == f"{KEY}/slow"
    assert found.why[bounded.id] == "its outputs have an error bound, so they are not exact"


def test_every_candidate_has_a_reason() -> None:
    lacking = made_variant("sixth", 0.1, rank=1, features=frozenset({"amx"}))
    theirs = made_variant("theirs", 0.1, tier=Tier.PEER)
    found = run(
        made(made_variant("slowest", 9.0), lacking, theirs, made_variant("plain", 0.8), made_variant("best", 1.0))
    )
    assert found.why[lacking.id] == "this made lacks amx"
    assert "selected only by name" in found.why[theirs.id]
    assert "x the time of the fastest one" in found.why[f"{KEY}/slowest"]
    assert found.why[f"{KEY}/best"] == "the variant to beat"
    assert found.why.keys() == {f"{KEY}/{name}" for name in ("slowest", "sixth", "theirs", "plain", "best")}
    assert "chosen: 0.800 [0.800, 0.800] of one/best's time, measured again" in found.why[f"{KEY}/plain"]


def kept_for(change: Callable[[Installed], Installed]) -> str:
    """What is taken on another device or with other code than that which was measured."""
    run(usual())
    assert taken(usual().registry) == "plain"
    return taken(change(usual()).registry)


def test_another_machine_or_code_makes_a_choice_stale() -> None:
    def machine(installed: Installed) -> Installed:
        return usual(identity=lambda: MACHINE | {"features": "others"})

    def rebuilt(installed: Installed) -> Installed:
        variants = [
            replace(each, code_hash="rebuilt") if each.name == "slow" else each for each in installed.registry.variants
        ]
        return made(*variants)

    def joined(installed: Installed) -> Installed:
        return made(*installed.registry.variants, made_variant("slowest", 3.0))

    assert [kept_for(each) for each in (machine, rebuilt, joined)] == ["best"] * 3


def test_without_a_hash_of_its_code_nothing_is_chosen() -> None:
    unknown = made_variant("plain", 0.5, code_hash="")
    installed = made(unknown, made_variant("slow", 0.8), made_variant("best", 1.0))
    assert run(installed).chosen == f"{KEY}/slow"
    found = run(made(made_variant("plain", 0.5), made_variant("best", 1.0, code_hash="")))
    assert "has no hash, so another build would look the same" in found.note


def test_forced_variants_and_off_ignore_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    run(usual())
    forced = usual(forced=lambda: "slow").registry
    assert taken(forced) == "slow"
    assert run(usual(forced=lambda: "slow")).note == "the environment forces a variant"
    known = usual().registry
    assert taken(known) == "plain"
    monkeypatch.setenv(tuned.SELECT, "off")
    assert taken(known) == "best"
    assert isinstance(
        CliRunner().invoke(app, ["tune", "variants", "i2s_quantize", "--shape", "n=9"]).exception, UsageError
    )
    monkeypatch.setenv(tuned.SELECT, "of")
    with pytest.raises(UsageError, match="TRITMARK_TUNED is 'of'"):
        taken(known)
    monkeypatch.delenv(tuned.SELECT)
    monkeypatch.setattr(os, "environ", json_rpc.environment())
    assert taken(known) == "best"  # the gate's processes


def test_registrations_and_new_choices_change_the_version() -> None:
    installed = usual()
    before = installed.registry.version
    run(installed)
    between = installed.registry.version
    installed.registry.register(made_variant("slowest", 3.0))
    assert before < between < installed.registry.version


def test_without_time_clock_or_speed_nothing_is_kept(place: Path) -> None:
    assert "the time ended" in run(usual(), seconds=0).note
    assert "brings no clock" in run(usual(clock=None)).note
    assert "simulated" in run(usual(simulated=lambda: True)).note
    assert not place.exists()


def test_a_device_without_an_identity_is_not_asked() -> None:
    with pytest.raises(NoCompatibleKernelError, match="does not support measured choices of variants"):
        run(usual(identity=None))
    assert taken(usual(identity=None).registry) == "best"


@pytest.mark.parametrize("damage", ["", "{", '{"version": 1}', '{"version": 9, "choices": []}', "\x00" * 100])
def test_a_damaged_file_is_never_believed(damage: str, place: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(usual())
    place.write_text(damage)
    tuned.forget()
    with caplog.at_level(logging.WARNING):
        assert taken(usual().registry) == "best"
    assert "next: remove it" in caplog.text


@pytest.mark.parametrize(
    "change",
    [{"instance": "made/x/y/z/unknown"}, {"instance": f"{KEY}/slow "}, {"builtin": f"{KEY}/slow"}, {"identity": {}}],
)
def test_a_choice_that_says_something_else_is_not_taken(change: dict[str, Any], place: Path) -> None:
    run(usual())
    whole = json.loads(place.read_text())
    whole["choices"][0] |= change
    place.write_text(json.dumps(whole))
    tuned.forget()
    assert taken(usual().registry) == "best"


def test_a_later_choice_takes_the_place_of_the_former(place: Path) -> None:
    run(usual())
    run(made(made_variant("slow", 0.5), made_variant("plain", 0.8), made_variant("best", 1.0)))
    (stored,) = tuned.read(place)
    assert stored.instance == f"{KEY}/slow"


def test_a_choice_that_was_measured_on_one_device_of_a_kind_holds_for_the_others(place: Path) -> None:
    numbering = Numbering(count=lambda: 2, title=str, at=lambda index: nullcontext(), alone=lambda index: {})
    installed = usual(numbering=numbering)
    one = replace(KEY, device="made:1")
    installed.registry.device(one.device, "")
    assert run(installed, keys=(one,)).chosen == f"{one}/plain"
    (stored,) = tuned.read(place)
    assert (stored.instance, stored.builtin) == (f"{KEY}/plain", f"{KEY}/best")
    again = usual(numbering=numbering).registry
    assert taken(again) == "plain"
    assert again.select_best(one, AXES, requirement=Requirement.THROUGHPUT).id == f"{one}/plain"
    other = usual(numbering=numbering, identity=lambda: MACHINE | {"driver": "another"}).registry
    assert taken(other) == "best"


def test_a_hash_of_sources_takes_the_place_of_compiled_code(place: Path) -> None:
    def compiled(_: str) -> str:
        raise AssertionError("nothing is compiled for a choice")

    variants = [made_variant("plain", 0.8, code_hash=""), made_variant("best", 1.0, code_hash="")]
    assert run(made(*variants, code_hash=compiled, source_hash=lambda variant_id: variant_id)).chosen
    assert taken(made(*variants, code_hash=compiled, source_hash=lambda variant_id: variant_id).registry) == "plain"
    assert taken(made(*variants, code_hash=compiled, source_hash=lambda variant_id: "x").registry) == "best"
    unknown = run(made(*variants, code_hash=compiled, source_hash=lambda variant_id: ""))
    assert "has no hash" in unknown.note


def asked(installed: Installed, axes: Axes, format: str = "") -> list[str]:
    return [
        each.place
        for each in questions(
            installed,
            installed.ops[OP.name],
            axes,
            device="made",
            dtype="*",
            format=format,
            requirement=Requirement.LATENCY,
            threads=None,
        )
    ]


def test_formats_are_chosen_with_one_row_and_obeyed_with_more() -> None:
    variants = [made_variant("best", 1.0), made_variant("plain", 0.5, key=OTHER)]
    installed = made(*variants, made_variant("slow", 0.1, key=replace(KEY, format="closed")))
    start = f"made/{OP.name}"
    one = {**AXES, "M": 1}
    assert asked(installed, one) == [f"{start}/*/int8 latency", f"{start}/one/int8 latency"]
    assert asked(installed, AXES) == [f"{start}/one/int8 latency"]
    assert asked(installed, AXES, "t*") == [f"{start}/two/int8 latency"]
    run(installed, Requirement.LATENCY, (KEY, OTHER), one)
    assert asked(installed, AXES) == [f"{start}/two/int8 latency"]
    with pytest.raises(UsageError, match=r"has format 'x'"):
        asked(installed, AXES, "x")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ternary_matmul", "--shape", "M=1,N=64"], r"legal: M=SIZE,N=SIZE,K=SIZE, sizes of 1 or more"),
        (["ternary_matmul", "--shape", "M=0,N=64,K=64"], r"sizes of 1 or more"),
        (["ternary_matmull", "--shape", "M=1,N=64,K=64"], r"op 'ternary_matmull'; .*ternary_matmul"),
        (["ternary_matmul", "--shape", "M=1,N=64,K=64", "--format", "tile65"], r"has format 'tile65'"),
    ],
)
def test_what_cannot_be_asked_for(arguments: list[str], said: str) -> None:
    found = CliRunner().invoke(app, ["tune", "variants", *arguments])
    assert isinstance(found.exception, UsageError)
    with pytest.raises(UsageError, match=said):
        raise found.exception


@pytest.mark.timing
def test_the_command_says_what_became_of_each_candidate(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It times real kernels, beside whatever else the machine does; test_what_is_too_noisy_is_not_chosen has the rule.
    monkeypatch.setattr(Ratio, "too_noisy", False)
    found = CliRunner().invoke(
        app,
        [
            *("tune", "variants", "activation_quantize", "--format", "none", "--shape", "M=1,K=64"),
            *("--requirement", "throughput", "--why"),
        ],
    )
    assert found.exit_code == PASSED, found.output
    (stored,) = tuned.read(place)
    assert stored.axes == {"M": 1, "K": 64, "threads": stored.axes["threads"]}
    for name in ("scalar", "sse41", "avx2", "avx512"):
        assert f"/{name}: " in found.output or stored.instance.endswith(f"/{name}")


def level(first: float, second: float, **more: Any) -> Installed:
    """Two of one tier, both faster than the built-in choice."""
    variants = (made_variant("zeta", first, rank=1), made_variant("alpha", second, rank=0))
    return made(*variants, made_variant("best", 1.0), **more)


@pytest.mark.parametrize("seed", range(4))
def test_a_tie_is_said_and_broken_the_same_way_each_time(seed: int) -> None:
    """Whichever of the two was luckier: the first by the table, which is not the first by name here."""
    for first, second in ((0.870, 0.8705), (0.8705, 0.870)):
        found = run(level(first, second, noise=0.01, seed=seed))
        assert found.chosen == f"{KEY}/zeta"
        assert found.ratio is not None
        assert found.ratio.high < 1
        if found.tie_ratio is not None:
            assert found.tie == (f"{KEY}/zeta", f"{KEY}/alpha")
            assert found.tie_ratio.low <= 1 + LAYOUT_NOISE


def test_the_tie_is_verified_by_a_second_measurement() -> None:
    found = run(level(0.8705, 0.870))
    assert found.tie == (f"{KEY}/zeta", f"{KEY}/alpha")
    assert found.tie_ratio is not None
    assert found.tie_ratio.median == pytest.approx(0.8705 / 0.870, rel=1e-3)


def test_what_is_surely_faster_is_no_tie() -> None:
    found = run(level(0.9, 0.8))
    assert (found.chosen, found.tie_ratio) == (f"{KEY}/alpha", None)


def test_a_tie_with_the_built_in_choice_is_said() -> None:
    found = run(made(made_variant("plain", 0.998), made_variant("best", 1.0)))
    assert found.chosen == f"{KEY}/best"
    assert found.tie == (f"{KEY}/best", f"{KEY}/plain")
    assert found.tie_ratio is not None
    assert found.tie_ratio.median == pytest.approx(1 / 0.998, rel=1e-3)


@given(st.lists(st.tuples(st.floats(0.5, 0.99), st.floats(0.0, 0.05)), min_size=1, max_size=6))
def test_only_what_may_be_as_fast_ties(drawn: list[tuple[float, float]]) -> None:
    """The fastest by its median is always among those that may be taken, and what is taken before it overlaps it."""
    screened = {
        str(nth): Ratio(median=middle, low=middle - half, high=middle + half, pairs=9)
        for nth, (middle, half) in enumerate(drawn)
    }
    order = sorted(screened)
    same = Ratio(median=1.0, low=0.999, high=1.001, pairs=9)
    name, fastest, _ = broken(screened, order, lambda name, other: same)
    assert screened[fastest].median == min(each.median for each in screened.values())
    assert order.index(name) <= order.index(fastest)
    assert screened[name].low <= screened[fastest].high * (1 + LAYOUT_NOISE)
    slower = Ratio(median=1.1, low=1.05, high=1.15, pairs=9)
    assert broken(screened, order, lambda name, other: slower)[:2] == (fastest, fastest)
