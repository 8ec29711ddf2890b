"""torch.ops.tritmark on CPU tensors: the bits of the reference for any shape, dtype or stride, traced or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")

import ml_dtypes  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from plain_bitlinear import hf_packed, product, quantized  # noqa: E402

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError  # noqa: E402
from tritmark.kernels import FORMATS, PackedWeights, QuantizedLinear  # noqa: E402
from tritmark.kernels.ternary_matmul.cpu import FORMATS as CPU_FORMATS  # noqa: E402
from tritmark.torch import cpu, ops  # noqa: E402

OPS = torch.ops.tritmark
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
SCALE = 0.375


def codes_of(N: int, K: int, seed: int = 0) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).integers(-1, 2, (N, K), dtype=np.int8))


def packed_of(codes: Any, format: str = "tile64") -> Any:
    return torch.from_numpy(FORMATS[format].pack(codes.numpy(), np.float32(SCALE), tail="error"))


def rows(*shape: int, seed: int = 0, dtype: Any = torch.float32) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape)).to(dtype)


CODES = codes_of(40, 96)
PACKED = packed_of(CODES)
LINEAR = (PACKED, SCALE, 40, "tile64")


@settings(max_examples=40)
@given(
    lead=st.lists(st.integers(0, 4), max_size=3),
    N=st.integers(1, 70),
    K=st.integers(1, 200),
    dtype=st.sampled_from(FLOATS),
    strided=st.booleans(),
    seed=st.integers(0, 1 << 32),
)
def test_a_linear_layer_is_that_of_plain_torch(
    lead: list[int], N: int, K: int, dtype: Any, strided: bool, seed: int
) -> None:
    codes = codes_of(N, K, seed)
    x = rows(*lead, K, seed=seed, dtype=dtype)
    if strided:
        x = torch.stack([x, x + 1], dim=-1)[..., 0]
    weights = packed_of(codes)
    q, scale = OPS.activation_quantize(x)
    expected_q, expected_scale = quantized(x) if x.numel() else (q, scale)
    assert torch.equal(q, expected_q)
    assert torch.equal(scale, expected_scale)
    expected = product(x, codes, SCALE) if x.numel() else torch.empty(*lead, N)
    assert torch.equal(OPS.ternary_matmul(q, weights, SCALE, scale, N, "tile64"), expected)
    for compute in (OPS.linear, OPS.linear_forward, OPS.linear_constant):
        y = compute(x, weights, SCALE, N, "tile64")
        assert y.dtype == dtype
        assert torch.equal(y, expected.to(dtype))


@pytest.mark.parametrize("out", [None, *FLOATS])
@pytest.mark.parametrize("bias_dtype", FLOATS)
def test_a_bias_is_added_in_float32_and_the_sum_rounded(out: Any, bias_dtype: Any) -> None:
    x, bias = rows(3, 96), rows(40, seed=1, dtype=bias_dtype)
    y = OPS.linear(x, *LINEAR, bias, out)
    assert torch.equal(y, (product(x, CODES, SCALE) + bias.float()).to(out or torch.float32))


def test_it_is_quantized_linear() -> None:
    x = rows(5, 96)
    layer = QuantizedLinear(PackedWeights(PACKED.numpy(), "tile64", (40, 96), np.float32(SCALE)))
    np.testing.assert_array_equal(OPS.linear(x, *LINEAR).numpy(), layer(x.numpy()))


def test_accumulators_are_int32() -> None:
    q = torch.full((2, 96), -128, dtype=torch.int8)
    out = OPS.ternary_matmul(q, PACKED, 1.0, torch.ones(2), 40, "tile64", torch.int32)
    assert torch.equal(out, (q.int() @ CODES.int().T).int())
    assert out.dtype == torch.int32


@pytest.mark.parametrize("format", [name for name in CPU_FORMATS if FORMATS[name].scale_per == "tensor"])
def test_weights_are_packed_unpacked_and_multiplied_in_each_format_that_has_a_kernel(format: str) -> None:
    codes = codes_of(64, 256)
    packed = OPS.pack(codes, SCALE, format)
    assert torch.equal(packed, packed_of(codes, format))
    assert torch.equal(OPS.unpack(packed, 64, 256, format), codes)
    x = rows(2, 256)
    assert torch.equal(OPS.linear(x, packed, SCALE, 64, format), product(x, codes, SCALE))


def test_hugging_faces_layout_is_that_of_plain_torch() -> None:
    assert torch.equal(OPS.pack(CODES, SCALE, "hf_pack"), hf_packed(CODES))


@pytest.mark.parametrize("dtype", FLOATS)
def test_i2s_is_quantized_and_dequantized(dtype: Any) -> None:
    x = rows(7, 9, dtype=dtype).T
    q = OPS.i2s_quantize(x, SCALE)
    assert torch.equal(q, (x.float() / SCALE).clamp(-2, 1).round().to(torch.int8))
    assert torch.equal(OPS.i2s_dequantize(q, SCALE), q.float() * SCALE)


def test_tensors_are_read_and_written_where_they_are() -> None:
    for dtype in (*FLOATS, torch.int8, torch.uint8):
        tensor = torch.zeros(3, 4, dtype=dtype)
        cpu.numpy(tensor)[1, 2] = 1
        assert tensor[1, 2] == 1
        assert cpu.numpy(tensor).dtype == (ml_dtypes.bfloat16 if dtype is torch.bfloat16 else str(dtype)[6:])


def test_the_gradient_is_that_of_the_product_with_dequantized_weights() -> None:
    x, bias = rows(2, 3, 96).requires_grad_(), torch.zeros(40, requires_grad=True)
    upstream = torch.from_numpy(np.random.default_rng(1).integers(-9, 10, (2, 3, 40))).float()
    OPS.linear(x, *LINEAR, bias).backward(upstream)
    # Small integers times a scale with few bits: exact in any order.
    assert torch.equal(x.grad, upstream @ (CODES.float() * SCALE))
    assert torch.equal(bias.grad, upstream.sum((0, 1)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_gradients_have_the_dtypes_of_what_they_are_of(dtype: Any) -> None:
    x = rows(2, 96, dtype=dtype).requires_grad_()
    bias = torch.zeros(40, dtype=torch.bfloat16, requires_grad=True)
    OPS.linear(x, *LINEAR, bias, torch.float32).sum().backward()
    assert (x.grad.dtype, bias.grad.dtype) == (dtype, torch.bfloat16)


def test_a_format_with_several_scales_has_a_product_and_no_gradient() -> None:
    codes = codes_of(4, 256)
    weights = torch.from_numpy(FORMATS["tq2_0"].pack(codes.numpy(), np.full((4, 1), 0.5, np.float32), tail="error"))
    x = rows(2, 256).requires_grad_()
    y = OPS.linear(x, weights, 1.0, 4, "tq2_0")
    torch.testing.assert_close(y, product(x.detach(), codes, 0.5), rtol=2**-20, atol=1e-4)
    with pytest.raises(InvalidArgumentError, match="one scale, for a gradient"):
        y.sum().backward()
    with pytest.raises(InvalidArgumentError, match="weight_scale"):
        OPS.linear(x, weights, 0.5, 4, "tq2_0")


X = rows(2, 3, 96)
STATE = (hf_packed(CODES), torch.tensor([SCALE]), 40)
Q, ACT_SCALE = OPS.activation_quantize(X)
EXPERTS = torch.tensor([[0, 1], [1, 1]])
OF_EXPERTS = (hf_packed(CODES).expand(2, 10, 96).contiguous(), torch.tensor([SCALE, 2.0]), EXPERTS)
OFFSETS = torch.tensor([0, 1, 3], dtype=torch.int32)
WIDE, SIGNS = rows(2, 3, 128), torch.arange(128, dtype=torch.int8) % 2 * 2 - 1
CASES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "quantize": ("activation_quantize", (X,)),
    "quantize a vector": ("activation_quantize", (X[0, 0],)),
    "quantize bfloat16, strided": ("activation_quantize", (X.bfloat16().transpose(0, 2),)),
    "multiply": ("ternary_matmul", (Q, PACKED, SCALE, ACT_SCALE, 40, "tile64")),
    "multiply to int32": ("ternary_matmul", (Q[0], PACKED, SCALE, ACT_SCALE[0], 40, "tile64", torch.int32)),
    "multiply with experts": (
        "ternary_matmul_experts",
        (Q[0], PACKED.expand(2, -1).contiguous(), torch.ones(2), ACT_SCALE[0], OFFSETS, 40, "tile64"),
    ),
    "experts": ("bit_experts", (X[0, :2], *OF_EXPERTS, 40)),
    "experts with gradients": ("bit_experts", (X[:, :2].clone().requires_grad_(), *OF_EXPERTS, 40, torch.bfloat16)),
    "the gradient of experts": ("bit_experts_gradient", (X[:, :2, :40].contiguous(), *OF_EXPERTS)),
    "linear": ("linear", (X, *LINEAR)),
    "linear of a vector": ("linear", (X[0, 0], *LINEAR)),
    "linear of nothing": ("linear", (X[:0], *LINEAR)),
    "linear with gradients": ("linear", (X.clone().requires_grad_(), *LINEAR, torch.ones(40, requires_grad=True))),
    "linear of float16 with gradients": ("linear", (X.half().requires_grad_(), *LINEAR)),
    "linear to bfloat16": ("linear", (X, *LINEAR, None, torch.bfloat16)),
    "linear without gradients": ("linear_forward", (X.bfloat16(), *LINEAR)),
    "linear of constant weights": ("linear_constant", (X, *LINEAR)),
    "16 bits": ("ternary_matmul_a16", (X.bfloat16(), *LINEAR)),
    "16 bits of constant weights": ("ternary_matmul_a16_constant", (X.bfloat16(), *LINEAR)),
    "16 bits with gradients": ("ternary_matmul_a16", (X.half().requires_grad_(), *LINEAR, torch.float32)),
    "a state": ("bit_linear_forward", (X, *STATE)),
    "a state with gradients": (
        "bit_linear",
        (X.clone().requires_grad_(), *STATE, True, torch.ones(40).requires_grad_()),
    ),
    "a state, in a worker": (
        "bit_linear_recovering",
        (X.bfloat16().requires_grad_(), *STATE, False, torch.ones(40).requires_grad_()),
    ),
    "a state, 16 bits": ("bit_linear_a16_forward", (X.bfloat16(), *STATE)),
    "a state, 16 bits with gradients": ("bit_linear_a16", (X.half().requires_grad_(), *STATE, True, torch.float32)),
    "rotate and quantize": ("hadamard_quantize", (WIDE, SIGNS, 64)),
    "rotate and quantize, strided": ("hadamard_quantize", (WIDE.bfloat16().transpose(0, 1), None, 128)),
    "rotate": ("hadamard_transform", (WIDE.clone().requires_grad_(), SIGNS, 128)),
    "rotate back": ("hadamard_transform", (WIDE.half().requires_grad_(), SIGNS, 64, True, torch.float32)),
    "i2s_quantize": ("i2s_quantize", (X.transpose(0, 2), SCALE)),
    "i2s_dequantize": ("i2s_dequantize", (Q, SCALE)),
    "pack": ("pack", (CODES, SCALE, "tile64")),
    "unpack": ("unpack", (PACKED, 40, 96, "tile64")),
}


def test_every_op_has_a_case() -> None:
    assert {name for name, _ in CASES.values()} == ops.SCHEMAS.keys()


@pytest.mark.parametrize("case", CASES)
def test_pytorchs_own_checks_pass(case: str) -> None:
    name, arguments = CASES[case]
    torch.library.opcheck(getattr(OPS, name).default, arguments)


@pytest.fixture(params=["dtype", "device"])
def defaults(request: pytest.FixtureRequest) -> Iterator[None]:
    """PyTorch's own ops differ."""
    if request.param == "device":
        with torch.device("meta"):
            yield
        return
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("defaults")
def test_pytorchs_defaults_do_not_count(case: str) -> None:
    name, arguments = CASES[case]
    found = getattr(OPS, name)(*arguments)
    with torch.device("cpu"):
        torch.set_default_dtype(torch.float32)
        wanted = getattr(OPS, name)(*arguments)
    for mine, other in zip(*((each if isinstance(each, tuple) else (each,)) for each in (found, wanted)), strict=True):
        assert mine.dtype is other.dtype
        assert torch.equal(mine, other)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_they_are_traced_without_a_break(backend: str, dynamic: bool) -> None:
    def layers(x: Any) -> Any:
        q, scale = OPS.activation_quantize(x)
        return OPS.ternary_matmul(q, *LINEAR[:2], scale, *LINEAR[2:]) + OPS.linear(2 * x, *LINEAR) / 2

    traced = torch.compile(layers, fullgraph=True, backend=backend, dynamic=dynamic)
    for shape in ((3, 96), (5, 96), (2, 7, 96)):
        x = rows(*shape)
        assert torch.equal(traced(x), layers(x))
    torch._dynamo.reset()


