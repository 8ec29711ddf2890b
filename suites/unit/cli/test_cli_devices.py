"""A run on several devices, and where one is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from command_line import RUN, SUITE, Outcome, only_here, only_record

from tritmark.harness import providers
from tritmark.harness.cli import exit_status
from tritmark.harness.judge.beginning import options_of
from tritmark.harness.judge.request import Request
from tritmark.harness.record import Status
from tritmark.harness.spec import Launch
from tritmark.harness.text.outcome import outcome as outcome_of
from tritmark.kernels import PROVIDER

pytestmark = pytest.mark.long


def with_npu(
    monkeypatch: pytest.MonkeyPatch, missing: str | None, *, simulated: bool = False, cpu_variants: bool = True
) -> None:
    """A further device, whose one kernel is the CPU's plain one under another name."""

    def bind(*arguments: Any) -> Launch:
        launch: Any = plain.bind(*arguments)
        return cast(Launch, Renamed(launch))

    class Renamed:
        ran = "plain"
        runs = 0
        threads_used = 1
        pointer = None

        def __init__(self, launch: Launch) -> None:
            self._launch = launch

        def run(self) -> None:
            self._launch.run()
            self.runs += 1

        @property
        def bad(self) -> int:
            return self._launch.bad

    def features() -> frozenset[str]:
        assert missing is None, "a missing device was asked for its features"
        return frozenset()

    plain = next(variant for variant in PROVIDER.variants if variant.id == "cpu/i2s_quantize/none/int8/scalar")
    cpu = next(device for device in PROVIDER.devices if device.type == "cpu")
    npu = replace(
        cpu, type="npu", features=features, forced=lambda: None, missing=lambda: missing, simulated=lambda: simulated
    )
    variant = replace(plain, key=replace(plain.key, device="npu"), name="plain", bind=bind)
    others = tuple(each for each in PROVIDER.variants if each.key.device == "cpu") if cpu_variants else ()
    provider = replace(PROVIDER, devices=(cpu, npu), variants=(*others, variant), workloads="")
    only_here(monkeypatch, provider)


WHY = "no npu is plugged in; next: plug one in"


def test_a_missing_device_is_left_out_and_said(
    tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_npu(monkeypatch, WHY)
    outcome = tritmark(*RUN)
    assert outcome.status == 0, outcome.err
    record = only_record()
    assert {run.device for run in record.runs} == {"cpu"}
    assert [(lane.device, lane.ran, lane.reason) for lane in record.lanes] == [("cpu", True, ""), ("npu", False, WHY)]
    assert f"npu: not run: {WHY}" in outcome.out


@pytest.mark.parametrize("arguments", [("--device", "npu"), ("--variant", "npu/*"), ("--device", "n*")])
def test_a_missing_device_that_was_asked_for_is_status_3(
    tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    with_npu(monkeypatch, WHY)
    outcome = tritmark(*RUN, *arguments)
    assert outcome.status == exit_status.UNAVAILABLE == 3
    assert f"npu is missing: {WHY}" in outcome.err
    record = only_record()
    assert record.runs == ()
    assert not outcome_of(record).passed
    (lane,) = (lane for lane in record.lanes if lane.device == "npu")
    assert (lane.ran, lane.reason) == (False, WHY)


def test_one_device_of_several(tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    with_npu(monkeypatch, None)
    assert tritmark(*RUN, "--device", "npu").status == 0
    record = only_record()
    assert {run.kernel for run in record.runs} == {"npu/i2s_quantize/none/int8/plain"}
    assert all(run.accuracy.status is Status.PASS for run in record.runs)
    assert [(lane.device, lane.ran) for lane in record.lanes] == [("cpu", False), ("npu", True)]
    assert tritmark(*RUN, "--device", "cpu", "--out", "cpu").status == 0
    assert {run.device for run in only_record(Path("cpu")).runs} == {"cpu"}
    outcome = tritmark(*RUN, "--device", "tpu")
    assert outcome.status == 2
    assert "--device 'tpu' matches nothing that is installed; did you mean 'npu'? legal: cpu, npu" in outcome.err


def test_a_simulated_device_says_so_everywhere(
    tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_npu(monkeypatch, None, simulated=True)
    Path("suite.toml").write_text(SUITE.replace("shapes", "measure = true\nshapes"))
    outcome = tritmark(*RUN, "--device", "npu")
    assert outcome.status == 0, outcome.err
    record = only_record()
    assert {run.performance.reason for run in record.runs} == {"simulated: it has no speed"}
    (lane,) = (lane for lane in record.lanes if lane.device == "npu")
    assert (lane.ran, lane.simulated, lane.reason) == (True, True, "simulated: it has no speed")
    assert "npu: ran, simulated: it has no speed" in outcome.out


def test_the_list_of_variants_says_what_is_missing(
    tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_npu(monkeypatch, WHY)
    assert WHY in " ".join(tritmark("list", "variants").out.split())


def test_a_run_is_resumed_on_the_devices_it_was_begun_on(
    tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_npu(monkeypatch, None)
    options = options_of(providers.load(), Request(suite=None))
    assert options.devices == ("cpu", "npu")
    with_npu(monkeypatch, WHY)
    assert options_of(providers.load(), Request(suite=None)).devices == ("cpu",)
    with_npu(monkeypatch, None, simulated=True)
    assert options_of(providers.load(), Request(suite=None)).devices == ("cpu", "npu (simulated)")
