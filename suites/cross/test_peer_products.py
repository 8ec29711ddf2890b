"""Products of other projects as variants: their outputs, their judgement, and the detection of one incorrect weight."""

from __future__ import annotations

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
from tritmark.kernels.peers import libggml, libik
from tritmark.kernels.peers.products import VARIANTS
from tritmark.kernels.peers.reference import NAME

OP = next(op for op in OPS if op.name == "ternary_matmul")
SHAPES = (
    {"M": 1, "N": 64, "K": 256},
    {"M": 3, "N": 68, "K": 768},
    {"M": 17, "N": 132, "K": 2560},
    {"M": 2, "N": 16, "K": 16128},
)
"""Shapes that every library takes."""


@pytest.fixture(params=VARIANTS, ids=lambda variant: f"{variant.key.format}-{variant.name}")
def variant(request: pytest.FixtureRequest) -> Variant:
    found: Variant = request.param
    why = found.missing()
    if why is not None:
        if os.environ.get("TRITMARK_REQUIRE_PEERS") and not found.name.startswith("torch"):  # in no extra
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
    taken = 0
    for family in OP.input_families:
        cases = Material(OP, Workload(op=OP.name, axes=axes, family=family), 3).cases(variant.key)
        try:
            held = admitted(cases, variant, axes).first
        except InvalidArgumentError:
            continue
        for threads in (1, 2, 3):
            found = compare(held.expected[0], ran(variant, held.inputs, axes, threads))
            assert not found.wrong.size, (family, threads, found.first)
        taken += 1
    assert taken >= len(OP.input_families) - 2  # scales and sums that float32 does not hold


def test_a_wrong_weight_is_outside_the_bounds(variant: Variant) -> None:
    axes = {"M": 2, "N": 16, "K": 2560}
    inputs = OP.generate(axes, "uniform", np.random.default_rng(0))
    inputs["activations"] = np.full((2, 2560), 127, np.int8)
    expected = OP.reference(inputs, axes, variant.key)["out"]
    assert variant.error_bound is not None
    bound = np.broadcast_to(variant.error_bound(inputs, axes)["out"], expected.shape)
    weights = inputs["weights"].copy()
    weights[9, 1000] = (weights[9, 1000] + 2) % 3 - 1
    encoded = OP.encode({**inputs, "weights": weights}, axes, variant.key.format)
    off = np.abs(ran(variant, encoded, axes, 1) - expected) > bound
    assert off[:, 9].all()


def test_a_right_one_passes_in_a_process_of_its_own(variant: Variant) -> None:
    workload = Workload(op=OP.name, axes={"M": 2, "N": 64, "K": 512}, family="uniform")
    task = Task((variant.id,), ListedWorkload(variant.key, workload, 1, 2, frozenset({"accuracy"})))
    ((_, _, found),) = judged(load(), [task], Limits((), True, 60.0, 4 << 30))
    assert isinstance(found, Judgement)
    assert (found.accuracy.status, found.accuracy.family) == (Status.PASS, "bounded"), found.accuracy.reason
    assert "process" in found.accuracy.guards


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


def _pointer(array: np.ndarray) -> object:
    import ctypes

    return ctypes.c_void_p(array.ctypes.data)


def _length(array: np.ndarray) -> object:
    import ctypes

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
