"""A device that only a stranger's package knows goes all the way through run, verify and report, and what is wrong
with it is told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tritmark.harness.cli.exit_status import FAILED
from tritmark.harness.providers import GROUP
from tritmark.harness.record import Cause, Record, Run, Status
from tritmark.harness.store import read

pytestmark = pytest.mark.long

PACKAGE = Path(__file__).parent / "helpers" / "made_up_device.py"
UNIT = "MADE-UP-0001"
SUITE = """title = "made up"
[[workloads]]
op = "i2s_dequantize"
shapes = [{ n = 20000 }]
families = ["uniform"]
measure = true
[[workloads]]
op = "i2s_dequantize"
drawn = 8
"""
UNMEASURED = SUITE.replace("measure = true\n", "")


class Stranger:
    """A folder as pip leaves it, with the made-up device in it."""

    def __init__(self, folder: Path, fault: str = "", suite: str = SUITE) -> None:
        self.folder, self.fault = folder, fault
        metadata = folder / "stranger-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[{GROUP}]\nstranger = stranger_device:PROVIDER\n")
        shutil.copy(PACKAGE, folder / "stranger_device.py")
        (folder / "suite.toml").write_text(suite)

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(filter(None, [str(self.folder), os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, "PYTHONPATH": path, "MADE_UP_FAULT": self.fault, "COLUMNS": "200"}
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)

    def run(self) -> tuple[Record, subprocess.CompletedProcess[str]]:
        ended = self.python(
            "-m", "tritmark.harness", "run", "--device", "made_up", "--suite", "suite.toml", "--seed", "5"
        )
        found = list((self.folder / "results" / "runs").glob("*.json"))
        assert len(found) == 1, ended.stdout + ended.stderr
        return read(found[0]), ended

    def verify(self) -> subprocess.CompletedProcess[str]:
        (path,) = (self.folder / "results" / "runs").glob("*.json")
        return self.python("-m", "tritmark.harness", "verify", str(path))


def measured(record: Record) -> Run:
    (run,) = (run for run in record.runs if run.workload.axes)
    return run


def test_it_goes_through_run_verify_and_report(tmp_path: Path) -> None:
    stranger = Stranger(tmp_path)
    record, ended = stranger.run()
    assert {run.device for run in record.runs} == {"made_up"}
    assert [run.accuracy.status for run in record.runs] == [Status.PASS] * 2, ended.stdout
    run = measured(record)
    assert run.performance.status in {Status.PASS, Status.AMBIGUOUS}, run.performance.reason
    for footing in (run.performance.cold, run.performance.hot):
        assert footing is not None
        assert footing.timing.clock == "made-up ticks"
    assert run.memory.status in {Status.PASS, Status.AMBIGUOUS}, run.memory.reason
    assert run.device_memory is not None
    assert run.device_memory.peak == 5 * 20000
    assert run.upload is not None
    assert run.receipt is not None
    assert run.receipt.uuid == UNIT
    assert run.receipt.functions == ("made_up_i2s_dequantize",)
    assert run.device_stats is not None
    assert (run.device_stats.device, run.device_stats.launches, run.device_stats.bytes_uploaded) == ("made_up", 10, 3)
    assert run.device_stats.pool.refused == 2
    assert run.load is not None
    assert [sensors.unit for sensors in run.load.sensors] == [UNIT], "it is no GPU that NVML knows"
    (lane,) = (lane for lane in record.lanes if lane.device == "made_up")
    assert lane.ran
    assert lane.units == (UNIT,)
    assert {each.name for each in record.machine.ceilings if each.device == "made_up"} == {"read", "write", "compute"}
    verified = stranger.verify()
    assert verified.returncode == 0, verified.stdout + verified.stderr
    (page,) = (tmp_path / "results" / "html").glob("*.html")
    text = page.read_text(encoding="utf-8")
    assert UNIT in text
    assert "made_up_i2s_dequantize" in text.replace("<wbr>", "")
    assert "Memory pool of each device" in text


def test_a_wrong_kernel_fails(tmp_path: Path) -> None:
    record, ended = Stranger(tmp_path, "wrong", UNMEASURED).run()
    assert [run.accuracy.status for run in record.runs] == [Status.FAIL]
    assert ended.returncode == FAILED


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (
            "no proof",
            [
                "'nothing' is not a unit of made_up in this machine: MADE-UP-0001",
                "it launched no function",
                "0 launches for",
            ],
        ),
        ("another unit", ["'MADE-UP-0002' is not a unit of made_up in this machine: MADE-UP-0001"]),
    ],
)
def test_a_proof_that_is_missing_or_of_another_unit_is_told(tmp_path: Path, fault: str, told: list[str]) -> None:
    stranger = Stranger(tmp_path, fault, UNMEASURED)
    record, _ = stranger.run()
    assert all(run.accuracy.status is Status.PASS for run in record.runs)
    verified = stranger.verify()
    assert verified.returncode == FAILED
    for words in told:
        assert words in verified.stdout + verified.stderr


@pytest.mark.nightly
def test_without_a_clock_nothing_is_timed(tmp_path: Path) -> None:
    stranger = Stranger(tmp_path, "no clock")
    record, _ = stranger.run()
    assert all(run.accuracy.status is Status.PASS for run in record.runs)
    run = measured(record)
    assert run.performance.status is Status.NOT_RUN
    assert run.performance.cause is Cause.DEVICE
    assert run.performance.reason == "the device brings no clock"
    assert run.memory.status in {Status.PASS, Status.AMBIGUOUS}, run.memory.reason
    assert not [each for each in record.machine.ceilings if each.device == "made_up"]
    assert stranger.verify().returncode == 0


PUBLIC = """
import numpy as np
from tritmark.harness.errors import InsufficientMemoryError
from tritmark.kernels import QuantizedLinear, i2s_dequantize, pack_weights, ternary_matmul
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.dispatch.offload import kept, transfers
from tritmark.kernels.ternary_matmul.api import with_receipt

