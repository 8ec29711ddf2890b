"""The memory dimension on a device with separate memory, in the simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from memory_here import memory_use

from tritmark.harness.record import MemoryUse, Status
from tritmark.harness.spec import Arrays, Axes, Variant
from tritmark.harness.validate import memory
from tritmark.kernels import PROVIDER
from tritmark.kernels.cuda.context import CudaContext
from tritmark.kernels.cuda.device import DEVICE

pytestmark = pytest.mark.cuda

AXES = {"n": 4096, "block": 256, "M": 4, "N": 64, "K": 256}
LARGE = 1 << 20
OPS = {op.name: op for op in PROVIDER.ops}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer calls than in production."""
    monkeypatch.setattr(memory, "BUDGET_S", 0.05)


def named(op: str) -> Variant:
    return next(each for each in PROVIDER.variants if each.key.op == op and each.key.device == "cuda")


def used(variant: Variant) -> MemoryUse:
    op = OPS[variant.key.op]
    axes = {name: AXES[name] for name in op.axes}
    inputs = op.encode(op.generate(axes, op.input_families[0], np.random.default_rng(0)), axes, variant.key.format)
    return memory_use(DEVICE, op, variant, inputs, axes, threads=1)


class PlantedMutant:
    """A launch, and the additional work of each call."""

    def __init__(self, launch: Any, more: Any) -> None:
        self._launch, self._more = launch, more

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launch, name)

    def run(self) -> None:
        self._launch.run()
        self._more()


def planted(more: Any = lambda: None, bound: Any = lambda: None, **change: Any) -> Variant:
    variant = named("i2s_dequantize")

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Any:
        launch = PlantedMutant(variant.bind(inputs, outputs, axes, threads), more)
        launch.kept = bound()  # type: ignore[attr-defined]
        return launch

    return replace(variant, bind=bind, **change)


@pytest.mark.parametrize("op", ["i2s_dequantize", "absmean_quantize", "activation_quantize", "pack_codes"])
def test_honest_kernels_pass(simulator: CudaContext, op: str) -> None:
    found = used(named(op))
    assert found.status is Status.PASS, found.reason
    assert found.host_peak is None
    assert found.device_peak is not None
    assert found.device_leak is not None
    assert found.device_leak.median == 0
    assert found.persistent == 0


def test_a_declared_workspace_is_counted(simulator: CudaContext) -> None:
    found = used(named("absmean_quantize"))
    assert found.workspace > 0
    assert found.device_peak is not None
    assert found.device_peak >= found.workspace


def test_an_array_kept_in_each_call_is_found(simulator: CudaContext) -> None:
    kept: list[Any] = []
    found = used(planted(lambda: kept.append(simulator.array((100,), "uint8"))))
    assert found.status is Status.FAIL
    assert found.device_leak is not None
    assert found.device_leak.low > 0
    assert f"leaks {found.device_leak.median:.1f} bytes of the device's memory a call" in found.reason


def test_an_array_kept_of_each_launch_is_found(simulator: CudaContext) -> None:
    kept: list[Any] = []
    found = used(planted(bound=lambda: kept.append(simulator.array((100,), "uint8"))))
    assert found.status is Status.FAIL
    assert "bytes of the device's memory of each dropped launch" in found.reason


def test_an_array_that_is_kept_once_is_no_leak(simulator: CudaContext) -> None:
    kept: list[Any] = []
    found = used(planted(lambda: kept or kept.append(simulator.array((LARGE,), "uint8"))))  # type: ignore[func-returns-value]
    assert found.status is Status.PASS, found.reason
    assert found.persistent is not None
    assert found.persistent >= LARGE


def test_an_undeclared_workspace_is_found(simulator: CudaContext) -> None:
    taken = lambda: simulator.array((LARGE,), "uint8")  # noqa: E731
    hidden = used(planted(bound=taken))
    assert hidden.status is Status.FAIL
    assert (
        f"takes {hidden.device_peak} bytes of the device's memory beyond inputs and outputs and declares 0"
        in hidden.reason
    )
    told = used(planted(bound=taken, workspace=lambda axes: LARGE))
    assert told.overhead is not None
    assert told.overhead >= 2
    assert "declares" not in told.reason
    assert "times its 4096 bytes of inputs" in told.reason
