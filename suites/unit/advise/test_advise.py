"""Advice: rules on times, ratios and memory for made-up Runs, the guards, and that no predicted gain exceeds the
ceiling."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tritmark.harness.advise.advise import advise, forbidden, of_run
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.missing import unadvised
from tritmark.harness.advise.rank import rank
from tritmark.harness.advise.rule import Rule
from tritmark.harness.advise.rules import RULES
from tritmark.harness.cli.advise import SHOWN
from tritmark.harness.cli.advise import advise as command
from tritmark.harness.errors import UsageError
from tritmark.harness.record import (
    Code,
    Function,
    Gain,
    MemoryUse,
    NodeBandwidth,
    NodeUse,
    Proposal,
    Ratio,
    Record,
    Run,
    Scaled,
    Status,
    Transfer,
    with_digest,
)

RULE = {rule.name: rule for rule in RULES}


def exactly(value: float, spread: float = 0.0) -> Ratio:
    return Ratio(median=value, low=value * (1 - spread), high=value * (1 + spread), pairs=40)


def shaped(
    run: Run, *, t: float = 10_000.0, fraction: float = 0.5, e: float = 0.001, tc: float | None = None, **fields: Any
) -> Run:
    """The Run with this hot time, fraction of the ceiling, half width of both intervals, and cold time."""
    hot, cold = run.performance.hot, run.performance.cold
    assert hot is not None
    assert cold is not None
    timing = hot.timing.model_copy(update={"median_ns": t, "low_ns": t * (1 - e), "high_ns": t * (1 + e)})
    against = hot.against.model_copy(update={"fraction": exactly(fraction, e)})
    performance = {
        "hot": hot.model_copy(update={"timing": timing, "against": against, **fields.pop("hot", {})}),
        "cold": cold.model_copy(
            update={"timing": cold.timing.model_copy(update=dict.fromkeys(("median_ns", "low_ns", "high_ns"), tc or t))}
        ),
        "call_overhead_ns": None,
        **fields.pop("performance", {}),
    }
    return run.model_copy(update={"performance": run.performance.model_copy(update=performance), **fields})


def only(record: Record, *runs: Run, **machine: Any) -> Record:
    return record.model_copy(update={"runs": runs, "machine": record.machine.model_copy(update=machine)})


def without_copies(record: Record) -> Record:
    """The Record without copy rates, so that only t/R gives the distance to the ceiling."""
    return only(record, *record.runs, ceilings=tuple(each for each in record.machine.ceilings if each.name != "copy"))


def of(record: Record, device: str, op: str, n: int = 1 << 24) -> Run:
    return next(
        run
        for run in record.runs
        if run.device == device
        and run.op == op
        and run.performance.hot is not None
        and run.workload.axes.get("n", n) == n
    )


@pytest.fixture(scope="module")
def on_gpu(gpu_record: Record) -> Run:
    return of(gpu_record, "cuda", "i2s_quantize").model_copy(update={"upload": None, "download": None})


@pytest.fixture(scope="module")
def on_cpu(gpu_record: Record) -> Run:
    return of(gpu_record, "cpu", "i2s_quantize")


def judged(name: str, record: Record, run: Run, *others: Run, **machine: Any) -> Gain | None:
    """The gain by the rule's formula for `run`, in a Record of it and the others."""
    found = RULE[name].judge(Evidence(only(record, run, *others, **machine), run))
    assert found is None or (found.evidence and found.edit)
    return None if found is None else found.gain


def test_every_rule_has_its_own_number_and_name_and_explains_itself() -> None:
    assert len({rule.name for rule in RULES}) == len({rule.number for rule in RULES}) == len(RULES)
    assert [rule.number for rule in RULES] == sorted(rule.number for rule in RULES)
    assert set(range(1, 7)) | set(range(19, 23)) | {24, 25, 27, 28} <= {rule.number for rule in RULES}
    for rule in RULES:
        assert len(rule.explanation) > 100, rule.name
        assert rule.forbids is not None or "Formula" in rule.explanation, rule.name
        assert rule.title, rule.name
        assert rule.needs, rule.name


def test_symbols(gpu_record: Record, on_gpu: Run) -> None:
    run = shaped(on_gpu, t=8000.0, fraction=0.25, e=0.01, tc=9000.0)
    evidence = Evidence(only(gpu_record, run), run)
    assert (evidence.t, evidence.tc, evidence.R, evidence.cap) == (8000.0, 9000.0, 2000.0, 4.0)
    assert evidence.b == run.performance.read + run.performance.written
    assert evidence.e == pytest.approx(0.01)
    assert pytest.approx(1e9 / 1.92e6) == evidence.L
    assert evidence.limit in {"read", "write"}
    short = shaped(on_gpu, t=600.0, fraction=0.25)
    launched = Evidence(only(gpu_record, short), short)
    assert (launched.limit, launched.R) == ("launch", launched.L)


