"""Products of other projects as variants, of one matrix and of experts: their outputs, their judgement, and the
detection of one incorrect weight."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.judge.judges import Limits, Task, judged
from tritmark.harness.judge.judging import Judgement, ListedWorkload
from tritmark.harness.providers import load
from tritmark.harness.record import Status
from tritmark.harness.spec import Arrays, Axes, Tier, Variant, Workload
from tritmark.harness.validate.cases import Material, admitted
from tritmark.harness.validate.collect import suited
from tritmark.harness.validate.compare import compare
from tritmark.kernels import OPS
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.native.cpu import native
from tritmark.kernels.peers import libggml, libik, products, products_experts, products_grouped
from tritmark.kernels.peers.libggml_graph import GgmlProduct
from tritmark.kernels.peers.reference import NAME
from tritmark.kernels.ternary_matmul_experts.offsets import expert_of

VARIANTS = (*products.VARIANTS, *products_grouped.VARIANTS, *products_experts.VARIANTS)
BY_NAME = {op.name: op for op in OPS}
OP, EXPERTS = BY_NAME["ternary_matmul"], BY_NAME["ternary_matmul_experts"]
SHAPES = (
    {"M": 1, "N": 64, "K": 256},
    {"M": 3, "N": 80, "K": 768},
    {"M": 17, "N": 144, "K": 2560},
    {"M": 2, "N": 16, "K": 16128},
)
"""Shapes that every library takes."""
OF_EXPERTS = {1: 1, 3: 5, 17: 4, 2: 9}
"""A number of experts by the rows of activations."""


def with_experts(variant: Variant, axes: Axes) -> Axes:
    """The axes, with experts for their op."""
    return {**axes, "E": OF_EXPERTS[axes["M"]]} if variant.key.op == EXPERTS.name else axes


@pytest.fixture(
    params=VARIANTS,
    ids=lambda variant: f"{variant.key.op.removeprefix('ternary_')}-{variant.key.format}-{variant.name}",
)
def variant(request: pytest.FixtureRequest) -> Variant:
    found: Variant = request.param
    why = found.missing()
    if why is not None:
        # PyTorch, and a libggml with Q2_0, are in no extra; tox -e torch and nightly-peers have them.
        elsewhere = ("torch",) if os.environ.get("TRITMARK_REQUIRE_Q2_0") else ("torch", "ggml-q2_0")
        if os.environ.get("TRITMARK_REQUIRE_PEERS") and not found.name.startswith(elsewhere):
            pytest.fail(f"{found.name}: {why}")
        pytest.skip(f"{found.name}: {why}")
    return found


def ran(variant: Variant, inputs: Arrays, axes: Axes, threads: int) -> np.ndarray:
    out = np.full((axes["M"], axes["N"]), np.nan, np.float32)
    launch = variant.bind(inputs, {"out": out}, axes, threads)
    assert (launch.runs, launch.ran) == (0, "")
    launch.run()
    assert (launch.runs, launch.ran) == (1, variant.name)
    assert launch.threads_used >= 1
    return out


def test_they_register_and_importing_them_loads_none() -> None:
    code = (
        "import json, sys; from tritmark.harness.providers import load; found = load().registry.variants;"
        "maps = open('/proc/self/maps').read();"
        "print(json.dumps([[each.id for each in found], list(sys.modules), 'libggml' in maps]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    ids, modules, mapped = json.loads(done.stdout)
    assert {each.id for each in VARIANTS} <= set(ids)
    assert not {"onnxruntime", "onnx", "gguf", "pywhispercpp", "ik_llama_cpp", "torch"} & set(modules)
    assert not mapped


def test_all_are_peers() -> None:
    assert {each.tier for each in VARIANTS} == {Tier.PEER}
    assert all(each.error_bound is not None and each.packs for each in VARIANTS)


@pytest.mark.parametrize("axes", SHAPES, ids=str)
def test_they_are_within_their_bounds(variant: Variant, axes: Axes) -> None:
    taken, op, axes = 0, BY_NAME[variant.key.op], with_experts(variant, axes)
    for family in op.input_families:
        cases = Material(op, Workload(op=op.name, axes=axes, family=family), 3).cases(variant.key)
        try:
            held = admitted(cases, variant, axes).first
        except InvalidArgumentError:
            continue
        for threads in (1, 2, 3):
            found = compare(held.expected[0], ran(variant, held.inputs, axes, threads))
            assert not found.wrong.size, (family, threads, found.first)
        taken += 1
    assert taken >= len(op.input_families) - 2  # scales and sums that float32 does not hold


def test_a_wrong_weight_is_outside_the_bounds(variant: Variant) -> None:
    op, axes = BY_NAME[variant.key.op], with_experts(variant, {"M": 2, "N": 16, "K": 2560})
    inputs = dict(op.generate(axes, "uniform", np.random.default_rng(0)))
    inputs["activations"] = np.full((2, 2560), 127, np.int8)
    # Those of the second row: of the only matrix, or of its expert.
    of_matrix = np.index_exp[expert_of(inputs["offsets"], 2)[1]] if "E" in axes else ()
    expected = op.reference(inputs, axes, variant.key)["out"]
    assert variant.error_bound is not None
    bound = np.broadcast_to(variant.error_bound(inputs, axes)["out"], expected.shape)
    weights = inputs["weights"].copy()
    weights[*of_matrix, 9, 1000] = (weights[*of_matrix, 9, 1000] + 2) % 3 - 1
    encoded = op.encode({**inputs, "weights": weights}, axes, variant.key.format)
    off = np.abs(ran(variant, encoded, axes, 1) - expected) > bound
    assert off[1:, 9].all()


def test_a_right_one_passes_in_a_process_of_its_own(variant: Variant) -> None:
    op, axes = BY_NAME[variant.key.op], with_experts(variant, {"M": 2, "N": 64, "K": 512})
    workload = Workload(op=op.name, axes=axes, family="uniform")
    task = Task((variant.id,), ListedWorkload(variant.key, workload, 1, 2, frozenset({"accuracy"})))
    ((_, _, found),) = judged(load(), [task], Limits((), True, 60.0, 4 << 30))
    assert isinstance(found, Judgement)
    assert (found.accuracy.status, found.accuracy.family) == (Status.PASS, "bounded"), found.accuracy.reason
    assert "process" in found.accuracy.guards


def test_they_say_their_version_and_the_instruction_sets_of_their_build(variant: Variant) -> None:
    assert any(part.isdigit() for part in variant.version().replace(".", " ").split())
    assert "compiled for " in variant.version() or "chosen at run time" in variant.version()


@pytest.mark.parametrize("format", ["tile64", "tile64_g64", "tile64_g128", "tile64_g256"])
def test_products_of_experts_are_those_of_mul_mat_id(format: str) -> None:
    """ggml's own op for experts, in its graph, gives the same bits."""
    variant = next(
        each for each in products_experts.VARIANTS if each.key.format == format and each.name.startswith("ggml")
    )
    if variant.missing() is not None:
        pytest.skip(str(variant.missing()))
    axes, own = {"M": 21, "E": 6, "N": 40, "K": 512}, variant.name.removeprefix("ggml-")
    inputs = EXPERTS.generate(axes, "normal", np.random.default_rng(1))
    encoded = EXPERTS.encode(inputs, axes, format)
    scales = products.scales_beside(format, encoded, axes)
    rows = libggml.pack_activations(own, encoded["activations"], scales)
    graph = GgmlProduct(
        own,
        products.blocks(format, own, encoded, axes),
        40,
        512,
        21,
        2,
        experts=expert_of(inputs["offsets"], 21).astype(np.int32),
        out_scales=scales if libggml.TYPES[own].scaled_beside else None,
    )
    out = np.empty((21, 40), np.float32)
    graph.run(rows, out)
    np.testing.assert_array_equal(out, ran(variant, encoded, axes, 2), strict=True)


