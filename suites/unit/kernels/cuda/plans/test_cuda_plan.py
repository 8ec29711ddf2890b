"""Plans: launches that are prepared once and get their arrays each time."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_plans import HANDLE, MadeUpDriver, SimulatedPlans

from tritmark.harness.errors import LaunchError, NoCompatibleKernelError
from tritmark.harness.spec import KernelKey, Variant
from tritmark.kernels import FORMATS
from tritmark.kernels.activation_quantize.reference import reference as quantized
from tritmark.kernels.activation_quantize.spec import KEY as ACTIVATION_KEY
from tritmark.kernels.cuda.context import CudaContext
from tritmark.kernels.cuda.driver.tensor_map import NBYTES
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch.launch import STEPS, Call
from tritmark.kernels.cuda.plans.plan import SCALAR, Planner
from tritmark.kernels.i2s_quantize.cuda import VECTOR
from tritmark.kernels.native.cpu import native
from tritmark.kernels.ternary_linear.plan import linear_plan
from tritmark.kernels.ternary_matmul.cuda import FORMAT, VARIANTS

CudaPlan = native("cuda_plan").CudaPlan
DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


class Recorded(MadeUpDriver):
    """Records launches: the first eight bytes of each parameter."""

    def __init__(self, parameters: int, current: int = 0, codes: tuple[int, ...] = ()) -> None:
        super().__init__(current)
        self.launched: list[tuple[Any, ...]] = []
        self._parameters, self._codes = parameters, list(codes)

    def launch(self, function: int, grid: Any, block: Any, shared: int, stream: int, parameters: Any) -> int:
        values = [ctypes.c_uint64.from_address(parameters[i]).value for i in range(self._parameters)]
        self.launched.append((function, grid, block, shared, stream, values))
        return self._codes.pop(0) if self._codes else 0


STEP = (7, (1, 2, 3), (4, 5, 6), 100, False, ((1, 16), b"\x05\x00\x00\x00", None, (0, 0)))


def test_addresses_and_the_number_are_those_of_each_launch() -> None:
    driver = Recorded(4)
    plan = CudaPlan(driver.addresses, HANDLE, [STEP], (1, 1))
    one = int(np.float32(1.5).view(np.uint32))
    assert plan.launch(9, (1 << 40, 2 << 40), 1.5) == 0
    assert plan.launch(0, (3 << 40, 4 << 40), -0.0) == 0
    assert driver.launched == [
        (7, (1, 2, 3), (4, 5, 6), 100, 9, [(2 << 40) + 16, 5, one, 1 << 40]),
        (7, (1, 2, 3), (4, 5, 6), 100, 0, [(4 << 40) + 16, 5, 1 << 31, 3 << 40]),
    ]


def test_each_step_has_its_own_values() -> None:
    driver = Recorded(1)
    steps = [(place, (1, 1, 1), (1, 1, 1), 0, False, (bytes([place]), b"\xff" * 8)) for place in range(1, 4)]
    assert CudaPlan(driver.addresses, HANDLE, steps, ()).launch(0, ()) == 0
    assert [(function, values) for function, *_, values in driver.launched] == [(1, [1]), (2, [2]), (3, [3])]


@pytest.mark.parametrize(("current", "calls"), [(HANDLE, ["launch"]), (0, ["push", "launch", "pop"]), (5, None)])
def test_the_context_is_current_for_the_launch_and_then_what_was_before(current: int, calls: list[str] | None) -> None:
    driver = Recorded(0, current)
    step = (1, (1, 1, 1), (1, 1, 1), 0, False, ())
    assert CudaPlan(driver.addresses, HANDLE, [step], ()).launch(0, ()) == 0
    assert driver.calls == (calls or ["push", "launch", "pop"])
    assert driver.stack == [current]


def test_only_a_step_that_may_begins_before_the_one_before_has_ended() -> None:
    driver = Recorded(0, HANDLE)
    steps = [(1, (1, 1, 1), (1, 1, 1), 0, overlaps, ()) for overlaps in (False, True, False)]
    assert CudaPlan(driver.addresses, HANDLE, steps, ()).launch(0, ()) == 0
    assert driver.calls == ["launch", "launch, overlapping", "launch"]


def test_what_the_driver_refuses_is_told_and_nothing_follows() -> None:
    driver = Recorded(0, codes=(0, 701))
    step = (1, (1, 1, 1), (1, 1, 1), 0, False, ())
    assert CudaPlan(driver.addresses, HANDLE, [step] * 4, ()).launch(0, ()) == 701
    assert driver.calls == ["push", "launch", "launch", "pop"]
    assert driver.stack == [0]


@pytest.mark.parametrize("addresses", [(), (16,), (8, 16), (16, 16, 16)])
def test_other_addresses_than_were_told_are_refused(addresses: tuple[int, ...]) -> None:
    driver = Recorded(4)
    plan = CudaPlan(driver.addresses, HANDLE, [STEP], (16, 1))
    with pytest.raises(ValueError, match="legal: "):
        plan.launch(0, addresses)
    assert driver.launched == []


@pytest.mark.parametrize(
    ("steps", "alignments"),
    [
        ([(1, (1, 1, 1), (1, 1, 1), 0, False, (b"",))], ()),
        ([(1, (1, 1, 1), (1, 1, 1), 0, ())], ()),
        ([(1, (1, 1, 1), (1, 1, 1), 0, False, (b"123456789",))], ()),
        ([(1, (1, 1, 1), (1, 1, 1), 0, False, ((0, 0),))], ()),
        ([(1, (1, 1, 1), (1, 1, 1), 0, False, (b"1",) * 129)], ()),
        ([], (3,)),
        ([], (1,) * 17),
    ],
)
def test_what_cannot_be_planned_is_refused(steps: Any, alignments: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"legal|source|unpack"):
        CudaPlan(Recorded(0).addresses, HANDLE, steps, alignments)


class Maps(Recorded):
    """Records the arguments of maps, and the bytes at the parameters' offsets."""

    def __init__(self, parameters: int, codes: tuple[int, ...] = ()) -> None:
        super().__init__(parameters)
        self.made: list[tuple[int, tuple[int, ...]]] = []
        self.maps: list[bytes] = []
        self._refusals = list(codes)

    def encode(self, to: int, address: int, numbers: tuple[int, ...]) -> int:
        self.made.append((address, numbers))
        ctypes.memmove(to, bytes([len(self.made)]) * NBYTES, NBYTES)
        return self._refusals.pop(0) if self._refusals else 0

    def launch(self, function: int, grid: Any, block: Any, shared: int, stream: int, parameters: Any) -> int:
        self.maps += [ctypes.string_at(parameters[i], NBYTES) for i in range(2)]
        return super().launch(function, grid, block, shared, stream, parameters)


