"""tritmark with the installed wheel of the package: `tox -e plugin`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritmark_base3
from hypothesis import given, settings
from hypothesis import strategies as st

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.providers import load
from tritmark.harness.record import Record, Status
from tritmark.kernels import FORMATS, QuantizedLinear, pack_weights
from tritmark.kernels.cuda.context import SELECT
from tritmark.kernels.native.cpu import FORCE
from tritmark.kernels.ternary_matmul.api import with_receipt

BASE3 = FORMATS["base3"]
DEVICES = {"cpu": "scalar", "cuda": "warp"}
DTYPES = {"int32": np.int32, "float32": np.float32, "bfloat16": ml_dtypes.bfloat16}
KEYS = [f"{device}/ternary_matmul/base3/{dtype}/{name}" for device, name in DEVICES.items() for dtype in DTYPES]


# The package


def test_the_wheel_is_what_is_installed() -> None:
    found = distribution("tritmark-base3")
    names = {path.name.partition(".")[0] + "".join(path.suffixes[-1:]) for path in found.files or ()}
    assert {"matmul.cu", "_matmul.so", "base3.toml", "py.typed"} <= names
    assert found.read_text("direct_url.json") is None or '"dir_info"' not in str(found.read_text("direct_url.json"))
    assert load().providers["base3"] is tritmark_base3.PROVIDER
    assert not load().problems


def test_it_is_listed(tritmark: Callable[..., str]) -> None:
    assert "base3" in [line.split()[0] for line in tritmark("list", "formats").splitlines() if line]
    variants = {
        line.split()[0]: line.split()[1]
        for line in tritmark("list", "variants").splitlines()
        if "/" in line and line[0] != "("
    }
    assert [name for name in variants if "base3" in name] == KEYS
    assert {variants[name] for name in KEYS} == {"yes"}
    assert "Products from base3" in tritmark("list", "workloads")


def test_its_device_functions_begin_as_it_says() -> None:
    assert tritmark_base3.cuda.KERNEL.name.startswith(tritmark_base3.PROVIDER.functions)


# The format


def encoded(codes: Any, scale: float) -> bytes:
    """Packs as described in format.py, one digit at a time."""
    body = bytearray()
    for row in codes.tolist():
        padded = row + [0] * (-len(row) % 5)
        body += bytes(sum((w + 1) * 3**i for i, w in enumerate(padded[j : j + 5])) for j in range(0, len(padded), 5))
    return bytes(body) + np.float32(scale).tobytes()


@given(seed=st.integers(0, 2**32), n=st.integers(1, 9), k=st.integers(1, 40))
def test_bytes_are_those_that_it_describes(seed: int, n: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    codes, scale = rng.integers(-1, 2, (n, k), dtype=np.int8), np.float32(rng.uniform(0, 10))
    packed = BASE3.pack(codes, scale, tail="error")
    assert packed.tobytes() == encoded(codes, float(scale))
    assert packed.shape == BASE3.packed_shape((n, k))
    found, found_scale = BASE3.unpack(packed, (n, k), tail="error")
    np.testing.assert_array_equal(found, codes)
    assert found_scale == scale


def test_1_6_bits_are_a_weight() -> None:
    assert BASE3.bits_per_weight((2560, 2560)) == pytest.approx(1.6, rel=1e-5)


@pytest.mark.parametrize(
    ("byte", "value", "told"),
    [
        (0, 243, "243 at byte 0"),
        (5, 255, "255 at byte 5"),
        (3, 0, "padding of row 1"),
        (-1, 0xFF, "packed is nan|scale is"),
    ],
)
def test_bytes_that_no_packer_writes_are_refused(byte: int, value: int, told: str) -> None:
    packed = BASE3.pack(np.zeros((3, 6), np.int8), 1.0)
    packed[byte] = value
    if byte == -1:
        packed[-2] = 0xFF
    with pytest.raises(InvalidArgumentError, match=told):
        BASE3.unpack(packed, (3, 6))


# The public functions


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32), m=st.integers(1, 11), n=st.integers(1, 40), k=st.integers(1, 700))
def test_products_are_computed_straight_from_it(device: str, dtype: str, seed: int, m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    codes, scale = rng.integers(-1, 2, (n, k), dtype=np.int8), np.float32(rng.uniform(1e-3, 10))
    activations, act_scale = (
        rng.integers(-128, 128, (m, k), dtype=np.int8),
        rng.uniform(1e-2, 1e3, m).astype(np.float32),
    )
    weights = pack_weights(codes, scale, format="base3", device=device)
    out, receipt = with_receipt(activations, weights, act_scale=act_scale, dtype=dtype, device=device)
    exact = activations.astype(np.int64) @ codes.astype(np.int64).T
    if dtype == "int32":
        expected = exact.astype(np.int32)
    else:
        factors = np.float64(scale) / act_scale.astype(np.float64)
        expected = (exact * factors[:, np.newaxis]).astype(np.float32).astype(DTYPES[dtype])
    assert out.tobytes() == expected.tobytes()
    assert (receipt.kernel, receipt.note) == (f"{device}/ternary_matmul/base3/{dtype}/{DEVICES[device]}", "")
    assert receipt.ran == DEVICES[device]


def test_the_longest_sums_are_exact() -> None:
    """128 * K is just within int32."""
    k = tritmark_base3.cpu.MAX_K
    weights = pack_weights(np.full((1, k), -1, np.int8), 1.0, format="base3")
    out, receipt = with_receipt(np.full((1, k), -128, np.int8), weights, dtype="int32")
    assert out.tolist() == [[128 * k]]
    assert "base3" in receipt.kernel


@pytest.mark.parametrize("forced", ["scalar", "sse41"])
def test_a_forced_instruction_set_leaves_it(monkeypatch: pytest.MonkeyPatch, forced: str) -> None:
    """It has the name of the lowest step, which is used for a higher step without a kernel."""
    monkeypatch.setenv(FORCE, forced)
    _, receipt = with_receipt(np.ones((1, 6), np.int8), pack_weights(np.ones((2, 6), np.int8), 1.0, format="base3"))
    assert receipt.kernel == "cpu/ternary_matmul/base3/float32/scalar"


@pytest.mark.parametrize("device", DEVICES)
def test_a_layer_computes_from_it(device: str) -> None:
    rng = np.random.default_rng(3)
    weights, x = rng.standard_normal((40, 333), dtype=np.float32), rng.standard_normal((2, 3, 333), dtype=np.float32)
    layer, other = (QuantizedLinear(weights, format=format, device=device) for format in ("base3", None))
    np.testing.assert_array_equal(layer(x), other(x))
    assert layer.native
    assert layer.weights.format == "base3"
    assert layer.receipt is not None
    assert other.receipt is not None
    assert f"{device}/ternary_matmul/base3/float32/{DEVICES[device]}" in layer.receipt.kernel
    assert "base3" not in other.receipt.kernel
    assert layer.receipt.note == ""


# The commands


def test_its_walk_through_memory_is_shown() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "tritmark.kernels.cuda.access", "*/base3/float32/*"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "cuda/ternary_matmul/base3/float32/warp" in shown.stdout


RESULTS = Path(os.environ["TRITMARK_PLUGIN_RESULTS"]) if "TRITMARK_PLUGIN_RESULTS" in os.environ else None
"""Folder of the Records for test_uninstalled.py."""


Judged = Callable[[str], tuple[Path, Record, str]]


@pytest.fixture(scope="module")
def judged(tritmark: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """The Record of the package's own suite on a device: its file, itself, and its report."""
    made: dict[str, tuple[Path, Record, str]] = {}

    def on(device: str) -> tuple[Path, Record, str]:
        if device not in made:
            folder = (RESULTS or tmp_path_factory.mktemp("results")) / device
            tritmark("run", "--op", "ternary_matmul", "--suite", "base3", "--device", device, "--out", folder)
            (file,) = folder.glob("runs/*.json")
            (page,) = folder.glob("html/*.html")
            made[device] = file, Record.model_validate_json(file.read_text()), page.read_text()
        return made[device]

    return on