def test_a_run_that_was_not_timed_has_no_evidence(gpu_record: Record) -> None:
    untimed = next(run for run in gpu_record.runs if run.performance.hot is None)
    with pytest.raises(ValueError, match="no hot figure"):
        Evidence(gpu_record, untimed)


def test_noise_forbids_what_it_would_hide(gpu_record: Record, on_gpu: Run) -> None:
    noise = RULE["noise"].forbids
    assert noise is not None
    quiet, loud = (Evidence(gpu_record, shaped(on_gpu, e=e)) for e in (0.001, 0.1))
    assert noise(quiet, Gain(low=1, high=1.05)) is None
    assert "20.00 % wide" in (noise(loud, Gain(low=1, high=1.19)) or "")
    assert noise(loud, Gain(low=1, high=1.21)) is None
    assert noise(quiet, Gain(low=1, high=1.009)) is not None
    wild, edge = (Evidence(gpu_record, shaped(on_gpu, e=e)) for e in (0.3, 0.24))
    assert "the figures are too noisy" in (noise(wild, Gain(low=5, high=9)) or "")  # however large the gain
    assert noise(edge, Gain(low=5, high=9)) is None
    unsure = shaped(on_gpu, performance={"status": Status.AMBIGUOUS, "reason": "too noisy"})
    assert "too noisy" in (noise(Evidence(gpu_record, unsure), Gain(low=2, high=3)) or "")


def test_what_is_under_the_floor_is_invalid(gpu_record: Record, on_gpu: Run) -> None:
    floor = RULE["floor"].forbids
    assert floor is not None
    most = Gain(low=2, high=3)
    assert floor(Evidence(gpu_record, shaped(on_gpu)), most) is None
    assert "under the least time" in (floor(Evidence(gpu_record, shaped(on_gpu, fraction=1.1)), most) or "")
    failed = shaped(on_gpu, performance={"status": Status.FAIL, "reason": "guard floor"})
    assert "guard floor" in (floor(Evidence(gpu_record, failed), most) or "")
    assert forbidden(Evidence(gpu_record, failed)) is not None
    assert of_run(Evidence(gpu_record, failed)) == ()


def packed(bits: float | None) -> MemoryUse:
    return MemoryUse(status=Status.PASS, bits_per_weight=bits)


def test_denser_packing(gpu_record: Record, on_gpu: Run) -> None:
    near = shaped(on_gpu, fraction=0.95, memory=packed(2.0))
    assert judged("denser-packing", gpu_record, near) == Gain(low=1, high=1.25)
    assert judged("denser-packing", gpu_record, shaped(on_gpu, fraction=0.8, memory=packed(2.0))) is None
    assert judged("denser-packing", gpu_record, shaped(on_gpu, fraction=0.95, memory=packed(1.6))) is None
    assert judged("denser-packing", gpu_record, shaped(on_gpu, fraction=0.95, memory=packed(None))) is None


def test_latency_bound(gpu_record: Record, on_gpu: Run) -> None:
    record = without_copies(gpu_record)
    launch = 1e9 / 1.92e6
    found = judged("latency-bound", record, shaped(on_gpu, t=1e4 * launch, fraction=0.2))
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.4 * 10_000 / 2002, 5))
    assert judged("latency-bound", record, shaped(on_gpu, t=1e4 * launch, fraction=0.7)) is None
    # A short kernel waits for the previous launch, which takes two empty launches: 1 + 2 of 4, and of 12.
    assert judged("latency-bound", record, shaped(on_gpu, t=4 * launch, fraction=1 / 4)) is None
    found = judged("latency-bound", record, shaped(on_gpu, t=12 * launch, fraction=1 / 12))
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.4 * 12 / 3, 12))
    # A kernel with many operations per byte may be at an arithmetic limit that no probe measures.
    dense = {"operations": 33 * Evidence(record, on_gpu).b}
    found = judged("latency-bound", record, shaped(on_gpu, t=1e4 * launch, fraction=0.2, performance=dense))
    assert found is not None
    assert (found.low, found.high) == pytest.approx((1, 5))
    # A kernel that takes as long as a copy of the same bytes is not slow.
    run = shaped(on_gpu, t=Evidence(gpu_record, on_gpu).b / 4.15e12 * 1e9, fraction=0.6, hot={"footprint": 1 << 30})
    assert judged("latency-bound", record, run) is not None
    assert judged("latency-bound", gpu_record, run) is None


