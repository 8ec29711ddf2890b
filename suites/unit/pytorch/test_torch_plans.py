"""The ops on CUDA tensors, with CPU tensors in their place: each launch runs in the simulator, on copies of the memory
at its addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")

from simulated_plans import SimulatedPlans  # noqa: E402

from tritmark.harness.errors import DeviceError, DeviceFaultError, InvalidArgumentError  # noqa: E402
from tritmark.kernels import FORMATS  # noqa: E402
from tritmark.kernels.cuda.context import CudaContext  # noqa: E402
from tritmark.kernels.cuda.plans import plan  # noqa: E402
from tritmark.kernels.ternary_linear import plan as linear_plan  # noqa: E402
from tritmark.torch import cpu, cuda  # noqa: E402

SCALE = 0.375
N, K = 24, 96
CODES = torch.from_numpy(np.random.default_rng(0).integers(-1, 2, (N, K), dtype=np.int8))
HERE, THERE = (torch.from_numpy(FORMATS[name].pack(CODES.numpy(), SCALE, tail="error")) for name in ("tile64", "row16"))
LINEAR = (SCALE, N, "tile64"), (SCALE, N, "row16")


def rows(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.from_numpy(np.random.default_rng(1).normal(size=shape)).to(dtype)


class Calls:
    """The plans that were made and the requested launches."""

    def __init__(self) -> None:
        self.made = 0
        self.launched: list[tuple[int, ...]] = []
        self.allocated = 0
        self.code = 0


@pytest.fixture
def calls(simulator: CudaContext, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Ops on CUDA tensors get CPU tensors."""
    plans, found = SimulatedPlans(simulator), Calls()

    class Mirrored(plan.Planner):
        def made(self) -> tuple[Callable[..., int], int]:
            launch, room = super().made()
            sizes = [each.nbytes for each in self._given]
            found.made += 1

            def mirrored(stream: int, addresses: tuple[int, ...], scalar: float = 0.0) -> int:
                assert stream == 77
                found.launched.append(addresses)
                memory = [
                    np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
                    for nbytes, address in zip(sizes, addresses[:-1], strict=True)
                ]
                there = [simulator.upload(each) for each in memory]
                space = simulator.array((room,), np.uint8).pointer if room else 0
                pointers = *(each.pointer for each in there), space
                code = found.code or launch(0, pointers, scalar)
                assert plans.failed is None, plans.failed
                for each, into in zip(there, memory, strict=True):
                    each.read(into)
                return code

            return mirrored, room

    def empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
        found.allocated += 1
        return torch.empty_strided(shape, strides, dtype=dtype)

    monkeypatch.setattr(cuda, "primary_context", lambda index: plans)
    monkeypatch.setattr(cuda, "_current_device", lambda: -1)  # as CPU tensors report it
    monkeypatch.setattr(cuda, "_empty", empty)
    monkeypatch.setattr(cuda, "_stream", lambda index: 77)
    monkeypatch.setattr(cuda, "_PLANS", {})
    for module in (cuda, linear_plan):
        monkeypatch.setattr(module, "Planner", Mirrored)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(K,), (1, K), (2, 5, K), (0, K)], ids=str)
def test_a_linear_layer_has_the_cpus_bits(calls: Calls, dtype: Any, shape: tuple[int, ...]) -> None:
    x, bias = rows(*shape, dtype=dtype), rows(N)
    for more in ((), (bias,), (None, torch.float16), (None, torch.bfloat16)):
        y, expected = cuda.linear(x, THERE, *LINEAR[1], *more), cpu.linear(x, HERE, *LINEAR[0], *more)
        assert y.dtype == expected.dtype
        assert torch.equal(y, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(K,), (2, 9, K), (0, K)], ids=str)
def test_products_of_16_bit_activations_are_those_of_the_cpu(calls: Calls, dtype: Any, shape: tuple[int, ...]) -> None:
    x = rows(*shape, dtype=dtype)
    for out in (None, torch.float32):
        y, expected = (
            cuda.ternary_matmul_a16(x, THERE, *LINEAR[1], out),
            cpu.ternary_matmul_a16(x, HERE, *LINEAR[0], out),
        )
        assert (y.dtype, y.shape) == (expected.dtype, expected.shape)
        assert torch.allclose(y, expected, rtol=2e-2 if out is None else 1e-5, atol=1e-5)
    assert calls.made == 2 * bool(x.numel())
    cuda.ternary_matmul_a16(x, THERE, *LINEAR[1])
    assert calls.made == 2 * bool(x.numel())


def test_all_other_ops_have_the_cpus_bits(calls: Calls) -> None:
    x = rows(3, 2, K).transpose(0, 1)
    q, scale = cuda.activation_quantize(x)
    for found, expected in zip((q, scale), cpu.activation_quantize(x), strict=True):
        assert torch.equal(found, expected)
    for dtype in (torch.int32, torch.float32, torch.bfloat16):
        found = cuda.ternary_matmul(q, THERE, SCALE, scale, N, "row16", dtype)
        assert torch.equal(found, cpu.ternary_matmul(q, HERE, SCALE, scale, N, "tile64", dtype))
    codes = cuda.i2s_quantize(x.half(), SCALE)
    assert torch.equal(codes, cpu.i2s_quantize(x.half(), SCALE))
    assert torch.equal(cuda.i2s_dequantize(codes, SCALE), cpu.i2s_dequantize(codes, SCALE))
    assert torch.equal(cuda.pack(CODES, SCALE, "row16"), THERE)
    assert torch.equal(cuda.unpack(THERE, N, K, "row16"), CODES)


