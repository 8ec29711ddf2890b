"""A layer on a device with its own memory: launches are bound once for each shape, dtype and pair of kernels. For rows
in host memory every later call is one round trip. Rows on the device are copied to where the launches read them, which
costs less than a new binding."""

from __future__ import annotations

from dataclasses import replace
from threading import Lock
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tritmark.harness.monitor import hook
from tritmark.harness.resident import ResidentArray
from tritmark.harness.spec import Device, Launch, Receipt, Variant
from tritmark.kernels.dispatch import offload
from tritmark.kernels.linear.row_quantizer import RowQuantizer
from tritmark.kernels.ternary_matmul.spec import OP as TERNARY_MATMUL
from tritmark.kernels.weights.packed import PackedWeights


class LayerOnDevice:
    """The bound launches of one layer."""

    def __init__(self) -> None:
        self._kept = offload.KeptLaunches()
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[LayerOnDevice], tuple[()]]:
        """Copies and pickles start without bound launches."""
        return LayerOnDevice, ()

    def run(
        self,
        device: Device,
        kernels: tuple[Variant, Variant],
        quantizer: RowQuantizer,
        weights: PackedWeights,
        place: str,
        rows: npt.NDArray[Any],
        y: npt.NDArray[np.float32],
    ) -> LayerCall:
        """Quantize `rows` (M, K) and write their product to `y` float32 (M, N), with these kernels on the device
        `place`.

        Raises InvalidArgumentError for rows with a NaN or infinity, InsufficientMemoryError, DeviceFaultError.
        """
        _report(device, kernels[1], rows, y.shape[1])
        asked = (*kernels, rows.shape, rows.dtype, id(weights), place)
        # Bound launches share one buffer for activations, so a concurrent call of another thread binds its own.
        mine = self._lock.acquire(blocking=False)
        try:
            kept = self._kept.find(asked) if mine else None
            if kept is None:
                return self._first(device, kernels, quantizer, weights, place, rows, y, asked if mine else None)
            self._kept.use(kept)
            checked = quantizer.checked(len(rows))
            done = offload.run_kept(device, kept, {"x": rows}, {"out": y, **checked})
            quantizer.refuse(rows, done, checked)
            chain = cast(offload.ChainedLaunch, kept.launch)
            return LayerCall(device, kernels, chain.launches, quantizer, weights)
        finally:
            if mine:
                self._lock.release()

    def run_there(
        self,
        device: Device,
        kernels: tuple[Variant, Variant],
        quantizer: RowQuantizer,
        weights: PackedWeights,
        place: str,
        rows: ResidentArray,
        out_features: int,
    ) -> tuple[LayerCall, ResidentArray]:
        """`run` for rows (M, K) on the device. The product, float32 (M, out_features), is a new array of the rows'
        library. Raises the errors of `run`."""
        _report(device, kernels[1], rows, out_features)
        asked = (*kernels, rows.shape, rows.dtype, id(weights), place, type(rows.owned))
        # In libraries without writable arrays, such as JAX, each call binds its own launch.
        mine = rows.writable and self._lock.acquire(blocking=False)
        try:
            kept = (self._kept.find(asked) if mine else None) or self._bound_there(
                device,
                kernels,
                quantizer,
                weights,
                place,
                rows.new(rows.shape, rows.dtype) if mine else rows,
                out_features,
                asked,
            )
            if mine:
                self._kept.use(kept)
                kept.inputs["x"].assign(rows)
            kept.launch.run()
            checked = quantizer.checked(rows.shape[0])
            offload.fetch(device, {name: kept.outputs[name] for name in checked}, checked)
            quantizer.refuse(rows, kept.launch, checked)
            y: ResidentArray = kept.outputs["out"].copied() if mine else kept.outputs["out"]
            return LayerCall(device, kernels, cast(offload.ChainedLaunch, kept.launch).launches, quantizer, weights), y
        finally:
            if mine:
                self._lock.release()

    def _bound_there(
        self,
        device: Device,
        kernels: tuple[Variant, Variant],
        quantizer: RowQuantizer,
        weights: PackedWeights,
        place: str,
        x: ResidentArray,
        out_features: int,
        asked: tuple[Any, ...],
    ) -> offload.KeptLaunch:
        (M, K), y = x.shape, x.new((x.shape[0], out_features), np.float32)
        first, quantized = offload.launch(device, quantizer.op, kernels[0], quantizer.inputs(x), quantizer.axes(M, K))
        inputs = _product_inputs(quantized, weights, kernels[1], place)
        second = offload.bound(device, kernels[1], inputs, {"out": y}, {"M": M, "N": out_features, "K": K})
        chain = cast(Launch, offload.ChainedLaunch(first, second))
        nbytes = x.nbytes + y.nbytes + M * (K + 8)
        outputs = {"out": y, **{name: quantized[name] for name in quantizer.checked(M)}}
        return offload.KeptLaunch(chain, {"x": x, "weights": weights}, outputs, asked, nbytes)

    def _first(
        self,
        device: Device,
        kernels: tuple[Variant, Variant],
        quantizer: RowQuantizer,
        weights: PackedWeights,
        place: str,
        rows: npt.NDArray[Any],
        y: npt.NDArray[np.float32],
        asked: tuple[Any, ...] | None,
    ) -> LayerCall:
        (M, K), N = rows.shape, y.shape[1]
        quantize, product = kernels
        x = offload.transfers(device).upload(rows)
        first, quantized = offload.launch(device, quantizer.op, quantize, quantizer.inputs(x), quantizer.axes(M, K))
        first.run()
        checked = quantizer.checked(M)
        there = {name: quantized[name] for name in checked}
        offload.fetch(device, there, checked)
        quantizer.refuse(rows, first, checked)
        inputs = _product_inputs(quantized, weights, product, place)
        second, outputs = offload.launch(device, TERNARY_MATMUL, product, inputs, {"M": M, "N": N, "K": K})
        second.run()
        offload.fetch(device, outputs, {"out": y})
        if asked is not None:
            nbytes = rows.nbytes + y.nbytes + M * (K + 8)
            chain = cast(Launch, offload.ChainedLaunch(first, second))
            # Keep the weights too: the launch holds their address, and their id must not be reused.
            kept = offload.KeptLaunch(chain, {"x": x, "weights": weights}, {**outputs, **there}, asked, nbytes)
            self._kept.use(kept)
        return LayerCall(device, kernels, (first, second), quantizer, weights)


