"""Measurements of the league table: kernels and whole calls, interleaved, each in its worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tritmark.harness.errors import DeviceError
from tritmark.harness.league.turns import by_turns_task, calls_task
from tritmark.harness.providers import Installed
from tritmark.harness.spec import Arrays, Axes, KernelKey, PublicCall
from tritmark.harness.worker.site import Site
from tritmark.kernels import PROVIDER
from tritmark.kernels.provider.calls import CALLS

if TYPE_CHECKING:
    from tritmark.kernels.cuda.context import CudaContext

AXES = {"M": 2, "N": 64, "K": 256}
TILES = {"M": 2, "N": 128, "K": 256}
"""Whole tiles of every project."""
KEY = KernelKey("cpu", "ternary_matmul", "tile64", "float32")


def calls(op: str) -> list[Any]:
    """The calls of an op, each with the marks that it needs."""
    marks = {"cuda": [pytest.mark.cuda]}
    return [pytest.param(each, marks=marks.get(each.device, [])) for each in CALLS if each.op == op]


@pytest.fixture(scope="module")
def installed() -> Installed:
    return Installed({"builtin": PROVIDER})


@pytest.fixture(scope="module")
def logical(installed: Installed) -> Arrays:
    return installed.ops[KEY.op].generate(AXES, "uniform", np.random.default_rng(0))


def test_two_kernels_of_different_formats_by_turns(installed: Installed, logical: Arrays) -> None:
    op = installed.ops[KEY.op]
    own, best = (
        next(each for each in installed.registry.variants if each.id == f"cpu/ternary_matmul/{format}/float32/scalar")
        for format in ("tile64", "i2_s_x86")
    )
    encoded = [op.encode(logical, AXES, variant.key.format) for variant in (own, best)]
    found = by_turns_task(Site(installed, own), best.id, encoded[0], encoded[1], AXES, 1, 0, False)
    assert found is not None
    assert 0 < found.low <= found.median <= found.high
    assert found.pairs >= 2
    # Too small to be cold.
    assert by_turns_task(Site(installed, own), best.id, encoded[0], encoded[1], AXES, 1, 0, True) is None


def test_whole_calls_name_the_quickest_and_what_is_missing(installed: Installed, logical: Arrays) -> None:
    def broken(inputs: Arrays, axes: Axes, threads: int) -> Callable[[], Any]:
        raise AssertionError("it is missing, and must not be prepared")

    absent = replace(CALLS[0], name="absent", missing=lambda: "not installed", prepare=broken)
    calls = (*(each for each in CALLS if "ONNX" not in each.name), absent)
    mine = Installed({"builtin": replace(PROVIDER, calls=lambda: calls)})
    variant = mine.registry.select_best(KEY, AXES)
    first, *others, last = calls_task(Site(mine, variant), logical, AXES, "float32", 1, 0, "one scale")
    assert first.behind is None
    assert first.ns is not None
    assert first.ns > 0
    for each in others:
        assert each.behind is not None
        assert each.ns == first.ns * each.behind.median  # the two columns of the table agree
    assert len(others) == 2
    assert (last.name, last.missing, last.ns) == ("absent", "not installed", None)
    assert all(each.missing for each in calls_task(Site(mine, variant), logical, AXES, "int32", 1, 0, "one scale"))
    assert not calls_task(Site(mine, variant), logical, AXES, "float32", 1, 0, "a scale for each row")


@pytest.mark.cuda
def test_two_kernels_of_the_gpu_by_turns(installed: Installed, logical: Arrays, cuda: CudaContext) -> None:
    """Kernels of different formats, also cold; the simulator has no speed."""
    axes = {"M": 2, "N": 4096, "K": 4096}
    op = installed.ops[KEY.op]
    own, best = (
        next(each for each in installed.registry.variants if each.id == f"cuda/ternary_matmul/{name}")
        for name in ("gpu_int2/float32/mma", "row16/float32/gemv")
    )
    for sizes, cold in ((AXES, False), (axes, True)):
        inputs = logical if sizes is AXES else op.generate(axes, "uniform", np.random.default_rng(0))
        encoded = [op.encode(inputs, sizes, variant.key.format) for variant in (own, best)]
        if cuda.backend.simulated:
            with pytest.raises(DeviceError, match="no speed"):
                by_turns_task(Site(installed, own), best.id, encoded[0], encoded[1], sizes, 1, 0, cold)
            return
        found = by_turns_task(Site(installed, own), best.id, encoded[0], encoded[1], sizes, 1, 0, cold)
        assert found is not None
        assert 0 < found.low <= found.median <= found.high


@pytest.mark.parametrize(
    "call",
    calls(KEY.op),
    ids=lambda each: f"{each.device} {each.name}",
)
def test_calls_give_the_product(call: PublicCall, installed: Installed, request: pytest.FixtureRequest) -> None:
    """The timed calls do the work: outputs agree within the loss of quantizing the rows once more."""
    if call.device == "cuda":
        request.getfixturevalue("cuda")
    if call.missing() is not None:
        pytest.skip(str(call.missing()))
    logical = installed.ops[KEY.op].generate(TILES, "uniform", np.random.default_rng(1))
    product = call.prepare(logical, TILES, 1)()
    if not isinstance(product, np.ndarray):
        product = product.float().cpu().numpy()  # a tensor on the GPU
    rows = logical["activations"] / logical["act_scale"][:, None].astype(np.float64)
    exact = rows @ (logical["weights"].T * np.float64(logical["weight_scale"]))
    # Half a step of 127 in each of K elements of a row, and as much for the rounding of float32.
    steps = np.abs(rows).max(axis=1, keepdims=True) / 127
    assert product.shape == exact.shape
    assert (np.abs(product - exact) <= steps * TILES["K"] * abs(float(logical["weight_scale"]))).all()


@pytest.mark.parametrize("call", calls("i2s_quantize"), ids=lambda each: f"{each.device} {each.name}")
def test_calls_give_the_codes(call: PublicCall, installed: Installed, request: pytest.FixtureRequest) -> None:
    if call.device == "cuda":
        request.getfixturevalue("cuda")
    op, axes = installed.ops["i2s_quantize"], {"n": 1027}
    logical = op.generate(axes, "ties", np.random.default_rng(1))
    codes = call.prepare(logical, axes, 1)()
    key = KernelKey(call.device, op.name, "none", "int8")
    np.testing.assert_array_equal(codes, op.reference(logical, axes, key)["q"], strict=True)
