"""The peers from PyPI compared with the kernels: llama.cpp's ggml and gguf, and ONNX Runtime."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import DeviceUnavailableError, InvalidArgumentError
from tritmark.harness.extras import install
from tritmark.harness.machine import gpu
from tritmark.harness.record import PeerComparison, Status
from tritmark.harness.spec import Axes, Peer, Variant
from tritmark.kernels import OPS, PROVIDER
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.peers import PEERS, libggml, libik, onnx
from tritmark.kernels.peers.launch import is_installed
from tritmark.kernels.peers.libggml_graph import GgmlProduct

BY_NAME = {op.name: op for op in OPS}
ON_CPU = {(variant.key.format, variant.key.dtype) for variant in PROVIDER.variants if variant.key.device == "cpu"}
PRODUCTS = [
    peer
    for peer in PEERS
    if peer.op == "ternary_matmul"
    and any((format, dtype) in ON_CPU for format in peer.formats for dtype in peer.dtypes)
]
QUANTIZERS = [peer for peer in PEERS if peer.op == "ternary_quantize"]


def label(peer: Peer) -> str:
    return f"{peer.name}-{peer.op}-{min(peer.formats)}-{'-'.join(sorted(peer.dtypes))}"


each_product = pytest.mark.parametrize("peer", PRODUCTS, ids=label)
each_quantizer = pytest.mark.parametrize("peer", QUANTIZERS, ids=label)


def kernel(peer: Peer, device: str, name: str) -> Variant:
    """A variant with which the peer is compared."""
    return next(
        variant
        for variant in PROVIDER.variants
        if variant.key.op == peer.op
        and variant.key.device == device
        and variant.key.format in peer.formats
        and variant.key.dtype in peer.dtypes
        and variant.name == name
    )


def ran(peer: Peer, axes: Axes, inputs: Mapping[str, Any], threads: int = 1) -> np.ndarray:
    """The output of the peer, which is poisoned before the call."""
    dtype = named_dtype(next(iter(peer.dtypes)))
    shape = (axes["M"], axes["N"]) if peer.op == "ternary_matmul" else (-(-axes["n"] // 256) * 66,)
    out = np.frombuffer(b"\xa5" * (int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape).copy()
    launch = peer.bind(peer.encode(inputs, axes), {peer.outputs[0]: out}, axes, threads)
    assert (launch.runs, launch.ran) == (0, "")
    launch.run()
    assert launch.runs == 1
    assert launch.ran
    assert 1 <= launch.threads_used <= threads
    return out


def test_importing_the_peers_loads_none_of_them() -> None:
    code = "import sys, json, tritmark.kernels.peers; print(json.dumps(list(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert not {"onnxruntime", "onnx", "gguf", "pywhispercpp", "llama_cpp"} & set(loaded)


def test_each_peer_is_described_once() -> None:
    taken = [(peer.name, peer.op, format, dtype) for peer in PEERS for format in peer.formats for dtype in peer.dtypes]
    assert len(set(taken)) == len(taken)
    keys = {(variant.key.op, variant.key.format, variant.key.dtype) for variant in PROVIDER.variants}
    assert {key[1:] for key in taken} <= keys


@pytest.mark.parametrize("peer", PEERS, ids=label)
def test_versions_name_the_package(peer: Peer, there: Callable[[Peer], None]) -> None:
    there(peer)
    assert any(part.isdigit() for part in peer.version().replace(".", " ").split())


SHAPES = (
    {"M": 1, "N": 1, "K": 1},
    {"M": 3, "N": 67, "K": 133},
    {"M": 2, "N": 16, "K": 256},
    {"M": 5, "N": 33, "K": 2600},
)


def whole(variant: Variant, axes: Axes) -> Axes:
    """The axes, rounded up to the rows and columns that the variant's format needs."""
    format = FORMATS[variant.key.format]
    more = {"N": -axes["N"] % format.row_multiple, "K": -axes["K"] % format.column_multiple}
    return {name: size + more.get(name, 0) for name, size in axes.items()}


@each_product
@pytest.mark.parametrize("axes", SHAPES, ids=str)
def test_products_agree(
    peer: Peer, axes: Axes, there: Callable[[Peer], None], compare: Callable[..., PeerComparison]
) -> None:
    there(peer)
    variant = kernel(peer, "cpu", "scalar")
    axes = whole(variant, axes)
    for family in BY_NAME[peer.op].input_families:
        found = compare(variant, peer, axes, family, seed=3)
        if family == "scales" and found.status is Status.NOT_RUN:
            assert "numbers of float32" in found.reason
            continue
        assert (found.status, found.match, found.peer_wrong) == (Status.PASS, True, False), (family, found)
        assert found.elements == axes["M"] * axes["N"]


