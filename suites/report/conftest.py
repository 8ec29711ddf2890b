"""Pages for the browser tests: the repository's Records, with everything that a page can show and some hostile
names."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from made_up_sessions import DAY, START, series, session, week

from tritmark.harness.advise.advise import advise
from tritmark.harness.advise.missing import unadvised
from tritmark.harness.fleet.comparison import compared
from tritmark.harness.fleet.merge import FleetColumn, MergedSets
from tritmark.harness.fleet.page import write as write_fleet
from tritmark.harness.league.contenders import tables
from tritmark.harness.league.model import League
from tritmark.harness.monitor.ceilings import DeviceCeilings
from tritmark.harness.monitor.counters import SeriesKey
from tritmark.harness.monitor.database import Database
from tritmark.harness.monitor.page import build as build_monitor
from tritmark.harness.monitor.summary import summarize
from tritmark.harness.record import (
    Accuracy,
    Code,
    Cross,
    Fact,
    Function,
    Gain,
    MemoryUse,
    PeerComparison,
    Performance,
    Proposal,
    Ratio,
    Record,
    Run,
    Scaled,
    Status,
)
from tritmark.harness.report import build
from tritmark.harness.report.landing import build_all
from tritmark.harness.report.league import write
from tritmark.harness.report.section import History, HistoryLine, PageContext, SpeedChange
from tritmark.harness.store import read

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BASELINES = Path(__file__).parents[2] / "results" / "baselines"
HOSTILE = (
    "=cmd|' /C calc'!A0 </script><script>window.hit = 1</script><img src=http://evil.example/x "
    "onerror=alert(1)> \u202egnp.exe \x1b[31mred"
)


def ratio(middle: float, width: float = 0.02) -> Ratio:
    """Made up."""
    return Ratio(median=middle, low=middle * (1 - width), high=middle * (1 + width), pairs=60)


def peers(number: int) -> Cross:
    """A slower peer, an equally fast one, and a reference, which is never timed."""
    figures = {"ggml": 4.0 + number % 3, "onnxruntime": 1.0}
    found = tuple(
        PeerComparison(
            status=Status.PASS,
            peer=name,
            version="1.0",
            match=True,
            elements=9,
            own_ns=1e4,
            peer_ns=1e4 * each,
            speedup=ratio(each),
        )
        for name, each in figures.items()
    )
    own = PeerComparison(status=Status.PASS, peer="our own", version="sha256:" + "0a" * 32, match=True, reference=True)
    return Cross(status=Status.PASS, peers=(*found, own))


def code(run: Run) -> Code:
    """Made-up code facts, with entries that a tool could not read."""
    function = Function(
        name=f"{run.op}_{run.variant}",
        target="x86-64",
        stack=64,
        instructions={"vpaddd": 9},
        loop={"vpdpbusd": 64, "vmovdqa32": 28, "vpbroadcastd": 16, "vextracti64x4": 16, "vpmaddubsw": 12, "vpsrlw": 9},
        loads={8: 1, 32: 34, 64: 2, 256: 176, 512: 2},
    )
    return Code(
        functions=(function, Function(name="gemv", target="sm_90", registers=40, spilled=16, shared=1024)),
        notes=(HOSTILE,),
    )


def proposals(runs: list[Run]) -> tuple[Proposal, ...]:
    """Five, the last one hostile."""
    facts = (Fact(name="part of the ceiling, cold", value="41 %", source="performance.cold.against.fraction"),)
    found = [
        Proposal(
            rule=f"rule-{number}",
            run=run.id,
            kernel=run.kernel,
            workload=run.workload.id,
            title=f"Something bounds the loop ({number})",
            evidence=facts,
            gain=Gain(low=1.5 - number / 10, high=2.0),
            ceiling=2.4,
            edit="Keep four accumulators and add them up after the loop.",
            reproduce=f"tritmark run --op {run.op} --threads {run.threads}",
            verify=f"tritmark run --op {run.op} --addresses rule-{number}",
        )
        for number, run in enumerate(runs[:4])
    ]
    harm = {
        "rule": HOSTILE,
        "title": HOSTILE,
        "kernel": HOSTILE,
        "edit": HOSTILE,
        "evidence": (Fact(name=HOSTILE, value=HOSTILE, source=HOSTILE),),
    }
    return (*found, found[0].model_copy(update={**harm, "reproduce": HOSTILE, "verify": HOSTILE}))


def filled(record: Record) -> Record:
    """The Record with all fields of newer ones, and a Run with hostile names."""
    runs = []
    for number, run in enumerate(record.runs):
        more: dict[str, object] = {"cross": peers(number), "code": code(run)} if number % 3 == 0 else {}
        if number % 3 == 0 and run.device == "cpu":
            more["scaling"] = (Scaled(threads=2, speedup=ratio(1.8)), Scaled(threads=4, speedup=ratio(2.9)))
        if run.device != "cpu" and number % 3 == 0:
            more["plain"] = ratio(1.2 + number % 5)
        runs.append(run.model_copy(update=more))
    harmful = {"op": HOSTILE, "variant": HOSTILE, "kernel": HOSTILE, "id": HOSTILE}
    workload = runs[0].workload.model_copy(
        update={"id": HOSTILE, "axes": {HOSTILE: 7}, "title": HOSTILE, "family": HOSTILE}
    )
    runs.append(runs[0].model_copy(update={**harmful, "workload": workload}))
    measured = [run for run in runs if run.performance.cold]
    return record.model_copy(
        update={"runs": tuple(runs), "proposals": proposals(measured), "unadvised": (f"counters: {HOSTILE}",)}
    )


def earlier(record: Record) -> Record:
    """The same Record a day earlier, with every second Run 20 % slower."""
    runs = []
    for number, run in enumerate(record.runs):
        cold = run.performance.cold
        if cold is None or not number % 2:
            runs.append(run)
            continue
        against = cold.against.model_copy(update={"fraction": ratio(cold.against.fraction.median / 1.2, 0.001)})
        performance = run.performance.model_copy(update={"cold": cold.model_copy(update={"against": against})})
        runs.append(run.model_copy(update={"performance": performance}))
    environment = record.environment.model_copy(update={"commit": "0123456789ab", "packages": {"numpy": "1.0"}})
    return record.model_copy(
        update={"id": "earlier", "created": "2020-01-01T00:00:00Z", "runs": tuple(runs), "environment": environment}
    )


def history() -> History:
    """A step, a reverted one, and a hostile benchmark."""
    commits = tuple(f"{number:012x}" for number in range(1, 13))
    lines = tuple(
        HistoryLine(name, commits, tuple(1.0 if number < 6 else high for number in range(12)))
        for name, high in (("matmul", 1.1), (HOSTILE, 1.0))
    )
    return History(
        lines,
        (
            SpeedChange("matmul", commits[5], commits[6], 1.1, 0.99),
            SpeedChange(HOSTILE, commits[1], commits[2], 1.3, None, True),
        ),
    )


@pytest.fixture(scope="session")
def record() -> Record:
    """The CPU's Record, filled."""
    whole = read(BASELINES / "cpu-zen4-2-cores.speed.json")
    return filled(whole.model_copy(update={"runs": whole.runs[:18]}))


