"""torch.ops.tritmark and BitLinear on CUDA tensors: the CPU's bits, on torch's stream, in its graphs, on every device.

Needs a GPU, because torch has no simulated device. The tests of plans (test_cuda_plan.py) simulate the same launches.
"""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")

from plain_bitlinear import hf_packed  # noqa: E402

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError  # noqa: E402
from tritmark.harness.spec import KernelKey  # noqa: E402
from tritmark.kernels import FORMATS, pack_weights, ternary_matmul  # noqa: E402
from tritmark.kernels.ternary_matmul.reference import reference  # noqa: E402
from tritmark.torch import BitLinear, cuda  # noqa: E402

if not torch.cuda.is_available():
    pytest.skip("torch has no GPU here, and the simulator has no device of torch's", allow_module_level=True)

OPS = torch.ops.tritmark
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
SCALE = 0.375
N, K = 200, 320
SHAPES = (
    (1, 1, 1),
    (1, 5, 3),
    (1, 2560, 2560),
    (2, 66, 321),
    (8, 24, 1337),
    (9, 70, 200),
    (17, 129, 96),
    (65, 66, 65),
    (128, 256, 512),
    (300, 130, 700),
)


@pytest.fixture(params=range(torch.cuda.device_count()), ids=lambda index: f"cuda:{index}")
def device(request: pytest.FixtureRequest) -> Any:
    return torch.device("cuda", request.param)


@pytest.fixture(autouse=True)
def whole() -> Iterator[None]:
    """The current device is unchanged."""
    before = torch.cuda.current_device()
    yield
    assert torch.cuda.current_device() == before
    torch._dynamo.reset()


def test_a_layer_that_recovers_refuses_tensors_on_a_gpu(device: Any) -> None:
    layer, x = BitLinear(K, N, on_error="recover"), torch.ones(2, K)
    assert layer(x).shape == (2, N)
    for moved, given, name in ((layer, x.to(device), "x"), (copy.deepcopy(layer).to(device), x.to(device), "x")):
        for call in (moved, torch.compile(moved, fullgraph=True, backend="aot_eager")):
            with pytest.raises(InvalidArgumentError, match=rf'{name}.*on {device}.*on_error="raise"'):
                call(given)
    layer = layer.to(device)
    layer.on_error = "raise"
    assert layer(x.to(device)).shape == (2, N)


def codes_of(rows: int, columns: int, seed: int = 0) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).integers(-1, 2, (rows, columns), dtype=np.int8))


def rows(*shape: int, seed: int = 0, dtype: Any = torch.float32) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape)).to(dtype)


def both(codes: Any, device: Any) -> tuple[Any, Any]:
    """The weights for CPU kernels and for GPU kernels."""
    packed = (torch.from_numpy(FORMATS[name].pack(codes.numpy(), SCALE, tail="error")) for name in ("tile64", "row16"))
    here, there = packed
    return here, there.to(device)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_linear_layer_has_the_cpus_bits(device: Any, shape: tuple[int, int, int], dtype: Any) -> None:
    M, rows_, columns = shape
    here, there = both(codes_of(rows_, columns), device)
    x, bias = rows(M, columns, dtype=dtype), rows(rows_, dtype=dtype)
    for more in ((), (bias,), (None, torch.bfloat16), (None, torch.float32)):
        moved = tuple(each.to(device) if isinstance(each, torch.Tensor) else each for each in more)
        for compute in (OPS.linear, OPS.linear_forward, OPS.linear_constant):
            y = compute(x.to(device), there, SCALE, rows_, "row16", *moved)
            assert y.device == device
            assert torch.equal(y.cpu(), compute(x, here, SCALE, rows_, "tile64", *more))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("out", [torch.int32, torch.float32, torch.bfloat16])
def test_a_product_has_the_cpus_bits(device: Any, shape: tuple[int, int, int], out: Any) -> None:
    M, rows_, columns = shape
    here, there = both(codes_of(rows_, columns), device)
    q, scale = OPS.activation_quantize(rows(M, columns))
    moved_q, moved_scale = OPS.activation_quantize(rows(M, columns).to(device))
    assert torch.equal(moved_q.cpu(), q)
    assert torch.equal(moved_scale.cpu(), scale)
    y = OPS.ternary_matmul(moved_q, there, SCALE, moved_scale, rows_, "row16", out)
    assert torch.equal(y.cpu(), OPS.ternary_matmul(q, here, SCALE, scale, rows_, "tile64", out))


