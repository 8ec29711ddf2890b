"""Every op that has a kernel for the CPU, and QuantizedLinear, through the public functions, on the shapes of the
history: the time of a call, Python included, and whether it changed.

    pytest suites/performance --benchmark-only --benchmark-autosave
    pytest suites/performance --benchmark-only --benchmark-compare --benchmark-compare-fail=median:10%

The first keeps a run under results/benchmarks. The second compares with the last one of this machine and Python, and
fails if a median grew by more than 10 %. Times of two runs drift with the machine: compare.py runs two builds in one
session and measures the drift, and `tritmark gate` compares kernels of two builds interleaved. Each benchmark reports
the kernel that ran and the fewest bytes and operations of the call. It does not report the percent of the ceiling:
`tritmark run` measures kernel and ceiling interleaved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from contract_calls import contract_calls
from earlier_builds import module
from history_shapes import history_shapes
from no_plans import NoPlans
from pytest_benchmark.fixture import BenchmarkFixture

from tritmark import kernels
from tritmark.harness.spec import Receipt
from tritmark.kernels import OPS, PROVIDER, PackedWeights, QuantizedLinear, pack_weights
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.ternary_matmul.api import with_receipt

if TYPE_CHECKING:
    from tritmark.kernels.dispatch.offload import FinishedCall

pytestmark = pytest.mark.timing

cpu = module("tritmark.kernels.native.cpu", "tritmark.kernels.cpu")
dispatch = module("tritmark.kernels.dispatch.dispatch", "tritmark.kernels.dispatch")
narrow = module("tritmark.kernels.numerics.input_dtypes", "tritmark.kernels.input_dtypes").narrow
plans = module("tritmark.kernels.activation_quantize.plans", "tritmark.kernels.plans")
SHAPES = history_shapes()
BLOCK = 128


class Case(NamedTuple):
    """One kernel at one shape."""

    op: str
    format: str
    dtype: str
    isa: str
    axes: dict[str, int]

    def __str__(self) -> str:
        shape = "-".join(f"{axis}{size}" for axis, size in self.axes.items())
        return f"{self.op}-{self.format}-{self.dtype}-{self.isa}-{shape}"


def axes_of(shape: str) -> dict[str, int]:
    return {axis: int(size) for axis, _, size in (word.partition("=") for word in shape.split())}


def cases() -> Iterator[Case]:
    """The kernels of the history for the host that this CPU supports."""
    here = {v.id for v in PROVIDER.variants if v.key.device == "cpu" and v.features <= cpu.features()}
    for name in (*SHAPES.VECTOR_OPS, *SHAPES.PRODUCT_OPS):
        op, format, dtype = name.split("/")
        places = SHAPES.places(name, SHAPES.SIZES)
        for variant in SHAPES.CPU:
            isa = variant.removeprefix("cpu:")
            if f"cpu/{name}/{isa}" in here:
                yield from (Case(op, format, dtype, isa, axes_of(place)) for place in places)


CASES = tuple(cases())
PRODUCTS = tuple(case for case in CASES if case.op == "ternary_matmul")
VECTORS = tuple(case for case in CASES if case not in PRODUCTS)


@cache
def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


@cache
def codes(N: int, K: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-1, 2, (N, K), dtype=np.int8)


@cache
def weights(format: str, N: int, K: int) -> PackedWeights:
    scales = (
        0.5 if FORMATS[format].scale_per == "tensor" else np.full(FORMATS[format].scale_shape((N, K)), 0.5, np.float32)
    )
    return pack_weights(codes(N, K), scales, format=format)


def vector_call(case: Case) -> Callable[[], Any]:
    """The public call, which makes its outputs, as in user code."""
    variant = case.isa
    if case.op == "activation_quantize":
        rows = narrow(values(case.axes["M"], case.axes["K"]), case.format)
        return lambda: kernels.activation_quantize(rows, variant=variant)
    if case.op.startswith("hadamard_"):
        rows, block = narrow(values(case.axes["M"], case.axes["K"]), case.format), case.axes["block"]
        rotate = partial(kernels.hadamard_quantize, block_size=block, dtype=case.dtype)
        return lambda: rotate(rows, variant=variant)
    if case.op == "ternary_matmul_experts":
        return experts_call(case)
    if case.op == "ternary_quantize":
        x = values(case.axes["n"])
        packed = case.format != "none"
        return lambda: kernels.ternary_quantize(x, BLOCK, packed=packed, variant=variant)  # type: ignore[call-overload]
    return partial(contract_calls("cpu", case.axes)[case.op], variant=variant)


def experts_call(case: Case) -> Callable[[], Any]:
    E, M, N, K = (case.axes[axis] for axis in "EMNK")
    group = FORMATS[case.format].group
    scales = np.full((E, N, K // group) if group else E, 0.5, np.float32)
    packed = pack_weights(np.broadcast_to(codes(N, K), (E, N, K)).copy(), scales, format=case.format)
    rows = np.random.default_rng(1).integers(-128, 128, (M, K), dtype=np.int8)
    offsets = np.linspace(0, M, E + 1).astype(np.int32)
    multiply = partial(kernels.ternary_matmul_experts, rows, packed, offsets, act_scale=40.0)
    return lambda: multiply(dtype=case.dtype, variant=case.isa)


def ran(call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> Receipt:
    """The receipt of the kernel that a call of a public function ran last."""
    seen: list[FinishedCall] = []
    run = dispatch.run

    def told(*arguments: Any, **more: Any) -> FinishedCall:
        seen.append(run(*arguments, **more))
        return seen[-1]

    with monkeypatch.context() as patch:
        patch.setattr(dispatch, "run", told)
        patch.setattr(plans, "quantize_plans", NoPlans)  # a call with a plan does not use dispatch
        call()
    return seen[-1].receipt()


def tell(benchmark: BenchmarkFixture, case: Case, receipt: Receipt) -> None:
    """The fewest bytes and operations of the call, and the kernel that ran."""
    (op,) = (each for each in OPS if each.name == case.op)
    key = next(v.key for v in PROVIDER.variants if v.id == receipt.kernel)
    traffic = op.traffic(case.axes, key)
    benchmark.extra_info.update(
        variant=receipt.ran,
        threads=receipt.threads,
        bytes=traffic.read + traffic.written,
        operations=traffic.operations,
        **case.axes,
    )


@pytest.mark.parametrize("case", VECTORS, ids=str)
def test_vector_op(benchmark: BenchmarkFixture, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    call = vector_call(case)
    receipt = ran(call, monkeypatch)
    assert (receipt.kernel, receipt.ran) == (f"cpu/{case.op}/{case.format}/{case.dtype}/{case.isa}", case.isa)
    tell(benchmark, case, receipt)
    benchmark(call)


@pytest.mark.parametrize("case", PRODUCTS, ids=str)
def test_product(benchmark: BenchmarkFixture, case: Case) -> None:
    M, N, K = (case.axes[axis] for axis in "MNK")
    packed = weights(case.format, N, K)
    rows = np.random.default_rng(1).integers(-128, 128, (M, K), dtype=np.int8)

    def call() -> np.ndarray:
        return kernels.ternary_matmul(rows, packed, act_scale=40.0, dtype=case.dtype, variant=case.isa)

    y, receipt = with_receipt(rows, packed, act_scale=40.0, dtype=case.dtype, variant=case.isa)
    assert (receipt.kernel, receipt.ran) == (f"cpu/{case.op}/{case.format}/{case.dtype}/{case.isa}", case.isa)
    tell(benchmark, case, receipt)
    assert np.array_equal(benchmark(call), y)


LAYERS = tuple(case for case in PRODUCTS if (case.format, case.dtype) == ("tile64", "float32"))


@pytest.mark.parametrize("bound", [False, True], ids=["forward", "bound"])
@pytest.mark.parametrize("case", LAYERS, ids=lambda case: str(case).removeprefix("ternary_matmul-"))
def test_quantized_linear(benchmark: BenchmarkFixture, case: Case, bound: bool) -> None:
    layer = QuantizedLinear(weights("tile64", case.axes["N"], case.axes["K"]), variant=case.isa)
    rows = values(case.axes["M"], case.axes["K"])
    y = layer(rows)
    assert layer.receipt is not None
    tell(benchmark, case, layer.receipt)
    assert np.array_equal(benchmark(layer.bind(rows).run if bound else lambda: layer(rows)), y)


def test_every_op_of_the_host_is_among_them() -> None:
    there = {
        (v.key.op, v.key.format, v.key.dtype, v.name)
        for v in PROVIDER.variants
        if v.key.device == "cpu" and v.features <= cpu.features()
    }
    assert {(case.op, case.format, case.dtype, case.isa) for case in CASES} == there