def test_launch_share(gpu_record: Record, on_gpu: Run) -> None:
    launch = 1e9 / 1.92e6
    found = judged("launch-share", gpu_record, shaped(on_gpu, t=2 * launch))
    assert found is not None
    assert (found.low, found.high) == pytest.approx((4 / 3, 16 / 9))
    assert judged("launch-share", gpu_record, shaped(on_gpu, t=5.1 * launch)) is None
    faster = shaped(on_gpu, t=1.8 * launch, variant="better", kernel="better")
    assert judged("launch-share", gpu_record, shaped(on_gpu, t=2 * launch), faster) is None
    assert on_gpu.receipt is not None
    three = replace(on_gpu.receipt, launches=3 * on_gpu.receipt.runs)
    assert judged("launch-share", gpu_record, shaped(on_gpu, t=6 * launch, receipt=three)) is not None


def test_graph(gpu_record: Record, on_gpu: Run) -> None:
    assert judged("graph", gpu_record, shaped(on_gpu, plain=exactly(2.0, 0.01))) == Gain(low=1, high=2.02)
    assert judged("graph", gpu_record, shaped(on_gpu, plain=exactly(1.002, 0.001))) is None
    assert judged("graph", gpu_record, shaped(on_gpu)) is None


def test_shape_cliff(gpu_record: Record, on_gpu: Run) -> None:
    larger = on_gpu.workload.model_copy(update={"axes": {"n": (1 << 24) + 64}, "id": "larger"})
    slow, fast = shaped(on_gpu, t=2000.0, e=0.0), shaped(on_gpu, t=1000.0, e=0.0, workload=larger)
    found = judged("shape-cliff", gpu_record, slow, fast)
    assert found == Gain(low=2, high=2)
    assert judged("shape-cliff", gpu_record, fast, slow) is None
    assert judged("shape-cliff", gpu_record, shaped(on_gpu, t=1100.0), fast) is None


def test_transfer(gpu_record: Record, on_gpu: Run) -> None:
    copies: dict[str, Any] = {"upload": Transfer(nbytes=1000, ns=6000.0), "download": Transfer(nbytes=1000, ns=5000.0)}
    assert judged("transfer", gpu_record, shaped(on_gpu, t=10_000.0, **copies)) == Gain(low=1, high=2.1)
    assert judged("transfer", gpu_record, shaped(on_gpu, t=12_000.0, **copies)) is None


def test_cold(gpu_record: Record, on_gpu: Run) -> None:
    assert judged("cold", gpu_record, shaped(on_gpu, tc=20_000.0, hot={"footprint": 1 << 20})) == Gain(low=1, high=2)
    assert judged("cold", gpu_record, shaped(on_gpu, tc=20_000.0, hot={"footprint": 1 << 40})) is None
    assert judged("cold", gpu_record, shaped(on_gpu, tc=14_000.0, hot={"footprint": 1 << 20})) is None


def test_better_isa(gpu_record: Record, on_cpu: Run) -> None:
    slow, fast = (
        shaped(on_cpu, t=t, e=0.0, variant=name, kernel=name) for t, name in ((4000.0, "scalar"), (1000.0, "avx2"))
    )
    assert judged("better-isa", gpu_record, slow, fast) == Gain(low=4, high=4)
    assert judged("better-isa", gpu_record, fast, slow) is None
    assert judged("better-isa", gpu_record, slow, fast, features=("sse2",)) is None
    assert judged("better-isa", gpu_record, slow, fast, features=("avx2",)) is None, "f16c is needed too"
    assert judged("better-isa", gpu_record, slow) is None


def threads(**speedups: float) -> tuple[Scaled, ...]:
    return tuple(Scaled(threads=int(name[1:]), speedup=exactly(value, 0.01)) for name, value in speedups.items())


def test_thread_scaling(gpu_record: Record, on_cpu: Run) -> None:
    four = {"threads": 4}
    assert judged("thread-scaling", gpu_record, shaped(on_cpu, scaling=threads(t2=1.9, t4=2.0), **four)) == Gain(
        low=1, high=2
    )
    assert judged("thread-scaling", gpu_record, shaped(on_cpu, scaling=threads(t2=1.9, t4=3.6), **four)) is None
    assert (
        judged("thread-scaling", gpu_record, shaped(on_cpu, fraction=0.9, scaling=threads(t2=1.9, t4=2.0), **four))
        is None
    )
    fewer = judged("thread-scaling", gpu_record, shaped(on_cpu, fraction=0.9, scaling=threads(t2=1.9, t4=1.0), **four))
    assert fewer is not None
    assert fewer.low < 1.9 < fewer.high
    one = judged("thread-scaling", gpu_record, shaped(on_cpu, scaling=threads(t4=0.5), **four))
    assert one is not None
    assert one.low < 2 < one.high
    assert judged("thread-scaling", gpu_record, shaped(on_cpu, **four)) is None


