"""What a Record keeps of the machine's GPUs, and how the command line shows it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from tritmark.harness.cli import tables
from tritmark.harness.errors import DeviceUnavailableError
from tritmark.harness.machine import gpu
from tritmark.harness.machine.gpu import DeviceInfo, Health
from tritmark.harness.record import Machine, Record
from tritmark.harness.record.facts import gpu_facts, machine_facts

HEALTH = Health(temperature=41, power=99.5, throttle=(), note="made up")


def info(index: int) -> DeviceInfo:
    sizes = {
        name: 1
        for name in DeviceInfo.__dataclass_fields__
        if name not in {"index", "name", "uuid", "capability", "driver", "memory_clock_hz", "memory_bus_bits"}
    }
    return DeviceInfo(
        index=index,
        name="Made-up GPU",
        uuid=f"GPU-{index}",
        capability=(9, 0),
        driver="1, CUDA 2",
        memory_clock_hz=1000,
        memory_bus_bits=80,
        **sizes,
    )


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two GPUs."""
    for name in gpu.FAKES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gpu, "driver_problem", lambda: None)
    monkeypatch.setattr(gpu, "device_count", lambda: 2)
    monkeypatch.setattr(gpu, "device_info", info)
    monkeypatch.setattr(gpu, "health", lambda index: HEALTH)
    monkeypatch.setattr(gpu, "reaches", lambda index: (1 - index,))


@pytest.mark.usefixtures("two")
def test_every_gpu_is_kept_with_its_health() -> None:
    first, second = gpu_facts()
    assert (first.uuid, second.uuid) == ("GPU-0", "GPU-1")
    assert first.capability == (9, 0)
    assert first.peak_bandwidth == 2 * 1000 * 80 / 8
    assert first.health == HEALTH
    assert (first.reaches, second.reaches) == ((1,), (0,))
    assert not first.faked


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("name", gpu.FAKES)
def test_a_variable_that_decides_in_place_of_the_machine_is_kept(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "cuda")
    assert all(each.faked for each in gpu_facts())


def test_without_a_driver_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        gpu, "driver_problem", lambda: DeviceUnavailableError("no NVIDIA driver", next_step="install it")
    )
    assert gpu_facts() == ()


def test_gpus_belong_to_the_machine_s_identity(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(gpu, "driver_problem", lambda: DeviceUnavailableError("no NVIDIA driver", next_step="install it"))
        without = machine_facts()
    request.getfixturevalue("two")
    within = machine_facts()
    assert (without.gpus, len(within.gpus)) == ((), 2)
    assert without.id != within.id


def shown(what: Table) -> str:
    console = Console(width=200)
    with console.capture() as told:
        console.print(what)
    return told.get()


def test_the_table_of_facts_has_them(gpu_record: Record) -> None:
    facts = shown(tables.facts(gpu_record.machine))
    for text in ("gpu 0: UUID", gpu_record.machine.gpus[0].uuid, "4.92 TB/s", "41 °C"):
        assert text in facts


def test_what_is_simulated_is_told(simulated_record: Record, gpu_record: Record) -> None:
    assert [(str(line), str(line.style)) for line in tables.lanes(simulated_record)] == [
        ("cuda: ran", "yellow"),
    ]
    simulated, honest = (
        "".join(shown(table) for table in tables.best(record, 160)) for record in (simulated_record, gpu_record)
    )
    assert "cuda (simulated)" in simulated
    assert "simulated" not in honest
    assert "cuda" in honest


def test_a_record_takes_no_unknown_fact_of_a_gpu(gpu_record: Record) -> None:
    document = gpu_record.machine.model_dump()
    assert Machine.model_validate(document) == gpu_record.machine
    document["gpus"][0]["colour"] = "green"
    with pytest.raises(ValidationError, match="colour"):
        Machine.model_validate(document)