@pytest.mark.parametrize("group", [32, 64, 128, 256])
def test_ik_llama_dequantizes_what_is_packed_for_it(group: int) -> None:
    """Its own dequantizer gives the codes times their scales."""
    if libik.missing():
        pytest.skip("ik-llama-cpp-python is not installed")
    rng = np.random.default_rng(group)
    codes = rng.integers(-1, 3, (16, 512)).astype(np.int8)
    scales = rng.uniform(-2, 2, (16, 512 // group)).astype(np.float16).astype(np.float32)
    packed = libik.pack_q4_0_r8(codes, scales)
    assert packed.shape == (16, libik.library().ggml_row_size(libik.TYPES[libik.GROUPED][0], 512))
    libik.library().ggml_init(_NoMemory(1 << 12))  # fills the table that turns float16 into float32
    out = np.empty((2, 8, 512), np.float32)
    for eight, into in zip(packed.reshape(2, -1), out, strict=True):
        libik.library().dequantize_row_q4_0_r8(_pointer(eight), _pointer(into), _length(into))
    np.testing.assert_array_equal(out.reshape(16, 512), codes * np.repeat(scales, group, axis=1), strict=True)


def test_activations_of_blocks_are_packed_as_ik_llama_does_it() -> None:
    """Its quantizer packs integers with a largest value of 127 in each 32 into the same bytes."""
    if libik.missing():
        pytest.skip("ik-llama-cpp-python is not installed")
    codes = np.random.default_rng(2).integers(-126, 127, (3, 1024)).astype(np.int8)
    codes[:, ::32] = 127
    mine = libik.pack_q8_2_x4(codes)
    theirs = np.zeros_like(mine)
    for row, into in zip(codes.astype(np.float32), theirs, strict=True):
        libik.library().quantize_row_q8_2_x4(_pointer(row), _pointer(into), _length(row))
    np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"offsets": np.array([0, 3, 2, 4], np.int32)}, "legal: ascending"),
        ({"offsets": np.array([0, 1, 2, 5], np.int32)}, "legal: 0 to 4"),
        ({"offsets": np.array([1, 1, 2, 4], np.int32)}, "legal: 0 to 4"),
        ({"offsets": np.array([0, 1, 1, 2, 4], np.int32)}, "as many for each"),
        ({"sums": np.zeros(4, np.float32)}, "sums without scales"),
        ({"scales": np.zeros(3, np.float32)}, "one of each a row"),
    ],
)
def test_calls_that_would_read_past_their_arrays_are_refused(more: Arrays, says: str) -> None:
    rows = 6 if "offsets" in more else 2
    weights, activations = np.zeros((rows, 66), np.uint8), np.zeros((4, 292), np.uint8)
    with pytest.raises(ValueError, match=says):
        native("peers").PeerCall("any", 1, weights, activations, 256, np.zeros((4, 2), np.float32), 1, **more)


