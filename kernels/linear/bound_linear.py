"""QuantizedLinear bound to its arrays, so that a call needs almost no Python."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tritmark.harness.contract import check_array, check_output
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.monitor import hook, receipts
from tritmark.harness.spec import Launch, Receipt, Requirement, Tensor, Variant
from tritmark.kernels.dispatch import dispatch, offload
from tritmark.kernels.linear.row_quantizer import RowQuantizer
from tritmark.kernels.native import cpu
from tritmark.kernels.weights.packed import PackedWeights, product_with

_OP = "QuantizedLinear.bind"


class _Quantized(NamedTuple):
    """A quantization of rows."""

    x: npt.NDArray[np.float32]
    quantizer: RowQuantizer
    kernel: Variant
    threads: int | None
    launch: Launch


class Quantizations:
    """Quantized rows of calls that run in sequence. They share memory, which stays in the caches, and calls with the
    same rows behind each other share the quantization."""

    def __init__(self) -> None:
        self._rooms: dict[tuple[int, int], tuple[npt.NDArray[Any], ...]] = {}
        self.last: _Quantized | None = None

    def room(self, M: int, K: int) -> tuple[npt.NDArray[Any], ...]:
        """Codes (M, K), scales (M,) and sums (M,) of rows."""
        if (M, K) not in self._rooms:
            self._rooms[M, K] = np.empty((M, K), np.int8), np.empty(M, np.float32), np.empty(M, np.int32)
        return self._rooms[M, K]


class BoundLinear:
    """A call of a layer in host memory, checked and bound once by QuantizedLinear.bind. `run()`, or calling the
    object, computes `out` from the current content of `x`.

    It keeps its arrays, and memory for the quantized activations. Only one thread may run it at a time.
    """

    def __init__(
        self,
        x: npt.NDArray[np.float32],
        out: npt.NDArray[np.float32] | None,
        *,
        weights: PackedWeights,
        bias: npt.NDArray[np.float32] | None,
        quantizer: RowQuantizer,
        variant: str | None,
        threads: int | None,
        device: str,
        requirement: Requirement,
        among: Quantizations | None = None,
    ) -> None:
        """`among`: those of the calls before, with which this one runs in sequence."""
        (N, K), leading = weights.matrix, x.shape[:-1]
        M = x.size // K
        taken = Tensor("x", tuple("BMK"[3 - x.ndim :]), "float32", "activations")
        check_array(_OP, taken, x)
        if out is None:
            out = np.empty((*leading, N), np.float32)
        made, others = (
            Tensor("out", tuple("BMN"[3 - x.ndim :]), "float32", "the layer's output"),
            {"x": x, "bias": bias},
        )
        check_output(_OP, made, out, (*leading, N), "float32", {**others, "weights": weights.data})
        self.x, self.out = x, out
        self._weights, self._quantizer = weights, quantizer
        among = Quantizations() if among is None else among
        q, scale, sums = among.room(M, K)
        axes = {"M": M, "N": N, "K": K}
        asked = (threads, requirement)
        key, arrays = quantizer.key("float32", device), (q, scale, out, weights.data)
        made_of, written = quantizer.inputs(x.reshape(M, K)), {"q": q, "scale": scale, "sum": sums}
        of_rows = quantizer.axes(M, K)
        quantize = dispatch.select(key, of_rows, None, *asked, arrays=(*made_of.values(), *written.values()))
        self._product = product_with(weights, device, "float32", axes, weights.asked(variant), *asked, arrays)
        count = dispatch.threads_for(self._product.key, threads)
        last = among.last
        self.shares = (
            last is not None
            and last.x is x
            and last.quantizer.equals(quantizer)
            and last.kernel is quantize
            and last.threads == threads
        )
        """Whether the call before quantizes the rows."""
        if last is None or not self.shares:
            last = _Quantized(x, quantizer, quantize, threads, quantize.bind(made_of, written, of_rows, count))
            among.last = last
        inputs = {
            "activations": q,
            "weights": weights.packed_as(self._product.key.format, device),
            "weight_scale": weights.weight_scale,
            "act_scale": scale,
        }
        self._second = self._product.bind(inputs, {"out": out.reshape(M, N)}, axes, count)
        native = cpu.own(quantize) and cpu.own(self._product)
        plain = bias is None or (native and bias.flags.c_contiguous and bias.flags.aligned)
        self._scale = scale
        self.launch: Any = (
            cpu.native("host_plan").LinearCall(last.launch, self._second, bias if plain else None, quantizer.rotates)
            if native
            else _ForeignLinear(last.launch, self._second, scale if quantizer.rotates else None)
        )
        self._bias = None if plain else bias
        self._ran = hook.KernelRan(self._product.id, axes, count)

    def __repr__(self) -> str:
        key = self._product.key
        return (
            f"BoundLinear(x={self.x.shape}, out={self.out.shape}, format={self._weights.format!r}, "
            f"device={key.device!r}, kernel={self._product.id!r})"
        )

    def run(self) -> npt.NDArray[np.float32]:
        """Fill and return `out`. Raises InvalidArgumentError, with `out` untouched, if an element of `x` is not
        finite."""
        watch = hook.active
        if watch is not None:
            if (thread := watch.begin()) is not None:
                watched: npt.NDArray[np.float32] = watch.call(thread, _OP, self.run, (), None, self._ran)
                return watched
            if receipts.collects():
                return self._collected()
        if not self.launch.succeeds():
            self.refuse(self.launch)
        if self._bias is not None:
            self.out += self._bias
        return self.out

    __call__ = run

    def refuse(self, launch: Any) -> None:
        """Raise InvalidArgumentError for the element of `x` that a launch found."""
        rows = self.x.reshape(-1, self.x.shape[-1])
        try:
            self._quantizer.refuse(rows, launch, {"scale": self._scale}, flat=True)
        except InvalidArgumentError as error:
            raise as_called(error, "x") from None

    @property
    def complete(self) -> bool:
        """Whether the launch does the whole call."""
        return self._bias is None

    def _collected(self) -> npt.NDArray[np.float32]:
        """`run`, with its receipt for `receipts`."""
        with receipts.uncollected():
            self.run()
        receipts.collect(lambda: self.receipt)
        return self.out

    @property
    def receipt(self) -> Receipt:
        """The receipt of the last call."""
        found = offload.receipt(dispatch.registry().devices[self._product.key.device], self._product, self._second)
        return replace(found, note=self._quantizer.noted(self._weights.repacked_note(self._product)))


def as_called(error: InvalidArgumentError, argument: str) -> InvalidArgumentError:
    """An error about a NaN or infinity in the words of the layer, which has no argument `nonfinite`."""
    if error.argument != "x":
        return error
    replaced = "finite values; nan_to_num replaces NaN and infinity"
    legal = replaced if "nonfinite" in error.legal else error.legal
    return InvalidArgumentError(op="QuantizedLinear", argument=argument, found=error.found, legal=legal)


class _ForeignLinear:
    """The counterpart of LinearCall for kernels of other packages. `scale` is that of rotated rows, in which those that
    are not finite show."""

    def __init__(self, quantize: Launch, product: Launch, scale: npt.NDArray[np.float32] | None) -> None:
        self._quantize, self._product, self._scale = quantize, product, scale
        self.bad = -1

    def succeeds(self) -> bool:
        self._quantize.run()
        self.bad = self._quantize.bad
        if self._scale is not None and np.isnan(self._scale).any():
            self.bad = 0
        if self.bad < 0:
            self._product.run()
        return self.bad < 0