@each_product
def test_a_wrong_weight_shows(
    peer: Peer, there: Callable[[Peer], None], compare: Callable[..., PeerComparison]
) -> None:
    """The bounds are narrow enough to detect one incorrect code among thousands, if activations have equal size."""
    there(peer)
    axes = {"M": 2, "N": 16, "K": 2560}
    variant = kernel(peer, "cpu", "scalar")
    inputs = BY_NAME[peer.op].generate(axes, "uniform", np.random.default_rng(0)) | {
        "activations": np.full((2, 2560), 127, np.int8)
    }

    def swapped(encoded: Any, outputs: Any, axes: Axes, threads: int) -> Any:
        weights = inputs["weights"].copy()
        weights[9, 1000] = (weights[9, 1000] + 2) % 3 - 1
        wrong = BY_NAME[peer.op].encode({**inputs, "weights": weights}, axes, variant.key.format)
        return variant.bind(wrong, outputs, axes, threads)

    faulty = Variant(
        key=variant.key, name="swapped", tier=variant.tier, summary="one weight is another's", bind=swapped
    )
    found = compare(faulty, peer, axes, logical=inputs)
    assert (found.status, found.mismatches) == (Status.FAIL, 2)
    assert found.first is not None
    assert found.first.index == (0, 9)
    exact, bound = (
        float(found.exact),
        np.asarray(peer.error_bound(inputs, axes)["out"])[0, 9] if peer.error_bound else 0.0,
    )
    assert abs(float(found.first.expected) - exact) <= bound < abs(float(found.first.found) - exact)


@each_product
def test_both_ends_of_int8_and_the_longest_exact_sum(
    peer: Peer, there: Callable[[Peer], None], compare: Callable[..., PeerComparison]
) -> None:
    there(peer)
    for value in (-128, 127):
        axes = {"M": 1, "N": 4, "K": 16128}
        inputs = BY_NAME[peer.op].generate(axes, "uniform", np.random.default_rng(1))
        inputs |= {"activations": np.full((1, 16128), value, np.int8), "weights": np.ones((4, 16128), np.int8)}
        found = compare(kernel(peer, "cpu", "scalar"), peer, axes, logical=inputs)
        assert (found.status, found.match) == (Status.PASS, True), found


def test_ggml_refuses_sums_that_need_not_be_exact() -> None:
    peer = next(peer for peer in PRODUCTS if peer.dtypes == {"int32"})
    assert peer.refusal({"M": 1, "N": 1, "K": 43690}) is None
    assert "over 43690" in str(peer.refusal({"M": 1, "N": 1, "K": 43691}))


@each_product
def test_two_threads_give_the_same_bits(peer: Peer, there: Callable[[Peer], None]) -> None:
    there(peer)
    axes = {"M": 4, "N": 96, "K": 1024}
    inputs = BY_NAME[peer.op].generate(axes, "uniform", np.random.default_rng(2))
    one, two = (ran(peer, axes, inputs, threads) for threads in (1, 2))
    assert one.tobytes() == two.tobytes()


@each_product
def test_a_run_reads_the_activations_that_are_there_then(peer: Peer, there: Callable[[Peer], None]) -> None:
    there(peer)
    axes = {"M": 2, "N": 8, "K": 256}
    first, second = (BY_NAME[peer.op].generate(axes, "uniform", np.random.default_rng(seed)) for seed in (0, 1))
    second = {**first, "activations": second["activations"]}
    taken, out = dict(peer.encode(first, axes)), np.empty((2, 8), named_dtype(next(iter(peer.dtypes))))
    taken["activations"] = taken["activations"].copy()
    launch = peer.bind(taken, {"out": out}, axes, 1)
    launch.run()
    assert out.tobytes() == ran(peer, axes, first).tobytes()
    taken["activations"][...] = peer.encode(second, axes)["activations"]
    launch.run()
    assert out.tobytes() == ran(peer, axes, second).tobytes()
    assert launch.runs == 2