def test_a_kernel_that_used_one_thread_is_told_so(gpu_record: Record, on_cpu: Run) -> None:
    run = shaped(on_cpu, threads=4, scaling=threads(t4=1.0))
    assert run.receipt is not None
    for used, told in ((1, "it used one of 4 threads"), (4, "give each thread equal work")):
        one = run.model_copy(update={"receipt": replace(run.receipt, threads=used)})
        found = RULE["thread-scaling"].judge(Evidence(only(gpu_record, one), one))
        assert found is not None
        assert told in found.edit


@pytest.mark.parametrize(
    ("balance", "utilization", "told"),
    [
        (0.5, 0.5, "equal work"),
        (0.95, 0.5, "start threads once"),
        (0.95, 0.95, "different cache lines"),
        (None, 0.5, "start threads once"),
    ],
)
def test_the_least_of_three_factors_says_what_threads_lose(
    gpu_record: Record, on_cpu: Run, balance: float | None, utilization: float, told: str
) -> None:
    four = Scaled(threads=4, speedup=exactly(2.0, 0.01), balance=balance, utilization=utilization)
    run = shaped(on_cpu, threads=4, scaling=(four,))
    found = RULE["thread-scaling"].judge(Evidence(only(gpu_record, run), run))
    assert found is not None
    assert told in found.edit
    assert ";" not in found.edit, "one thing"
    assert ("balance" in {fact.name for fact in found.evidence}) == (balance is not None)


def test_smt(gpu_record: Record, on_cpu: Run) -> None:
    cores = {"physical_cores": 2}
    found = judged("smt", gpu_record, shaped(on_cpu, threads=4, scaling=threads(t2=1.8, t4=1.5)), **cores)
    assert found is not None
    assert found.low < 1.2 < found.high
    assert judged("smt", gpu_record, shaped(on_cpu, threads=4, scaling=threads(t2=1.8, t4=1.79)), **cores) is None
    assert (
        judged("smt", gpu_record, shaped(on_cpu, threads=4, scaling=threads(t2=1.8, t4=1.5)), physical_cores=4) is None
    )


def of_nodes(near: float = 100e9, far: float = 60e9) -> tuple[NodeBandwidth, ...]:
    """Two nodes of two cores each."""
    return tuple(
        NodeBandwidth(cores=a, memory=b, threads=2, nbytes=1 << 27, rate=near if a == b else far)
        for a in range(2)
        for b in range(2)
    )


def test_one_node(gpu_record: Record, on_cpu: Run) -> None:
    most = max(gpu_record.machine.caches.values())

    def judge(nbytes: dict[int, int], footprint: int = 2 * most, threads: int = 4, **machine: Any) -> Gain | None:
        run = shaped(on_cpu, threads=threads, hot={"footprint": footprint}, node_use=NodeUse(nbytes=nbytes))
        return judged("one-node", gpu_record, run, **{"node_bandwidths": of_nodes(), **machine})

    one, both = {0: 1 << 28}, {0: 1 << 27, 1: 1 << 27}
    found = judge(one)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((1, 2)), "twice the bandwidth"
    found = judge({0: 3 << 26, 1: 1 << 26})
    assert found is not None
    assert found.high == pytest.approx(1.5)
    assert judge(both) is None
    assert judge(one, footprint=most) is None, "it reads caches"
    assert judge(one, threads=2) is None, "its threads may all be on node 0"
    assert judge({}) is None, "Linux does not report it"
    assert judge(one, node_bandwidths=()) is None
    assert judge({2: 1 << 28}) is None, "that node was not measured"
    slow = (*of_nodes(), NodeBandwidth(cores=0, memory=2, threads=2, nbytes=1 << 27, rate=20e9))
    found = judge({2: 1 << 28}, node_bandwidths=slow)
    assert found is not None
    assert found.high == pytest.approx(10), "memory without cores, a tenth of two nodes' bandwidth"
    assert judged("one-node", gpu_record, shaped(on_cpu, threads=4, hot={"footprint": 2 * most})) is None