def test_a_gradient_is_traced_too() -> None:
    traced = torch.compile(lambda x: OPS.linear(x, *LINEAR).square(), fullgraph=True, backend="aot_eager")
    gradients = []
    for compute in (traced, lambda x: OPS.linear(x, *LINEAR).square()):
        x = rows(3, 96).requires_grad_()
        compute(x).sum().backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)
    torch._dynamo.reset()


@pytest.mark.parametrize("divide", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_ops_of_a_state_are_those_of_packed_weights(dtype: Any, divide: bool) -> None:
    """Outputs and gradients, also for numbers of rows that are no multiple of 4."""
    for N in (40, 38):
        codes = CODES[:N]
        state = OPS.pack(codes, 1.0, "hf_pack"), torch.tensor([1 / SCALE if divide else SCALE]), N, divide
        weights, bias = (packed_of(codes), SCALE, N, "tile64"), rows(N, seed=1)
        for ours, theirs, more in (("bit_linear", "linear", (bias,)), ("bit_linear_a16", "ternary_matmul_a16", ())):
            if ours == "bit_linear_a16" and dtype is torch.float32:
                continue
            found = []
            for name, arguments in ((ours, state), (theirs, weights)):
                x = X.to(dtype, copy=True).requires_grad_()
                y = getattr(OPS, name)(x, *arguments, *more)
                y.backward(torch.from_numpy(np.random.default_rng(3).integers(-3, 4, y.shape)).to(dtype))
                found.append((y, x.grad))
            assert torch.equal(found[0][0], found[1][0])
            assert torch.equal(found[0][1], found[1][1])
            assert torch.equal(getattr(OPS, f"{ours}_forward")(X.to(dtype), *state, *more), found[1][0])


WRONG: dict[str, tuple[str, tuple[Any, ...], str]] = {
    "x of integers": ("linear", (X.int(), *LINEAR), "x is of dtype torch.int32"),
    "x of float64": ("activation_quantize", (X.double(),), "x is of dtype torch.float64"),
    "a number": ("linear", (torch.tensor(1.0), *LINEAR), r"x is of shape \(\)"),
    "rows of nothing": ("activation_quantize", (X[..., :0],), "a last dimension above 0"),
    "a NaN": (
        "linear",
        (torch.full((2, 96), torch.nan), *LINEAR),
        r"^torch\.ops\.tritmark\.linear: x is nan at index \(0, 0\); legal: finite values; torch\.nan_to_num\(x\)",
    ),
    "an infinity": ("i2s_quantize", (torch.full((2,), torch.inf), SCALE), "x is inf at index 0"),
    "rows too long": ("linear", (rows(2, 196), *LINEAR), "bytes"),
    "an unknown format": ("linear", (X, PACKED, SCALE, 40, "tile65"), "tile64"),
    "no kernel": ("linear", (X, hf_packed(CODES), SCALE, 40, "hf_pack"), "no compatible kernel"),
    "weights of another dtype": ("linear", (X, PACKED.view(torch.int8), SCALE, 40, "tile64"), "weights is of dtype"),
    "weights with gaps": ("linear", (X, PACKED.repeat_interleave(2)[::2], SCALE, 40, "tile64"), "weights is strided"),
    "no rows of weights": ("linear", (X, PACKED, SCALE, 0, "tile64"), "N is"),
    "a scale of nothing": ("linear", (X, PACKED, 0.0, 40, "tile64"), "weight_scale is 0.0"),
    "a scale that is none": ("linear", (X, PACKED, float("nan"), 40, "tile64"), "weight_scale is nan"),
    "a scale past float32": ("i2s_quantize", (X, 3.5e38), r"scale is 3\.5e\+38"),
    "another bias": ("linear", (X, *LINEAR, torch.ones(41)), r"bias is of shape \(41,\)"),
    "a bias of integers": ("linear", (X, *LINEAR, torch.ones(40).int()), "bias is of dtype"),
    "out of integers": ("linear", (X, *LINEAR, None, torch.int8), "out_dtype is torch.int8"),
    "products in float64": ("ternary_matmul", CASES["multiply"][1] + (torch.float64,), "out_dtype is torch.float64"),
    "activations of floats": ("ternary_matmul", (X, PACKED, SCALE, ACT_SCALE, 40, "tile64"), "activations is of dtype"),
    "scales of other rows": ("ternary_matmul", (Q, PACKED, SCALE, ACT_SCALE[:1], 40, "tile64"), "act_scale is of"),
    "a scale below zero": ("ternary_matmul", (Q, PACKED, SCALE, -ACT_SCALE, 40, "tile64"), "act_scale is -"),
    "a code that is none": ("pack", (CODES + 1, SCALE, "tile64"), r"codes is 2 at"),
    "codes in one axis": ("pack", (CODES[0], SCALE, "tile64"), "codes is"),
    "several scales": ("pack", (CODES, SCALE, "tq2_0"), "a format with one scale"),
    "a state of floats": ("bit_linear", (X, CODES.float(), *STATE[1:]), r"weight is torch.float32 \(40, 96\)"),
    "a state of other rows": ("bit_linear", (X, *STATE[:2], 44), r"torch.uint8 \(ceil\(N/4\), K\), for N = 44"),
    "a state of other columns": ("bit_linear", (X[..., 1:], *STATE), "x is of shape"),
    "a state with two scales": ("bit_linear_forward", (X, STATE[0], torch.ones(2), 40), "one number, or floats"),
    "a state with a scale of nothing": (
        "bit_linear_a16",
        (X.half(), STATE[0], torch.zeros(1), 40),
        "weight_scale is 0.0",
    ),
    "a state with a NaN": ("bit_linear", (X, STATE[0], torch.full((1,), torch.nan), 40), "weight_scale is nan"),
    "a state whose inverse is too large": (
        "bit_linear",
        (X, STATE[0], torch.full((1,), 1e-40), 40, True),
        "like its inverse",
    ),
    "bytes of nothing": ("unpack", (PACKED[:8], 40, 96, "tile64"), "8 bytes"),
    "a field that is none": ("unpack", (torch.full((10, 96), 255, dtype=torch.uint8), 40, 96, "hf_pack"), "field 3"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(case: str) -> None:
    name, arguments, words = WRONG[case]
    with pytest.raises((InvalidArgumentError, NoCompatibleKernelError), match=words):
        getattr(OPS, name)(*arguments)


def test_tensors_on_two_devices_are_refused() -> None:
    from tritmark.torch import contract

    with pytest.raises(InvalidArgumentError, match="weights is on meta; legal: on cpu"):
        contract.check_product("linear", X, PACKED.to("meta"), SCALE, 40, "tile64")
