"""What a monitor counts: every call once, under the kernel that ran, whichever path it took."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tritmark
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.monitor import hook
from tritmark.harness.monitor.counters import NO_KERNEL, UNKNOWN, Counters, Snapshot, since
from tritmark.harness.monitor.data import Series, SessionData
from tritmark.harness.monitor.histogram import added, bounds, bucket, quantile
from tritmark.harness.monitor.shapes import shape_class
from tritmark.kernels import (
    PackedWeights,
    QuantizedLinear,
    activation_quantize,
    i2s_quantize,
    matmul,
    matmul_batch,
    pack_weights,
    ternary_matmul,
    ternary_matmul_batch,
)
from tritmark.kernels.ternary_matmul.api import with_receipt

RNG = np.random.default_rng(0)
CODES = RNG.integers(-1, 2, (64, 256)).astype(np.int8)
X = RNG.standard_normal((16, 256)).astype(np.float32)


@pytest.fixture
def weights() -> PackedWeights:
    return pack_weights(CODES, 1.0)


@pytest.fixture
def counters() -> Iterator[Counters]:
    made = Counters(hook.recorders[0])
    hook.active = made.watch
    try:
        yield made
    finally:
        hook.active = None


def by_entry(found: Snapshot) -> dict[str, Counter[str]]:
    calls: dict[str, Counter[str]] = {}
    for key, counts in found.items():
        calls.setdefault(key.entry, Counter())[f"{key.kernel} {key.shape}"] += counts.calls
    return calls


def test_a_layer_counts_its_first_call_and_those_of_plans_alike(weights: PackedWeights, counters: Counters) -> None:
    layer = QuantizedLinear(weights, threads=1)
    expected: Counter[str] = Counter()
    for rows in (1, 1, 1, 4, 4, 1):
        layer(X[:rows])
        receipt = layer.receipt
        assert receipt is not None
        expected[f"{receipt.kernel} M={rows} N=64 K=256"] += 1
    layer(X[:2].astype(ml_dtypes.bfloat16))
    expected[f"{layer.receipt.kernel} M=2 N=64 K=256"] += 1  # type: ignore[union-attr]
    assert by_entry(counters.snapshot()) == {"QuantizedLinear": expected}


@pytest.mark.parametrize("variant", ["scalar", None])
def test_a_plan_that_is_made_anew_counts_under_its_new_kernel(
    counters: Counters, variant: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, q = pack_weights(CODES, 1.0), RNG.integers(-127, 128, (1, 256)).astype(np.int8)
    expected: Counter[str] = Counter()
    for isa in ("", "", "scalar", "scalar", "", ""):
        monkeypatch.setenv("TRITMARK_FORCE_ISA", isa) if isa else monkeypatch.delenv("TRITMARK_FORCE_ISA", False)
        ternary_matmul(q, weights, variant=variant, threads=1)
        hook.active = None
        _, receipt = with_receipt(q, weights, variant=variant, threads=1)
        hook.active = counters.watch
        expected[f"{receipt.kernel} M=1 N=64 K=256"] += 1
    assert by_entry(counters.snapshot()) == {"ternary_matmul": expected}
    assert len(expected) == (1 if variant else 2)


def test_functions_are_counted_under_their_names(weights: PackedWeights, counters: Counters) -> None:
    for _ in range(3):
        quantized = activation_quantize(X[:9], threads=1)
        i2s_quantize(X, 0.5, threads=1)
        ternary_matmul(quantized.q, weights, act_scale=quantized.scale, threads=1)
    layer = QuantizedLinear(weights, threads=1).bind(X[:1])
    layer.run()
    layer()
    found = by_entry(counters.snapshot())
    assert {name: sum(kernels.values()) for name, kernels in found.items()} == {
        "activation_quantize": 3,
        "i2s_quantize": 3,
        "ternary_matmul": 3,
        "QuantizedLinear.bind": 2,
    }
    assert not any(UNKNOWN in kernel for kernels in found.values() for kernel in kernels)
    assert {shape for kernel in found["activation_quantize"] for shape in kernel.split()[1:]} == {"M=9..16", "K=256"}


def test_calls_of_plans_are_timed_and_none_twice(weights: PackedWeights, counters: Counters) -> None:
    layer = QuantizedLinear(weights, threads=1)
    for _ in range(20):
        layer(X[:1])
    ((_, counts),) = counters.snapshot().items()
    assert counts.calls == sum(counts.histogram.values()) == 20
    assert counts.sizes == {(("M", 1), ("N", 64), ("K", 256)): 20}


def test_refusals_count_as_errors_and_pass_through(weights: PackedWeights, counters: Counters) -> None:
    layer = QuantizedLinear(weights, threads=1)
    layer(X[:1])
    bad = np.full((1, 256), np.nan, np.float32)
    for call in (lambda: layer(bad), lambda: layer(X[:, :5]), lambda: activation_quantize("x")):  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError):
            call()
    with pytest.raises(TypeError):
        ternary_matmul(X)  # type: ignore[call-arg,arg-type]
    layer(X[:1])
    found = counters.snapshot()
    errors: Counter[tuple[str, str]] = Counter()
    for key, counts in found.items():
        for kind, count in counts.errors.items():
            errors[key.entry, kind] += count
    assert errors == {
        ("QuantizedLinear", "InvalidArgumentError"): 2,
        ("activation_quantize", "InvalidArgumentError"): 1,
    }
    assert any(key.kernel == NO_KERNEL for key in found)
    assert sum(counts.calls for counts in found.values()) == 2


def test_threads_lose_no_call(weights: PackedWeights, counters: Counters) -> None:
    layer = QuantizedLinear(weights, threads=1)

    def calls(count: int) -> None:
        for _ in range(count):
            layer(X[:1])

    for count in (50, 70):  # the first threads have ended when the second ones begin
        threads = [threading.Thread(target=calls, args=(count,)) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    calls(1)
    assert counters.calls() == sum(each.calls for each in counters.snapshot().values()) == 4 * 120 + 1
    assert len(counters._threads) <= 5


def test_one_of_several_calls_is_timed_and_all_are_counted(weights: PackedWeights, counters: Counters) -> None:
    layer = QuantizedLinear(weights, threads=1)
    counters.watch.every = 8
    for _ in range(4000):
        layer(X[:1])
    ((_, counts),) = counters.snapshot().items()
    assert counts.calls == 4000
    # Gaps are uniform from 0 to 14, so the number of timed calls has a standard deviation of about 13.
    assert 435 < sum(counts.histogram.values()) < 565


def test_which_calls_are_timed_follows_no_pattern(weights: PackedWeights, counters: Counters) -> None:
    layers = [QuantizedLinear(pack_weights(CODES[:rows], 1.0), threads=1) for rows in (16, 32, 48, 64)]
    counters.watch.every = 4
    for _ in range(500):
        for layer in layers:
            layer(X[:1])
    timed = [sum(each.histogram.values()) for each in counters.snapshot().values()]
    assert len(timed) == 4
    assert min(timed) > 60


def test_the_time_of_all_calls_holds_if_the_share_of_timed_calls_changes(counters: Counters) -> None:
    """Long calls that are all timed, then many short ones of which few are."""
    ran, watch = hook.named("a kernel", {"n": 1}), counters.watch

    def work(seconds: float) -> None:
        until = perf_counter() + seconds
        while perf_counter() < until:
            pass

    def phase(calls: int, seconds: float, every: int) -> None:
        watch.every = every
        for _ in range(calls):
            thread = watch.begin()
            watch.call(thread, "entry", work, (seconds,), None, ran)

    begun = perf_counter()
    phase(40, 2e-3, 1)
    phase(4000, 5e-6, 40)
    real = perf_counter() - begun
    (counts,) = counters.snapshot().values()
    assert sum(counts.histogram.values()) < 400
    # The mean of the timed calls times all calls would be at least four times the real time.
    assert 0.5 * real < counts.busy_ns / 1e9 < 1.5 * real


def test_kernels_without_a_variant_have_one_cell(counters: Counters) -> None:
    watch = counters.watch
    for _ in range(5):
        watch.call(watch.begin(), "entry", lambda: watch.ran(hook.named("a kernel", {"n": 1})), (), None)
    assert len(counters._threads[0].cells) == 1


def test_cells_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritmark.harness.monitor.counters._MOST_CELLS", 10)
    monkeypatch.setattr("tritmark.harness.monitor.counters._MOST_SERIES", 5)
    counters = Counters(hook.recorders[0])
    hook.active = counters.watch
    try:
        for n in range(1, 200):
            i2s_quantize(X.reshape(-1)[:n], 0.5, threads=1)
    finally:
        hook.active = None
    found = counters.snapshot()
    assert sum(each.calls for each in found.values()) == 199
    assert len(found) <= 6
    assert len(counters._threads[0].cells) <= 10


def test_a_call_is_of_the_monitor_that_was_active_when_it_began(weights: PackedWeights) -> None:
    first, second = Counters(hook.recorders[0]), Counters(hook.recorders[0])
    layer = QuantizedLinear(weights, threads=1)
    for each in (first, second, first):
        hook.active = each.watch
        layer(X[:1])
    hook.active = None
    layer(X[:1])
    assert (first.calls(), second.calls()) == (2, 1)


@pytest.mark.cuda
def test_the_simulator_is_counted_without_times(simulator: Any, weights: PackedWeights, counters: Counters) -> None:
    q = RNG.integers(-127, 128, (1, 256)).astype(np.int8)
    ternary_matmul(q, weights, device="cuda")
    layer = QuantizedLinear(weights, device="cuda")
    layer(X[:1])
    layer(X[:1])
    a = X[:, :16].copy()
    matmul(a, a, mode="fp32")
    matmul_batch([(a, a), (a, a)], mode="fp32")
    ternary_matmul_batch([(q, weights)] * 3, device="cuda")
    found = counters.snapshot()
    assert all(key.simulated and not counts.histogram for key, counts in found.items())
    assert {key.entry: counts.calls for key, counts in found.items()} == {
        "ternary_matmul": 1,
        "QuantizedLinear": 2,
        "matmul": 1,
        "matmul_batch": 1,
        "ternary_matmul_batch": 1,
    }
    kernels = {key.entry: key.kernel for key in found}
    assert layer.receipt is not None
    assert kernels["QuantizedLinear"] == layer.receipt.kernel
    assert kernels["matmul_batch"].endswith("batch of 2")
    assert kernels["ternary_matmul_batch"].endswith("batch of 3")


@given(st.lists(st.integers(0, 1 << 43), min_size=1, max_size=200), st.floats(0.01, 1))
def test_quantiles_are_within_a_bucket(times: list[int], share: float) -> None:
    histogram: Counter[int] = Counter(map(bucket, times))
    found = quantile(histogram, share)
    exact = np.quantile(times, share, method="inverted_cdf")
    low, high = bounds(bucket(int(exact)))
    assert found is not None
    assert low <= found <= high
    assert high - low <= max(1, low / 32)


@given(st.integers(0, 1 << 43))
def test_a_time_lies_in_its_bucket(ns: int) -> None:
    low, high = bounds(bucket(ns))
    assert low <= ns < high


@given(st.dictionaries(st.integers(0, 50), st.integers(1, 9)), st.dictionaries(st.integers(0, 50), st.integers(1, 9)))
def test_a_sum_less_one_part_is_the_other(one: dict[int, int], other: dict[int, int]) -> None:
    assert added(added(one, other), other, -1) == one


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ((("M", 1), ("N", 2560), ("K", 6912)), "M=1 N=2560 K=6912"),
        ((("M", 8), ("N", 3)), "M=8 N=3"),
        ((("M", 9), ("N", 3)), "M=9..16 N=3"),
        ((("M", 16), ("N", 3)), "M=9..16 N=3"),
        ((("M", 17), ("N", 3)), "M=17..32 N=3"),
        ((("n", 65537),), "n=65537..131072"),
        ((), ""),
    ],
)
def test_shape_classes(axes: tuple[tuple[str, int], ...], expected: str) -> None:
    assert shape_class(axes) == expected


def test_the_difference_of_snapshots_is_what_ran_between(weights: PackedWeights, counters: Counters) -> None:
    layer = QuantizedLinear(weights, threads=1)
    layer(X[:1])
    before = counters.snapshot()
    assert since(counters.snapshot(), before) == {}
    layer(X[:1])
    layer(X[:3])
    found = since(counters.snapshot(), before)
    assert {key.shape: counts.calls for key, counts in found.items()} == {"M=1 N=64 K=256": 1, "M=3 N=64 K=256": 1}
    assert all(sum(counts.histogram.values()) == counts.calls for counts in found.values())


def only(data: SessionData | None) -> Series:
    assert data is not None
    (series,) = data.series
    return series


def test_traffic_is_that_of_the_op(weights: PackedWeights) -> None:
    with tritmark.monitor(keep=False) as session:
        layer = QuantizedLinear(weights, threads=1)
        for _ in range(3):
            layer(X[:1])
    found = only(session.data)
    op = next(each for each in tritmark.kernels.OPS if each.name == "ternary_matmul")
    from tritmark.harness.monitor.work import key_of

    key = key_of(found.key.kernel)
    assert key is not None
    traffic = op.traffic({"M": 1, "N": 64, "K": 256}, key)
    assert found.nbytes == 3 * (traffic.read + traffic.written)
    assert found.operations == 3 * traffic.operations


def test_recovering_calls_are_counted_with_the_kernel_of_their_worker(
    weights: PackedWeights, counters: Counters
) -> None:
    q = RNG.integers(-127, 128, (2, 256)).astype(np.int8)
    for _ in range(2):
        ternary_matmul(q, weights, threads=1, on_error="recover")
    i2s_quantize(X, 0.5, threads=1, on_error="recover")
    found = {key.entry: (key, counts) for key, counts in counters.snapshot().items()}
    assert {entry: counts.calls for entry, (_, counts) in found.items()} == {"ternary_matmul": 2, "i2s_quantize": 1}
    assert all(key.kernel.startswith(f"cpu/{entry}/") for entry, (key, _) in found.items())
    assert all(key.kernel.endswith("in a worker") for key, _ in found.values())
    assert found["ternary_matmul"][0].shape == "activations0=2 activations1=256 weights0=64 weights1=256"
