"""Evaluation of one real weight matrix: quantize it in two ways, pack, unpack, multiply, check and time.

Two schemes: absmean for the tensor (BitNet b1.58, arXiv:2402.17764) in the kernels' own layout, and absmax for each
block of 128 weights (specification, 2.1) in fused packed form. Rows are processed in slabs, so that no float64 array is
larger than a slab.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import TritmarkError
from tritmark.harness.measure.alternate import Timed, alternate, calibrate
from tritmark.harness.measure.clocks import PythonClock, clock_for
from tritmark.harness.measure.statistics import LEAST_SAMPLES, median
from tritmark.harness.measure.stopping import MinimumSamples, TimeLimit
from tritmark.harness.record import Layer, LayerScheme, Status
from tritmark.harness.weights import TensorInfo, WeightSource
from tritmark.harness.weights.quantized import near_ties
from tritmark.kernels.absmean_quantize.api import absmean_quantize
from tritmark.kernels.activation_quantize.api import activation_quantize
from tritmark.kernels.activation_quantize.spec import KEY as ACTIVATION_KEY
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.native.cpu import DEVICE
from tritmark.kernels.ternary_matmul.api import with_receipt
from tritmark.kernels.ternary_quantize.api import ternary_quantize
from tritmark.kernels.weights.packed import PackedWeights, pack_weights, product_with

BLOCK = 128
"""Weights that share a scale in the block scheme."""

_SLAB = 1 << 20
"""Weights in float64 at a time: 8 MiB."""

_RACE_S = 0.2
"""Seconds of interleaved timing of the ternary layer and NumPy's float32 product."""

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]


class _WrongError(Exception):
    """A check of the layer failed; the text names the check."""


def evaluate_matrix(source: WeightSource, info: TensorInfo, *, threads: int, seed: int) -> Layer:
    """Examine the matrix `info` of `source` with `threads` threads; activations are drawn from `seed`.

    Returns a record.Layer with status FAIL if a check fails, and ERROR if the matrix cannot be quantized (for
    instance, for NaN). Memory: the matrix as float32, and 3/4 of that size for codes and packed bytes.
    """
    N, K = info.shape
    facts: dict[str, Any] = {"name": info.name, "shape": (N, K), "dtype": info.dtype, "bytes": info.nbytes}
    try:
        weights = source.read(info.name)
        x = np.random.default_rng([seed, N, K]).standard_normal((1, K), dtype=np.float32)
        exact = np.concatenate([rows.astype(np.float64) @ x[0].astype(np.float64) for _, rows in _slabs(weights)])
        absmean, packed = _absmean(weights, x, exact, threads)
        ties = near_ties(weights, np.float32(packed.scale), info.dtype) / weights.size
        absmean = absmean.model_copy(update={"near_ties": ties})
        block = _block(weights, x, exact, threads)
        timing = _race(weights, packed, x, seed)
    except _WrongError as wrong:
        return Layer(status=Status.FAIL, reason=str(wrong), **facts)
    except TritmarkError as error:
        return Layer(status=Status.ERROR, reason=str(error), **facts)
    return Layer(status=Status.PASS, schemes=(absmean, block), **timing, **facts)