@each_quantizer
@pytest.mark.parametrize("n", [1, 256, 1537, 20000])
def test_quantizers_give_the_ops_bytes_but_where_the_rules_part(
    peer: Peer, n: int, there: Callable[[Peer], None]
) -> None:
    there(peer)
    axes = {"n": n, "block": 256}
    op, key = BY_NAME[peer.op], kernel(peer, "cuda", _QUANTIZER).key
    for family in op.input_families:
        inputs = op.generate(axes, family, np.random.default_rng(n))
        off = np.abs(ran(peer, axes, inputs).astype(int) - op.reference(inputs, axes, key)["codes"])
        admitted = peer.error_bound(inputs, axes)["codes"]  # type: ignore[misc]
        assert (off <= admitted).all(), family
        if family not in ("ties", "denormals", "extremes"):
            assert not admitted.any(), f"the bound of {family} excuses {np.count_nonzero(admitted)} bytes"
        if family == "ties":
            assert off.any() or n == 1


_QUANTIZER = next(
    variant.name
    for variant in PROVIDER.variants
    if variant.key.op == "ternary_quantize" and variant.key.format == "tq2_0"
)


@pytest.mark.cuda
@each_quantizer
def test_quantizers_agree_with_a_kernel(
    peer: Peer, there: Callable[[Peer], None], compare: Callable[..., PeerComparison], monkeypatch: pytest.MonkeyPatch
) -> None:
    there(peer)
    if gpu.why_not() is not None:
        monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    for family in ("normal", "ties"):
        found = compare(kernel(peer, "cuda", _QUANTIZER), peer, {"n": 1537, "block": 256}, family)
        assert (found.status, found.match) == (Status.PASS, True), (family, found)


@each_quantizer
def test_quantizers_refuse_other_blocks(peer: Peer) -> None:
    assert peer.refusal({"n": 1000, "block": 256}) is None
    assert "block = 128" in str(peer.refusal({"n": 1000, "block": 128}))


def test_a_folder_without_ggml_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(libggml.FOLDER, str(tmp_path))
    for peer in PEERS:
        if peer.name == "ggml":
            assert libggml.FOLDER in str(peer.missing())
    with pytest.raises(DeviceUnavailableError, match=re.escape(install("peers"))):
        libggml.library()
    for part in ("libggml-base.so", "libggml-cpu.so"):
        (tmp_path / part).write_bytes(b"no library")
    assert "cannot be used" in str(libggml.missing())


def test_a_folder_with_ggml_is_taken(tmp_path: Path, ggml: None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = libggml.find()
    assert isinstance(found, libggml.Found)
    monkeypatch.setenv(libggml.FOLDER, str(found.paths[0].parent))
    assert libggml.missing() is None
    number, _, rest = libggml.version().partition(", ")
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", number)
    assert rest.startswith("SHA-256")


def test_a_library_for_another_processor_is_not_called(
    ggml: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = libggml.find()
    assert isinstance(found, libggml.Found)
    for path in found.paths:
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.setattr(libggml, "features", frozenset)
    monkeypatch.setattr(libggml, "_NEEDS", {"ggml_cpu_has_avx2": "avx2"})
    monkeypatch.setenv(libggml.FOLDER, str(tmp_path))
    assert "compiled for avx2, which this CPU lacks" in str(libggml.missing())


@pytest.mark.usefixtures("search_again")
def test_ggml_of_another_package_is_found(ggml: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """llama-cpp-python has the libraries in llama_cpp/lib, with their plain names."""
    found = libggml.find()
    assert isinstance(found, libggml.Found)
    (tmp_path / "llama_cpp" / "lib").mkdir(parents=True)
    info = tmp_path / "llama_cpp_python-0.3.99.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: llama-cpp-python\nVersion: 0.3.99\n")
    names = [f"llama_cpp/lib/{part}.so" for part in ("libggml", "libggml-base", "libggml-cpu")]
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in names))
    for name, path in zip(names[1:], found.paths, strict=True):
        (tmp_path / name).symlink_to(path)
    monkeypatch.delenv(libggml.FOLDER, raising=False)
    monkeypatch.setattr(libggml, "_PACKAGES", ("llama-cpp-python",))
    monkeypatch.syspath_prepend(str(tmp_path))
    libggml._of_packages.cache_clear()
    assert libggml.missing() is None
    assert libggml.version().endswith("of llama-cpp-python 0.3.99")


def test_what_an_older_ggml_lacks_is_missing_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: neither gcc nor cc is on PATH")
    for part, code in (("base", "int any;"), ("cpu", "void ggml_vec_dot_tq2_0_q8_K(void) {}")):
        (tmp_path / f"{part}.c").write_text(code)
        library = tmp_path / f"libggml-{part}.so"
        subprocess.run([compiler, "-shared", "-fPIC", str(tmp_path / f"{part}.c"), "-o", str(library)], check=True)
    monkeypatch.setenv(libggml.FOLDER, str(tmp_path))
    assert libggml.installed("tq2_0") is None
    assert (
        f"has no q2_0: install a newer llama-cpp-python, or name the folder of a newer libggml in {libggml.FOLDER}"
        in (str(libggml.installed("q2_0")))
    )