@pytest.mark.parametrize("format", ["tq2_0", "iq2_bn"])
@pytest.mark.parametrize(
    "shape", [(1, 4, 256), (1, 2560, 2560), (8, 36, 768), (33, 72, 1024), (300, 132, 768)], ids=str
)
def test_weights_with_several_scales(device: Any, format: str, shape: tuple[int, int, int]) -> None:
    """With a scale for each row, the CPU's bits. With one for each group of 256, within the contract's bound: sums of
    groups are added in the order of the kernel."""
    M, rows_, columns = shape
    codes, form = codes_of(rows_, columns).numpy(), FORMATS[format]
    scales = np.random.default_rng(1).uniform(-2, 2, form.scale_shape((rows_, columns))).astype(form.scale_dtype)
    packed = pack_weights(codes, scales.astype(np.float32), format=format)
    there = torch.from_numpy(packed.data).to(device)
    q, scale = OPS.activation_quantize(rows(M, columns))
    inputs = {
        "activations": q.numpy(),
        "weights": codes,
        "weight_scale": scales.astype(np.float32),
        "act_scale": scale.numpy(),
    }

    def right(y: Any, name: str) -> bool:
        if format == "iq2_bn":
            wanted = ternary_matmul(q.numpy(), packed, act_scale=scale.numpy(), dtype=name)
            return bool(torch.equal(y.cpu().float(), torch.from_numpy(wanted.astype(np.float32))))
        key = KernelKey("cuda", "ternary_matmul", format, name)
        exact = reference(inputs, {"M": M, "N": rows_, "K": columns}, key)
        return bool((np.abs(y.cpu().double().numpy() - exact["out"]) <= exact["out.bound"]).all())

    for out, name in ((torch.float32, "float32"), (torch.bfloat16, "bfloat16")):
        assert right(OPS.ternary_matmul(q.to(device), there, 1.0, scale.to(device), rows_, format, out), name)
    assert right(OPS.linear(rows(M, columns).to(device), there, 1.0, rows_, format), "float32")
    with pytest.raises(InvalidArgumentError, match="weight_scale"):
        OPS.linear(rows(M, columns).to(device), there, 0.5, rows_, format)


@pytest.mark.parametrize("lead", [(), (0,), (2, 3), (0, 4), (2, 1, 3)])
def test_any_shape_and_stride_is_taken(device: Any, lead: tuple[int, ...]) -> None:
    here, there = both(codes_of(N, K), device)
    x = rows(*lead, K)
    expected = OPS.linear(x, here, SCALE, N, "tile64")
    wide = torch.full((x.numel() * 2 + 1,), torch.nan, device=device)
    wide[1::2] = x.reshape(-1).to(device)
    for given in (
        x.to(device),
        wide[1::2].view(x.shape),
        torch.cat([wide[:1], x.reshape(-1).to(device)])[1:].view(x.shape),
    ):
        assert torch.equal(OPS.linear(given, there, SCALE, N, "row16").cpu(), expected)


def test_other_ops_have_the_cpus_values(device: Any) -> None:
    codes, x = codes_of(N, K), rows(3, 1001)
    q = OPS.i2s_quantize(x.to(device), SCALE)
    assert torch.equal(q.cpu(), OPS.i2s_quantize(x, SCALE))
    assert torch.equal(OPS.i2s_dequantize(q, SCALE).cpu(), OPS.i2s_dequantize(q.cpu(), SCALE))
    packed = OPS.pack(codes.to(device), SCALE, "row16")
    assert torch.equal(packed.cpu(), both(codes, device)[1].cpu())
    assert torch.equal(OPS.unpack(packed, N, K, "row16").cpu(), codes)


def test_a_row_with_a_nan_or_infinity_gives_nan(device: Any) -> None:
    _, there = both(codes_of(N, K), device)
    x = rows(4, K).to(device)
    x[1, 3], x[3, 0] = torch.nan, torch.inf
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        found = OPS.linear(x, there, SCALE, N, "row16", None, dtype).isnan()
        assert found[[1, 3]].all(), dtype
        assert not found[[0, 2]].any(), dtype


