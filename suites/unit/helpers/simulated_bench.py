"""An op that doubles, kernels of it that do what a test says and take as long as it says, and their figures on a
simulated clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tritmark.harness.measure.buffers import Rotation
from tritmark.harness.record import Performance
from tritmark.harness.spec import (
    ArrayChange,
    Arrays,
    Axes,
    Ceiling,
    Device,
    KernelKey,
    Launch,
    Op,
    Tensor,
    Tier,
    ToleranceKind,
    Traffic,
    Variant,
    Workload,
)
from tritmark.harness.validate.cases import Cases, Material
from tritmark.harness.validate.performance import Bench
from tritmark.harness.validate.pieces import Exchangeable, exchangeable

KEY = KernelKey("simulated", "double", "none", "int32")
N = 5000
AXES = {"n": N}
TURN = Rotation(nbytes=1 << 19, wanted=1 << 19)
SMALL_TURN = Rotation(nbytes=1, wanted=1)
DOUBLE = Op(
    name="double",
    summary="y = 2 x",
    source="this test",
    axes=("n",),
    inputs=(Tensor("x", ("n",), "int32", ""),),
    outputs=(Tensor("y", ("n",), "int32", ""),),
    tolerance_kind=ToleranceKind.EXACT,
    input_families=("uniform",),
    generate=lambda axes, family, rng: {"x": rng.integers(-99, 99, axes["n"], dtype=np.int32)},
    outputs_like=lambda axes, key: {"y": ((axes["n"],), "int32")},
    reference=lambda inputs, axes, key: {"y": inputs["x"] * 2},
    traffic=lambda axes, key: Traffic(read=4 * axes["n"], written=4 * axes["n"], operations=axes["n"]),
    independent_axis=lambda axes, key: ("n", 1),
)


class SimulatedLaunch:
    """Takes 20 us by its clock, whatever it does."""

    def __init__(self, work: Callable[[int], Any], cost: float = 20_000) -> None:
        self.work, self.cost = work, cost
        self.ran, self.runs, self.threads_used, self.bad = "simulated", 0, 1, -1
        self.pointer: int | None = 1

    def run(self) -> None:
        self.runs += 1
        self.work(self.runs)


class SimulatedClock:
    name = "simulated"

    def sample(self, launches: Sequence[Any], first: int, calls: int) -> int:
        for call in range(calls):
            launches[(first + call) % len(launches)].run()
        return round(sum(launches[(first + call) % len(launches)].cost for call in range(calls)))  # type: ignore[no-any-return]


class SimulatedChangingClock(SimulatedClock):
    """See ChangingClock."""

    def sample_around(
        self,
        launches: Sequence[Any],
        first: int,
        calls: int,
        before: int,
        changes: Sequence[ArrayChange],
        *,
        warm: int = 0,
    ) -> int:
        if warm:
            self.sample(launches, first, warm)
        taken = self.sample(launches, first + warm, before) if before else 0
        for change in changes:
            change.to[...] = change.source
        return taken + (self.sample(launches, first + warm + before, calls - before) if before < calls else 0)


def probe(buffer: Any, threads: int) -> Launch:
    return SimulatedLaunch(lambda run: None, cost=buffer.nbytes / 10)


DEVICE = Device(
    type="simulated",
    summary="",
    features=frozenset,
    clock=SimulatedChangingClock,
    ceilings=lambda: {
        name: Ceiling(name=name, unit="bytes/s", summary="", bind=probe, work=int)
        for name in ("read", "write", "compute")
    },
    cores=lambda: 1,
)


MATERIAL = Material(DOUBLE, Workload(op="double", axes=AXES, family="uniform"), 0)
CHANGES = exchangeable(DOUBLE, KEY, AXES, MATERIAL.logical, tuple(MATERIAL.encoded("none")), np.random.default_rng(0))


Work = Callable[[Arrays, Arrays, int], Any]


def honest(inputs: Arrays, outputs: Arrays, run: int) -> None:
    np.multiply(inputs["x"], 2, out=outputs["y"])


def measured(
    cases: Cases,
    work: Work,
    *,
    op: Op = DOUBLE,
    changes: Exchangeable = CHANGES,
    seed: int = 0,
    turn: Rotation = TURN,
    device: Device = DEVICE,
    cost: float = 20_000,
    budget_s: float = 0.02,
) -> tuple[Performance, Bench]:
    """The figures of a kernel that does `work(inputs, outputs, which run)` and takes `cost` nanoseconds."""

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        return SimulatedLaunch(partial(work, inputs, outputs), cost)

    assert cases.second is not None
    first, second = cases.first.inputs, cases.second.inputs
    bench = Bench(
        op=op,
        key=KEY,
        inputs=first,
        fresh=second,
        axes=AXES,
        device=device,
        seed=seed,
        budget_s=budget_s,
        turn=turn,
        pieces=changes.pieces,
    )  # fmt: skip
    variant = Variant(key=KEY, name="simulated", tier=Tier.BASELINE, summary="", bind=bind)
    return bench.measure(variant, 1), bench