def test_the_ggml_that_its_user_built_comes_before_that_of_the_extra() -> None:
    assert libggml._PACKAGES == ("llama-cpp-python", "pywhispercpp")


@pytest.fixture
def search_again() -> Iterator[None]:
    """What was found of packages is forgotten before and after the test."""
    searches = (libggml._of_packages, libik.find, is_installed)
    for each in searches:
        each.cache_clear()
    yield
    for each in searches:
        each.cache_clear()


@pytest.mark.usefixtures("search_again")
def test_where_nothing_is_installed_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(libggml.FOLDER, raising=False)
    monkeypatch.setattr(libggml, "_PACKAGES", ())
    monkeypatch.setattr(libik, "PACKAGE", "no-package-has-this-name")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert {peer.missing() for peer in PEERS} == {f"not installed: {install('peers')}"}
    with pytest.raises(DeviceUnavailableError, match=re.escape(install("peers"))):
        onnx.OnnxProduct(onnx.pack(np.zeros((1, 128), np.int8)), 1.0, 128)


def test_onnx_runtime_s_product_keeps_the_arrays_it_works_in() -> None:
    """Its binding has only addresses: interleaved with another kernel, the product wrote into freed memory."""
    if onnx.missing() is not None:
        pytest.skip(str(onnx.missing()))
    activations, out = np.ones((2, 128), np.float32), np.zeros((2, 3), np.float32)
    product = onnx.OnnxProduct(onnx.pack(np.ones((3, 128), np.int8)), 0.5, 128)
    call, kept = product.into(activations, out), (ref(activations), ref(out))
    del activations, out
    assert all(each() is not None for each in kept)
    call()
    found = kept[1]()
    assert found is not None
    np.testing.assert_allclose(found, 64.0, rtol=1e-3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: libggml.quantize("tq1_0", np.zeros((2, 255), np.float32)),
        lambda: libggml.quantize("tq2_0", np.zeros(256, np.float32)),
        lambda: libggml.quantize_row_q8_K(np.zeros((1, 256))),  # type: ignore[arg-type]
        lambda: libggml.quantize_row_q8_K(np.zeros((1, 512), np.float32)[:, ::2]),
        lambda: libggml.quantize_into("tq2_0", np.zeros((1, 256), np.float32), np.zeros(65, np.uint8)),
        lambda: libggml.dots("tq1_0", np.zeros((1, 54), np.uint8), np.zeros((1, 291), np.uint8)),
        lambda: libggml.dots("tq2_0", np.zeros((1, 67), np.uint8), np.zeros((1, 292), np.uint8)),
        lambda: GgmlProduct("tq2_0", np.zeros((1, 54), np.uint8), 1, 256, 1, 1),
        lambda: GgmlProduct("tq2_0", np.zeros((3, 66), np.uint8), 2, 256, 1, 1, experts=np.zeros(1, np.int32)),
        lambda: GgmlProduct("tq2_0", np.zeros((4, 66), np.uint8), 2, 256, 1, 1, experts=np.full(1, 2, np.int32)),
        lambda: GgmlProduct("tq2_0", np.zeros((4, 66), np.uint8), 2, 256, 1, 1, experts=np.zeros(2, np.int32)),
    ],
)
def test_what_c_would_read_past_is_refused(ggml: None, call: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgumentError):
        call()


def test_numpy_is_no_library_to_migrate_from(
    there: Callable[[Peer], None], compare: Callable[..., PeerComparison]
) -> None:
    """A kernel 1,400 times as fast as a format's definition in NumPy recommended a migration."""
    in_numpy = [peer for peer in PEERS if "NumPy" in peer.source]
    assert {(peer.name, peer.op) for peer in in_numpy} == {("gguf", "ternary_matmul"), ("gguf", "ternary_quantize")}
    assert all(peer.reference for peer in in_numpy)
    for peer in (each for each in PRODUCTS if each in in_numpy and "float32" in each.dtypes):
        there(peer)
        axes = {"M": 1, "N": 4, "K": 256}
        found = compare(kernel(peer, "cpu", "scalar"), peer, axes, "uniform", measure=True)
        assert (found.match, found.reference, found.speedup) == (True, True, None)
        assert (found.migration_recommended, found.migration_within_tenth) == (False, None)