@pytest.mark.parametrize("device", DEVICES)
def test_its_kernels_are_judged(judged: Judged, device: str) -> None:
    _, record, _ = judged(device)
    assert {run.kernel for run in record.runs} == {key for key in KEYS if key.startswith(device)}
    assert {run.accuracy.status for run in record.runs} == {Status.PASS}
    receipts = [run.receipt for run in record.runs]
    assert all(receipt is not None and receipt.runs for receipt in receipts)
    simulated = device == "cuda" and os.environ.get(SELECT) == "simulator"
    assert [(lane.ran, lane.simulated) for lane in record.lanes if lane.device == device] == [(True, simulated)]
    (timed,) = (run for run in record.runs if run.workload.axes == {"M": 1, "N": 640, "K": 2560})
    assert timed.receipt is not None
    if device == "cpu":
        assert timed.receipt.code_hash == tritmark_base3.cpu.CODE_HASH
    else:
        assert timed.receipt.functions == ("base3_gpu_matmul",)
    if simulated:
        assert timed.performance.cold is None
        return
    assert timed.memory.bits_per_weight == pytest.approx(1.6, rel=1e-2)
    assert timed.performance.hot is not None
    assert timed.performance.hot.timing.clock != "Python loop"


@pytest.mark.parametrize("device", DEVICES)
def test_its_records_can_be_believed(tritmark: Callable[..., str], judged: Judged, device: str) -> None:
    file, _, _ = judged(device)
    checks = json.loads(tritmark("verify", file, "--allow-simulated", "--json"))
    assert checks["passed"]
    (receipts,) = (each["told"] for each in checks["checks"] if each["name"] == "receipts")
    assert receipts.startswith("0 Runs" if device == "cpu" else "4 Runs claim cuda")


@pytest.mark.parametrize("device", DEVICES)
def test_reports_show_it(tritmark: Callable[..., str], judged: Judged, device: str) -> None:
    file, _, page = judged(device)
    for key in KEYS:
        assert (key in page) == key.startswith(device)
    folder = file.parents[1]
    assert "base3" in tritmark("report", file.stem, "--out", folder, "--format", "md")
    tritmark("advise", file.stem, "--out", folder)