def test_python_call(gpu_record: Record, on_gpu: Run) -> None:
    found = judged("python-call", gpu_record, shaped(on_gpu, t=1000.0, performance={"call_overhead_ns": 1000.0}))
    assert found is not None
    assert (found.low, found.high) == pytest.approx((1, 16 / 9))
    assert judged("python-call", gpu_record, shaped(on_gpu, t=1000.0, performance={"call_overhead_ns": 90.0})) is None


def test_page_faults(gpu_record: Record, on_cpu: Run) -> None:
    rate = Evidence(gpu_record, on_cpu).ceiling("write", "memory")
    assert rate is not None
    zeroing = 10 * 4096 * 1e9 / rate
    fresh = MemoryUse(status=Status.PASS, page_faults=10.0, allocated=40_960)
    found = judged("page-faults", gpu_record, shaped(on_cpu, t=2 * zeroing, memory=fresh))
    assert found is not None
    assert (found.low, found.high) == pytest.approx((1, 2))
    assert judged("page-faults", gpu_record, shaped(on_cpu, t=zeroing / 2, memory=fresh)) is None
    assert (
        judged("page-faults", gpu_record, shaped(on_cpu, memory=MemoryUse(status=Status.PASS, page_faults=0.0))) is None
    )


MNEMONICS = (
    "LDG",
    "LDL",
    "STL",
    "IDP",
    "IMAD",
    "LOP3",
    "SHF",
    "PRMT",
    "I2F",
    "F2I",
    "RED",
    "ATOM",
    "FFMA",
    "vpdpbusd",
    "vmulps",
    "mulss",
)
COUNTS = st.dictionaries(st.sampled_from(MNEMONICS), st.integers(0, 200))
FUNCTIONS = st.builds(
    Function,
    name=st.just("kernel"),
    target=st.sampled_from(("sm_90", "x86-64")),
    registers=st.integers(8, 255),
    spilled=st.integers(0, 512),
    stack=st.integers(0, 512),
    shared=st.integers(0, 1 << 16),
    instructions=COUNTS,
    loop=COUNTS,
    loads=st.dictionaries(st.sampled_from((8, 16, 32, 64, 128)), st.integers(0, 32)),
    chain_cycles=st.floats(1, 200),
    throughput_cycles=st.floats(1, 200),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    fraction=st.floats(0.02, 1.0),
    t=st.floats(200, 1e7),
    e=st.floats(0, 0.2),
    cold=st.floats(1, 5),
    overhead=st.floats(0, 1e5),
    plain=st.floats(0.5, 20),
    bits=st.floats(1.6, 8),
    faults=st.floats(0, 1000),
    speedups=st.tuples(st.floats(0.1, 2), st.floats(0.1, 4)),
    code=st.builds(Code, functions=st.lists(FUNCTIONS, max_size=2).map(tuple)),
    index=st.integers(0, 1 << 10),
)
def test_no_rule_promises_more_than_the_ceiling(
    gpu_record: Record,
    fraction: float,
    t: float,
    e: float,
    cold: float,
    overhead: float,
    plain: float,
    bits: float,
    faults: float,
    speedups: tuple[float, float],
    code: Code,
    index: int,
) -> None:
    timed = [run for run in gpu_record.runs if run.performance.hot is not None]
    base = timed[index % len(timed)]
    run = shaped(
        base,
        t=t,
        fraction=fraction,
        e=e,
        tc=cold * t,
        performance={"call_overhead_ns": overhead},
        plain=exactly(plain),
        memory=MemoryUse(status=Status.PASS, bits_per_weight=bits, page_faults=faults),
        scaling=threads(t2=speedups[0], t4=speedups[1]),
        threads=base.threads if base.device == "cuda" else 4,
        code=code,
    )
    record = gpu_record.model_copy(update={"runs": tuple(run if each is base else each for each in gpu_record.runs)})
    for proposal in of_run(Evidence(record, run)):
        assert 1 <= proposal.gain.low <= proposal.gain.high <= proposal.ceiling
        assert proposal.gain.high - 1 > max(2 * e, 0.01) * 0.999
        if fraction >= 0.9:
            assert proposal.gain.high <= 1.15, proposal.rule


def test_the_cap_is_what_keeps_the_promise(gpu_record: Record, on_gpu: Run) -> None:
    """Otherwise the property above would hold for rules that never apply."""
    run = shaped(on_gpu, fraction=0.9, plain=exactly(5.0), performance={"call_overhead_ns": 1e5}, memory=packed(2.0))
    evidence = Evidence(only(gpu_record, run), run)
    raw = {rule.name: found.gain.high for rule in RULES if (found := rule.judge(evidence)) is not None}
    capped = {proposal.rule: proposal.gain.high for proposal in of_run(evidence)}
    assert {"graph", "python-call", "denser-packing"} <= {name for name, high in raw.items() if high > 1.15} & set(
        capped
    )
    assert max(capped.values()) == pytest.approx(1 / 0.9)