def _report(device: Device, product: Variant, rows: Any, out_features: int) -> None:
    watch = hook.active
    if watch is not None:
        M, K = rows.shape
        watch.ran(hook.chosen(product, {"M": M, "N": out_features, "K": K}, 0, device.simulated()))


def _product_inputs(quantized: dict[str, Any], weights: PackedWeights, product: Variant, place: str) -> dict[str, Any]:
    return {
        "activations": quantized["q"],
        "weights": weights.packed_as(product.key.format, place),
        "weight_scale": weights.weight_scale,
        "act_scale": quantized["scale"],
    }


class LayerCall:
    """The launches of a call. A receipt is made on request, from their state at that moment."""

    def __init__(
        self,
        device: Device,
        kernels: tuple[Variant, Variant],
        launches: tuple[Launch, ...],
        quantizer: RowQuantizer,
        weights: PackedWeights,
    ) -> None:
        self._device, self._kernels, self._launches = device, kernels, launches
        self._quantizer, self._weights = quantizer, weights

    def receipt(self) -> Receipt:
        """The receipt of both launches; it counts all calls of each."""
        each = [offload.receipt(self._device, *pair) for pair in zip(self._kernels, self._launches, strict=True)]
        note = self._quantizer.noted(self._weights.repacked_note(self._kernels[1]))
        return replace(offload.joined(each), note=note)