def test_gradients_are_the_cpus(device: Any) -> None:
    here, there = both(codes_of(N, K), device)
    upstream = torch.from_numpy(np.random.default_rng(1).integers(-3, 4, (5, N))).float()
    found = []
    for where, weights, format in (("cpu", here, "tile64"), (device, there, "row16")):
        x = rows(5, K).to(where).requires_grad_()
        OPS.linear(x, weights, SCALE, N, format).backward(upstream.to(where))
        found.append(x.grad.cpu())
    assert torch.equal(*found)


def test_work_goes_to_the_current_stream(device: Any) -> None:
    """Work after a wait in a stream sees the result of the wait."""
    here, there = both(codes_of(N, K), device)
    expected = OPS.linear(rows(3, K), here, SCALE, N, "tile64")
    x = torch.zeros(3, K, device=device)
    OPS.linear(x, there, SCALE, N, "row16")
    torch.cuda.synchronize(device)
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        x.copy_(rows(3, K).pin_memory(), non_blocking=True)
        y = OPS.linear(x, there, SCALE, N, "row16")
        assert not stream.query()
    stream.synchronize()
    assert torch.equal(y.cpu(), expected)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("M", [1, 8, 40])
def test_a_graph_computes_from_what_its_inputs_hold(device: Any, M: int, dtype: Any) -> None:
    layer = BitLinear.from_float(torch.nn.Linear(K, N)).requires_grad_(False)
    there = copy.deepcopy(layer).to(device)
    x = torch.zeros(M, K, device=device, dtype=dtype)
    with torch.cuda.device(device):
        with torch.cuda.stream(torch.cuda.Stream()):
            there(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.Stream()):  # its own belongs to the GPU that came first
            y = there(x)
        for seed in range(3):
            x.copy_(rows(M, K, seed=seed))
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(y.cpu(), layer(rows(M, K, seed=seed, dtype=dtype)))


def test_nothing_waits_for_the_device(device: Any) -> None:
    layer = BitLinear.from_float(torch.nn.Linear(K, N)).to(device)
    x = rows(2, K).to(device)
    layer(x).sum().backward()
    with torch.cuda.device(device), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype", UserWarning)
        torch.cuda.set_sync_debug_mode("error")
        try:
            layer(x.requires_grad_()).sum().backward()
            layer(x.half())
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_another_thread_has_no_context_yet(device: Any) -> None:
    from threading import Thread

    here, there = both(codes_of(N, K), device)
    x, found = rows(2, K).to(device), []
    thread = Thread(target=lambda: found.append(OPS.linear(x, there, SCALE, N, "row16")))
    thread.start()
    thread.join()
    assert torch.equal(found[0].cpu(), OPS.linear(rows(2, K), here, SCALE, N, "tile64"))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_model_is_one_graph(device: Any, backend: str) -> None:
    model = torch.nn.Sequential(BitLinear.from_float(torch.nn.Linear(K, N)), torch.nn.ReLU()).to(device)
    traced = torch.compile(model, fullgraph=True, backend=backend)
    for M in (1, 3, 40):
        x = rows(M, K).to(device)
        assert torch.equal(traced(x), model(x))


SIGNS = torch.arange(128, dtype=torch.int8) % 2 * 2 - 1
CASES: dict[str, tuple[Any, ...]] = {
    "activation_quantize": (rows(2, 3, K, dtype=torch.bfloat16),),
    "ternary_matmul": (*OPS.activation_quantize(rows(9, K)),),
    "linear": (rows(2, 3, K).requires_grad_(),),
    "linear_forward": (rows(1, K, dtype=torch.float16),),
    "linear_constant": (rows(1, K, dtype=torch.bfloat16),),
    "bit_linear": (rows(2, 3, K).requires_grad_(),),
    "bit_linear_forward": (rows(1, K, dtype=torch.bfloat16),),
    "bit_linear_a16": (rows(2, K, dtype=torch.bfloat16).requires_grad_(),),
    "bit_linear_a16_forward": (rows(1, K, dtype=torch.float16),),
    "ternary_matmul_a16": (rows(2, K, dtype=torch.bfloat16).requires_grad_(),),
    "ternary_matmul_a16_constant": (rows(1, K, dtype=torch.float16),),
    "hadamard_quantize": (rows(2, 3, 128), SIGNS, 64),
    "hadamard_transform": (rows(2, 128).requires_grad_(), SIGNS, 128, True, torch.bfloat16),
    "i2s_quantize": (rows(5, 7), SCALE),
    "i2s_dequantize": (codes_of(5, 7), SCALE),
    "pack": (codes_of(N, K), SCALE, "row16"),
    "unpack": (both(codes_of(N, K), "cpu")[1], N, K, "row16"),
}