def fixed(name: str, low: float, high: float) -> Rule:
    def found(evidence: Evidence) -> Any:
        from tritmark.harness.advise.rule import Finding

        return Finding(evidence=(), gain=Gain(low=low, high=high), edit="do it")

    return Rule(name=name, number=99, title="t", needs="n", explanation="e", judge=found)


def test_the_surest_gain_comes_first_and_a_rule_that_missed_is_ranked_down(gpu_record: Record, on_gpu: Run) -> None:
    run = shaped(on_gpu, fraction=0.1)
    record, rules = only(gpu_record, run), (fixed("wide", 1.1, 9.0), fixed("sure", 2.0, 2.5))
    assert [each.rule for each in advise(record, rules=rules)] == ["sure", "wide"]
    assert [each.rule for each in advise(record, {"sure": 0.05}, rules)] == ["wide", "sure"]


def test_kernels_that_a_sibling_outruns_come_last_and_name_it(gpu_record: Record, on_gpu: Run) -> None:
    slow = shaped(on_gpu, variant="slow", kernel="slow", fraction=0.01, t=9000.0)
    fast = shaped(on_gpu, variant="fast", kernel="fast", fraction=0.5, t=100.0).model_copy(update={"id": "another"})
    found = advise(only(gpu_record, slow, fast), rules=(fixed("rule", 1.5, 9.0),))
    assert [each.kernel for each in found] == ["fast", "slow"]
    assert [[fact.value for fact in each.evidence] for each in found] == [[], ["fast, 100 ns"]]


def weighed(record: Record, *found: tuple[Run, str, float, float]) -> tuple[Proposal, ...]:
    """Proposals of these rules for these Runs, with these gains."""
    return tuple(
        Proposal(
            rule=rule,
            run=run.id,
            kernel=run.kernel,
            workload=run.workload.id,
            title=rule,
            evidence=(),
            gain=Gain(low=low, high=high),
            ceiling=high,
            edit="do it",
            reproduce="tritmark run",
            verify="tritmark run",
        )
        for run, rule, low, high in found
    )


def lone(run: Run, name: str, t: float, **more: Any) -> Run:
    """A new kernel on a new workload, without siblings and neighbours."""
    workload = run.workload.model_copy(update={"id": f"workload of {name}"})
    return shaped(run, t=t, variant=name, kernel=name, id=f"{name} at {t}", workload=workload, **more)


def test_the_largest_saving_of_all_workloads_comes_first(gpu_record: Record, on_cpu: Run) -> None:
    """A large ratio of a short call saves less than a small one of a long call; workloads of one kernel add up."""
    short, long = lone(on_cpu, "short", 2_000.0), lone(on_cpu, "long", 90_000.0)
    parts = [lone(on_cpu, "parts", 30_000.0 + number) for number in range(4)]
    record = only(gpu_record, short, long, *parts)
    found = rank(
        record,
        weighed(record, (short, "a", 8.0, 9.0), (long, "a", 2.0, 2.0), *((part, "a", 2.0, 2.0) for part in parts)),
    )
    assert [each.proposal.kernel for each in found] == ["parts", "long", "short"]
    assert [each.of_ns for each in found] == pytest.approx([120_006.0, 90_000.0, 2_000.0])
    assert [each.saved_ns for each in found] == pytest.approx([60_003.0, 45_000.0, 2_000.0 * (1 - (1 / 8 + 1 / 9) / 2)])
    assert found[0].proposal.run == parts[-1].id, "the workload with the largest saving represents all"
    assert len(found[0].others) == 3


def test_rules_with_a_record_come_before_untried_ones(gpu_record: Record, on_cpu: Run) -> None:
    long, short = lone(on_cpu, "long", 90_000.0), lone(on_cpu, "short", 9_000.0)
    record = only(gpu_record, long, short)
    proposals = weighed(record, (long, "untried", 5.0, 9.0), (short, "kept", 1.5, 2.0), (short, "missed", 1.5, 2.0))
    found = rank(record, proposals, {"kept": 1.0, "missed": 0.2})
    assert [each.proposal.rule for each in found] == ["kept", "untried", "missed"]
    assert [each.tried for each in found] == [True, False, True]
    assert found[2].saved_ns == pytest.approx(0.2 * found[0].saved_ns), "the hit rate weighs the prediction"


