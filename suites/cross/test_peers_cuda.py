"""Products of other projects on CUDA: packing, bounds, absence, the receipts of their launches, and on a GPU their
outputs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import InvalidArgumentError, LaunchError
from tritmark.harness.extras import install
from tritmark.harness.measure.heap import LEAST_BLOCK, held, settle
from tritmark.harness.spec import Arrays, Axes, Tier, Variant
from tritmark.kernels import OPS
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.context import SELECT, cuda_context
from tritmark.kernels.cuda.device import missing as gpu_missing
from tritmark.kernels.cuda.memory.stats import PerformanceStats
from tritmark.kernels.formats import BUILT_IN, row16_grouped
from tritmark.kernels.peers import adapters, humming, launch_cuda, torch_cuda
from tritmark.kernels.peers.launch_cuda import CudaPeerLaunch
from tritmark.kernels.peers.products_cuda import VARIANTS
from tritmark.kernels.ternary_matmul.scales import weight_scales

OP = next(op for op in OPS if op.name == "ternary_matmul")
BFLOAT16 = ml_dtypes.bfloat16
F32 = np.float32
SHAPES = (
    {"M": 1, "N": 128, "K": 256},
    {"M": 17, "N": 256, "K": 2560},
    {"M": 33, "N": 640, "K": 1152},
    {"M": 1, "N": 2560, "K": 2560},
)


GROUPED = tuple(form.name for form in row16_grouped.FORMATS)


def named(name: str, dtype: str = "bfloat16", format: str = "row16") -> Variant:
    return next(each for each in VARIANTS if (each.name, each.key.dtype, each.key.format) == (name, dtype, format))


def weights_of(inputs: Arrays, axes: Axes, format: str) -> Any:
    """Dequantized, in float64."""
    scales = np.float64(weight_scales(inputs, axes, format))
    group = BUILT_IN[format].group
    return inputs["weights"] * (np.repeat(scales, group, axis=1) if group else scales)


def exact(inputs: Arrays, dtype: str, axes: Axes, format: str = "row16") -> Any:
    """In float64."""
    activations = inputs["activations"].astype(np.float64)
    if dtype == "int32":
        return activations @ inputs["weights"].T
    return activations @ weights_of(inputs, axes, format).T / inputs["act_scale"].astype(np.float64)[:, np.newaxis]


# Tests without a GPU


def test_all_are_peers_that_stand_where_our_fastest_do() -> None:
    assert {(each.tier, each.key.device) for each in VARIANTS} == {(Tier.PEER, "cuda")}
    assert {each.key.format for each in VARIANTS} == {"row16", *GROUPED}
    assert all(each.packs for each in VARIANTS)
    # int32 sums are exact in any order; rounded outputs have a bound.
    assert {each.key.dtype for each in VARIANTS if each.error_bound is None} == {"int32"}


def test_they_register_and_importing_them_loads_none() -> None:
    code = (
        "import json, sys; from tritmark.harness.providers import load; found = load().registry.variants;"
        "print(json.dumps([[each.id for each in found], list(sys.modules)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    ids, modules = json.loads(done.stdout)
    assert {each.id for each in VARIANTS} <= set(ids)
    assert not {"torch", "humming", "pycuda"} & set(modules)


def test_each_says_why_it_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(SELECT, "simulator")
    assert all("simulator" in (each.missing() or "") for each in VARIANTS)
    monkeypatch.delenv(SELECT)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    assert all(install("peers-cuda") in (each.missing() or "") for each in VARIANTS)
    # The CPU build of PyTorch, and then the library of the other build beside it.
    root = tmp_path / "torch" / "__init__.py"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(origin=str(root)))
    assert "without CUDA" in (torch_cuda.missing() or "")
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "torch" / "lib" / "libtorch_cuda.so").touch()
    assert torch_cuda.missing() is None
    assert install("peers-cuda") in (humming.missing() or "")
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.1.20")
    assert humming.missing() is None


@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_humming_takes_two_bits_in_order(rows: int, words: int, seed: int) -> None:
    codes = np.random.default_rng(seed).integers(-1, 2, (rows, 16 * words)).astype(np.int8)
    expected = np.zeros((rows, words), np.uint32)
    for k in range(16 * words):
        expected[:, k // 16] |= (codes[:, k] + 2).astype(np.uint32) << np.uint32(2 * (k % 16))
    np.testing.assert_array_equal(humming.pack(codes).view("<u4"), expected)


Arithmetic = Callable[[Arrays, Axes], Any]


def _sums(inputs: Arrays) -> Any:
    return (inputs["activations"].astype(np.int64) @ inputs["weights"].T.astype(np.int64)).astype(F32)


def _torch_int8(inputs: Arrays, axes: Axes) -> Any:
    scale = (inputs["weight_scale"] / inputs["act_scale"].astype(np.float64)).astype(F32)
    return (_sums(inputs) * scale[:, np.newaxis]).astype(BFLOAT16)


def _bfloat16_rows(inputs: Arrays, scale: Any) -> Any:
    return (inputs["activations"] * scale.astype(F32)[:, np.newaxis]).astype(BFLOAT16).astype(F32)


def _torch_bfloat16(inputs: Arrays, axes: Axes) -> Any:
    rows = _bfloat16_rows(inputs, inputs["weight_scale"] / inputs["act_scale"].astype(np.float64))
    return (rows @ inputs["weights"].T.astype(F32)).astype(BFLOAT16)


def _sliced(parts: list[Any]) -> Any:
    """bfloat16s added in bfloat16."""
    total = parts[0].astype(BFLOAT16)
    for each in parts[1:]:
        total = (total.astype(F32) + each.astype(BFLOAT16).astype(F32)).astype(BFLOAT16)
    return total


def _humming_w2a8(inputs: Arrays, axes: Axes) -> Any:
    scale = ((F32(1) / inputs["act_scale"]) * F32(inputs["weight_scale"]))[:, np.newaxis]
    cuts = np.array_split(np.arange(axes["K"]), 10)
    cut = [{"activations": inputs["activations"][:, k], "weights": inputs["weights"][:, k]} for k in cuts]
    return _sliced([_sums(each) * scale for each in cut])


def _humming_w2a16(inputs: Arrays, axes: Axes) -> Any:
    rows, weights = _bfloat16_rows(inputs, F32(1) / inputs["act_scale"]), inputs["weights"].astype(F32)
    cuts = np.array_split(np.arange(axes["K"]), 10)
    return _sliced([(rows[:, k] @ weights[:, k].T) * F32(inputs["weight_scale"]) for k in cuts])


def _torch_fp8(inputs: Arrays, axes: Axes, bits: int = 24) -> Any:
    scale = (inputs["weight_scale"] / inputs["act_scale"].astype(np.float64)).astype(F32)
    step = torch_cuda.float8_step(inputs)
    rows = (inputs["activations"] * scale[:, np.newaxis] / step).astype(ml_dtypes.float8_e4m3fn).astype(np.float64)
    total = np.zeros((axes["M"], axes["N"]))
    for k in range(0, axes["K"], torch_cuda.FAST_K):
        part = total + rows[:, k : k + torch_cuda.FAST_K] @ inputs["weights"][:, k : k + torch_cuda.FAST_K].T
        fraction, exponent = np.frexp(part)
        total = np.ldexp(np.trunc(np.ldexp(fraction, bits)), exponent - bits)
    return (total * step).astype(F32).astype(BFLOAT16)


def _torch_fp8_fast(inputs: Arrays, axes: Axes) -> Any:
    return _torch_fp8(inputs, axes, torch_cuda.FAST_BITS)


def _dequantized(inputs: Arrays, axes: Axes, format: str) -> Any:
    rows = _bfloat16_rows(inputs, F32(1) / inputs["act_scale"])
    return (rows @ weights_of(inputs, axes, format).astype(BFLOAT16).astype(F32).T).astype(BFLOAT16)


def _humming_grouped(kind: str, inputs: Arrays, axes: Axes, format: str) -> Any:
    group = BUILT_IN[format].group
    scales = weight_scales(inputs, axes, format).astype(BFLOAT16).astype(F32)
    inverse = (F32(1) / inputs["act_scale"])[:, np.newaxis]
    rows, last = inputs["activations"].astype(F32), inverse
    if kind == humming.INT8:
        step = np.abs(scales).max() / F32(humming.INTEGER_SCALES)
        scales, last = np.rint(scales / step), inverse * step
    else:
        rows, last = _bfloat16_rows(inputs, inverse[:, 0]), F32(1)
    weights = inputs["weights"] * np.repeat(scales, group, axis=1)
    cuts = np.array_split(np.arange(axes["K"]), 10)
    return _sliced([(rows[:, k] @ weights[:, k].T) * last for k in cuts])


def _microsoft(inputs: Arrays, axes: Axes) -> Any:
    s, ws = (np.asarray(inputs[name], BFLOAT16).astype(F32) for name in ("act_scale", "weight_scale"))
    return (_sums(inputs) / s[:, np.newaxis] * ws).astype(BFLOAT16)


@pytest.fixture(scope="module")
def bitnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with the function's name, for checks before any call."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: neither gcc nor cc is on PATH")
    folder = tmp_path_factory.mktemp("bitnet")
    (folder / "bitnet.c").write_text("void bitlinear_int8xint2(void) {}")
    path = folder / "libbitnet.so"
    subprocess.run([compiler, "-shared", "-fPIC", str(folder / "bitnet.c"), "-o", str(path)], check=True)
    return path


@pytest.fixture
def microsoft(bitnet: Path) -> Variant:
    first, *_ = adapters.variants("microsoft-cuda", str(bitnet))
    return first


@pytest.mark.parametrize(
    ("name", "arithmetic"),
    [
        ("torch-int8", _torch_int8),
        ("torch-bfloat16", _torch_bfloat16),
        ("torch-fp8", _torch_fp8),
        ("torch-fp8-fast", _torch_fp8_fast),
        ("humming-w2a8", _humming_w2a8),
        ("humming-w2a16", _humming_w2a16),
        ("microsoft-cuda:int8xint2", _microsoft),
    ],
)
def test_their_arithmetic_is_within_its_bound(name: str, arithmetic: Arithmetic, microsoft: Variant) -> None:
    variant, taken = microsoft if name == microsoft.name else named(name), 0
    assert variant.error_bound is not None
    for family in OP.input_families:
        for axes in SHAPES[:2]:
            inputs = OP.generate(axes, family, np.random.default_rng(3))
            try:
                bound = np.asarray(variant.error_bound(inputs, axes)["out"])
            except InvalidArgumentError:
                continue
            off = np.abs(arithmetic(inputs, axes).astype(np.float64) - exact(inputs, "bfloat16", axes))
            assert (off <= bound).all(), (family, axes, float((off - bound).max()))
            taken += 1
    assert taken >= 2 * len(OP.input_families) - 2  # scales that float32 does not hold


@pytest.mark.parametrize("format", GROUPED)
@pytest.mark.parametrize(
    ("name", "arithmetic"),
    [
        ("torch-bfloat16", _dequantized),
        ("humming-w2a8", partial(_humming_grouped, humming.INT8)),
        ("humming-w2a16", partial(_humming_grouped, humming.BF16)),
    ],
)
def test_their_arithmetic_with_scales_of_groups_is_within_its_bound(name: str, arithmetic: Any, format: str) -> None:
    variant, taken = named(name, format=format), 0
    assert variant.error_bound is not None
    for family in OP.input_families:
        for axes in ({"M": 3, "N": 128, "K": 512}, {"M": 17, "N": 128, "K": 2560}):
            inputs = OP.generate(axes, family, np.random.default_rng(3))
            try:
                bound = np.asarray(variant.error_bound(inputs, axes)["out"])
            except InvalidArgumentError:
                continue
            off = np.abs(arithmetic(inputs, axes, format).astype(np.float64) - exact(inputs, "", axes, format))
            assert (off <= bound).all(), (family, axes, float((off - bound).max()))
            taken += 1
    assert taken >= 2 * len(OP.input_families) - 2  # scales that float32 does not hold


@pytest.mark.parametrize("name", ["torch-int8", "microsoft-cuda:int8xint2"])
def test_a_wrong_weight_is_outside_what_exact_sums_admit(name: str, microsoft: Variant) -> None:
    variant, axes = microsoft if name == microsoft.name else named(name), {"M": 2, "N": 16, "K": 2560}
    inputs = OP.generate(axes, "uniform", np.random.default_rng(0))
    inputs["activations"] = np.full((2, 2560), 127, np.int8)
    assert variant.error_bound is not None
    bound = np.asarray(variant.error_bound(inputs, axes)["out"])
    step = 127 * np.float64(inputs["weight_scale"]) / inputs["act_scale"].astype(np.float64)
    assert (bound < step[:, np.newaxis]).mean() > 0.9


def test_a_library_takes_the_shapes_that_it_is_compiled_for(microsoft: Variant, bitnet: Path) -> None:
    assert (microsoft.name, str(microsoft.key)) == (
        "microsoft-cuda:int8xint2",
        "cuda/ternary_matmul/row16/bfloat16",
    )
    assert microsoft.code_hash == sha256(bitnet.read_bytes()).hexdigest()
    (shapes,) = microsoft.constraints
    assert shapes.refusal({"M": 1, "N": 2560, "K": 6912}) is None
    for wrong in ({"M": 2, "N": 2560, "K": 2560}, {"M": 1, "N": 6912, "K": 2560}):
        assert "not compiled" in (shapes.refusal(wrong) or "")


# Recording of a launch, with a fake driver


class Kind(IntEnum):
    CU_GRAPH_NODE_TYPE_KERNEL = 0
    CU_GRAPH_NODE_TYPE_MEMSET = 2


class Driver:
    """Records its input between begin and end, or runs it."""

    CUgraphNodeType = Kind
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)
    CUresult = SimpleNamespace(CUDA_SUCCESS=SimpleNamespace(value=0))

    def __init__(self) -> None:
        self.ok = self.CUresult.CUDA_SUCCESS
        self.recording: list[Any] | None = None
        self.alive = 0

    def give(self, node: Any, work: Callable[[], None]) -> None:
        if self.recording is None:
            work()
        else:
            self.recording.append(node)

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Callable[..., tuple[Any, ...]]] = {
            "cuGraphGetNodes": lambda graph, count=0: (self.ok, graph[:count], len(graph)),
            "cuGraphNodeGetType": lambda node: (self.ok, node[0]),
            "cuGraphKernelNodeGetParams": lambda node: (self.ok, node[1]),
            "cuKernelGetFunction": lambda kernel: (self.ok, kernel),
            "cuFuncGetName": lambda function: (self.ok, b"gemm" + str(int(function)).encode()),
            "cuOccupancyMaxActiveBlocksPerMultiprocessor": lambda function, threads, shared: (self.ok, 4),
        }
        if name not in answers:
            raise AttributeError(name)
        return answers[name]

    def CUstream(self, handle: int) -> int:  # noqa: N802
        return handle

    def cuStreamBeginCapture(self, stream: int, mode: int) -> tuple[Any]:  # noqa: N802
        self.recording, self.alive = [], self.alive + 1
        return (self.ok,)

    def cuStreamEndCapture(self, stream: int) -> tuple[Any, Any]:  # noqa: N802
        found, self.recording = self.recording, None
        return self.ok, found

    def cuGraphDestroy(self, graph: Any) -> tuple[Any]:  # noqa: N802
        self.alive -= 1
        return (self.ok,)


def kernel(function: int, kern: int = 0) -> tuple[Kind, Any]:
    sizes = {f"{what}Dim{axis}": 1 for what in ("grid", "block") for axis in "YZ"}
    given = SimpleNamespace(func=function, kern=kern, gridDimX=7, blockDimX=128, sharedMemBytes=64, **sizes)
    return Kind.CU_GRAPH_NODE_TYPE_KERNEL, given


class Output:
    """An array on the device."""

    def __init__(self) -> None:
        self.values = np.full(4, 5, np.int32)

    def numpy(self) -> Any:
        return self.values.copy()

    def write(self, values: Any) -> None:
        self.values[...] = values


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made, bindings = Driver(), ModuleType("cuda.bindings")
    bindings.__dict__["driver"] = made
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    event = SimpleNamespace(record=lambda stream: None, since=lambda earlier: 1500.0)
    stream = SimpleNamespace(handle=5, synchronize=lambda: None)
    backend = SimpleNamespace(stream=stream, new_event=lambda: event, info=SimpleNamespace(uuid="GPU-1"))
    room = SimpleNamespace(backend=backend, stats=PerformanceStats())
    monkeypatch.setattr(launch_cuda, "cuda_context", lambda: room)
    return made


def test_a_launch_tells_what_was_recorded_of_it(driver: Driver, tmp_path: Path) -> None:
    out, file = Output(), tmp_path / "lib.so"
    file.write_bytes(b"code")

    def call(stream: Any) -> None:
        driver.give((Kind.CU_GRAPH_NODE_TYPE_MEMSET, None), lambda: None)
        driver.give(kernel(11), lambda: out.write(1))
        driver.give(kernel(0, kern=12), lambda: out.write(2))

    launch = CudaPeerLaunch("peer", call, {"out": out}, lambda: [file])
    assert (out.values == 5).all()  # outputs of the trial call are restored
    assert (launch.ran, launch.runs, launch.kernels, launch.others, launch.pointer) == ("", 0, 2, 1, 11)
    launch.run()
    assert (out.values == 2).all()
    proof = launch.proof
    assert (launch.ran, launch.runs, proof.launches, proof.device_ns, proof.timed_runs) == ("peer", 1, 2, 1500.0, 1)
    assert proof.functions == ("gemm11", "gemm12")
    assert proof.code_hash == sha256(b"code").hexdigest() == proof.launched[0].binary
    assert (proof.launched[1].grid, proof.launched[1].block, proof.launched[1].resident) == ((7, 1, 1), (128, 1, 1), 4)
    assert driver.alive == 0


def test_a_call_that_launches_nothing_is_refused(driver: Driver, tmp_path: Path) -> None:
    file = tmp_path / "lib.so"
    file.touch()
    with pytest.raises(LaunchError, match="peer launched no kernel"):
        CudaPeerLaunch("peer", lambda stream: None, {}, lambda: [file])
    assert driver.alive == 0


def growth(work: Callable[[], object], times: int) -> int:
    """Growth of the heap in bytes by that many repetitions."""
    for _ in range(8):  # allocations that happen once
        work()
    settle()
    before = held()
    if before is None:
        pytest.skip("this system does not report the memory of a process")
    for _ in range(times):
        work()
    settle()
    now = held()
    assert now is not None
    return now.heap - before.heap


@pytest.mark.nightly
def test_launches_that_are_dropped_leave_nothing(driver: Driver, tmp_path: Path) -> None:
    file = tmp_path / "lib.so"
    file.touch()
    kept: list[Any] = []

    def bound() -> CudaPeerLaunch:
        out = Output()
        call = partial(driver.give, kernel(11), lambda: out.write(1))
        return CudaPeerLaunch("peer", lambda stream: call(), {"out": out}, lambda: [file])

    assert growth(lambda: bound().run(), 500) < 500 * LEAST_BLOCK
    assert growth(lambda: kept.append(bound()), 500) > 500 * LEAST_BLOCK
    assert driver.alive == 0


def array_on_host(values: Any) -> DeviceArray:
    """Memory of the host as an array of the device."""
    owner = SimpleNamespace(pointer=values.ctypes.data)
    return DeviceArray(cast(Any, None), cast(Any, owner), owner.pointer, values.shape, values.dtype)


@pytest.mark.parametrize("dtype", ["int8", "int32", "float32", "bfloat16"])
def test_a_tensor_over_an_array_is_its_memory_and_leaves_nothing(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")
    monkeypatch.setattr(torch_cuda, "_place", lambda: torch.device("cpu"))
    values = np.arange(600, dtype=np.int8).astype(named_dtype(dtype)).reshape(20, 30)
    array = array_on_host(values)
    tensor = torch_cuda.over(array)
    assert (tensor.dtype, tensor.shape) == (getattr(torch, dtype), (20, 30))
    assert tensor.is_contiguous()
    assert (tensor.float().numpy() == values.astype(F32)).all()
    tensor[3, 7] = 101
    assert values[3, 7] == 101
    assert growth(lambda: torch_cuda.over(array), 500) < 500 * LEAST_BLOCK


def test_an_array_tells_the_same_objects_each_time() -> None:
    """PyTorch keeps a reference to each forever."""
    array = array_on_host(np.zeros((20, 30), np.int8))
    one, other = array.__cuda_array_interface__, array.__cuda_array_interface__
    assert one == {
        "shape": (20, 30),
        "typestr": "|i1",
        "data": (array.pointer, False),
        "strides": None,
        "version": 3,
    }
    assert all(one[name] is other[name] for name in one)


# On a GPU


@pytest.mark.cuda
@pytest.mark.parametrize("way", ["over", "as_tensor"])
def test_tensors_over_an_array_on_the_gpu_leave_nothing(way: str) -> None:
    why = torch_cuda.missing() or gpu_missing()
    if why is not None:
        pytest.skip(why)
    torch_cuda.begin()
    import torch

    array = cuda_context().array((20, 30), np.int8)
    taken: dict[str, Callable[[], Any]] = {
        "over": lambda: torch_cuda.over(array),
        "as_tensor": lambda: torch.as_tensor(array, device="cuda"),
    }
    array.write(np.arange(600, dtype=np.int8).reshape(20, 30))
    assert (taken[way]().cpu().numpy() == array.numpy()).all()
    assert growth(taken[way], 500) < 500 * LEAST_BLOCK


@pytest.mark.cuda
@pytest.mark.parametrize("axes", SHAPES, ids=str)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: f"{each.name}-{each.key.format}-{each.key.dtype}")
def test_they_compute_the_product(variant: Variant, axes: Axes) -> None:
    why = variant.missing() or gpu_missing()
    why = why or next((found for each in variant.constraints if (found := each.refusal(axes))), None)
    if why is None and OP.holds is not None and not OP.holds(axes, variant.key.format):
        why = f"{variant.key.format} does not hold this shape"
    if why is not None:
        pytest.skip(f"{variant.name}: {why}")
    variant.load()
    inputs, here = OP.generate(axes, "uniform", np.random.default_rng(1)), cuda_context()
    encoded = OP.encode(inputs, axes, variant.key.format)
    there = {name: here.upload(value) if np.ndim(value) else value for name, value in encoded.items()}
    shape, dtype = OP.outputs_like(axes, variant.key)["out"]
    out = here.array(shape, named_dtype(dtype))
    launch = variant.bind(there, {"out": out}, axes, 1)
    launch.run()
    off = np.abs(out.numpy().astype(np.float64) - exact(inputs, dtype, axes, variant.key.format))
    assert (off <= (0 if variant.error_bound is None else variant.error_bound(inputs, axes)["out"])).all()
    assert launch.ran == variant.name
