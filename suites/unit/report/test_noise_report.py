"""Noisy figures and a busy machine are reported in the headline, on the page and in each table."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_up_records import clean_runs, record_of, two_devices

from tritmark.harness.cli.tables import verdict
from tritmark.harness.frame.columns import COLUMNS
from tritmark.harness.league.contenders import tables
from tritmark.harness.league.model import League
from tritmark.harness.machine.reading import Reading
from tritmark.harness.record import (
    LinearLayers,
    MachineLoad,
    Measurement,
    Ratio,
    Record,
    Run,
    Scaled,
    SensorRange,
    Timing,
    UnitSensors,
)
from tritmark.harness.report import answer, batch, gpu, heatmap, league, load, roofline, scaling, summary, temperature
from tritmark.harness.report.markdown import markdown
from tritmark.harness.report.page import render
from tritmark.harness.text import groups, linear, units
from tritmark.harness.text.outcome import outcome

BUSY = MachineLoad(
    seconds=1.5, cores=2, others=1.4, stolen=0.3, clock_low_hz=2_100_000_000, clock_high_hz=3_400_000_000
)
QUIET = MachineLoad(seconds=1.5, cores=2, others=0.02, stolen=0.0)
POSITIVE = st.floats(1e-6, 1e6)


def wide(run: Run, half: float = 0.3) -> Run:
    """The Run with times that have this half width of the interval, as a share."""

    def widened(footing: Measurement | None) -> Measurement | None:
        if footing is None:
            return None
        middle = footing.timing.median_ns
        ends = {"low_ns": middle * (1 - half), "high_ns": middle * (1 + half)}
        return footing.model_copy(update={"timing": footing.timing.model_copy(update=ends)})

    found = run.performance
    both = {"cold": widened(found.cold), "hot": widened(found.hot)}
    return run.model_copy(update={"performance": found.model_copy(update=both)})


def quick() -> list[Run]:
    return clean_runs(Random(3), edges=1, isas=("avx2", "avx512"))


def shaky(variant: str = "avx512") -> list[Run]:
    """Every figure of a variant is too noisy; it is the fastest."""
    return [wide(run) if run.variant == variant else run for run in quick()]


def words(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page).replace("\u2068", "").replace("\u2069", "").split())


def test_a_busy_machine_is_in_every_headline() -> None:
    runs = [run.model_copy(update={"load": BUSY if run.performance.cold else None}) for run in shaky()]
    record = record_of(runs)
    noisy = sum(
        bool(each) for run in runs if run.variant == "avx512" for each in (run.performance.cold, run.performance.hot)
    )
    timed = sum(run.load is not None for run in runs)
    told = f"{noisy} of {len(groups.figures(runs))} figures are too noisy (95 % interval wider than ±25 %)"
    busy = f"Other load kept the cores busy during {timed} of {timed} timed Runs: up to 1.4 of 2 cores."
    page = words(render(record))
    for text in (page, markdown(record), str(verdict(record))):
        assert told in text
        assert busy in text
        assert "no figure is doubted" not in text
    assert f"{noisy} of {len(groups.figures(runs))} figures too noisy" in summary.headline(record)
    surroundings = (
        "other load took 1.4 of 2 cores in the median Run, 1.4 at most, steal 0.3 at most, clock 2.10 GHz to 3.40 GHz"
    )
    assert surroundings in page
    assert surroundings in markdown(record)
    assert page.count("during timing: other load took 1.4 of 2 cores, steal 0.3, clock 2.10 GHz to 3.40 GHz") == timed


def test_a_quiet_machine_is_not_accused() -> None:
    record = record_of([run.model_copy(update={"load": QUIET if run.performance.cold else None}) for run in quick()])
    text = words(render(record))
    assert "Every verdict is decided, and no figure is too noisy." in text
    assert "kept the cores busy" not in text
    assert "other load took 0 of 2 cores in the median Run, 0 at most" in text
    assert load.busy(record) == []
    old = record_of(quick())  # before loads were recorded
    assert (load.summary(old), load.crowd(old)) == ("", "")
    assert "During timing" not in words(render(old))


@pytest.mark.nightly
def test_temperatures_and_throttling_are_shown() -> None:
    hot = UnitSensors(
        unit="GPU-1",
        before=Reading(temperature=35.0, throttle=("gpu_idle",)),
        during=SensorRange(
            readings=9, temperature_low=60.0, temperature_high=87.0, power_high=693.6, throttle={"hw_slowdown": 2}
        ),
        after=Reading(temperature=80.0, throttle=()),
        throttled_ns={"sw_power_cap": 5, "hw_thermal_slowdown": 0},
    )
    told = "35 to 87 °C, at most 694 W, clocks limited by hw_slowdown and sw_power_cap"
    runs = [
        run.model_copy(update={"load": QUIET.model_copy(update={"sensors": (hot,)}) if run.performance.cold else None})
        for run in quick()
    ]
    record = record_of(runs)
    assert told in words(render(record))
    assert told in markdown(record)
    timed = next(run for run in runs if run.load is not None)
    assert load.summary_of(timed).endswith(told)
    assert [
        column.value(record, timed)
        for column in COLUMNS
        if column.name in {"load_temperature", "load_power", "load_throttle"}
    ] == [87.0, 693.6, "hw_slowdown, sw_power_cap"]


def sensed(unit: str, **more: Any) -> UnitSensors:
    readings = {"before": Reading(), "during": SensorRange(readings=3), "after": Reading()}
    return UnitSensors(unit=unit, **{**readings, **more})


THROTTLED: dict[str, tuple[tuple[UnitSensors, ...], str | None]] = {
    "an older Record": ((), None),
    "a virtual machine": ((sensed("cpu"),), None),
    "a CPU that counts": ((sensed("cpu", throttled_ns={"core_thermal_throttle": 0}),), ""),
    "a CPU that was slowed": (
        (sensed("cpu", throttled_ns={"core_thermal_throttle": 5, "package_thermal_throttle": 0}),),
        "core_thermal_throttle",
    ),
    "a GPU without a reason": ((sensed("GPU-0", before=Reading(throttle=())),), ""),
    "between two readings": (
        (sensed("GPU-0", before=Reading(throttle=()), throttled_ns={"hw_thermal_slowdown": 9}),),
        "hw_thermal_slowdown",
    ),
    "both": (
        (
            sensed(
                "GPU-0",
                during=SensorRange(readings=3, throttle={"sw_power_cap": 1}),
                throttled_ns={"sw_power_cap": 7, "hw_thermal_slowdown": 9},
            ),
            sensed("GPU-1"),
        ),
        "sw_power_cap, hw_thermal_slowdown",
    ),
}


@pytest.mark.parametrize("name", THROTTLED)
def test_a_table_has_the_reasons_that_were_counted_and_none_where_nothing_reports(name: str) -> None:
    """The verdict rests on the counted ones, too."""
    sensors, told = THROTTLED[name]
    run = quick()[0].model_copy(update={"load": MachineLoad(seconds=1, cores=2, sensors=sensors)})
    (column,) = (each for each in COLUMNS if each.name == "load_throttle")
    assert column.value(record_of([run]), run) == told


@pytest.mark.parametrize(
    ("others", "threads", "busy"),
    [(None, 2, False), (0.05, 2, False), (0.2, 2, True), (1.0, 1, False), (1.2, 1, True)],
)
def test_a_run_is_held_up_by_what_leaves_its_threads_too_little(others: float | None, threads: int, busy: bool) -> None:
    run = quick()[0].model_copy(update={"load": MachineLoad(seconds=1, cores=2, others=others), "threads": threads})
    assert load.busy(record_of([run])) == ([run] if busy else [])


def test_no_list_of_the_best_has_what_is_too_noisy() -> None:
    """The fastest variant is too noisy everywhere: no table, chart or headline compares it with others."""
    record = record_of(shaky())
    noisy = {run.id for run in record.runs if run.variant == "avx512"}
    assert any(run.variant == "avx512" for run in groups.right(record_of(quick())))
    assert noisy.isdisjoint(run.id for run in groups.right(record))
    steady = groups.by_key(groups.sound(record))
    assert all("avx512" in {run.variant for run in runs} for runs in steady.values())  # there is something to leave out
    context = roofline._context(record)
    assert context is not None
    assert noisy.isdisjoint(row["run"].id for device in context["devices"] for row in device["rows"])
    assert sum(device["noisy"] for device in context["devices"]) == 2 * sum(
        run.variant == "avx512" and run.performance.cold is not None for run in record.runs
    )
    shapes = heatmap._context(record)
    assert shapes is not None
    assert all(row["variant"] != "avx512" for map in shapes["maps"] for row in map["rows"])
    heat = temperature._context(record)
    assert heat is not None
    assert all(run.variant != "avx512" for group in heat["found"] for run in group["best"])
    assert all(run.variant != "avx512" for run in map(_best, summary._beside(record, _given())["best"]))
    lines = batch._context(record_of([wide(run) if run.variant == "avx512" else run for run in _sizes()]))
    assert lines is not None
    assert all(name != "avx512" for plot in lines["plots"] for name, _ in plot["rows"])
    table = markdown(record)
    assert "`avx512`" not in table[table.index("The best variant of each op") :]


def spoiled(footing: Measurement | None, time: float, share: float, lost: bool) -> Measurement | None:
    """The figure with these half widths of its intervals, as shares."""
    if footing is None:
        return None
    timing, fraction = footing.timing, footing.against.fraction
    ends = {"low_ns": timing.median_ns / (1 + time), "high_ns": timing.median_ns * (1 + time)}
    update = {"low": fraction.median / (1 + share), "high": fraction.median * (1 + share)}
    against = footing.against.model_copy(update={"fraction": fraction.model_copy(update=update), "lost": lost})
    return footing.model_copy(update={"timing": timing.model_copy(update=ends), "against": against})


@pytest.mark.nightly
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_page_can_be_made_and_no_wide_interval_is_on_it(data: st.DataObject) -> None:
    halves = st.sampled_from([0.001, 0.2, 0.3, 5.0, 5000.0])
    factors = st.sampled_from([0.1, 1.0, 10.0])
    runs = []
    for run in clean_runs(Random(3), edges=0, isas=("avx2", "avx512"))[:8]:
        found = run.performance
        cold, hot = (
            spoiled(each, data.draw(halves), data.draw(halves), data.draw(st.booleans()))
            for each in (found.cold, found.hot)
        )
        speedup = Ratio(median=1.5, low=1.5 / (1 + data.draw(halves)), high=1.5 * (1 + data.draw(halves)), pairs=9)
        update = {"cold": data.draw(st.sampled_from([cold, None])), "hot": hot}
        scaled = (Scaled(threads=2, speedup=speedup),)
        runs.append(run.model_copy(update={"performance": found.model_copy(update=update), "scaling": scaled}))
    record = record_of(runs)
    ceilings = tuple(
        each.model_copy(update={"rate": each.rate * data.draw(factors)}) for each in record.machine.ceilings
    )
    record = record.model_copy(update={"machine": record.machine.model_copy(update={"ceilings": ceilings})})
    texts = [words(render(record)), markdown(record), str(verdict(record)), league.markdown(_league(record))]
    for text in texts:
        assert all(float(half) <= 25 for half in re.findall(r"±([\d.]+) %", text))
    noisy = outcome(record).noisy
    assert all((f"{noisy:,} of " in text) for text in texts[:3] if noisy)


def _league(record: Record) -> League:
    return League(
        record=record.id,
        created=record.created,
        suite=record.suite,
        tritmark="0.1.0",
        machine="a machine",
        tables=tables(record),
    )


def test_one_temperature_may_be_too_noisy() -> None:
    run = next(run for run in quick() if run.performance.cold)
    mixed = run.performance.model_copy(update={"cold": wide(run).performance.cold})
    record = record_of([run.model_copy(update={"performance": mixed})])
    context = roofline._context(record)
    assert context is not None
    ((row,),) = (list(device["rows"]) for device in context["devices"])
    assert row["cold"] is None
    hot = run.performance.hot
    assert hot is not None
    fraction = hot.against.fraction.model_copy(update={"high": 9.0})
    against = hot.against.model_copy(update={"fraction": fraction})
    shaky = run.performance.model_copy(update={"hot": hot.model_copy(update={"against": against})})
    bar = temperature._bar(run.model_copy(update={"performance": shaky}), several=False)
    assert (bar.cold is None, bar.hot is None) == (False, True)
    assert row["hot"] > 0
    assert context["devices"][0]["noisy"] == 1
    assert groups.right(record) == []  # kernels are compared cold


def _best(row: dict[str, Any]) -> Run:
    found: Run = row["run"]
    return found


def _given() -> Any:
    from tritmark.harness.report.section import NOTHING

    return NOTHING


def _sizes() -> list[Run]:
    """Products with several numbers of rows."""
    return [run for run in quick() if run.op == "ternary_matmul"]


def test_devices_are_compared_by_what_is_steady() -> None:
    record = two_devices()
    before = gpu._against_host(record)
    assert before
    fastest = {row["device"].variant for row in before}
    runs = [wide(run) if run.device == "cuda" and run.variant in fastest else run for run in record.runs]
    after = gpu._against_host(record_of(runs, gpus=record.machine.gpus))
    assert fastest.isdisjoint(row["device"].variant for row in after)


def test_nothing_is_best_where_everything_is_too_noisy() -> None:
    record = record_of([wide(run) for run in quick()])
    text = words(render(record))
    assert "The best variant of each op" not in text
    (fast,) = [each for each in answer.answers(record) if each.question == "How fast?"]
    assert fast.statements == ("The figures are too noisy to compare with the ceilings of the machine",)
    assert "more than 10 % of the figures are too noisy" not in text  # fractions of the ceiling are not
    assert roofline._context(record) is None


@given(median=POSITIVE, low=POSITIVE, high=POSITIVE)
def test_an_interval_that_is_too_wide_is_never_shown(median: float, low: float, high: float) -> None:
    low, median, high = sorted((low, median, high))
    ratio = Ratio(median=median, low=low, high=high, pairs=5)
    timing = quick_timing(median, low, high)
    texts = [units.fraction(ratio), units.share(ratio), units.timed(timing)]
    assert [units.NOISY in text for text in texts] == [ratio.too_noisy] * 3
    for text in texts:
        assert (" to " in text or "±" in text) is not ratio.too_noisy
    # The interval of a ratio is shown, marked as wide, if all of it is far from 1.
    unclear = ratio.too_noisy and not (low >= 2 or high <= 0.5)
    assert (units.NOISY in units.times(ratio)) is unclear
    assert (" to " in units.times(ratio)) is not unclear
    assert ("wide" in units.times(ratio)) is (ratio.too_noisy and not unclear)
    assert (units.faster(ratio) == units.NOISY) is unclear
    assert units.spread(0.3) == "over ±25 %"
    assert units.spread(0.004) == "±0.4 %"


def quick_timing(median: float, low: float, high: float) -> Timing:
    run = quick()[0]
    assert run.performance.cold is not None
    return run.performance.cold.timing.model_copy(update={"median_ns": median, "low_ns": low, "high_ns": high})


def test_the_noise_floor_is_no_number_beyond_the_limit() -> None:
    def vague(footing: Measurement | None) -> Measurement | None:
        if footing is None:
            return None
        fraction = footing.against.fraction.model_copy(update={"low": 1e-3, "high": 20.0})
        return footing.model_copy(update={"against": footing.against.model_copy(update={"fraction": fraction})})

    runs = []
    for run in quick():
        found = run.performance
        both = {"cold": vague(found.cold), "hot": vague(found.hot)}
        runs.append(run.model_copy(update={"performance": found.model_copy(update=both)}))
    text = words(render(record_of(runs)))
    assert (
        "Noise floor over ±25 % median half-width of the 95 % intervals; more than 10 % of the figures are too noisy"
        in text
    )
    assert "Noise floor: over ±25 %." in markdown(record_of(runs))


def test_noisy_speedups_are_no_lines() -> None:
    def scaled(half: float) -> Record:
        speedup = Ratio(median=1.8, low=1.8 * (1 - half), high=1.8 * (1 + half), pairs=9)
        return record_of([quick()[0].model_copy(update={"scaling": (Scaled(threads=2, speedup=speedup),)})])

    loud, calm = (scaling._context(scaled(half)) for half in (0.3, 0.01))
    assert loud is not None
    assert calm is not None
    assert (len(loud["plots"]), len(loud["rows"]), len(calm["plots"])) == (0, 1, 1)
    assert "1.80x, too noisy" in words(render(scaled(0.3)))


@pytest.mark.parametrize(("high", "noisy"), [(1.1e6, False), (2e6, True)])
def test_sums_over_layers_say_it(high: float, noisy: bool) -> None:
    sums = LinearLayers(
        device="cpu", tokens=1, layers=3, total_ns=1e6, low_ns=0.95e6, high_ns=high, tokens_per_second=1e3
    )
    assert ("too noisy" in linear.sentence(sums)) is noisy


def test_the_table_has_the_loads() -> None:
    record = record_of([quick()[0].model_copy(update={"load": BUSY}), *shaky()])
    values = {column.name: [column.value(record, run) for run in record.runs] for column in COLUMNS}
    assert values["load_others"][:2] == [1.4, None]
    assert values["load_stolen"][0] == 0.3
    assert values["load_clock_high"][0] == 3_400_000_000
    expected = [None if run.performance.cold is None else run.variant == "avx512" for run in record.runs[1:]]
    assert values["cold_too_noisy"][1:] == expected