def test_a_shape_is_planned_once_and_launched_where_the_tensors_are(calls: Calls) -> None:
    for scale in (0.5, 2.0, 0.25):
        x = rows(2, K)
        y = cuda.linear(x, THERE, scale, N, "row16")
        assert torch.equal(y, cpu.linear(x, HERE, scale, N, "tile64"))
        assert calls.launched[-1][:3] == (x.data_ptr(), THERE.data_ptr(), y.data_ptr())
    assert calls.made == 1
    cuda.linear(rows(3, K), THERE, 0.5, N, "row16")
    cuda.linear(rows(2, K).half(), THERE, 0.5, N, "row16")
    assert calls.made == 3


@pytest.mark.parametrize("current", [-1, 0])
def test_the_output_is_on_the_tensors_device(calls: Calls, monkeypatch: pytest.MonkeyPatch, current: int) -> None:
    """The allocator for the current device is used only if that is the tensors' device."""
    monkeypatch.setattr(cuda, "_current_device", lambda: current)
    for shape in ((K,), (3, 2, K)):
        x = rows(*shape)
        y = cuda.linear(x, THERE, *LINEAR[1])
        assert torch.equal(y, cpu.linear(x, HERE, *LINEAR[0]))
        assert y.is_contiguous()
    assert calls.allocated == (2 if current == -1 else 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_one_row_takes_no_workspace(calls: Calls, dtype: Any) -> None:
    """One row is one kernel; more rows are two, with the codes between them."""
    for M, space in ((1, False), (2, True)):
        cuda.linear(rows(M, K, dtype=dtype), THERE, *LINEAR[1])
        assert (calls.launched[-1][-1] != 0) == space


def test_rows_that_are_not_aligned_or_apart_are_copied(calls: Calls) -> None:
    x = rows(2, K)
    odd = torch.cat([x.reshape(-1)[:1], x.reshape(-1)])[1:].view(2, K)
    apart = torch.stack([x, x], dim=-1)[..., 0]
    for given in (odd, apart, x.T.contiguous().T):
        assert torch.equal(cuda.linear(given, THERE, *LINEAR[1]), cpu.linear(x, HERE, *LINEAR[0]))
    assert calls.made == 1
    assert given.data_ptr() not in {address for addresses in calls.launched[:2] for address in addresses}


def test_plans_are_kept_up_to_a_number(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_MOST_PLANS", 2)
    for M in (1, 2, 3, 1):
        cuda.linear(rows(M, K), THERE, *LINEAR[1])
        assert len(cuda._PLANS) <= 2
    assert calls.made == 4


@pytest.mark.parametrize(
    "arguments",
    [
        (rows(2, K), THERE, -1.0, N, "row16"),
        (rows(2, K + 64), THERE, SCALE, N, "row16"),
        (rows(2, K).double(), THERE, SCALE, N, "row16"),
        (rows(2, K), THERE.repeat_interleave(2)[::2], SCALE, N, "row16"),
        (rows(2, K), THERE, SCALE, N, "row16", rows(N + 1)),
    ],
)
def test_a_call_like_one_that_was_planned_is_checked_all_the_same(calls: Calls, arguments: tuple[Any, ...]) -> None:
    cuda.linear(rows(2, K), THERE, *LINEAR[1])
    with pytest.raises(InvalidArgumentError):
        cuda.linear(*arguments)
    assert len(calls.launched) == 1


@pytest.mark.parametrize(("code", "error"), [(1, DeviceError), (719, DeviceFaultError)])
def test_what_the_driver_refuses_is_an_error(calls: Calls, code: int, error: type[DeviceError]) -> None:
    calls.code = code
    with pytest.raises(error, match=f"CUDA error {code}"):
        cuda.linear(rows(2, K), THERE, *LINEAR[1])


WITHOUT_ML_DTYPES = """
import sys
import torch
from tritmark.kernels import FORMATS
from tritmark.kernels.cuda.plans import plan
from tritmark.kernels.ternary_linear import plan as linear_plan
from tritmark.torch import cuda

class Nothing(plan.Planner):
    def run(self, *given): pass
    def add(self, *given): pass
    def made(self): return lambda *given: 0, 0

for module in (cuda, linear_plan):
    module.Planner = Nothing
for name in ("add_product", "add_quantization"):
    setattr(cuda, name, lambda *given: None)
cuda.primary_context = cuda._stream = cuda.linear_plan = lambda *given, **more: (lambda *given: 0, 0)
cuda._empty = lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype)
cuda._current_device = lambda: -1  # what CPU tensors say of theirs
assert "ml_dtypes" not in sys.modules
q, weights = (
    torch.zeros(2, 64, dtype=torch.int8),
    torch.zeros(FORMATS["row16"].packed_shape((64, 64)), dtype=torch.uint8),
)
for dtype in (torch.bfloat16, torch.float16, torch.float32):
    x = torch.zeros(2, 64, dtype=dtype)
    for call in (
        lambda: cuda.i2s_quantize(x, 0.5),
        lambda: cuda.activation_quantize(x),
        lambda: cuda.ternary_matmul(q, weights, 0.5, torch.ones(2), 64, "row16", dtype),
        lambda: dtype is torch.float32 or cuda.ternary_matmul_a16(x, weights, 0.5, 64, "row16"),
        lambda: cuda.linear(x, weights, 0.5, 64, "row16"),
        lambda: cuda.i2s_dequantize(q, 0.5),
        lambda: cuda.pack(q, 0.5, "row16"),
    ):
        call()
print("done")
"""


def test_no_op_rests_on_what_was_imported() -> None:
    """NumPy knows the name bfloat16 only after ml_dtypes was imported. So this runs in a new process, in which
    i2s_quantize of bfloat16 comes first."""
    import subprocess
    import sys

    ran = subprocess.run([sys.executable, "-c", WITHOUT_ML_DTYPES], capture_output=True, text=True, check=False)
    assert ran.stdout == "done\n", ran.stderr