def league(record: Record) -> League:
    """The league table of the Record's own figures."""
    return League(
        record=record.id,
        created=record.created,
        suite=record.suite,
        tritmark=record.environment.tritmark,
        machine=record.machine.cpu,
        tables=tables(record),
    )


def as_smoke(record: Record) -> Record:
    """As large as a Record of the suite smoke: 96 kernels judged and measured at one shape, and 39 that could not run,
    with the resulting advice."""
    one = list({run.kernel: run for run in record.runs}.values())
    runs = []
    for number in range(96):
        run = one[number % len(one)]
        runs.append(
            named(run, f"{run.variant}_{number}").model_copy(update={"cross": peers(number), "code": code(run)})
        )
    reason = "the processor does not have avx512_fp16"
    none = {"status": Status.NOT_RUN, "reason": reason}
    for number in range(39):
        run = named(one[number % len(one)], f"absent_{number}")
        verdicts = {
            "accuracy": Accuracy.model_validate(none),
            "performance": Performance.model_validate(none),
            "memory": MemoryUse.model_validate(none),
            "cross": Cross.model_validate(none),
        }
        runs.append(run.model_copy(update=verdicts))
    whole = record.model_copy(update={"id": "smoke", "suite": "smoke", "runs": tuple(runs)})
    return whole.model_copy(update={"proposals": advise(whole), "unadvised": unadvised(whole)})