def test_groups_become_shorter_ones_exactly() -> None:
    """A matrix of tile64_g128 in blocks of ggml's Q2_0, for one matrix and for experts."""
    rng, form, own = np.random.default_rng(3), BUILT_IN["tile64_g128"], BUILT_IN["q2_0"]
    codes = rng.integers(-1, 3, (2, 8, 512)).astype(np.int8)
    scales = rng.uniform(-2, 2, (2, 8, 4)).astype(np.float16).astype(np.float32)
    for axes, given in (({"N": 8, "K": 512}, 0), ({"E": 2, "N": 8, "K": 512}, slice(None))):
        encoded = {"weights": form.pack(codes[given], scales[given])}
        blocks = products.blocks("tile64_g128", "q2_0", encoded, axes)
        unpacked, shorter = own.unpack(blocks, (blocks.shape[0], 512))
        np.testing.assert_array_equal(unpacked, codes[given].reshape(-1, 512))
        np.testing.assert_array_equal(shorter, np.repeat(scales[given].reshape(-1, 4), 2, axis=1))


def test_two_libggml_in_one_process_do_not_clash() -> None:
    if libggml.installed() or libik.missing():
        pytest.skip("both libraries are needed")
    codes = np.random.default_rng(0).integers(-1, 2, (4, 512)).astype(np.int8)
    alone = libik.pack("iq2_bn", codes)
    libggml.library()
    again = libik.pack("iq2_bn", codes)
    np.testing.assert_array_equal(alone, again)
    code = (
        "import numpy as np; from tritmark.kernels.peers import libggml, libik; libggml.library();"
        "codes = np.random.default_rng(0).integers(-1, 2, (4, 512)).astype(np.int8);"
        "print(libik.pack('iq2_bn', codes).tobytes().hex())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.strip()
    assert other == alone.tobytes().hex()


def test_activations_are_packed_as_the_library_does_it() -> None:
    """Its quantizer packs integers with a largest value of 127 in each of the four sets of columns into the same
    bytes."""
    if libik.missing():
        pytest.skip("ik-llama-cpp-python is not installed")
    rng = np.random.default_rng(1)
    codes = rng.integers(-126, 127, (2, 1024)).astype(np.int8)
    codes[:, :64] = 127
    values = codes.astype(np.float32)
    for format, name in (("iq2_bn", "quantize_row_q8_K64"), ("iq2_bn_r4", "quantize_row_q8_K16")):
        mine = libik.pack_activations(format, codes, np.ones(2, np.float32))
        theirs = np.zeros_like(mine)
        for row, into in zip(values, theirs, strict=True):
            getattr(libik.library(), name)(_pointer(row), _pointer(into), _length(row))
        head = 32 if format == "iq2_bn" else 20
        np.testing.assert_allclose(mine[:, :head].copy().view("<f4"), theirs[:, :head].copy().view("<f4"), rtol=1e-6)
        np.testing.assert_array_equal(mine[:, head:], theirs[:, head:])


class _NoMemory(ctypes.Structure):
    """ggml_init_params."""

    _fields_ = (("size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


def _pointer(array: np.ndarray) -> object:
    return ctypes.c_void_p(array.ctypes.data)


def _length(array: np.ndarray) -> object:
    return ctypes.c_int64(array.size)


def test_weights_that_the_library_would_not_pack_are_refused() -> None:
    if libik.missing():
        pytest.skip("ik-llama-cpp-python is not installed")
    for shape in ((4, 63), (3, 64), (4, 0)):
        with pytest.raises(InvalidArgumentError, match="multiple of 4 rows and of 64 columns"):
            libik.pack("iq2_bn_r4", np.zeros(shape, np.int8))


def test_every_product_has_three_peers() -> None:
    """Peers of cross-validation, all third-party."""
    installed = load()
    for key in {each.key for each in installed.registry.without_peers if each.key.op == OP.name}:
        there = {each.name for each in suited(installed.peers, key)} - {NAME}
        assert len(there) >= 3, (key, there)