rng = np.random.default_rng(1)
q = rng.integers(-128, 128, 1000, dtype=np.int8)
assert np.array_equal(i2s_dequantize(q, 0.7, device="made_up"), i2s_dequantize(q, 0.7))
with kept():
    for values in (q, q[::-1].copy(), q[:500]):
        assert np.array_equal(i2s_dequantize(values, 0.7, device="made_up"), i2s_dequantize(values, 0.7))
weights = pack_weights(rng.integers(-1, 2, (65, 321), dtype=np.int8), 0.3)
activations = rng.integers(-128, 128, (3, 321), dtype=np.int8)
out, receipt = with_receipt(activations, weights, act_scale=3.0, device="made_up")
assert np.array_equal(out, ternary_matmul(activations, weights, act_scale=3.0))
assert (receipt.uuid, receipt.launches, receipt.functions) == ("MADE-UP-0001", 1, ("made_up_ternary_matmul",)), receipt
there = weights.packed_as("tile64", "made_up")
assert there is weights.packed_as("tile64", "made_up")
assert not np.array_equal(np.asarray(there), weights.packed_as("tile64"))
W, x = rng.standard_normal((64, 130)).astype(np.float32), rng.standard_normal((2, 3, 130)).astype(np.float32)
layer = QuantizedLinear(W, device="made_up")
assert np.array_equal(layer(x), QuantizedLinear(W)(x))
assert layer.receipt.functions == ("made_up_activation_quantize", "made_up_ternary_matmul")
device = dispatch.registry().devices["made_up"]
values = rng.standard_normal((20, 30)).astype(np.float32)
into = np.zeros((20, 60), np.float32)
transfers(device).download(transfers(device).upload(values[:, ::2]), into[:, ::4])
assert np.array_equal(into[:, ::4], values[:, ::2])
assert not into[:, 1::4].any()
free = device.memory().available()
try:
    i2s_dequantize(np.zeros(free // 4, np.int8), 1.0, device="made_up")
except InsufficientMemoryError as error:
    assert error.required > error.available == free, error
else:
    raise AssertionError("too much was taken")
assert device.memory().available() == free
"""


def test_public_functions_run_on_it(tmp_path: Path) -> None:
    ended = Stranger(tmp_path).python("-c", PUBLIC)
    assert ended.returncode == 0, ended.stderr
