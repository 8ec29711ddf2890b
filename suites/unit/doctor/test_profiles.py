"""What the doctor says of each GPU, and of the ways between them, on machines that are made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tritmark.harness.doctor import profiles
from tritmark.harness.doctor.check import State
from tritmark.harness.errors import DeviceUnavailableError
from tritmark.harness.machine import gpu
from tritmark.harness.machine.gpu import DeviceInfo, Health

WELL = Health(
    temperature=41,
    power=76.5,
    power_limit=700.0,
    clock_hz=345_000_000,
    clock_max_hz=1_980_000_000,
    throttle=("gpu_idle",),
    ecc=True,
    ecc_uncorrected=0,
    utilization=0,
    memory_used=1 << 30,
)


def info(index: int = 0) -> DeviceInfo:
    fields: dict[str, Any] = dict.fromkeys(DeviceInfo.__dataclass_fields__, 1)
    told = {"index": index, "name": "NVIDIA H200", "uuid": f"GPU-{index}", "capability": (9, 0), "memory": 140 << 30}
    return DeviceInfo(**fields | told | {"driver": ""})


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three GPUs that are well; the first and the last do not reach each other."""
    monkeypatch.setattr(gpu, "driver_problem", lambda: None)
    monkeypatch.setattr(gpu, "device_count", lambda: 3)
    monkeypatch.setattr(gpu, "device_info", info)
    monkeypatch.setattr(gpu, "mode_problem", lambda index: None)
    monkeypatch.setattr(gpu, "health", lambda index: WELL)
    monkeypatch.setattr(gpu, "reaches", lambda index: {0: (1,), 1: (0, 2), 2: (1,)}[index])


def test_every_gpu_and_the_ways_between_them() -> None:
    *each, ways = profiles.profiles(profiles.healths())
    assert [check.name for check in each] == ["GPU 0", "GPU 1", "GPU 2"]
    assert {check.state for check in each} == {State.OK}
    assert each[1].found == (
        "NVIDIA H200, compute capability 9.0, 140 GiB; 1.00 GiB of it in use; 345 of 1980 MHz; 41 °C; 76 of 700 W; "
        "ECC on"
    )
    assert "--device cuda:1" in each[1].means
    assert (ways.name, ways.state, ways.found) == ("GPU to GPU", State.BETTER, "not direct between 0 and 2")
    assert "topo" in ways.mend


def test_one_way_is_no_way() -> None:
    assert profiles.topology({0: (1,), 1: ()}).found == "not direct between 0 and 1"
    assert profiles.topology({0: (1,), 1: (0,)}).state is State.OK


@pytest.mark.parametrize(
    ("changed", "state", "words"),
    [
        ({"ecc_uncorrected": 3}, State.MEND, "replaced"),
        ({"throttle": ("sw_power_cap", "hw_thermal_slowdown")}, State.BETTER, "too hot"),
        ({"throttle": ("sw_power_cap",)}, State.BETTER, "nvidia-smi -i 2 -pl"),
        ({"throttle": ("applications_clocks_setting",)}, State.BETTER, "nvidia-smi -i 2 -rac"),
        ({"throttle": ("hw_power_brake_slowdown",)}, State.BETTER, "power supply"),
        ({"utilization": 90}, State.BETTER, "wait for other work on it to end"),
        ({"throttle": ("gpu_idle", "sync_boost"), "ecc": False}, State.OK, ""),
    ],
)
def test_what_is_wrong_is_told_with_what_to_do(changed: dict[str, Any], state: State, words: str) -> None:
    found = profiles.profile(info(2), replace(WELL, **changed))
    assert (found.name, found.state) == ("GPU 2", state)
    assert words in found.mend
    assert bool(found.mend) == (state is not State.OK)


def test_nothing_told_is_no_good_news() -> None:
    found = profiles.profile(info(), Health(note="NVML: Driver Not Loaded"))
    assert (found.state, "Driver Not Loaded" in found.found) == (State.BETTER, True)


def test_a_closed_gpu_has_to_be_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = DeviceUnavailableError("it is in compute mode PROHIBITED", next_step="run nvidia-smi -c DEFAULT")
    monkeypatch.setattr(gpu, "mode_problem", lambda index: problem if index == 1 else None)
    assert [each.state for each in profiles.profiles(profiles.healths())][:3] == [State.OK, State.MEND, State.OK]
    assert profiles.profile(info(1), WELL).mend == "run nvidia-smi -c DEFAULT"


def test_without_a_driver_there_is_nothing_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "driver_problem", lambda: DeviceUnavailableError("none", next_step="install it"))
    assert list(profiles.profiles(profiles.healths())) == []
