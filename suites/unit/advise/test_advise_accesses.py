"""The rule uncoalesced, and the report's section on access patterns. All figures are simulated facts."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tritmark.harness.advise.advise import advise
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.missing import unadvised
from tritmark.harness.advise.rule import Finding
from tritmark.harness.advise.rules.uncoalesced import RULE
from tritmark.harness.record import Ratio, Record, Run
from tritmark.harness.report.page import render
from tritmark.harness.spec import DEVICE_MEMORY, SHARED_MEMORY, KernelAccesses, TracedAccess

HOSTILE = "</script><script>alert(1)</script>"


def access(function: str, transactions: int, least: int = 100, **fields: Any) -> TracedAccess:
    given: dict[str, Any] = {
        "line": "k.cu:7",
        "memory": DEVICE_MEMORY,
        "kind": "read",
        "size": 4,
        "pattern": "strided by 8",
        "requests": 50,
        **fields,
    }
    return TracedAccess(function=function, transactions=transactions, least=least, **given)


def slow(record: Record, fraction: float = 0.1) -> Run:
    """A Run of a GPU that memory limits, at that fraction of its ceiling."""
    run = next(
        each
        for each in record.runs
        if each.device == "cuda" and each.performance.hot is not None and Evidence(record, each).memory_side
    )
    hot = run.performance.hot
    assert hot is not None
    t = hot.timing.median_ns * 20
    timing = hot.timing.model_copy(update={"median_ns": t, "low_ns": t, "high_ns": t})
    against = hot.against.model_copy(update={"fraction": Ratio(median=fraction, low=fraction, high=fraction, pairs=30)})
    hot = hot.model_copy(update={"timing": timing, "against": against})
    return run.model_copy(update={"performance": run.performance.model_copy(update={"hot": hot})})


def with_accesses(record: Record, run: Run, *found: TracedAccess, **fields: Any) -> Record:
    kept = [each for each in record.machine.ceilings if each.name != "copy"]
    traced = KernelAccesses(kernel=fields.pop("kernel", run.kernel), axes={"n": 8192}, accesses=found, **fields)
    machine = record.machine.model_copy(update={"ceilings": tuple(kept)})
    return record.model_copy(update={"runs": (run,), "machine": machine, "accesses": (traced,)})


def function(run: Run) -> str:
    assert run.receipt is not None
    return run.receipt.functions[0]


def judged(record: Record, run: Run, *found: TracedAccess, **fields: Any) -> Finding | None:
    return RULE.judge(Evidence(with_accesses(record, run, *found, **fields), run))


@pytest.mark.parametrize(("transactions", "low"), [(200, 1.4), (400, 2.2), (150, 1.2)])
def test_the_gain_is_from_the_excess(gpu_record: Record, transactions: int, low: float) -> None:
    run = slow(gpu_record)
    found = judged(gpu_record, run, access(function(run), transactions))
    assert found is not None
    assert found.gain.low == pytest.approx(low)
    assert found.gain.high == pytest.approx(10, rel=0.05), "the time over that of bytes"
    facts = {fact.name: fact.value for fact in found.evidence}
    assert facts["sectors per request"] == f"{transactions / 50:.2f}"
    assert facts["fewest for its bytes"] == "2.00"
    assert facts["access with the most excess"] == "read of 4 bytes a lane, strided by 8, k.cu:7"
    assert all("simulated" in fact.source for fact in found.evidence[:4])


def test_caches_bound_what_the_excess_can_cost(gpu_record: Record) -> None:
    """A kernel at half of the ceiling cannot lose more than half of its time to sectors."""
    run = slow(gpu_record, 0.5)
    found = judged(gpu_record, run, access(function(run), 800))
    assert found is not None
    assert found.gain.low < 1.45
    assert found.gain.high == pytest.approx(2, rel=0.05)


def test_the_largest_excess_is_named(gpu_record: Record) -> None:
    run = slow(gpu_record)
    mine = function(run)
    found = judged(
        gpu_record, run, access(mine, 110, line="small.cu:1"), access(mine, 900, 300, line="large.cu:2", requests=90)
    )
    assert found is not None
    assert "large.cu:2" in str(found.evidence)


def test_five_honest_kernels_get_no_advice(gpu_record: Record) -> None:
    run = slow(gpu_record)
    mine = function(run)
    assert judged(gpu_record, run, access(mine, 100)) is None, "fully coalesced"
    assert judged(gpu_record, run, access(mine, 105)) is None, "less excess than formulas are precise"
    assert judged(gpu_record, run, access(mine, 900, memory=SHARED_MEMORY)) is None, "banks are another matter"
    assert judged(gpu_record, run, access("another", 900)) is None, "a function that did not run"
    assert judged(gpu_record, run, access(mine, 900), kernel="cuda/a/b/c/d") is None, "another kernel"
    near = slow(gpu_record, 0.95)
    assert judged(gpu_record, near, access(function(near), 900)) is None, "caches serve the excess"
    compute = run.performance.hot
    assert compute is not None
    limited = compute.model_copy(update={"against": compute.against.model_copy(update={"ceiling": "compute"})})
    other = run.model_copy(update={"performance": run.performance.model_copy(update={"hot": limited})})
    assert judged(gpu_record, other, access(mine, 900)) is None, "arithmetic limits it"


def test_missing_traces_are_reported(gpu_record: Record) -> None:
    run = slow(gpu_record)
    assert "no access patterns were traced" in " ".join(unadvised(gpu_record.model_copy(update={"runs": (run,)})))
    told = unadvised(with_accesses(gpu_record, run, note="no g++; next: install it"))
    assert "access patterns: no g++; next: install it" in told
    assert "access patterns" not in " ".join(unadvised(with_accesses(gpu_record, run, access(function(run), 200))))


def section(page: str) -> str:
    found = re.search(r'id="access".*?(?=<section|<details[^>]* id=|</main>)', page, re.DOTALL)
    assert found
    return found[0]


@pytest.mark.nightly
def test_the_report_has_the_figures_and_calls_them_simulated(gpu_record: Record) -> None:
    run = slow(gpu_record)
    record = with_accesses(
        gpu_record,
        run,
        access(function(run), 400),
        access(function(run), 75, 25, memory=SHARED_MEMORY, requests=25, line=HOSTILE),
        simulator="a simulator",
    )
    page = render(record.model_copy(update={"proposals": advise(record)}))
    assert HOSTILE not in page
    text = section(page)
    assert "SIMULATED" in text
    assert "Nothing in this section was measured" in text
    assert re.search(r"8\.00</td><td class=\"n\">2\.00</td><td class=\"n strong\">25\.0 %", text), "sectors per request"
    assert re.search(r"3\.00</td><td class=\"n\">1\.00</td><td class=\"n strong\">66\.7 %", text), "bank passes"
    assert "k.cu:7" in text
    assert "accesses: simulated, not measured" in page.replace("<wbr>", "")
    assert "uncoalesced" in page


@pytest.mark.nightly
def test_a_kernel_that_was_not_traced_is_listed(gpu_record: Record) -> None:
    run = slow(gpu_record)
    text = section(render(with_accesses(gpu_record, run, note=HOSTILE)))
    assert "Not traced" in text
    assert HOSTILE not in text
    assert "<table" not in text
    assert 'id="access"' not in render(gpu_record)