@pytest.mark.parametrize("name", CASES)
def test_pytorchs_own_checks_pass(device: Any, name: str) -> None:
    given = [
        each.detach().to(device).requires_grad_(each.requires_grad) if isinstance(each, torch.Tensor) else each
        for each in CASES[name]
    ]
    product = (both(codes_of(N, K), device)[1], SCALE)
    if name == "ternary_matmul":
        q, scale = given
        given = [q, *product, scale, N, "row16"]
    elif name.startswith(("linear", "ternary_matmul_a16")):
        given = [*given, *product, N, "row16"]
    elif name.startswith("bit_linear"):
        given = [*given, hf_packed(codes_of(N, K)).to(device), torch.tensor([SCALE], device=device), N]
    torch.library.opcheck(getattr(OPS, name).default, tuple(given))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("M", [1, 3, 12, 70])
def test_products_of_16_bits_are_the_cpus_within_the_bound(device: Any, M: int, dtype: Any) -> None:
    """Each sum of K products is rounded at most K times on either device."""
    codes, x = codes_of(N, K), rows(M, K, dtype=dtype)
    here, there = both(codes, device)
    expected = OPS.ternary_matmul_a16(x, here, SCALE, N, "tile64", torch.float32).double()
    bound = 2 * K * 2.0**-24 * SCALE * (x.double().abs() @ codes.double().abs().t()) + 1e-30
    for compute in (OPS.ternary_matmul_a16, OPS.ternary_matmul_a16_constant):
        found = compute(x.to(device), there, SCALE, N, "row16", torch.float32).cpu().double()
        assert ((found - expected).abs() <= bound).all()


@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_of_16_bits_is_the_op(device: Any, bias: bool) -> None:
    """In a CUDA graph too, with inputs that change between replays."""
    layer = BitLinear.from_float(torch.nn.Linear(K, N, bias=bias), activation_bits=16).to(device).requires_grad_(False)
    x = rows(2, K, dtype=torch.bfloat16).to(device)
    product = OPS.ternary_matmul_a16(x, layer.packed, layer.weight_scale.item(), N, "row16", torch.float32)
    expected = (product if layer.bias is None else product + layer.bias).bfloat16()
    assert torch.equal(layer(x), expected)
    graph, given = torch.cuda.CUDAGraph(), torch.zeros_like(x)
    with torch.cuda.device(device):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            layer(given)
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            y = layer(given)
        given.copy_(x)
        graph.replay()
        torch.cuda.synchronize()
    assert torch.equal(y, expected)


def test_a_layer_goes_from_device_to_device_and_file(device: Any) -> None:
    layer = BitLinear.from_float(torch.nn.Linear(K, N))
    expected = layer(rows(3, K))
    there = copy.deepcopy(layer).to(device)
    assert there.packed.device == device
    assert torch.equal(there(rows(3, K).to(device)).cpu(), expected)
    assert torch.equal(copy.deepcopy(there)(rows(3, K).to(device)).cpu(), expected)
    assert torch.equal(copy.deepcopy(there).cpu()(rows(3, K)), expected)
    file = io.BytesIO()
    torch.save(there, file)
    file.seek(0)
    assert torch.equal(torch.load(file, map_location="cpu", weights_only=False)(rows(3, K)), expected)