def test_kernels_shorter_than_their_call_come_last(gpu_record: Record, on_cpu: Run) -> None:
    """A saving of 95 of 190 ns is small beside a call overhead of 300 ns; without others it is still shown."""
    cost = {"call_overhead_ns": 300.0}
    short = lone(on_cpu, "short", 190.0, performance=cost)
    long = lone(on_cpu, "long", 301.0, performance=cost)
    record = only(gpu_record, short, long)
    proposals = weighed(record, (short, "kept", 9.0, 9.0), (long, "untried", 1.1, 1.2))
    found = rank(record, proposals, {"kept": 1.0})
    assert [(each.proposal.kernel, each.short) for each in found] == [("long", False), ("short", True)]
    unknown = only(gpu_record, shaped(short, t=190.0), shaped(long, t=301.0))
    assert [each.short for each in rank(unknown, proposals)] == [False, False], "the cost of a call was not measured"
    both = [lone(on_cpu, "one", 190.0, performance=cost), lone(on_cpu, "one", 9_000.0, performance=cost)]
    (one,) = rank(only(gpu_record, *both), weighed(gpu_record, *((run, "kept", 2.0, 2.0) for run in both)))
    assert (one.short, one.of_ns) == (False, 9_000.0), "a kernel with a long workload counts with that"


def test_a_noisy_kernel_is_still_outrun(gpu_record: Record, on_cpu: Run) -> None:
    """Noise wider than the time itself does not hide a sibling that is 50 times as fast."""
    slow = shaped(on_cpu, variant="slow", kernel="slow", id="slow", t=1_700_000.0, e=3.0)
    hot = slow.performance.hot
    assert hot is not None
    timing = hot.timing.model_copy(update={"low_ns": 900_000.0, "high_ns": 12_000_000.0})
    performance = slow.performance.model_copy(update={"hot": hot.model_copy(update={"timing": timing})})
    slow = slow.model_copy(update={"performance": performance})
    fast = shaped(on_cpu, variant="fast", kernel="fast", id="fast", t=32_000.0)
    record = only(gpu_record, slow, fast)
    assert not Evidence(record, slow).fastest
    assert Evidence(record, fast).fastest
    within = shaped(on_cpu, variant="fast", kernel="fast", id="fast", t=950_000.0)
    assert Evidence(only(gpu_record, slow, within), slow).fastest, "faster by less than the noise"


def test_a_proposal_of_a_run_that_is_not_there_is_last(gpu_record: Record, on_cpu: Run) -> None:
    run = lone(on_cpu, "there", 9_000.0)
    record = only(gpu_record, run)
    gone = lone(on_cpu, "gone", 9_000.0)
    found = rank(record, weighed(record, (gone, "a", 2.0, 3.0), (run, "a", 1.1, 1.2)))
    assert [(each.proposal.kernel, each.of_ns) for each in found] == [("there", 9_000.0), ("gone", 0.0)]


def test_commands_name_the_kernel_and_the_rule(gpu_record: Record, on_gpu: Run) -> None:
    run = shaped(on_gpu, fraction=0.1)
    (proposal,) = advise(only(gpu_record, run), rules=(fixed("a rule", 2, 3),))
    words = shlex.split(proposal.verify)
    assert words[:2] == ["tritmark", "run"]
    assert words[words.index("--variant") + 1] == run.kernel
    assert words[-2:] == ["--addresses", "a rule"]
    assert proposal.verify.startswith(proposal.reproduce)


def test_what_was_missing_is_told_with_the_next_step(gpu_record: Record, on_cpu: Run) -> None:
    told = unadvised(gpu_record)
    for words in ("nvidia-cuda-nvdisasm", "ncu --csv", "with a graph", "speed-up over one thread", "page faults"):
        assert any(words in each for each in told), words
    scalar = shaped(on_cpu, variant="scalar", kernel="scalar")
    assert any("--variant avx512" in each for each in unadvised(only(gpu_record, scalar)))
    nobodys = scalar.model_copy(update={"op": "nobodys"})
    assert not any("--variant" in each for each in unadvised(only(gpu_record, nobodys))), "there is no kernel to run"
    assert unadvised(only(gpu_record)) == (
        "no Run was timed, so no rule applies; measure with `tritmark run`, and all dimensions",
    )


@pytest.fixture
def told(tmp_path: Path, gpu_record: Record) -> Callable[..., str]:
    app = typer.Typer()
    app.command()(command)
    path = tmp_path / "record.json"
    path.write_text(with_digest(gpu_record), encoding="utf-8")

    def run(*words: str) -> str:
        done = CliRunner().invoke(app, [*words, "--out", str(tmp_path)], catch_exceptions=False)
        assert done.exit_code == 0
        return done.stdout

    return lambda *words: run(*(str(path) if word == "RECORD" else word for word in words))