def _slabs(weights: npt.NDArray[Any]) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
    rows = max(1, _SLAB // weights.shape[1])
    for start in range(0, weights.shape[0], rows):
        part = slice(start, min(start + rows, weights.shape[0]))
        yield part, weights[part]


def _absmean(weights: Float32, x: Float32, exact: Float64, threads: int) -> tuple[LayerScheme, PackedWeights]:
    quantize_ns, (codes, scale) = _timed(lambda: absmean_quantize(weights, threads=threads))
    for part, rows in _slabs(weights):
        if not np.array_equal(codes[part], np.clip(np.rint(rows / scale), -1, 1)):
            raise _WrongError(
                f"absmean_quantize: a code in rows {part.start} to {part.stop - 1} is not clamp(rint(x / s), -1, 1)"
            )
    _check_absmean(weights, scale)
    packed = pack_weights(codes, scale)
    back, kept = packed.unpack()
    if not np.array_equal(back, codes) or kept != scale:
        raise _WrongError(f"{packed.format}: unpacking does not give the packed codes and scale back")
    del back
    quantized = activation_quantize(x, threads=threads)
    y, _ = with_receipt(quantized.q, packed, act_scale=quantized.scale, threads=threads)
    q = quantized.q[0].astype(np.float64)
    acc = np.concatenate([rows.astype(np.float64) @ q for _, rows in _slabs(codes)])
    right = acc * (np.float64(scale) / np.float64(quantized.scale[0]))
    # The contract of ternary_matmul admits an error of one unit in the last place of the rounded exact value.
    largest = _largest_share(
        "ternary_matmul", y[0], right, np.spacing(np.abs(right).astype(np.float32)).astype(np.float64)
    )
    noise = _Noise()
    for part, rows in _slabs(weights):
        noise.add(rows.astype(np.float64), codes[part] * np.float64(scale))
    return _scheme(
        "absmean", packed.format, codes, noise, exact, right, packed.data.nbytes, largest, quantize_ns
    ), packed


def _block(weights: Float32, x: Float32, exact: Float64, threads: int) -> LayerScheme:
    N, K = weights.shape
    quantize_ns, packed = _timed(lambda: ternary_quantize(weights, BLOCK, packed=True, threads=threads))
    codes = packed.unpack().reshape(N, K)
    noise = _Noise()
    y, right, bound = np.empty(N, np.float32), np.empty(N), np.empty(N)
    wide = x[0].astype(np.float64)
    unit = np.float64(2.0**-24)
    gamma = K * unit / (1 - K * unit)
    for part, rows in _slabs(weights):
        blocks = np.arange(part.start * K, part.stop * K) // BLOCK
        scales = packed.scales[blocks].reshape(rows.shape)
        half = np.float32(0.5) * scales
        if not np.array_equal(codes[part], (rows > half).astype(np.int8) - (rows < -half)):
            raise _WrongError(f"ternary_quantize: a code in rows {part.start} to {part.stop - 1} breaks the rule")
        values = codes[part] * scales
        noise.add(rows.astype(np.float64), values.astype(np.float64))
        y[part] = values @ x[0]
        right[part] = values.astype(np.float64) @ wide
        bound[part] = gamma * (np.abs(values).astype(np.float64) @ np.abs(wide))
    largest = _largest_share("the product of the dequantized blocks", y, right, bound)
    packed_bytes = packed.packed.nbytes + packed.scales.nbytes
    return _scheme(
        f"block absmax ({BLOCK})", "i2_s_x86", codes, noise, exact, right, packed_bytes, largest, quantize_ns
    )


def _check_absmean(weights: Float32, scale: np.float32) -> None:
    """Compare the scale with a mean that is summed in another order. The float64 sums differ by less than n * 2^-52 of
    the mean, before rounding."""
    mean = float(np.sum([np.sum(np.abs(rows), dtype=np.float64) for _, rows in _slabs(weights)])) / weights.size
    slack = max(mean, 1e-5) * weights.size * 2.0**-52
    low, high = np.float32(max(mean - slack, 1e-5)), np.float32(max(mean + slack, 1e-5))
    if not low <= scale <= high:
        raise _WrongError(f"absmean_quantize: scale {scale} is not within {low} to {high}")


def _largest_share(what: str, y: Float32, right: Float64, bound: Float64) -> float:
    """The largest error of `y` as a share of its bound; more than 1 is incorrect."""
    error = np.abs(y.astype(np.float64) - right)
    over = np.flatnonzero(~(error <= bound))
    if over.size:
        n = int(over[0])
        raise _WrongError(f"{what}: row {n} is {y[n]}, expected {right[n]} within {bound[n]}")
    return float(np.max(np.divide(error, bound, out=np.zeros_like(error), where=bound > 0)))


@dataclass
class _Noise:
    """Sums over weights and their dequantized counterparts, slab by slab."""

    signal: float = 0.0
    noise: float = 0.0
    other: float = 0.0
    product: float = 0.0

    def add(self, before: Float64, after: Float64) -> None:
        self.signal += float(np.sum(before * before))
        self.noise += float(np.sum((before - after) ** 2))
        self.other += float(np.sum(after * after))
        self.product += float(np.sum(before * after))

    @property
    def snr_db(self) -> float | None:
        """10 log10 of signal over noise; None if either is zero."""
        return float(10 * np.log10(self.signal / self.noise)) if self.signal > 0 and self.noise > 0 else None

    @property
    def cosine(self) -> float | None:
        """Cosine of the angle between the two; None if one is all zero."""
        return (
            self.product / float(np.sqrt(self.signal) * np.sqrt(self.other))
            if self.signal > 0 and self.other > 0
            else None
        )


def _scheme(
    name: str,
    format: str,
    codes: npt.NDArray[np.int8],
    noise: _Noise,
    exact: Float64,
    right: Float64,
    packed_bytes: int,
    largest: float,
    quantize_ns: float,
) -> LayerScheme:
    output = _Noise()
    output.add(exact, right)
    return LayerScheme(
        scheme=name,
        format=format,
        zeros=1 - np.count_nonzero(codes) / codes.size,
        snr_db=noise.snr_db,
        cosine=noise.cosine,
        output_snr_db=output.snr_db,
        output_cosine=output.cosine,
        packed_bytes=packed_bytes,
        largest_error=largest,
        quantize_ns=quantize_ns,
    )


def _timed(call: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """Median nanoseconds of a few calls, and the last result."""
    times = []
    result: Any = None
    for _ in range(repeats):
        result = None
        start = perf_counter_ns()
        result = call()
        times.append(perf_counter_ns() - start)
    return float(np.median(times)), result


class _Float32Product:
    """NumPy's x @ W.T as a Launch, for Python's clock."""

    ran = "numpy"
    pointer = None
    threads_used = 1
    bad = -1

    def __init__(self, x: Float32, weights: Float32) -> None:
        self._x, self._weights = x, weights.T
        self._out = np.empty((x.shape[0], weights.shape[0]), np.float32)
        self.runs = 0

    def run(self) -> None:
        np.matmul(self._x, self._weights, out=self._out)
        self.runs += 1


def _race(weights: Float32, packed: PackedWeights, x: Float32, seed: int) -> dict[str, Any]:
    """One token through the layer, activation quantization included, interleaved with NumPy's float32 product, one
    thread each.

    One thread, because NumPy's BLAS has its own thread pool, and two pools that spin on the same cores slow each other
    down a thousandfold. The two kernels are bound once, as in a runtime, and timed by the native clock; the overhead of
    NumPy's call is about a microsecond. Each side starts with the caches that the other has left.
    """
    from threadpoolctl import threadpool_limits

    (N, K), M = packed.matrix, x.shape[0]
    axes = {"M": M, "N": N, "K": K}
    act = {"q": np.empty((M, K), np.int8), "scale": np.empty(M, np.float32), "sum": np.empty(M, np.int32)}
    product = product_with(packed, "cpu", "float32", axes, None)
    given = {
        "activations": act["q"],
        "weights": packed.packed_as(product.key.format),
        "weight_scale": packed.scale,
        "act_scale": act["scale"],
    }
    token = [
        dispatch.select(ACTIVATION_KEY, {"M": M, "K": K}, None).bind({"x": x}, act, {"M": M, "K": K}, 1),
        product.bind(given, {"out": np.empty((M, N), np.float32)}, axes, 1),
    ]
    rng = np.random.default_rng(seed)
    with threadpool_limits(1, user_api="blas"):
        ours = Timed(token, clock_for(DEVICE, token))
        numpy = Timed([_Float32Product(x, weights)], PythonClock())
        calibrate(ours)
        ours.calls += ours.calls % len(token)
        calibrate(numpy)
        found = alternate(ours, numpy, rng, MinimumSamples(LEAST_SAMPLES, TimeLimit(_RACE_S)))
    return {
        "kernel": product.id,
        "matmul_ns": len(token) * median(found.a_ns),
        "float32_ns": median(found.b_ns),
        "speedup": found.ratio(scale=1 / len(token)),
    }
