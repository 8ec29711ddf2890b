"""The league table of made-up Records: the best kernel, the basis of ratios, peers, whole calls, and pages that no text
in a Record breaks."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up_records import HOSTILE, MARKS, full_record, one_run, record_of
from typer.testing import CliRunner

from tritmark.harness.cli import app
from tritmark.harness.cli.exit_status import UNAVAILABLE
from tritmark.harness.league import turns
from tritmark.harness.league.absent import absent, with_repacked
from tritmark.harness.league.contenders import TEMPERATURES, admitted, best_of, by_work, tables
from tritmark.harness.league.model import Basis, Contender, League, LeagueTable, WholeCall
from tritmark.harness.league.turns import Session, complete, sooner
from tritmark.harness.providers import Installed, load
from tritmark.harness.record import Accuracy, Cross, MemoryUse, PeerComparison, Ratio, Record, Run, Status
from tritmark.harness.report.league import behind, headline, html, markdown, title, write
from tritmark.harness.spec import KernelKey, MultipleOf, Tier, Variant
from tritmark.harness.store import Store
from tritmark.harness.text import groups
from tritmark.kernels import PROVIDER

AXES = {"M": 1, "N": 2560, "K": 2560}
CALLS = (
    WholeCall(name="ours", takes="float32 rows", ns=20_000.0),
    WholeCall(name="theirs", takes="float32 rows", ns=30_000.0, behind=Ratio(median=1.5, low=1.4, high=1.6, pairs=40)),
    WholeCall(name="absent", takes="float32 rows", missing="not installed"),
)


def comparison(peer: str, speedup: float, **more: Any) -> PeerComparison:
    given: dict[str, Any] = {"status": Status.PASS, "match": True, "largest_error": 0.25, "version": "1.2", **more}
    ratio = Ratio(median=speedup, low=speedup * 0.9, high=speedup * 1.1, pairs=40)
    return PeerComparison(peer=peer, own_ns=1e4, peer_ns=1e4 * speedup, speedup=ratio, **given)


def league_of(record: Record, **more: Any) -> League:
    return League(
        record=record.id,
        created=record.created,
        suite=record.suite,
        tritmark=record.environment.tritmark,
        machine="a machine",
        tables=tables(record, **more),
    )


@pytest.fixture
def runs() -> dict[str, Run]:
    rng = random.Random(5)
    kernels = [("tile64", "avx512"), ("i2_s_x86", "avx2"), ("tq2_0", "scalar")]
    return {
        variant: one_run(rng, ("ternary_matmul", format, "float32", variant), axes=AXES, measured=True)
        for format, variant in kernels
    }


def by_name(table: LeagueTable) -> dict[str, Contender]:
    return {each.variant: each for each in table.contenders}


def test_the_best_comes_first_and_every_other_ratio_says_what_it_rests_on(runs: dict[str, Run]) -> None:
    record = record_of([runs["scalar"], runs["avx2"], runs["avx512"]])
    (table,) = tables(record)
    assert [each.variant for each in table.contenders] == ["avx512", "avx2", "scalar"]
    best, *others = table.contenders
    for temperature in TEMPERATURES:
        pace = getattr(best, temperature)
        assert (pace.basis, pace.behind) == (Basis.BEST, None)
        for other in others:
            behind = getattr(other, temperature)
            assert behind.basis is Basis.CEILING
            # The made-up times follow from the same rates, so the ratio through the ceiling equals the ratio of times.
            expected = behind.ns / pace.ns
            assert behind.behind.median == pytest.approx(expected, rel=0.02)
            assert behind.behind.low <= behind.behind.median <= behind.behind.high


def test_weights_with_other_scales_have_a_table_of_their_own(runs: dict[str, Run]) -> None:
    record = record_of(list(runs.values()))
    found = {each.scales: each for each in tables(record, scales=load().scales_of)}
    contenders = {scales: [each.variant for each in table.contenders] for scales, table in found.items()}
    assert contenders == {"one scale": ["avx512", "avx2"], "a scale for each group of 256": ["scalar"]}
    best = found["a scale for each group of 256"].contenders[0]
    assert best.cold is not None
    assert best.cold.basis is Basis.BEST
    assert title(found["one scale"]).endswith(", one scale")


def test_ratios_that_were_taken_by_turns_come_before_all_else(runs: dict[str, Run]) -> None:
    taken = Ratio(median=1.25, low=1.2, high=1.3, pairs=50)
    record = record_of(list(runs.values()))
    (table,) = tables(record, {(runs["avx2"].id, "cold"): taken})
    found = by_name(table)["avx2"]
    assert found.cold is not None
    assert found.hot is not None
    assert (found.cold.behind, found.cold.basis) == (taken, Basis.TURNS)
    assert found.hot.basis is Basis.CEILING


def test_different_ceilings_and_lost_probes_give_no_ratio(runs: dict[str, Run]) -> None:
    for change in ({"ceiling": "compute"}, {"lost": True}):
        run = runs["avx2"]
        assert run.performance.cold is not None
        against = run.performance.cold.against.model_copy(update=change)
        cold = run.performance.cold.model_copy(update={"against": against})
        other = run.model_copy(update={"performance": run.performance.model_copy(update={"cold": cold})})
        (table,) = tables(record_of([runs["avx512"], other]))
        pace = by_name(table)["avx2"].cold
        assert pace is not None
        assert (pace.behind, pace.basis) == (None, Basis.NONE)


def test_a_wrong_kernel_is_nobodys_best_and_comes_last(runs: dict[str, Run]) -> None:
    wrong = Accuracy(status=Status.FAIL, reason="it is wrong", elements=10, mismatches=3, largest_error=2.0)
    fastest = runs["avx512"].model_copy(update={"accuracy": wrong})
    record = record_of([fastest, runs["avx2"], runs["scalar"]])
    (table,) = tables(record)
    assert [each.variant for each in table.contenders] == ["avx2", "scalar", "avx512"]
    last = table.contenders[-1]
    assert (last.verdict, last.reason, last.exact, last.largest_error) == (Status.FAIL, "it is wrong", False, 2.0)
    ((_, measured),) = by_work(record).items()
    best = best_of(admitted(measured, groups.right(record)), "cold")
    assert best is not None
    assert best.variant == "avx2"


def test_peers_that_passed_may_be_the_best_and_no_wrong_kernel(runs: dict[str, Run]) -> None:
    of = list(runs.values())
    peer = of[0].model_copy(update={"peer": True})
    broken = peer.model_copy(update={"accuracy": of[0].accuracy.model_copy(update={"status": Status.FAIL})})
    assert admitted([peer, *of[1:]], of[1:]) == [peer, *of[1:]]
    assert admitted([broken, *of[1:]], of[2:]) == of[2:]
    (table,) = tables(record_of([peer, *of[1:]]))
    assert by_name(table)["avx512"].cold == tables(record_of(of))[0].contenders[0].cold


def test_whoever_is_quicker_by_turns_is_the_best(runs: dict[str, Run]) -> None:
    best, known = runs["avx512"], list(runs.values())

    def beside(**medians: float) -> dict[str, Ratio]:
        return {
            runs[name].id: Ratio(median=at, low=at - 0.05, high=at + 0.05, pairs=40) for name, at in medians.items()
        }

    assert sooner(best, known, beside(avx2=1.2, scalar=3.0)) is None
    assert sooner(best, known, beside(avx2=0.97, scalar=3.0)) is None  # within chance
    assert sooner(best, known, beside(avx2=0.9, scalar=0.8)) == runs["scalar"]
    record = record_of(known)
    ((work, _),) = by_work(record).items()
    taken: dict[Any, Ratio] = {(runs["avx512"].id, "hot"): Ratio(median=1.25, low=1.2, high=1.3, pairs=50)}
    (table,) = tables(record, taken, {}, {(work, "hot"): runs["avx2"].id})
    found: dict[str, Any] = by_name(table)
    assert found["avx2"].hot.basis is Basis.BEST
    assert (found["avx512"].hot.basis, found["avx512"].hot.behind.median) == (Basis.TURNS, 1.25)
    assert found["avx512"].cold.basis is Basis.BEST


def timed(run: Run, ns: float, *, half: float = 0.01) -> Run:
    """The Run with this cold time and half width of its interval, as a share."""
    assert run.performance.cold is not None
    timing = run.performance.cold.timing.model_copy(
        update={"median_ns": ns, "low_ns": ns * (1 - half), "high_ns": ns * (1 + half)}
    )
    cold = run.performance.cold.model_copy(update={"timing": timing})
    return run.model_copy(update={"performance": run.performance.model_copy(update={"cold": cold})})


def ratio_of(median: float, half: float = 0.01) -> Ratio:
    return Ratio(median=median, low=median * (1 - half), high=median * (1 + half), pairs=40)


def test_a_time_that_is_too_noisy_is_no_best_and_stands_below(runs: dict[str, Run]) -> None:
    noisy, *others = timed(runs["avx512"], 1.0, half=0.3), runs["avx2"], runs["scalar"]
    record = record_of([noisy, *others])
    (table,) = tables(record)
    assert [each.variant for each in table.contenders] == ["avx2", "scalar", "avx512"]
    assert table.contenders[0].cold is not None
    assert table.contenders[0].cold.basis is Basis.BEST
    league = league_of(record)
    assert "1.00 ns, too noisy" in markdown(league)
    assert "1 of 6 times is too noisy: listed last, and never the best" in " ".join(html(league).split())
    assert "too noisy" not in markdown(league_of(record_of(list(runs.values()))))
    ((_, measured),) = by_work(record).items()
    assert noisy in admitted(measured, groups.selectable(record))  # interleaving may find it to be the best


@pytest.mark.parametrize(
    ("own", "best", "ratio", "contradicted"),
    [
        ((61.7e6, 0.01), (16.2e6, 0.01), ratio_of(0.953), True),  # of a busy machine
        ((16.2e6, 0.01), (61.7e6, 0.01), ratio_of(0.953), True),
        ((16.2e6, 0.01), (16.2e6, 0.01), ratio_of(0.953), False),
        ((61.7e6, 0.01), (16.2e6, 0.01), ratio_of(3.8), False),
        ((61.7e6, 0.01), (16.2e6, 0.01), ratio_of(3.6), False),  # within the changes of a machine's speed
        ((61.7e6, 0.9), (16.2e6, 0.9), ratio_of(0.953), False),  # intervals that contain almost everything
    ],
)
def test_a_ratio_that_contradicts_the_times_is_marked(
    own: tuple[float, float], best: tuple[float, float], ratio: Ratio, contradicted: bool, runs: dict[str, Run]
) -> None:
    run, rival = (timed(runs[name], ns, half=half) for name, (ns, half) in (("avx2", own), ("avx512", best)))
    record = record_of([run, rival])
    ((work, _),) = by_work(record).items()
    league = league_of(record, turns={(run.id, "cold"): ratio}, found_best={(work, "cold"): rival.id})
    pace = by_name(league.tables[0])["avx2"].cold
    assert pace is not None
    assert pace.contradicts is contradicted
    assert behind(pace).endswith(" !") is contradicted
    text = " ".join(html(league).split())
    assert ("contradicts the two times beyond their 95 % intervals" in text) is contradicted
    assert League.model_validate_json(league.model_dump_json()) == league


@pytest.mark.parametrize(
    ("first", "second", "looks"),
    [
        (ratio_of(1.5), ratio_of(9.0), 1),  # agrees with the times
        (ratio_of(0.4), ratio_of(1.5), 2),
        (ratio_of(0.4), ratio_of(0.4), 2),
        (ratio_of(1.5, 0.4), ratio_of(1.4), 2),  # too noisy
    ],
)
def test_what_contradicts_the_times_is_taken_once_more(
    first: Ratio, second: Ratio, looks: int, runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, best = timed(runs["avx2"], 15e6), timed(runs["avx512"], 10e6)
    taken_of: list[str] = []

    def beside(
        workers: Any, variants: Any, rival: Run, known: list[Run], *further: Any
    ) -> tuple[dict[str, Ratio], Any]:
        if further[-1] == "hot":
            return {}, []
        taken_of.extend(each.id for each in known if each.id != rival.id)
        return {run.id: first if len(taken_of) == 1 else second}, []

    monkeypatch.setattr(turns, "_beside", beside)
    monkeypatch.setattr(turns, "_calls", lambda *arguments: ())
    monkeypatch.setattr(turns, "sooner", lambda *arguments: None)
    session = Session()
    complete(session, load(), record_of([run, best]), lambda text: None)
    assert taken_of == [run.id] * looks
    assert session.ratios[run.id, "cold"] == (first if looks == 1 else second)


def test_ratios_that_the_session_has_are_not_taken_again(runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that were timed together have been interleaved with the best."""
    record = record_of([runs["avx2"], runs["avx512"]])
    ((work, _),) = by_work(record, load().scales_of).items()
    monkeypatch.setattr(turns, "_beside", lambda *arguments: pytest.fail("it was interleaved already"))
    monkeypatch.setattr(turns, "_calls", lambda *arguments: CALLS)
    session = Session(best={(work, temperature): runs["avx512"].id for temperature in TEMPERATURES})
    complete(session, load(), record, lambda text: None)
    assert session.calls == {work: CALLS}