def test_what_is_wrong_is_said_and_nothing_is_launched(device: Any) -> None:
    _, there = both(codes_of(N, K), device)
    x = rows(2, K).to(device)
    odd = torch.cat([there[:1], there])[1:]
    for error, words, arguments in (
        (InvalidArgumentError, "weights is on cpu", (x, there.cpu(), SCALE, N, "row16")),
        (InvalidArgumentError, "bytes", (x[:, :-64], there, SCALE, N, "row16")),
        (InvalidArgumentError, "weight_scale", (x, there, -1.0, N, "row16")),
        (InvalidArgumentError, "multiple of", (x, odd, SCALE, N, "row16")),
        (InvalidArgumentError, "of dtype", (x.double(), there, SCALE, N, "row16")),
        (NoCompatibleKernelError, "hf_pack", (x[:, :4], there[:200], SCALE, 200, "hf_pack")),
    ):
        with pytest.raises(error, match=words):
            OPS.linear(*arguments)
    torch.cuda.synchronize(device)


def test_functions_of_kernels_take_tensors_and_give_tensors_there() -> None:
    from tritmark.kernels import QuantizedLinear, activation_quantize, i2s_quantize, pack_weights, ternary_matmul

    x, weights = rows(3, K), pack_weights(codes_of(N, K).numpy(), SCALE)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        there = x.pin_memory().to("cuda", non_blocking=True)
        q = activation_quantize(there)  # waits for the stream
    y = ternary_matmul(q.q, weights, act_scale=q.scale, dtype="bfloat16")
    layer = QuantizedLinear(weights, rows(N).numpy(), device="cuda")
    rotated, beside = (QuantizedLinear(weights, hadamard=(64, None), device=device) for device in ("cuda", "cpu"))
    codes = i2s_quantize(there, 0.5)
    expected = activation_quantize(x)
    pairs: tuple[tuple[Any, Any], ...] = (
        (q.q, expected.q),
        (q.scale, expected.scale),
        (y, ternary_matmul(expected.q, weights, act_scale=expected.scale, dtype="bfloat16")),
        (layer(there), layer(x)),
        (rotated(there), beside(x)),
        (rotated(there), beside(x)),  # through the launch that the first call bound
        (codes, i2s_quantize(x, 0.5)),
    )
    for found, wanted in pairs:
        assert found.device.type == "cuda"
        assert torch.equal(found.cpu(), wanted)
    x[1, 2] = torch.nan
    with pytest.raises(InvalidArgumentError, match="nan at index"):
        activation_quantize(x.cuda())
    with pytest.raises(InvalidArgumentError, match="sums above float32 in row 1"):
        rotated(x.cuda())
    assert torch.cuda.current_device() == 0


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_devices_do_not_mix() -> None:
    _, there = both(codes_of(N, K), "cuda:1")
    with pytest.raises(InvalidArgumentError, match="weights is on cuda:1"):
        OPS.linear(rows(2, K).to("cuda:0"), there, SCALE, N, "row16")


def test_plans_are_kept_up_to_a_number(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_MOST_PLANS", 4)
    here, there = both(codes_of(N, K), device)
    for M in range(1, 12):
        y = OPS.linear(rows(M, K).to(device), there, SCALE, N, "row16")
        assert torch.equal(y.cpu(), OPS.linear(rows(M, K), here, SCALE, N, "tile64"))
        assert len(cuda._PLANS) <= 4


@pytest.mark.timing
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_call_costs_the_host_twelve_microseconds_at_most(dtype: Any) -> None:
    """Interleaved with torch's F.linear: the least of ten rounds of calls, which the device finishes sooner than the
    host can queue them."""
    from time import perf_counter

    plain = torch.nn.Linear(256, 256, bias=False)
    layer = BitLinear.from_float(plain).cuda()
    x, weights = rows(1, 256).to("cuda", dtype), plain.weight.detach().to("cuda", dtype)
    calls: dict[str, Any] = {"ours": lambda: layer(x), "torch": lambda: torch.nn.functional.linear(x, weights)}
    taken: dict[str, list[float]] = {name: [] for name in calls}
    with torch.inference_mode():
        for _ in range(10):
            for name, call in calls.items():
                torch.cuda.synchronize()
                begin = perf_counter()
                for _ in range(500):
                    call()
                taken[name].append((perf_counter() - begin) / 500 * 1e6)
    assert min(taken["ours"]) <= 12, taken