NUMBERS = (100, 7, 112, 128, 16, 3)
MAPPED = (7, (1, 1, 1), (1, 1, 1), 0, False, ((1, 32, NUMBERS), b"w" * NBYTES, (0, 0)))


def test_a_map_is_made_for_the_address_of_each_launch() -> None:
    driver = Maps(3)
    plan = CudaPlan(driver.addresses, HANDLE, [MAPPED], (1, 16))
    assert plan.launch(0, (1 << 40, 2 << 40)) == 0
    assert plan.launch(0, (1 << 40, 3 << 40)) == 0
    assert driver.made == [((2 << 40) + 32, NUMBERS), ((3 << 40) + 32, NUMBERS)]
    assert driver.maps == [b"\x01" * NBYTES, b"w" * NBYTES, b"\x02" * NBYTES, b"w" * NBYTES]
    assert [values[2] for *_, values in driver.launched] == [1 << 40] * 2


def test_a_map_that_the_driver_does_not_make_is_told_and_nothing_is_launched() -> None:
    driver = Maps(3, codes=(1,))
    assert CudaPlan(driver.addresses, HANDLE, [MAPPED], (1, 16)).launch(0, (1 << 40, 2 << 40)) == 1
    assert (driver.calls, driver.launched) == ([], [])


def test_maps_beyond_what_a_plan_or_a_driver_has_are_refused() -> None:
    driver = Maps(3)
    with pytest.raises(ValueError, match="more than 4 tensor maps"):
        CudaPlan(driver.addresses, HANDLE, [(*MAPPED[:5], (b"w" * NBYTES,) * 5)], (1, 16))
    with pytest.raises(ValueError, match="source 2 of 2"):
        CudaPlan(driver.addresses, HANDLE, [(*MAPPED[:5], ((2, 0, NUMBERS),))], (1, 16))
    with pytest.raises(ValueError, match="which this driver cannot make"):
        CudaPlan((*driver.addresses[:4], 0), HANDLE, [MAPPED], (1, 16))
    assert CudaPlan((*driver.addresses[:4], 0), HANDLE, [STEP], (1, 1)).launch(0, (0, 0)) == 0