def test_whole_calls_stand_beside_kernels_for_the_same_weights(
    runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have one scale, and a table of formats with scales of groups has none of them."""
    monkeypatch.setattr(turns, "_beside", lambda *arguments: ({}, []))
    monkeypatch.setattr(turns, "_calls", lambda *arguments: CALLS)
    session = Session()
    complete(session, load(), record_of(list(runs.values())), lambda text: None)
    assert [work[-1] for work in session.calls] == ["one scale"]


def test_doubted_figures_are_not_shown(runs: dict[str, Run]) -> None:
    run = runs["avx512"]
    doubted = run.model_copy(update={"performance": run.performance.model_copy(update={"doubted": True})})
    (table,) = tables(record_of([doubted, runs["avx2"]]))
    found = by_name(table)
    assert (found["avx512"].cold, found["avx512"].hot) == (None, None)
    assert found["avx2"].cold is not None
    assert found["avx2"].cold.basis is Basis.BEST


def test_exact_is_rounded_once_at_most(runs: dict[str, Run]) -> None:
    run = runs["avx512"]
    for ulp, mismatches, exact in ((0.5, 0, True), (0.6, 0, False), (0.5, 1, False)):
        accuracy = run.accuracy.model_copy(update={"largest_ulp": ulp, "mismatches": mismatches})
        (table,) = tables(record_of([run.model_copy(update={"accuracy": accuracy})]))
        assert table.contenders[0].exact is exact


def crossed(run: Run, *peers: PeerComparison) -> Run:
    return run.model_copy(update={"cross": Cross(status=Status.PASS, peers=peers)})


@pytest.mark.parametrize(
    ("variant", "peer", "wrong", "shown"),
    [
        ("libpeer-int8", True, False, False),
        ("libpeer", True, False, False),
        ("libpeer-int8", True, True, True),
        ("libpeer-int8", False, False, True),
        ("libpeers-int8", True, False, True),
        ("libpeer:int8", True, False, True),
    ],
)
def test_a_project_that_is_a_variant_has_no_second_row(
    runs: dict[str, Run], variant: str, peer: bool, wrong: bool, shown: bool
) -> None:
    run = one_run(random.Random(6), ("ternary_matmul", "tile64", "float32", variant), axes=AXES, measured=True)
    run = run.model_copy(update={"peer": peer})
    if wrong:
        run = run.model_copy(update={"accuracy": run.accuracy.model_copy(update={"status": Status.FAIL})})
    (table,) = tables(record_of([crossed(runs["avx512"], comparison("libpeer", 3.0)), run]))
    names = [each.kernel for each in table.contenders]
    assert ("libpeer" in names, len(names)) == (shown, 2 + shown)


def test_a_peer_is_placed_by_the_comparison_with_the_best(runs: dict[str, Run]) -> None:
    best = crossed(runs["avx512"], comparison("libpeer", 3.0))
    other = crossed(
        runs["avx2"],
        comparison("libpeer", 1.5),
        comparison("only here", 2.0, largest_error=0.0),
        comparison("wrong", 2.0, match=False, peer_wrong=True, reason="the peer is wrong"),
    )
    (table,) = tables(record_of([best, other]))
    found = by_name(table)
    direct, through, wrong = found["libpeer"], found["only here"], found["wrong"]
    assert direct.hot is not None
    assert direct.hot.behind is not None
    assert (direct.hot.behind.median, direct.hot.basis, direct.peer, direct.exact) == (3.0, Basis.TURNS, True, False)
    kernel = found["avx2"].hot
    assert through.hot is not None
    assert through.hot.behind is not None
    assert kernel is not None
    assert kernel.behind is not None
    assert through.hot.behind.median == pytest.approx(2.0 * kernel.behind.median)
    assert (through.hot.basis, through.exact, through.verdict) == (Basis.KERNEL, True, Status.PASS)
    assert wrong.verdict is Status.FAIL
    assert table.contenders[-1].variant == "wrong"


def test_peers_have_their_version_and_build_below_the_tables(runs: dict[str, Run]) -> None:
    version = "0.25.3 of llama-cpp-python 0.3.36, compiled for avx2, avx512f"
    peers = [
        one_run(random.Random(7), ("ternary_matmul", "tile64", "float32", name), axes=AXES, measured=True).model_copy(
            update={"peer": True, "peer_version": version}
        )
        for name in ("ggml-tq2_0", "ggml-q2_0")
    ]
    made = league_of(record_of([runs["avx512"], *peers]))
    names = ", ".join(one.variant for one in made.tables[0].contenders if one.version)
    assert set(names.split(", ")) == {"ggml-tq2_0", "ggml-q2_0"}
    for page in (html(made), markdown(made)):
        assert f"Peer {names}: {version}" in " ".join(page.split())


def test_what_was_not_timed_is_listed_with_the_reason() -> None:
    """Peers that are not installed, that do not take the shape, and projects without such a product."""
    axes = {"M": 1, "N": 2560, "K": 2560}
    variants = [
        variant(name, format, missing=missing, constraints=constraints)
        for name, format, missing, constraints in (
            ("there", "tile64", None, ()),
            ("gone", "tile64", "not installed: pip install it", ()),
            ("picky", "tile64", None, (MultipleOf("K", 4096),)),
            ("unasked", "tile64", None, ()),
            ("of groups", "tile64_g64", "not installed: pip install it", ()),
        )
    ]
    builtin = replace(PROVIDER, variants=tuple(variants))
    installed = Installed({"builtin": builtin})
    table = LeagueTable(
        device="cpu",
        op="ternary_matmul",
        dtype="float32",
        axes=axes,
        threads=1,
        scales="one scale",
        contenders=(Contender(kernel=variants[0].id, variant="there", format="tile64", verdict=Status.PASS),),
    )
    found = {each.name: each.reason for each in absent(installed, [table, table])}
    assert found == {
        "gone": "not installed: pip install it",
        "picky": "K = 2560 is no multiple of 4096",
        "unasked": "the suite does not measure it here",
    }
    grouped = table.model_copy(update={"scales": "a scale for each group of 64", "contenders": ()})
    reasons = {each.name: each.reason for each in absent(installed, [grouped])}
    assert reasons["of groups"] == "not installed: pip install it"
    assert reasons["ik_llama with 2 bits"].startswith("unsupported: ik-llama-cpp-python 0.1.5 has no type Q2_0")
    made = League(
        record="a",
        created="now",
        suite="s",
        tritmark="0",
        machine="m",
        tables=(table,),
        absent=absent(installed, [table]),
    )
    for page in (html(made), markdown(made)):
        assert "Not timed: gone: not installed: pip install it (ternary_matmul, one scale)" in " ".join(page.split())


def variant(name: str, format: str, *, missing: str | None, constraints: tuple[MultipleOf, ...]) -> Variant:
    return Variant(
        key=KernelKey("cpu", "ternary_matmul", format, "float32"),
        name=name,
        tier=Tier.PEER,
        summary=name,
        bind=lambda *arguments: pytest.fail("it is not run"),
        missing=lambda: missing,
        constraints=constraints,
    )


@pytest.mark.parametrize(
    ("op", "group", "others"),
    [
        ("ternary_matmul", 64, ()),
        ("ternary_matmul", 128, ("ptq1_0", "pq2_0")),
        ("ternary_matmul_experts", 64, ("q2_0",)),
        ("ternary_matmul_experts", 256, ("tq1_0", "tq2_0")),
    ],
)
def test_formats_of_files_that_are_repacked_are_in_the_title(op: str, group: int, others: tuple[str, ...]) -> None:
    scales = f"a scale for each group of {group}"
    table = LeagueTable(device="cpu", op=op, dtype="float32", axes=AXES, threads=1, scales=scales, contenders=())
    found = with_repacked(load(), table)
    assert found.repacked == others
    assert title(found).endswith(f"{scales}, also of {', '.join(others)}" if others else scales)


def test_a_weight_has_bits_where_no_memory_was_judged(runs: dict[str, Run]) -> None:
    bare = runs["avx512"].model_copy(update={"memory": MemoryUse(status=Status.NOT_RUN, reason="not requested")})
    peer = bare.model_copy(update={"id": "another", "peer": True})
    (table,) = tables(record_of([bare, peer]), bits=load().bits_of)
    stored = 8 * load().formats["tile64"].packed_bytes((2560, 2560)) / 2560**2
    assert {each.bits_per_weight for each in table.contenders} == {stored, None}
    assert load().bits_of("tile64_g64", AXES) == 2.25
    assert load().bits_of("none", AXES) is None
    assert load().bits_of("tile64", {"n": 7}) is None


def test_a_reference_is_no_contender(runs: dict[str, Run]) -> None:
    untimed = PeerComparison(status=Status.PASS, peer="our own", match=True, reference=True)
    (table,) = tables(record_of([crossed(runs["avx512"], untimed)]))
    assert [each.variant for each in table.contenders] == ["avx512"]


def test_shapes_dtypes_and_threads_stand_apart() -> None:
    rng = random.Random(6)
    kernel = ("ternary_matmul", "tile64", "float32", "avx2")
    different = [
        one_run(rng, kernel, axes=AXES, measured=True),
        one_run(rng, kernel, axes={**AXES, "M": 16}, measured=True),
        one_run(rng, kernel, axes=AXES, measured=True, threads=1),
        one_run(rng, ("ternary_matmul", "tile64", "bfloat16", "avx2"), axes=AXES, measured=True),
    ]
    assert [len(table.contenders) for table in tables(record_of(different))] == [1, 1, 1, 1]


def test_pages_say_all_of_it(runs: dict[str, Run]) -> None:
    record = record_of([crossed(runs["avx512"], comparison("libpeer", 3.0)), runs["avx2"]])
    ((work, _),) = by_work(record).items()
    made = league_of(record, calls={work: CALLS})
    text = re.sub(r"<[^>]*>", " ", html(made).replace("<wbr>", ""))
    for page in (text, markdown(made)):
        for told in ("tile64 avx512", "libpeer, peer, 1.2", "3.00x (2.70 to 3.30)", "best", "exact", "PASS", "ours"):
            assert told in page
        assert "1.50x (1.40 to 1.60)" in page
        assert "not installed" in page
        assert "c: not interleaved with the best" in page
        assert "k: not" not in page
    assert League.model_validate_json(made.model_dump_json()) == made


def test_an_error_beside_a_pass_is_within_its_bound(runs: dict[str, Run]) -> None:
    """An absolute error alone beside PASS looks like a fault, so the cell states the bound too."""
    accuracy: dict[str, Any] = {"family": "bounded", "elements": 9, "largest_ulp": 1e6, "largest_error": 136.0}
    passed = Accuracy(status=Status.PASS, **accuracy)
    failed = Accuracy(status=Status.FAIL, reason="outside of the bound", mismatches=1, **accuracy)
    for found, told in ((passed, "within its bound, error at most 136"), (failed, "error at most 136")):
        record = record_of([runs["avx512"].model_copy(update={"accuracy": found})])
        cells = re.findall(r"<td>([^<]*)</td>", html(league_of(record)))
        assert told in cells
    assert headline(league_of(record_of(list(runs.values())))).endswith("kernels on 1 workload")


def test_nothing_in_a_record_breaks_the_page() -> None:
    made = league_of(full_record())
    calls = (WholeCall(name=HOSTILE, takes=MARKS, missing=HOSTILE),)
    hostile = made.tables[0].model_copy(
        update={
            "title": HOSTILE,
            "calls": calls,
            "contenders": (made.tables[0].contenders[0].model_copy(update={"variant": HOSTILE, "format": MARKS}),),
        }
    )
    made = made.model_copy(update={"tables": (hostile,), "machine": HOSTILE, "suite": MARKS})
    page = html(made)
    assert page.count("<script") == 1
    assert "<img" not in page
    assert "\x1b" not in page + markdown(made)


def test_files_are_written_whole(tmp_path: Path, runs: dict[str, Run]) -> None:
    made = league_of(record_of(list(runs.values())))
    paths = write(made, tmp_path / "league")
    assert sorted(path.name for path in (tmp_path / "league").iterdir()) == sorted(path.name for path in paths.values())
    assert json.loads(paths["json"].read_text())["record"] == made.record


def test_the_command_takes_a_record(tmp_path: Path, runs: dict[str, Run]) -> None:
    from tritmark.harness.record import with_digest

    path = tmp_path / "record.json"
    path.write_text(with_digest(record_of(list(runs.values()))))
    done = CliRunner().invoke(app, ["league", str(path), "--out", str(tmp_path / "out"), "--json"])
    assert done.exit_code == 0, done.output
    found = League.model_validate_json(done.stdout)
    assert [each.scales for each in found.tables] == ["one scale", "a scale for each group of 256"]
    assert {each.suffix for each in (tmp_path / "out" / "league").iterdir()} == {".html", ".md", ".json"}
    assert not Store(tmp_path / "out").records()


@pytest.mark.parametrize(
    "more",
    [("--suite", "quick"), ("--device", "cpu"), ("--threads", "1"), ("--seed", "0"), ("--peer", "ggml=libggml.so")],
)
def test_a_record_is_measured_already(tmp_path: Path, runs: dict[str, Run], more: tuple[str, ...]) -> None:
    path = tmp_path / "record.json"
    path.write_text("{}")
    done = CliRunner().invoke(app, ["league", str(path), *more, "--out", str(tmp_path)])
    assert "a Record, which is already measured" in str(done.exception)


def test_a_device_that_is_missing_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tritmark.harness.machine import gpu

    monkeypatch.delenv("TRITMARK_CUDA", raising=False)
    monkeypatch.setattr(gpu, "why_not", lambda *_: "no GPU")
    done = CliRunner().invoke(app, ["league", "--device", "cuda", "--out", str(tmp_path)])
    assert (done.exit_code, "cuda is missing: no GPU" in done.stderr) == (UNAVAILABLE, True), done.output
    assert not (tmp_path / "league").exists()
