"""ternary_matmul_batch gives the bits of ternary_matmul for each pair, on the CPU and on the GPU (or in the
simulator)."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tritmark.harness.errors import (
    DeviceFaultError,
    InsufficientMemoryError,
    InvalidArgumentError,
    NoCompatibleKernelError,
)
from tritmark.kernels import FORMATS, PackedWeights, pack_weights, ternary_matmul, ternary_matmul_batch
from tritmark.kernels.cuda.context import CudaContext
from tritmark.kernels.cuda.simulator import SimulatorBackend
from tritmark.kernels.spreading import on_cpu
from tritmark.kernels.ternary_matmul import batch

RNG = np.random.default_rng(23)
Pair = tuple[Any, PackedWeights]


def pair(M: int, N: int, K: int, format: str | None = None, seed: int = 0) -> Pair:
    """M of 0: one row without its axis."""
    rng = np.random.default_rng((M, N, K, seed))
    codes = rng.integers(-1, 2, (N, K), dtype=np.int8)
    form = FORMATS[format] if format is not None else None
    scale: Any = np.float32(rng.uniform(0.1, 2))
    if form is not None and form.scale_per != "tensor":
        scale = rng.uniform(0.1, 2, form.scale_shape((N, K))).astype(np.float32)
    q = rng.integers(-128, 128, (max(M, 1), K), dtype=np.int8)
    return q[0] if M == 0 else q, pack_weights(codes, scale, format=format)


def same(found: list[Any], pairs: list[Pair], scales: Any = None, **asked: Any) -> None:
    assert len(found) == len(pairs)
    for number, (product, (q, weights)) in enumerate(zip(found, pairs, strict=True)):
        expected = ternary_matmul(q, weights, act_scale=1.0 if scales is None else scales[number], **asked)
        assert product.dtype == expected.dtype
        np.testing.assert_array_equal(product, expected)


SHAPES = st.tuples(st.integers(0, 9), st.integers(1, 40), st.integers(1, 300))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(SHAPES, max_size=9),
    st.sampled_from(["float32", "int32", "bfloat16"]),
    st.sampled_from([None, 1, 2, 3]),
    st.sampled_from([0.0, on_cpu.LEAST_S]),
    st.booleans(),
)
def test_each_product_has_the_bits_of_one_alone(
    shapes: list[tuple[int, int, int]], dtype: str, threads: int | None, least_s: float, scaled: bool
) -> None:
    pairs = [pair(*shape, seed=number) for number, shape in enumerate(shapes)]
    scales = [RNG.uniform(0.5, 2, max(M, 1)).astype(np.float32) for M, _, _ in shapes] if scaled else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_cpu, "LEAST_S", least_s)  # 0: at the same time
        found = ternary_matmul_batch(iter(pairs), act_scales=scales, dtype=dtype, threads=threads)
    same(found, pairs, scales, dtype=dtype)


def test_pairs_may_have_different_formats() -> None:
    pairs = [pair(3, 32, 256, format, number) for number, format in enumerate((None, "tq2_0", "i2_s_x86", "row16"))]
    pairs += [(pairs[0][0], pairs[0][1])]  # the same weights twice
    same(ternary_matmul_batch(pairs), pairs)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_nothing_is_done_without_pairs(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setattr(batch, "_together", None)
    assert ternary_matmul_batch([], device=device) == []
    assert ternary_matmul_batch(iter(()), act_scales=[], device=device) == []


GOOD = pair(2, 16, 64)
LONG = pair(2, 16, 128)


@pytest.mark.parametrize(
    ("pairs", "asked", "kind", "words", "number"),
    [
        ([GOOD, (GOOD[0], LONG[1])], {}, InvalidArgumentError, "activations", 1),
        ([GOOD, GOOD, (GOOD[0].astype(np.int16), GOOD[1])], {}, InvalidArgumentError, "activations", 2),
        ([(GOOD[0], GOOD[1].data)], {}, InvalidArgumentError, "weights is a ndarray", 0),
        ([GOOD, GOOD[:1]], {}, InvalidArgumentError, "pairs is a tuple as pair 1; legal: .activations, weights.", 1),
        ([GOOD, GOOD], {"act_scales": [1.0, -1.0]}, InvalidArgumentError, "act_scale", 1),
        ([GOOD, GOOD], {"act_scales": [1.0]}, InvalidArgumentError, "act_scales is 1 for 2 pairs; legal: one", None),
        ([GOOD], {"dtype": "float64"}, InvalidArgumentError, "dtype is 'float64'", 0),
        ([GOOD], {"variant": "avx3"}, NoCompatibleKernelError, "avx3", 0),
        ([GOOD], {"device": "tpu"}, NoCompatibleKernelError, "tpu", None),
        ([GOOD], {"device": 3}, NoCompatibleKernelError, "3", None),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch,
    pairs: Any,
    asked: dict[str, Any],
    kind: type[Exception],
    words: str,
    number: int | None,
) -> None:
    def none_runs(*given: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(batch, "_over_threads", none_runs)
    with pytest.raises(kind, match=words) as raised:
        ternary_matmul_batch(pairs, **asked)
    notes = getattr(raised.value, "__notes__", [])
    assert notes == ([] if number is None else [f"ternary_matmul_batch: pair {number}"])


def test_weights_with_an_illegal_code_are_named_with_their_pair() -> None:
    """The kernel finds it."""
    bad = pair(2, 16, 128, "row16")
    data = np.full_like(bad[1].data, 0xFF)  # field 3 everywhere
    wrong = (bad[0], PackedWeights(data, "row16", bad[1].shape, bad[1].scale))
    with pytest.raises(InvalidArgumentError) as raised:
        ternary_matmul_batch([GOOD, GOOD, wrong])
    with pytest.raises(InvalidArgumentError) as alone:
        ternary_matmul(*wrong)
    assert str(raised.value) == str(alone.value)
    assert raised.value.__notes__ == ["ternary_matmul_batch: pair 2"]


# On the GPU


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shapes=st.lists(SHAPES, min_size=1, max_size=6), dtype=st.sampled_from(["float32", "int32", "float16"]))
@pytest.mark.cuda
def test_a_gpu_gives_the_same(cuda: CudaContext, shapes: list[tuple[int, int, int]], dtype: str) -> None:
    pairs = [pair(*shape, seed=number) for number, shape in enumerate(shapes)]
    scales = [RNG.uniform(0.5, 2, max(M, 1)).astype(np.float32) for M, _, _ in shapes]
    found = ternary_matmul_batch(pairs, act_scales=scales, dtype=dtype, device="cuda")
    same(found, pairs, scales, dtype=dtype, device="cuda")


@pytest.mark.cuda
def test_launches_of_a_gpu_are_sorted_and_waited_for_once(cuda: CudaContext, monkeypatch: pytest.MonkeyPatch) -> None:
    from tritmark.kernels.cuda.launch.batch import Batch

    ran: list[list[int]] = []
    real = Batch.run

    def run(self: Batch) -> None:
        ran.append([item.work for item in self.order()])
        real(self)

    monkeypatch.setattr(Batch, "run", run)
    pairs = [pair(1, 16, 64), pair(4, 32, 256, "tq2_0"), pair(2, 16, 64), pair(9, 8, 64)]
    same(ternary_matmul_batch(pairs, device="cuda"), pairs, device="cuda")
    assert ran == [[4 * 32 * 256, 9 * 8 * 64, 2 * 16 * 64, 16 * 64]]


@pytest.mark.cuda
def test_a_gpu_refuses_what_does_not_fit_with_the_pair(cuda: CudaContext, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [pair(1, 16, 64), pair(1, 16, 64)]
    with pytest.raises(NoCompatibleKernelError) as raised:
        ternary_matmul_batch(pairs, device="cuda", variant="avx2")
    assert raised.value.__notes__ == ["ternary_matmul_batch: pair 0"]
    real, calls = type(cuda.transfers).ensure, list[int]()

    def ensure(self: Any, what: str, sizes: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise InsufficientMemoryError(what=what, required=2, available=1, next_step="use smaller arrays")
        real(self, what, sizes)

    monkeypatch.setattr(type(cuda.transfers), "ensure", ensure)
    with pytest.raises(InsufficientMemoryError) as short:
        ternary_matmul_batch(pairs, device="cuda")
    assert short.value.__notes__ == ["ternary_matmul_batch: pair 1"]


@pytest.mark.cuda
def test_a_fault_of_a_simulated_gpu_names_the_pair(cuda: CudaContext, monkeypatch: pytest.MonkeyPatch) -> None:
    if not cuda.backend.simulated:
        pytest.skip("a real GPU does not fail on request")
    pairs = [pair(1, 16, 64), pair(4, 32, 128)]
    ternary_matmul_batch(pairs, device="cuda")

    def fails(self: Any, *given: Any) -> None:
        raise DeviceFaultError("made up", next_step="look")

    monkeypatch.setattr(SimulatorBackend, "enqueue", fails)
    with pytest.raises(DeviceFaultError, match="pair 1: made up"):
        ternary_matmul_batch(pairs, device="cuda")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_the_script_that_times_batches_compares_bits(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    if device == "cuda":
        request.getfixturevalue("cuda")
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "large")
    script = import_module("batched_products")
    arguments = ["--device", device, "--rows", "2", "--turns", "1", "--divide", "64"]
    with pytest.raises(SystemExit) as ended:
        script.main(arguments)
    assert ended.value.code == 0
    assert f"7 pairs on {device}: " in (told := capsys.readouterr().out)
    assert "bits equal" in told
    monkeypatch.setattr(script, "ternary_matmul_batch", lambda *a, **more: ternary_matmul_batch(*a, **more)[::-1])
    with pytest.raises(SystemExit) as ended:
        script.main(arguments)
    assert ended.value.code == 1
    assert "bits DIFFER" in capsys.readouterr().out