def _narrowed(values: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    return values.astype(DTYPES[dtype])


@settings(max_examples=12)
@given(
    M=st.integers(1, 12),
    N=st.integers(1, 40),
    K=st.integers(1, 300),
    x_dtype=st.sampled_from(sorted(DTYPES)),
    out_dtype=st.sampled_from(["float32", "bfloat16"]),
    seed=st.integers(0, 1 << 32),
    constant=st.booleans(),
)
def test_a_linear_layer_is_that_of_the_reference_wherever_its_arrays_are(
    M: int, N: int, K: int, x_dtype: str, out_dtype: str, seed: int, constant: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITMARK_CUDA", "simulator")
        from tritmark.kernels.cuda.context import cuda_context

        here = cuda_context()
        plans = SimulatedPlans(here)
        rng = np.random.default_rng(seed)
        nbytes = FORMATS[FORMAT].packed_bytes((N, K))
        axes = {"M": M, "N": N, "K": K}
        launch, room = linear_plan(plans, axes, x_dtype, nbytes, FORMAT, out_dtype, constant_weights=constant)
        for weight_scale in (np.float32(0.75), np.float32(1e-3)):
            x = _narrowed(rng.normal(size=(M, K)), x_dtype)
            codes = rng.integers(-1, 2, (N, K), dtype=np.int8)
            there = [here.upload(each) for each in (x, FORMATS[FORMAT].pack(codes, weight_scale, tail="error"))]
            out = here.array((M, N), DTYPES[out_dtype])
            space = here.array((room,), np.uint8)
            assert launch(0, tuple(each.pointer for each in (*there, out, space)), float(weight_scale)) == 0, (
                plans.failed
            )
            rows = quantized({"x": x.astype(np.float32)}, {"M": M, "K": K}, ACTIVATION_KEY)
            acc = rows["q"].astype(np.int64) @ codes.astype(np.int64).T
            factor = np.float64(weight_scale) / rows["scale"].astype(np.float64)
            expected = _narrowed((acc * factor[:, np.newaxis]).astype(np.float32), out_dtype)
            np.testing.assert_array_equal(out.numpy(), expected)


@pytest.mark.parametrize("M", [4, 20])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_row_with_a_nan_or_infinity_gives_nan_and_others_do_not(simulator: CudaContext, dtype: str, M: int) -> None:
    N, K = 8, 64
    plans = SimulatedPlans(simulator)
    launch, room = linear_plan(
        plans, {"M": M, "N": N, "K": K}, "float32", FORMATS[FORMAT].packed_bytes((N, K)), FORMAT, dtype
    )
    x = np.ones((M, K), np.float32)
    x[1, 7], x[2, 0] = np.nan, -np.inf
    packed = FORMATS[FORMAT].pack(np.eye(N, K, dtype=np.int8), 1.0, tail="error")
    there = [simulator.upload(x), simulator.upload(packed), simulator.array((M, N), DTYPES[dtype])]
    addresses = *(each.pointer for each in there), simulator.array((room,), np.uint8).pointer
    assert launch(0, addresses, 1.0) == 0, plans.failed
    found = np.isnan(there[2].numpy().astype(np.float32))
    assert found[1:3].all()
    assert not found[[0, *range(3, M)]].any()


def _planned(plans: SimulatedPlans, steps: Any, monkeypatch: pytest.MonkeyPatch, inputs: dict[str, Any]) -> None:
    (variant,) = (each for each in VARIANTS if each.name == "tiled" and each.key.dtype == "float32")
    monkeypatch.setitem(STEPS, variant.id, steps)
    Planner(plans).run(variant, inputs, {}, {"M": 1, "N": 1, "K": 1})


def test_a_kernel_that_is_not_handed_the_scale_as_it_is_cannot_be_planned(
    simulator: CudaContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def steps(call: Call) -> tuple[Step, ...]:
        squared = np.float32(call.inputs["weight_scale"] ** 2)
        return (Step(kernel=VECTOR["none"], grid=(1, 1, 1), block=(1, 1, 1), args=(squared,)),)

    with pytest.raises(LaunchError, match="computes with a scale"):
        _planned(SimulatedPlans(simulator), steps, monkeypatch, {"weight_scale": SCALAR})


@pytest.mark.parametrize("arg", [np.uint64(1 << 45), "text", 3])
def test_an_argument_that_is_an_address_or_no_number_cannot_be_planned(simulator: CudaContext, arg: Any) -> None:
    planner = Planner(SimulatedPlans(simulator))
    kernel: Kernel = VECTOR["none"]
    planner._steps.append(Step(kernel=kernel, grid=(1, 1, 1), block=(32, 1, 1), args=(arg,)))
    with pytest.raises(LaunchError, match="argument 0"):
        planner.made()


def test_every_variant_can_be_planned() -> None:
    from tritmark.kernels.cuda.launch.launch import KERNELS

    assert KERNELS.keys() <= STEPS.keys()  # variants of other tests may be left


def test_an_unknown_format_has_no_kernel(simulator: CudaContext) -> None:
    plans = SimulatedPlans(simulator)
    with pytest.raises(NoCompatibleKernelError, match="hf_pack"):
        linear_plan(plans, {"M": 1, "N": 4, "K": 4}, "float32", 4, "hf_pack", "float32")


def test_choice_is_the_registrys(simulator: CudaContext) -> None:
    """The requirements of the simulator's device, without those of real ones."""
    from tritmark.kernels.cuda.plans.choice import chosen
    from tritmark.kernels.dispatch.dispatch import registry

    key = KernelKey("cuda", "ternary_matmul", FORMAT, "float32")
    for M in (1, 8, 9, 64):
        axes = {"M": M, "N": 64, "K": 64}
        found: Variant = chosen(key, axes, simulator.backend.info)
        assert found.precedence >= registry().select_best(key, axes).precedence
    with pytest.raises(NoCompatibleKernelError, match=r"compute capability 7\.0"):
        chosen(key, axes, replace(simulator.backend.info, capability=(6, 0)))
