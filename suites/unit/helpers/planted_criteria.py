"""Kernels of a small op for the tests of `tritmark criteria`: honest ones, and ones with a planted fault. Their times
are those of a simulated clock."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import made_up_device
import numpy as np
from simulated_bench import DOUBLE
from simulated_machine import SimulatedClock, SimulatedLaunch

from tritmark.harness.criteria.judge import judged
from tritmark.harness.criteria.model import CriterionResult
from tritmark.harness.criteria.plan import BaselineTable, CriteriaPlan, KernelTable
from tritmark.harness.providers import Installed
from tritmark.harness.spec import (
    Arrays,
    Axes,
    Device,
    KernelKey,
    Launch,
    Peer,
    Proof,
    Provider,
    PublicCall,
    Tier,
    Variant,
)
from tritmark.harness.worker import Workers
from tritmark.kernels.native.cpu import DEVICE as CPU

CALL = "double, out="
LIBC = ctypes.CDLL(None)
LIBC.malloc.restype = ctypes.c_void_p
Work = Callable[[Arrays, Arrays], None]
Cost = Callable[[int], float]


class PlantedLaunch(SimulatedLaunch):
    """A launch that reports as a test says."""

    def __init__(self, cost: float, work: Callable[[], None], threads: int, uuid: str = "") -> None:
        super().__init__(cost, work, threads=threads)
        self.uuid = uuid


def linear(n: int) -> float:
    return 100.0 + 0.5 * n


def honest(inputs: Arrays, outputs: Arrays) -> None:
    np.multiply(inputs["x"], 2, out=outputs["y"])


def one_in(calls: int) -> Work:
    """Wrong in the first element, on one in so many calls."""
    made: list[int] = []

    def work(inputs: Arrays, outputs: Arrays) -> None:
        honest(inputs, outputs)
        made.append(1)
        if len(made) % calls == 0:
            outputs["y"][0] += 1

    return work


def zeros(inputs: Arrays, outputs: Arrays) -> None:
    outputs["y"][...] = 0


def dropped_tail(inputs: Arrays, outputs: Arrays) -> None:
    whole = inputs["x"].size // 16 * 16
    np.multiply(inputs["x"][:whole], 2, out=outputs["y"][:whole])


def past_the_end(inputs: Arrays, outputs: Arrays) -> None:
    honest(inputs, outputs)
    ctypes.c_ubyte.from_address(outputs["y"].ctypes.data + outputs["y"].nbytes).value = 1


def leaky(inputs: Arrays, outputs: Arrays) -> None:
    ctypes.memset(LIBC.malloc(8192), 1, 8192)
    honest(inputs, outputs)


def hungry(inputs: Arrays, outputs: Arrays) -> None:
    """Takes three times its inputs."""
    taken = np.ones(3 * inputs["x"].nbytes, np.uint8)
    honest(inputs, outputs)
    del taken


def variant(
    work: Work = honest, cost: Cost = linear, *, name: str = "best", tier: Tier = Tier.OPTIMIZED, threads: int = 0
) -> Variant:
    """A kernel of the host; `threads`: those that take part, by default all that it may use."""

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, allowed: int) -> Launch:
        return PlantedLaunch(cost(axes["n"]), lambda: work(inputs, outputs), threads or allowed)

    return Variant(key=KernelKey("cpu", "double", "none", "int32"), name=name, tier=tier, summary="", bind=bind)


def on_device(work: Work = honest, cost: Cost = linear, uuid: Callable[[], str] = lambda: "MADE-UP-0001") -> Variant:
    """A kernel of a made-up device with its own memory."""

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, allowed: int) -> Launch:
        def run() -> None:
            there = {"y": np.empty(axes["n"], np.int32)}
            work({"x": inputs["x"].get()}, there)
            outputs["y"].put(there["y"])

        return PlantedLaunch(cost(axes["n"]), run, 1, uuid())

    key = KernelKey(made_up_device.NAME, "double", "none", "int32")
    return Variant(key=key, name="on it", tier=Tier.OPTIMIZED, summary="", bind=bind)


def proof(launch: Any) -> Proof | None:
    return Proof(uuid=launch.uuid) if getattr(launch, "uuid", "") else None


def call(device: str, prepare: Callable[[Arrays, Axes, int], Callable[[], Any]] | None = None) -> PublicCall:
    """The public call on a device; by default one that doubles."""

    def doubling(inputs: Arrays, axes: Axes, threads: int) -> Callable[[], Any]:
        return lambda: inputs["x"] * 2

    return PublicCall(
        name=CALL,
        op="double",
        device=device,
        dtypes=frozenset({"int32"}),
        takes="",
        prepare=prepare or doubling,
    )


def peer(compute: Callable[[Any], Any] = lambda x: x * 2, **more: Any) -> Peer:
    """Another implementation."""

    class Run:
        threads_used, bad, pointer, ran, runs = 1, -1, None, "peer", 0

        def __init__(self, inputs: Arrays, outputs: Arrays) -> None:
            self._inputs, self._outputs = inputs, outputs

        def run(self) -> None:
            self._outputs["y"][...] = compute(self._inputs["x"])

    return Peer(
        name="other",
        op="double",
        formats=frozenset({"none"}),
        dtypes=frozenset({"int32"}),
        source="",
        version=lambda: "1.0",
        missing=more.pop("missing", lambda: None),
        encode=lambda inputs, axes: inputs,
        bind=lambda inputs, outputs, axes, threads: Run(inputs, outputs),
        outputs=("y",),
        **more,
    )


def installed(
    *variants: Variant, calls: Sequence[PublicCall] = (), device: Device | None = None, noise: float = 0.0, **more: Any
) -> Installed:
    """Providers with these kernels beside a plain one of the host, on a simulated clock."""
    host = replace(CPU, clock=lambda: SimulatedClock(noise), cores=lambda: 2, thread_times=None)
    made_up = replace(made_up_device.DEVICE, clock=lambda: SimulatedClock(noise), proof=proof)
    plain = variant(cost=lambda n: 10.0 * n, name="plain", tier=Tier.BASELINE)
    provider = Provider(
        ops=(DOUBLE,),
        variants=(plain, *variants),
        devices=(host, device or made_up),
        calls=lambda: calls or (call("cpu"), call(made_up_device.NAME)),
        **more,
    )
    return Installed({"planted": provider})


def plan(**criterion: Any) -> CriteriaPlan:
    """A plan with one criterion."""
    given = {"id": "it", "source": "this test", "words": "", "threshold": 0, **criterion}
    return CriteriaPlan.model_validate(
        {
            "kernels": {
                "double": KernelTable(op="double", format="none", dtype="int32", axis="n", family="uniform", call=CALL)
            },
            "baseline": BaselineTable(device="cpu", plain="plain"),
            "criteria": [given],
        }
    )


def judge(found: Installed, device: str = "cpu", *, seed: int = 1, **criterion: Any) -> CriterionResult:
    """One criterion, with kernels in this process."""
    with Workers(found, isolated=False) as workers:
        (result,) = judged(found, plan(**criterion), workers, found.registry.devices[device], seed)
    return result