def named(run: Run, variant: str) -> Run:
    """The same of another variant."""
    kernel = f"{run.kernel.rpartition('/')[0]}/{variant}"
    return run.model_copy(update={"variant": variant, "kernel": kernel, "id": f"{kernel} {run.workload.id}"})


def monitored(folder: Path) -> Path:
    """The monitor's page of a made-up week, with a nested session and one with hostile names."""
    sessions = week()
    inside = session(57, [series(182_000, calls=900)], program="decode", at=sessions[50].started + 5)
    sessions.append(replace(inside, pid=sessions[50].pid, within=(sessions[50].id,)))
    for number in range(2):  # two points, so that the plot has the names, too
        key = SeriesKey(HOSTILE, HOSTILE, HOSTILE, 8)
        one = series(1e6, key=key, errors={HOSTILE: 1}, seed=number)
        hostile = session(58 + number, [one], program=HOSTILE, at=sessions[55].started + 60 + number, version=HOSTILE)
        sessions.append(replace(hostile, host=HOSTILE))
    end = START + 15 * DAY
    with pytest.MonkeyPatch.context() as patch:  # the made-up week has a fixed time
        patch.setattr("tritmark.harness.monitor.database.OLDEST_S", float("inf"))
        database = Database(folder / "sessions.sqlite")
        for each in sessions:
            database.save(each)
        ceilings = {"cpu": DeviceCeilings(60e9, 4e12, "20250615T000000Z-00000000")}
        report = summarize(database, since=START, until=end, ceilings=ceilings)
    return build_monitor(report, folder)


def fleet(record: Record, folder: Path) -> Path:
    """The page of two machines, one with hostile names, against an earlier set."""
    other = earlier(record)
    columns = tuple(
        FleetColumn(kind=kind, device="cpu", record=each, records=(each.id,), hosts=(HOSTILE,))
        for kind, each in (("cpu/zen4", record), (f"cpu/{HOSTILE}", other))
    )
    now = MergedSets(names=("now",), columns=columns, not_run=(HOSTILE,), left_out=(HOSTILE,), repeated=3)
    before = replace(now, names=("before",), columns=(replace(columns[0], record=other), columns[1]))
    return write_fleet(compared(now, before), folder)


@pytest.fixture(scope="session")
def pages(record: Record, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """cpu: everything; gpu: two devices; smoke: as many kernels as that suite has; all: the landing page; league;
    fleet: two machines; monitor: two weeks."""
    folder = tmp_path_factory.mktemp("pages")
    cpu = build(
        record,
        folder,
        PageContext(
            baseline=earlier(record),
            history=history(),
            rules={"rule-0": "3 of 4 predictions correct", HOSTILE: HOSTILE},
        ),
    )
    whole = read(BASELINES / "nvidia-h200.gpu.json")
    gpu = build(filled(whole.model_copy(update={"runs": whole.runs[::16]})), folder)
    smoke = as_smoke(read(BASELINES / "cpu-zen4-2-cores.speed.json"))
    return {
        "cpu": cpu,
        "gpu": gpu,
        "smoke": build(smoke, folder),
        "league": write(league(smoke), folder / "league")["html"],
        "fleet": fleet(record, folder / "fleet"),
        "monitor": monitored(folder / "monitor"),
        # A page of one Record of each kind of device shows what one of all shows, and is built in a third of the time.
        "all": build_all([*sorted(BASELINES.glob("*.json"))[::3], BASELINES / "none.json"], folder / "all"),
    }


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The installed Chromium; nothing is downloaded."""
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.fail("no chromium on PATH; next: apt-get install chromium")
    with sync_playwright() as playwright:
        # Chromium's sandbox does not start as root; the pages are trusted.
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()