def test_the_command_lists_explains_and_advises(told: Callable[..., str], gpu_record: Record) -> None:
    listed = told("--list")
    assert len(listed.splitlines()) == len(RULES)
    assert "no outcome yet" in listed
    assert {row["name"] for row in json.loads(told("--list", "--json"))} == set(RULE)
    for rule in RULES:
        assert rule.explanation in told("--explain", rule.name)
    assert told("--explain", "4") == told("--explain", "latency-bound")
    with pytest.raises(UsageError, match=r"'latency-bund' \(did you mean 'latency-bound'\?\): no such rule"):
        told("--explain", "latency-bund")
    found = json.loads(told("RECORD", "--json"))
    assert len(found["proposals"]) == len(advise(gpu_record))
    assert found["unadvised"] == list(unadvised(gpu_record))
    text = told("RECORD")
    assert "1. " in text
    assert "verify: tritmark run" in text
    assert "Not examined:" in text
    assert len(told("RECORD", "--all")) > len(text)


def test_the_command_prints_ten_proposals_on_one_page(told: Callable[..., str], gpu_record: Record) -> None:
    edits = {(each.rule, each.kernel) for each in advise(gpu_record)}
    assert len(edits) > SHOWN
    text, whole = told("RECORD"), told("RECORD", "--all")
    numbers = [line.split(".")[0] for line in text.splitlines() if re.match(r"\d+\. ", line)]
    assert numbers == [str(number) for number in range(1, SHOWN + 1)]
    assert len(text.splitlines()) <= 72
    assert f"{len(edits) - SHOWN} further proposals" in text
    assert "--all" in text
    assert text.count("should save ") == SHOWN
    assert whole.count("should save ") == len(edits)
    assert "[latency-bound: no outcome yet]" in whole
    evidence = next(fact for proposal in advise(gpu_record) for fact in proposal.evidence)
    assert f"{evidence.name}: {evidence.value}" in whole


def test_after_a_check_the_user_s_kernel_comes_first(gpu_record: Record, on_cpu: Run) -> None:
    """The built-in kernel's saving is a hundred times as large, and its rule is the trusted one."""
    mine, other = lone(on_cpu, "my-file.work", 9_000.0), lone(on_cpu, "avx512", 900_000.0)
    environment = gpu_record.environment.model_copy(update={"command": ("tritmark", "check", "/home/my-file.c")})
    record = only(gpu_record, mine, other).model_copy(update={"environment": environment})
    proposals = weighed(record, (other, "kept", 5.0, 9.0), (mine, "untried", 1.5, 2.0))
    found = rank(record, proposals, {"kept": 1.0})
    assert [(each.proposal.kernel, each.beside) for each in found] == [("my-file.work", False), ("avx512", True)]
    ran = gpu_record.environment.model_copy(update={"command": ("tritmark", "run")})
    both = rank(record.model_copy(update={"environment": ran}), proposals, {"kept": 1.0})
    assert [(each.proposal.kernel, each.beside) for each in both] == [("avx512", False), ("my-file.work", False)]


def test_the_command_lists_the_built_in_kernel_apart(
    gpu_record: Record, on_cpu: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tritmark.harness.advise import ledger
    from tritmark.harness.cli.advise import _advised

    mine, other = lone(on_cpu, "mine.work", 9_000.0), lone(on_cpu, "avx512", 900_000.0)
    environment = gpu_record.environment.model_copy(update={"command": ("tritmark", "check", "mine.c")})
    record = only(gpu_record, mine, other).model_copy(update={"environment": environment})
    heading = "For the built-in kernel beside it:"

    def shown(*found: tuple[Run, str, float, float]) -> list[str]:
        monkeypatch.setattr("tritmark.harness.advise.advise.advise", lambda *_: weighed(record, *found))
        text = _advised(record, ledger.Ledger(()), "", as_json=False, most=10)
        return [line for line in text.splitlines() if line.startswith(("1.", "2.", "No rule", heading))]

    both = shown((other, "a", 5.0, 9.0), (mine, "b", 1.5, 2.0))
    assert both == ["1. b [b: no outcome yet]", heading, "2. a [a: no outcome yet]"]
    assert shown((other, "a", 5.0, 9.0))[:2] == ["No rule has a proposal for your kernel.", heading]
    assert shown((mine, "b", 1.5, 2.0)) == ["1. b [b: no outcome yet]"]
