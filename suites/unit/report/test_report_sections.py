"""The other parts of the report: the comparison, proposals, plots, raw samples, Markdown, the landing page."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import re
from pathlib import Path

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tritmark.harness.derived import simd_efficiency
from tritmark.harness.record import (
    Code,
    Cross,
    Fact,
    Function,
    Gain,
    Measurement,
    PeerComparison,
    PrefetchFigure,
    Proposal,
    Ratio,
    Record,
    Run,
    Scaled,
    Status,
    TunedPrefetch,
    with_digest,
)
from tritmark.harness.report import chart
from tritmark.harness.report.batch import crossovers, curves
from tritmark.harness.report.compare import Change, compare, noise
from tritmark.harness.report.environment import differences
from tritmark.harness.report.errors import place
from tritmark.harness.report.heatmap import level
from tritmark.harness.report.landing import build_all, landing, row
from tritmark.harness.report.markdown import code, markdown
from tritmark.harness.report.page import LIMIT, SECTIONS, _templates, render
from tritmark.harness.report.samples import cell, count, table
from tritmark.harness.report.section import NOTHING, History, HistoryLine, PageContext, SpeedChange
from tritmark.harness.text import units
from tritmark.harness.text.units import times
from tritmark.harness.text.visible import visible

HOSTILE = "=1+1 </script><img src=x onerror=alert(1)> `tick` | ![x](http://evil.example) @all \u202e\x1b[31m"


def ratio(middle: float, width: float = 0.01) -> Ratio:
    return Ratio(median=middle, low=middle * (1 - width), high=middle * (1 + width), pairs=60)


def quicker(record: Record, factor: float, which: slice = slice(None), width: float = 0.001) -> Record:
    """The Record with the fractions of these measured Runs multiplied by a factor."""

    def changed(footing: Measurement | None) -> Measurement | None:
        if footing is None:
            return None
        against = footing.against.model_copy(
            update={
                "fraction": ratio(footing.against.fraction.median * factor, width).model_copy(
                    update={"pairs": footing.against.fraction.pairs}
                ),
                "probe_ns": tuple(factor * each for each in footing.against.probe_ns),
                "rate": footing.against.rate / factor,
            }
        )
        return footing.model_copy(update={"against": against})

    chosen = {run.id for run in [run for run in record.runs if run.performance.cold][which]}
    runs = []
    for run in record.runs:
        found = run.performance
        if run.id in chosen:
            found = found.model_copy(update={"cold": changed(found.cold), "hot": changed(found.hot)})
        runs.append(run.model_copy(update={"performance": found}))
    return record.model_copy(
        update={"runs": tuple(runs), "id": "20250310T142233Z-0000000a", "created": "2025-03-10T14:22:33Z"}
    )


def steady(record: Record) -> Record:
    """The Record with narrow intervals, so that planted changes are significant."""
    return quicker(record, 1.0).model_copy(update={"id": record.id, "created": record.created})


def body(record: Record, id: str, given: PageContext = NOTHING) -> str:
    """The HTML of one section."""
    section = next(section for section in SECTIONS if section.id == id)
    context = section.variables(record, given)
    assert context is not None, f"nothing to show under {id}"
    return _templates().get_template(section.template).render(record=record, **context)


def words(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page.replace("<wbr>", "")).split())


def test_comparison_finds_what_was_planted_and_nothing_else(gpu_record: Record) -> None:
    now = steady(gpu_record)
    slowed = [run.id for run in now.runs if run.performance.cold][:3]
    found = compare(now, quicker(now, 1.1, slice(0, 3)))
    assert {pair.run.id for pair in found.having(Change.SLOWER)} == set(slowed)
    assert all(pair.ratio.low < 1 / 1.1 < pair.ratio.high for pair in found.having(Change.SLOWER))
    assert not found.having(Change.FASTER)
    assert not found.having(Change.UNSURE)
    back = compare(quicker(now, 1.1, slice(0, 3)), now)
    assert {pair.run.id for pair in back.having(Change.FASTER)} == set(slowed)
    assert {pair.change for pair in compare(now, now).pairs} == {Change.SAME}


def test_efficiency_is_shown_with_reasons(gpu_record: Record) -> None:
    found = {run.id: simd_efficiency(gpu_record, run) for run in gpu_record.runs}
    shown = words(body(gpu_record, "efficiency"))
    assert any(not isinstance(each, str) for each in found.values())
    for simd in found.values():
        if not isinstance(simd, str):
            assert f"{units.percent(simd.efficiency)}" in shown
            assert f"{units.number(simd.speedup)}x (" in shown
    assert "no scalar variant on this workload" in shown
    none = gpu_record.model_copy(update={"runs": gpu_record.runs[-1:]})
    section = next(section for section in SECTIONS if section.id == "efficiency")
    assert section.variables(none, NOTHING) is None, "nothing of a GPU without counters"


def test_another_machine_is_never_compared(gpu_record: Record) -> None:
    machine = gpu_record.machine.model_copy(update={"id": "another", "cpu": HOSTILE})
    other = quicker(gpu_record, 2.0).model_copy(update={"machine": machine})
    found = compare(gpu_record, other)
    assert "another machine" in found.refused
    assert not found.pairs
    section = body(gpu_record, "baseline", PageContext(baseline=other))
    assert "Not compared" in words(section)
    assert "<svg" not in section
    assert not re.search(r"[0-9]x \(", words(section)), "no ratio"
    assert "NOT COMPARED" in words(body(gpu_record, "summary", PageContext(baseline=other)))
    assert "another machine" in markdown(gpu_record, PageContext(baseline=other))


def test_another_gpu_or_ceiling_is_not_compared(gpu_record: Record) -> None:
    from dataclasses import replace

    runs = []
    for run in gpu_record.runs:
        elsewhere = run.receipt is not None and run.device == "cuda"
        runs.append(
            run.model_copy(update={"receipt": replace(run.receipt, uuid="GPU-other")})
            if elsewhere and run.receipt
            else run
        )
    found = compare(gpu_record, gpu_record.model_copy(update={"runs": tuple(runs)}))
    assert {pair.run.device for pair in found.pairs} == {"cpu"}
    assert found.other == len({run.id for run in gpu_record.runs if run.device == "cuda" and run.performance.cold})


def test_wide_intervals_are_unsure(gpu_record: Record) -> None:
    found = compare(gpu_record, quicker(gpu_record, 1.3, width=0.6))
    assert {pair.change for pair in found.pairs} == {Change.UNSURE}
    one_wide = compare(steady(gpu_record), quicker(quicker(gpu_record, 1.0), 1.0, slice(0, 1), width=0.3))
    assert len(one_wide.having(Change.UNSURE)) == 2, "cold and hot"
    assert not one_wide.having(Change.SLOWER) + one_wide.having(Change.FASTER)


def test_noise_is_the_middle_interval(gpu_record: Record) -> None:
    found = noise(quicker(gpu_record, 1.0, width=0.02))
    assert found == pytest.approx((0.02, 0.02))
    assert noise(gpu_record.model_copy(update={"runs": ()})) is None


def test_strip_says_what_regressed(gpu_record: Record) -> None:
    now = steady(gpu_record)
    assert "NO BASELINE" in words(body(now, "summary"))
    summary = words(body(now, "summary", PageContext(baseline=quicker(now, 1.1, slice(0, 2)))))
    assert "Regressed? SLOWER 4 slower" in summary
    assert re.search(r"Noise floor ±0\.1 %", summary)
    for lane in now.lanes:
        assert f"Device {lane.device} {'RAN' if lane.ran else 'NOT RUN'}" in summary


def test_environment_shows_what_changed(gpu_record: Record) -> None:
    environment = gpu_record.environment.model_copy(update={"compiler": "clang 19", "packages": {"numpy": "1.0"}})
    before = gpu_record.model_copy(update={"environment": environment})
    found = {name: (now, then) for name, now, then in differences(gpu_record, before)}
    assert found["Compiler"] == (gpu_record.environment.compiler, "clang 19")
    assert found["package numpy"][1] == "1.0"
    assert "CPU" not in found
    assert not differences(gpu_record, gpu_record)
    assert "clang 19" in words(body(gpu_record, "environment", PageContext(baseline=before)))


def proposal(run: Run, **more: object) -> Proposal:
    given: dict[str, object] = {
        "rule": "accumulators",
        "run": run.id,
        "kernel": run.kernel,
        "workload": run.workload.id,
        "title": "One chain bounds the loop",
        "evidence": (Fact(name="cycles of the chain", value="16", source="code.functions[0].chain_cycles"),),
        "gain": Gain(low=1.3, high=2.0),
        "ceiling": 2.5,
        "edit": "Keep four accumulators.",
        "reproduce": "tritmark run --op a",
        "verify": "tritmark run --op a --addresses accumulators",
    }
    return Proposal.model_validate({**given, **more})


def test_proposals_keep_their_order_and_their_commands(gpu_record: Record) -> None:
    first, second = (run for run in gpu_record.runs[:2])
    many = tuple(proposal(second, rule=f"rule-{number}") for number in range(30))
    record = gpu_record.model_copy(update={"proposals": (proposal(first), *many), "unadvised": ("counters: denied",)})
    section = body(record, "next", PageContext(rules={"accumulators": "3 of 4 predictions correct"}))
    text = words(section)
    assert text.index("One chain bounds") < text.index("rule-0") < text.index("rule-22")
    assert "1.30x to 2.00x" in text
    assert text.count("NO OUTCOME YET") == 23, "all shown rules except accumulators"
    assert text.index("3 of 4") < text.index("NO OUTCOME YET")
    assert "The rule accumulators: 3 of 4 predictions correct" in text
    assert "cycles of the chain 16 code.functions[0].chain_cycles" in text
    assert section.count('<code class="command">tritmark run --op a --addresses accumulators</code>') == 24
    assert "tritmark advise --explain accumulators" in text
    assert "rule-23 (1)" in text
    assert "counters: denied" in text
    alike = tuple(proposal(first, workload=f"shape {number}") for number in range(3))
    text = words(body(gpu_record.model_copy(update={"proposals": alike}), "next"))
    assert text.count("Edit.") == 1, "one edit for all shapes"
    assert "shape 0, and 2 more workloads" in text
    assert "Also for shape 1 (1.30x to 2.00x), shape 2" in text


def test_new_parts_of_a_run_are_shown(gpu_record: Record) -> None:
    host = next(run for run in gpu_record.runs if run.device == "cpu" and run.performance.cold)
    device = next(run for run in gpu_record.runs if run.device == "cuda" and run.performance.cold)
    function = Function(
        name="kernel_f", target="sm_90", registers=40, spilled=16, loop={"LDG": 4}, loads={128: 4}, chain_cycles=4.5
    )
    peer = PeerComparison(status=Status.PASS, peer="ggml", match=True, own_ns=1.0, peer_ns=2.0, speedup=ratio(2.0))
    scaled = (
        Scaled(threads=2, speedup=ratio(1.9)),
        Scaled(threads=4, speedup=ratio(3.1), efficiency=0.775, balance=0.834, utilization=0.812),
    )
    runs = (
        host.model_copy(update={"scaling": scaled, "cross": Cross(status=Status.PASS, peers=(peer,))}),
        device.model_copy(
            update={
                "plain": ratio(1.7),
                "code": Code(functions=(function,), tools=("cuobjdump 13",), notes=("no SASS",)),
            }
        ),
    )
    record = gpu_record.model_copy(update={"runs": runs})
    for section, shown in (
        ("peers", times(ratio(2.0))),
        ("threads", times(ratio(3.1))),
        ("threads", "77.5 % 83.4 % 81.2 %"),
        ("threads", "95.0 % unknown unknown"),
        ("graph", times(ratio(1.7))),
        ("code", "LDG 4"),
        ("code", "4 of 128 bits"),
        ("code", "no SASS"),
    ):
        assert shown in words(body(record, section))
    for section in ("peers", "threads", "graph"):
        assert body(record, section).count("<svg") == 1
        assert "<table" in body(record, section)


def test_history_names_its_commits(gpu_record: Record) -> None:
    commits = tuple(f"{number:040x}" for number in range(9, 14))
    history = History(
        (HistoryLine("matmul", commits, (1.0, 1.0, 1.2, 1.2, 1.2)),),
        (SpeedChange("matmul", commits[1], commits[2], 1.2, 0.99),),
    )
    section = body(gpu_record, "history", PageContext(history=history))
    assert f"{commits[1][:12]}..{commits[2][:12]}" in words(section)
    assert "SLOWER" in section
    assert "1.20x" in words(section)
    assert section.count('class="m"') == len(commits)


def test_history_is_gathered_from_asv_s_results_of_this_machine(
    gpu_record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tritmark.harness.history import regressions, results
    from tritmark.harness.report.past import gathered

    commits = {f"{number:040x}": number for number in range(30)}
    own, other = f"cpu-2-cores-{gpu_record.machine.id}", "cpu-2-cores-another"
    measured = [
        results.Value(
            machine=machine,
            environment="e",
            commit=commit,
            date=1_700_000_000_000 + number,
            benchmark="matmul",
            parameters=("avx2",),
            value=1.0 + number % 3 / 1000 + (0.2 if number >= 15 and machine == own else 0.0),
        )
        for machine in (own, other)
        for commit, number in commits.items()
    ]
    monkeypatch.setattr(results, "values", lambda *_: measured)
    monkeypatch.setattr(regressions, "order", lambda _: commits)
    found = gathered(Path(), gpu_record.machine, print)
    (line,) = found.lines
    assert (line.benchmark, line.commits) == ("matmul avx2", tuple(commits))
    (step,) = found.steps
    assert commits[step.last] - commits[step.first] == 1
    assert commits[step.last] in range(14, 18)
    assert step.ratio == pytest.approx(1.2, abs=0.01)


def test_crossover_lies_where_the_curves_meet(gpu_record: Record) -> None:
    run = next(run for run in gpu_record.runs if run.op == "ternary_matmul" and run.performance.cold)
    cold = run.performance.cold
    assert cold is not None

    def at(variant: str, m: int, ns: float) -> Run:
        timing = cold.timing.model_copy(update={"median_ns": ns, "low_ns": ns, "high_ns": ns})
        performance = run.performance.model_copy(update={"cold": cold.model_copy(update={"timing": timing})})
        workload = run.workload.model_copy(update={"axes": {**run.workload.axes, "M": m}})
        return run.model_copy(update={"variant": variant, "workload": workload, "performance": performance})

    # A line of slope 1 through the origin and a constant cross at M = 40, also in logarithms.
    runs = [each for m in (1, 8, 64) for each in (at("gemv", m, 100.0 * m), at("wmma", m, 4000.0))]
    ((_, axis), lines), *_ = curves(runs).items()
    assert axis == "M"
    ((old, new, where, left, right),) = crossovers(lines)
    assert (old, new, left, right) == ("gemv", "wmma", 8, 64)
    assert where == pytest.approx(40)


def test_lines_of_a_chart_stand_beside_rows_only() -> None:
    entries = [chart.ForestEntry(heading, name, ratio(2.0), "") for heading in ("a", "b") for name in ("x", "y", "z")]
    plot = chart.forest(entries, "title")
    rows, spans = [row["y"] for row in plot["rows"]], plot["spans"]
    assert len(spans) == 2
    assert all(any(span["from"] < y < span["to"] for span in spans) for y in rows)
    assert not any(span["from"] < heading["y"] < span["to"] for span in spans for heading in plot["headings"])
    bars = chart.bars([(heading, [chart.Bar("v", 50.0, 40.0)] * 3) for heading in ("a", "b")], "title")
    assert not any(
        span["from"] < heading["y"] - 1 < span["to"] for span in bars["spans"] for heading in bars["headings"]
    )
    assert all(any(span["from"] <= row["y"] < span["to"] for span in bars["spans"]) for row in bars["rows"])


def test_one_keeps_its_tick() -> None:
    for low, high in ((0.0009, 1900.0), (0.002, 1400.0), (0.03, 900.0), (0.9, 1600.0)):
        assert 1 in chart.Axis(low, high, 0, 100).ticks()


@drawn(
    st.floats(1e-6, 1e9).flatmap(
        lambda low: st.tuples(st.just(low), st.floats(1.001, 1e6).map(lambda factor: low * factor))
    ),
    st.integers(3, 9),
)
def test_axes_have_round_ticks_in_order(ends: tuple[float, float], most: int) -> None:
    scale = chart.Axis(*ends, 10, 300)
    ticks = scale.ticks(most)
    assert len(ticks) <= most
    assert ticks == sorted(set(ticks))
    assert all(ends[0] <= tick * (1 + 1e-9) and tick <= ends[1] * (1 + 1e-9) for tick in ticks)
    places = [scale.at(tick) for tick in ticks]
    assert places == sorted(places)
    assert (scale.at(0.0001 * ends[0]), scale.at(ends[1] * 9)) == (10, 300)


def test_bins_and_levels() -> None:
    assert [level(fraction) for fraction in (0.0, 0.124, 0.125, 0.99, 1.3, -0.1)] == [0, 0, 1, 7, 7, 0]
    assert [place(ulp) for ulp in (0.0, 0.5, 0.51, 2.0, 8.1, 1e30)] == [0, 1, 2, 3, 5, 5]


def test_samples_are_all_there_or_the_record_is_named(gpu_record: Record) -> None:
    rows = list(csv.DictReader(io.StringIO(table(gpu_record))))
    assert len(rows) == count(gpu_record) > 1000
    section = body(gpu_record, "samples", PageContext(room=LIMIT))
    packed = re.search(r'base64,([^"]*)"', section)
    assert packed
    assert gzip.decompress(base64.b64decode(packed[1])).decode() == table(gpu_record)
    first = next(run for run in gpu_record.runs if run.performance.cold)
    cold = first.performance.cold
    assert cold is not None
    long = cold.timing.model_copy(update={"samples_ns": tuple(1000 + number * 0.37 % 17 for number in range(400_000))})
    performance = first.performance.model_copy(update={"cold": cold.model_copy(update={"timing": long})})
    large = gpu_record.model_copy(update={"runs": (first.model_copy(update={"performance": performance}),)})
    section = body(large, "samples", PageContext(path="some/where.json", room=LIMIT))
    assert "base64," not in section
    assert "some/where.json" in words(section)


@settings(max_examples=30)
@drawn(st.text(max_size=20))
def test_no_cell_is_a_formula(text: str) -> None:
    assert cell(text).lstrip()[:1] not in {"=", "+", "-", "@"}
    assert "\n" not in cell(text)
    assert cell(text).isprintable()


@drawn(st.text(alphabet=st.sampled_from("`|<>@[](!)\\ \n\u202ea*_") | st.characters()))
def test_nothing_leaves_a_code_span(text: str) -> None:
    span = code(text)
    fence = re.match("`+", span)
    assert fence
    inner = span.removeprefix(fence[0]).removesuffix(fence[0])
    assert span == f"{fence[0]}{inner}{fence[0]}"
    assert fence[0] not in re.findall("`+", inner)
    assert not inner.startswith("`")
    assert not inner.endswith("`")
    assert "|" not in span
    assert span.isprintable()


def test_markdown_is_short_and_inert(gpu_record: Record) -> None:
    harm = {"kernel": HOSTILE, "title": HOSTILE, "edit": HOSTILE, "rule": HOSTILE}
    wrong = gpu_record.runs[0].accuracy.model_copy(update={"status": Status.FAIL, "reason": HOSTILE})
    bad = gpu_record.runs[0].model_copy(update={"accuracy": wrong, "kernel": HOSTILE, "variant": HOSTILE})
    record = gpu_record.model_copy(
        update={"runs": (*gpu_record.runs, bad), "proposals": (proposal(bad, **harm),), "suite": HOSTILE}
    )
    text = markdown(record, PageContext(baseline=quicker(record, 1.2)))
    assert "### FAIL" in text
    for part in ("#### Failures", "#### Against", "#### What to change next"):
        assert part in text
    assert len(text) < 20_000
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    for harm_ in ("evil", "<img", "script", "@all", "\u202e", "\x1b"):
        assert harm_ not in outside
    assert not {char for char in text if not char.isprintable() and char != "\n"}


def test_hostile_names_are_inert_in_every_section(gpu_record: Record) -> None:
    host = next(run for run in gpu_record.runs if run.device == "cpu" and run.performance.cold)
    peer = PeerComparison(status=Status.PASS, peer=HOSTILE, match=True, speedup=ratio(2.0))
    named = {"variant": HOSTILE, "op": HOSTILE, "kernel": HOSTILE, "format": HOSTILE}
    more = {
        "scaling": (Scaled(threads=2, speedup=ratio(1.9)),),
        "plain": ratio(2.0),
        "cross": Cross(status=Status.PASS, peers=(peer,)),
        "code": Code(
            functions=(Function(name=HOSTILE, target=HOSTILE, loop={HOSTILE: 3}),), tools=(HOSTILE,), notes=(HOSTILE,)
        ),
        "workload": host.workload.model_copy(update={"axes": {HOSTILE: 3}, "title": HOSTILE}),
    }
    bad = host.model_copy(update={**named, **more})
    record = gpu_record.model_copy(
        update={
            "runs": (*gpu_record.runs, bad),
            "proposals": (proposal(bad, title=HOSTILE, rule=HOSTILE, reproduce=HOSTILE),),
        }
    )
    history = History((HistoryLine(HOSTILE, ("a", "b"), (1.0, 1.1)),), (SpeedChange(HOSTILE, HOSTILE, "b", 1.1),))
    page = render(record, PageContext(baseline=quicker(record, 1.2), history=history, rules={HOSTILE: HOSTILE}))
    assert "<img" not in page
    assert page.count("</script>") == page.count("<script>") == 1
    assert not {char for char in page if not char.isprintable() and char != "\n"}
    assert "\\u202e" in page
    from tritmark.harness.report.samples import COLUMNS

    rows = list(csv.DictReader(io.StringIO(table(record))))
    assert list(rows[0]) == list(COLUMNS)
    assert {each["kernel"] for each in rows if "onerror" in each["kernel"]} == {cell(HOSTILE)}
    assert "'" + visible(HOSTILE) == cell(HOSTILE)


def test_landing_page_lists_every_record_and_what_is_none(gpu_record: Record, tmp_path: Path) -> None:
    early = quicker(gpu_record, 0.9)
    other = gpu_record.model_copy(
        update={
            "id": "20250309T000000Z-00000001",
            "machine": gpu_record.machine.model_copy(update={"id": "another", "hostname": HOSTILE}),
        }
    )
    paths = []
    for record in (gpu_record, early, other):
        paths.append(tmp_path / f"{record.id}.json")
        paths[-1].write_text(with_digest(record), encoding="utf-8")
    broken = tmp_path / "broken.json"
    broken.write_text("{", encoding="utf-8")
    page = build_all([*paths, broken], tmp_path / "html")
    assert page == tmp_path / "html" / "index.html"
    text = page.read_text(encoding="utf-8")
    for record in (gpu_record, early, other):
        assert (tmp_path / "html" / f"{record.id}.html").is_file()
        assert f'<a href="{record.id}.html">' in text
    assert "broken.json" in text
    assert broken.read_text() == "{"
    sections = text.split('<section id="machine')[1:]
    assert len(sections) == 2
    both = next(section for section in sections if gpu_record.id in section)
    assert other.id not in both, "another machine stands apart"
    assert f"tritmark report {gpu_record.id} --against {early.id}" in both
    assert "<svg" in both
    before = (tmp_path / "html" / f"{early.id}.html").stat().st_mtime_ns
    build_all(paths, tmp_path / "html")
    assert (tmp_path / "html" / f"{early.id}.html").stat().st_mtime_ns == before, (
        "an up-to-date page is not built again"
    )
    assert "No Record yet" in landing([])
    assert row(gpu_record, "x").failed == 0


def test_command(gpu_record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import typer

    from tritmark.harness.cli.report import report

    app = typer.Typer()
    app.command()(report)
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "results" / "runs"
    runs.mkdir(parents=True)
    now, early = gpu_record, quicker(gpu_record, 0.8)
    for record in (now, early):
        (runs / f"{record.id}.json").write_text(with_digest(record), encoding="utf-8")
    runner = CliRunner()
    told = runner.invoke(app, [now.id, "--against", early.id])
    assert (told.exit_code, told.stdout) == (0, f"results/html/{now.id}.html\n")
    assert '<section id="baseline"' in (tmp_path / "results" / "html" / f"{now.id}.html").read_text(encoding="utf-8")
    told = runner.invoke(app, ["--format", "md"])
    assert told.exit_code == 0
    assert told.stdout == markdown(now, PageContext(baseline=early, path=str(Path("results/runs") / f"{now.id}.json")))
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: bool(opened.append(address)))  # type: ignore[func-returns-value]
    told = runner.invoke(app, ["--all", "--open"])
    assert told.exit_code == 0
    assert "cannot start a browser" in told.stderr
    assert opened == [(tmp_path / "results/html/index.html").as_uri()]
    for wrong in (["--all", now.id], ["--format", "md", "--open"], [now.id, "--against", now.id]):
        assert runner.invoke(app, wrong).exit_code != 0


@pytest.mark.nightly
def test_the_machine_s_section_says_what_fetching_ahead_buys(gpu_record: Record) -> None:
    figures = tuple(
        PrefetchFigure(strategy=name, cold=ratio(cold), hot=ratio(1.0))
        for name, cold in (("none", 1.0), ("L2 8192", 0.61), ("L1 1024", 0.83))
    )
    tuned = TunedPrefetch(
        device="cpu",
        op="ternary_matmul",
        identity={"device": HOSTILE, "code": "1"},
        builtin="none",
        chosen="L2 8192",
        confirmed=ratio(0.6),
        note="",
        shapes=("M=1 N=640 K=2560",),
        threads=2,
        created="2026-11-24T00:00:00Z",
        figures=figures,
        used="L1 1024",
    )
    assert "Software prefetch of weights" not in render(gpu_record)

    def page(*found: TunedPrefetch) -> str:
        machine = gpu_record.machine.model_copy(update={"prefetch": found})
        return render(gpu_record.model_copy(update={"machine": machine}))

    shown = page(tuned)
    assert "Software prefetch of weights" in shown
    assert times(ratio(0.61)) in shown
    assert "8.00 KiB into L2 was chosen in place of the built-in choice, nothing, hardware alone" in shown
    assert "kernels of this Record: 1.00 KiB into L1" in shown
    kept = page(tuned.model_copy(update={"chosen": "", "note": "it was slower hot"}))
    assert "no strategy was faster twice than the built-in choice" in kept
    assert "(it was slower hot)" in kept
