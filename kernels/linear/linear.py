"""QuantizedLinear: a linear layer over packed ternary weights (specification, 6.4)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tritmark.harness.contract import check_threads, check_variant
from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.monitor import hook, receipts
from tritmark.harness.nearest import misspelt
from tritmark.harness.numbered import same_device
from tritmark.harness.resident import ResidentArray
from tritmark.harness.spec import Receipt, Requirement, Variant
from tritmark.kernels.absmean_quantize.api import absmean_quantize
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.dispatch.plans import widened
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.linear import plans
from tritmark.kernels.linear.bound_linear import BoundLinear, Quantizations, as_called
from tritmark.kernels.linear.layer_on_device import LayerCall, LayerOnDevice
from tritmark.kernels.linear.row_quantizer import Hadamard, row_quantizer
from tritmark.kernels.numerics.input_dtypes import NARROW
from tritmark.kernels.public import auto_device
from tritmark.kernels.public.foreign import AUTO, AdoptedArguments
from tritmark.kernels.ternary_matmul.api import with_receipt
from tritmark.kernels.ternary_matmul.auto_device import product
from tritmark.kernels.weights.packed import (
    PackedWeights,
    check_named,
    known_format,
    matrix_of,
    pack_weights,
    preferred_format,
    product_with,
)

_LOG = logging.getLogger(__name__)
_OP = "QuantizedLinear"
_TAKEN = ("float32", *NARROW)
"""Dtypes of activations, and of weights that are not packed."""


class QuantizedLinear:
    """y = x @ W.T + bias with ternary weights W (N, K) and int8 activations: float32, float16 or bfloat16 in, float32
    out.

    `weights` is float32, float16 or bfloat16 (N, K), quantized by the absmean rule of BitNet b1.58 and packed in
    `format` (by default that of the device's best kernel), or PackedWeights. If no kernel computes from their format,
    they are repacked once, and `receipt` reports it. `bias` is float32 (N,). `device` is "cpu", "cuda", one of several
    GPUs such as "cuda:1", or a device of a package. On a device with its own memory, weights and quantized activations
    stay there.

    Each call picks a kernel by shape; `variant` forces one. If `tritmark tune variants` ran for the shape and the
    `requirement` ("latency", "throughput", "memory", "exactness"; see harness.spec.Requirement), kernel and format are
    the best that it measured (the format with one row of activations), otherwise the built-in ones. If no native kernel
    takes the weights (their scales differ from those of every kernel), each call computes with dequantized float32
    weights. The constructor then logs a warning, and `receipt` reports it.

    With `device="auto"`, each call with rows in host memory runs on the CPU or on another device, whichever was
    measured to be faster (docs/python.md); `receipt` reports it. `bind` then binds to the CPU.

    With `hadamard=(block_size, signs)` the weights are stored as W * S * H (`prism.hadamard.*`): each call rotates its
    rows and quantizes them by `hadamard_quantize`, with the bits of that function and `ternary_matmul`. `block_size`
    divides K; `signs` is an array (K,) of -1 and 1, of which the layer keeps a copy, or None for none.

    With `on_error="recover"`, quantization and product run in a worker process, and failures of kernels are recovered
    from (docs/guides/recover.md); `receipt` reports it. Such a layer takes no arrays on a device, and has no `bind`.

    Raises NoCompatibleKernelError for a missing device and for a variant that takes these weights at no shape,
    InvalidArgumentError for an unknown format or requirement, for an invalid `threads` or `variant`, for weights, bias
    or a rotation that the contract refuses, and for "exactness" of weights whose groups have scales.
    """

    def __init__(
        self,
        weights: npt.NDArray[Any] | PackedWeights,
        bias: npt.NDArray[np.float32] | None = None,
        *,
        hadamard: tuple[int, npt.NDArray[Any] | None] | None = None,
        format: str | None = None,
        device: str = "cpu",
        variant: str | None = None,
        threads: int | None = None,
        requirement: str = Requirement.LATENCY,
        on_error: str = "raise",
    ) -> None:
        dispatch.check_device(_OP, device)
        check_variant(_OP, variant)
        check_threads(_OP, threads)
        self._recovers = on_error != "raise" and _checked_on_error(on_error)
        self.device, self.variant, self.threads = device, variant, threads
        self._requirement = _known_requirement(requirement)
        registry = dispatch.registry()
        if device == AUTO:
            auto_device.check_unforced(_OP, variant)
            device = auto_device.HOST  # of what is prepared here; each device that a call takes has a layer of its own
        missing = registry.device(device, f"{_OP} on {device!r}").missing()
        if missing is not None:
            raise NoCompatibleKernelError(request=f"{_OP} on {device!r}", candidates=[(device, missing)])
        self.weights = (
            weights
            if isinstance(weights, PackedWeights)
            else self._packed(AdoptedArguments(_OP).take(weights), format, device)
        )
        self.out_features, self.in_features = matrix_of(_OP, self.weights)
        self._check_requirement()
        if variant is not None:
            check_named(self.weights, device, variant)
        self._quantizer = row_quantizer(_OP, hadamard, self.in_features)
        self.bias = _checked_bias(AdoptedArguments(_OP).take(bias), self.out_features)
        self._receipt: Receipt | LayerCall | None = None
        self._plans = _declining_plans() if self._recovers else plans.linear_plans()
        self._planned: dict[int, hook.KernelRan] = {}
        self._on_device = LayerOnDevice()
        self._chosen: tuple[tuple[Any, ...], tuple[Variant, Variant]] | None = None
        self._float: npt.NDArray[np.float32] | None = None
        self._layers: dict[str, QuantizedLinear] = {}
        self._placed: tuple[QuantizedLinear, str] | None = None
        axes = {"M": 1, "N": self.out_features, "K": self.in_features}
        self.native = True
        """Whether a native kernel computes the product."""
        try:
            product = product_with(self.weights, device, "float32", axes, None, threads, self.requirement)
        except NoCompatibleKernelError:
            self.native = False
        if self.native:
            if not self._recovers:  # the weights are in the worker
                self.weights.packed_as(product.key.format, device)
        else:
            self._note = (
                f"no native kernel takes {self.weights.format} on {device}: computed on the CPU with dequantized "
                "float32 weights"
            )
            _LOG.warning("%s (%d x %d): %s", _OP, self.out_features, self.in_features, self._note)
            self._float = self.weights.dequantize()

    def __repr__(self) -> str:
        axes = {"M": 1, "N": self.out_features, "K": self.in_features}
        name = self.weights.asked(self.variant)
        try:
            device = auto_device.HOST if self.device == AUTO else self.device
            kernel = product_with(self.weights, device, "float32", axes, name, self.threads, self.requirement).id
        except NoCompatibleKernelError:
            kernel = "none for one row" if self.native else "none: dequantized weights"
        further = "" if self.hadamard is None else f", hadamard_block={self.hadamard[0]}"
        further += "" if self.threads is None else f", threads={self.threads}"
        return (
            f"QuantizedLinear(in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, format={self.weights.format!r}, device={self.device!r}, "
            f"kernel={kernel!r}{further})"
        )

    def forward(self, x: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """The layer's output for `x`, float32, float16 or bfloat16 (ml_dtypes), of shape (K,), (M, K) or (B, M, K).

        Returns float32 of shape (..., N), an array of the same library on the same device. Raises
        InvalidArgumentError."""
        watch = hook.active
        thread: Any = None
        planned = self.device == "cpu"
        if watch is not None:
            thread, planned = watch.begin(), planned and not receipts.collects()
        if not planned and self.device == AUTO:
            return self._somewhere(x)
        if isinstance(x, np.ndarray):
            if planned:
                reported = self.weights, self.bias, self.variant, self.threads, self.requirement
                found, wide = self._plans.run(dispatch.registry(), x, reported), None
                if found is None and (wide := widened(x)) is not None:
                    found = self._plans.run(dispatch.registry(), wide, reported)
                if found is not None:
                    if thread is not None and watch is not None:
                        watch.end(thread, _OP, self._planned.get(x.size // self.in_features))
                    return cast("npt.NDArray[np.float32]", found)
            if thread is None or watch is None:
                y: npt.NDArray[np.float32] = self._computed(x)
            else:
                y = watch.call(thread, _OP, self._computed, (x,), None)
            if planned and self.native and (x.dtype == np.float32 or wide is not None):
                weights, bias, variant, threads, asked = reported
                M = x.size // self.in_features
                of_layer = weights, bias, self._quantizer
                plans.plan_linear(self._plans, self._planned, *of_layer, M, variant, threads, asked)
            return y
        if thread is not None and watch is not None:
            return cast("npt.NDArray[np.float32]", watch.call(thread, _OP, self._adopted, (x,), None))
        return self._adopted(x)

    __call__ = forward

    def bind(self, x: npt.NDArray[np.float32], out: npt.NDArray[np.float32] | None = None) -> BoundLinear:
        """A call with these arrays, checked and bound once, for repeated calls with the same arrays:
        `layer.bind(x, out).run()` fills `out` from the current content of `x`.

        `x` is a C-contiguous NumPy array of float32, in a shape that `forward` takes. `out` is float32 in the shape
        that `forward` returns; by default a new array. Later changes of the layer do not affect the bound call. Raises
        InvalidArgumentError, and NoCompatibleKernelError if the layer's kernels do not work in host memory.
        """
        return self.bound(x, out)

    def bound(
        self, x: npt.NDArray[np.float32], out: npt.NDArray[np.float32] | None, among: Quantizations | None = None
    ) -> BoundLinear:
        """`bind`, for a call that runs behind those with these quantizations."""
        if self.device == AUTO:
            return self._on(auto_device.HOST).bound(x, out, among)
        self._check(x)
        if not isinstance(x, np.ndarray):
            raise InvalidArgumentError(op=_OP, argument="x", found=f"on {x.device}", legal="in the host's memory")
        why = None if self.native else self._note
        if self._recovers:
            why = 'a bound call cannot recover; next: make the layer with on_error="raise"'
        if dispatch.registry().devices[self.device].memory is not None:
            why = "it has its own memory, and bind needs host memory; call the layer instead"
        if why is not None:
            raise NoCompatibleKernelError(request=f"{_OP}.bind on {self.device!r}", candidates=[(self.device, why)])
        return BoundLinear(
            x,
            out,
            weights=self.weights,
            bias=self.bias,
            quantizer=self._quantizer,
            variant=self.variant,
            threads=self.threads,
            device=self.device,
            requirement=self.requirement,
            among=among,
        )

    def forget_plans(self) -> None:
        """Bind calls again, after the bytes of the weights were moved. The receipt of the last call stays."""
        self._receipt = self.receipt
        if not self._recovers:
            self._plans = plans.linear_plans()
        self._planned.clear()
        self._layers.clear()
        self._placed = None

    @property
    def requirement(self) -> Requirement:
        """The quantity that the choice of kernels optimizes."""
        return self._requirement

    @property
    def hadamard(self) -> Hadamard | None:
        """The block and signs by which rows are rotated; None for weights that are not rotated."""
        return self._quantizer.hadamard

    @property
    def receipt(self) -> Receipt | None:
        """The receipt of the last call. On a device with its own memory, launches are bound once for a shape, and the
        receipt counts all their calls."""
        if self._placed is not None:
            layer, why = self._placed
            made = layer.receipt
            return None if made is None else replace(made, note="; ".join(filter(None, (why, made.note))))
        last = self._plans.last
        if last is not None:
            return plans.receipt_of(last, self.weights, self._quantizer)
        return self._receipt.receipt() if isinstance(self._receipt, LayerCall) else self._receipt

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: the last call is kept as its receipt."""
        return self.__dict__ | {
            "_receipt": self.receipt,
            "_chosen": None,
            "_planned": {},
            "_layers": {},
            "_placed": None,
        }

    def _check_requirement(self) -> None:
        form = FORMATS[self.weights.format]
        if self.requirement is Requirement.EXACTNESS and form.scale_per == "group":
            found = f"{self.requirement!s} for weights in {form.name}, whose groups' sums are added within a bound"
            legal = ", ".join(each for each in Requirement if each is not Requirement.EXACTNESS)
            raise InvalidArgumentError(op=_OP, argument="requirement", found=found, legal=legal)

    def _packed(self, weights: Any, format: str | None, device: str) -> PackedWeights:
        if format is not None:
            known_format(_OP, format)
        N, K = _checked_weights(weights).shape
        if format is None:
            format = preferred_format(device, (int(N), int(K)), threads=self.threads, requirement=self.requirement)
        try:
            quantized = absmean_quantize(np.ascontiguousarray(weights, dtype=np.float32))
        except InvalidArgumentError as error:
            raise as_called(error, "weights") from None
        return pack_weights(quantized.codes, quantized.scale, format=format)

    def _ran(self, receipt: Receipt) -> None:
        self._receipt, self._plans.last = receipt, None

    def _somewhere(self, x: Any) -> npt.NDArray[np.float32]:
        """`forward` on the device of the rows, or for rows in host memory on the one that is chosen."""
        given = AdoptedArguments(_OP)
        rows = given.take(x)
        where = auto_device.PlacedCall(given.device)
        if not given.device:
            asked = self.threads, self.variant, self._quantizer.function, self.requirement
            where = product(rows, self.weights, "float32", *asked, self._quantizer)
        layer = self._on(where.device)
        y = where.run(lambda device: layer.forward(x))
        self._placed = layer, where.why
        return y

    def _on(self, device: str) -> QuantizedLinear:
        """The same layer on a device, made at the first call there."""
        found = self._layers.get(device)
        # Compared by identity: attributes of a layer may be replaced.
        if (
            found is None
            or found.weights is not self.weights
            or found.bias is not self.bias
            or found.threads is not self.threads
        ):
            on_error = "recover" if self._recovers else "raise"
            asked: dict[str, Any] = {"threads": self.threads, "requirement": self.requirement, "on_error": on_error}
            asked |= {"hadamard": self.hadamard, "device": device}
            found = self._layers[device] = QuantizedLinear(self.weights, self.bias, **asked)
        return found

    def _adopted(self, x: Any) -> npt.NDArray[np.float32]:
        """`forward` for arrays of other libraries."""
        adopted = AdoptedArguments(_OP)
        return cast("npt.NDArray[np.float32]", adopted.give(self._computed(adopted.take(x))))

    def _computed(self, x: Any) -> Any:
        """`forward` for NumPy arrays, and for arrays on the layer's device."""
        self._check(x)
        rows = x.reshape(x.size // self.in_features, self.in_features)
        shape = *x.shape[:-1], self.out_features
        if isinstance(rows, ResidentArray):
            return self._resident(rows).reshape(shape)
        try:
            y = self._native(rows) if self.native else self._dequantized(rows)
        except InvalidArgumentError as error:
            raise as_called(error, "x") from None
        if self.bias is not None:
            y += self.bias
        return y.reshape(shape)

    def _check(self, x: Any) -> None:
        if (
            not isinstance(x, np.ndarray | ResidentArray)
            or (x.dtype != np.float32 and str(x.dtype) not in _TAKEN)  # str(dtype) takes microseconds
            or x.ndim not in {1, 2, 3}
            or x.shape[-1] != self.in_features
            or not x.size
        ):
            known = isinstance(x, np.ndarray | ResidentArray)
            found = f"{x.dtype} of shape {x.shape}" if known else f"a {type(x).__name__}"
            legal = f"{', '.join(_TAKEN)} with 1 to 3 dimensions, the last {self.in_features}, none empty"
            raise InvalidArgumentError(op=_OP, argument="x", found=found, legal=legal)

    def _resident(self, rows: ResidentArray) -> ResidentArray:
        """Compute on the device of the rows, which must be the layer's."""
        if self._recovers:
            legal = 'in the host\'s memory, or a layer with on_error="raise"'
            raise InvalidArgumentError(op=_OP, argument="x", found=f"on {rows.device}", legal=legal)
        if not same_device(rows.device, self.device) or not self.native:
            legal = f"on {self.device}, where the layer is" if self.native else "on cpu: no kernel takes these weights"
            raise InvalidArgumentError(op=_OP, argument="x", found=f"on {rows.device}", legal=legal)
        device = dispatch.registry().devices[self.device]
        self._receipt, y = self._on_device.run_there(
            device, self._kernels(rows), self._quantizer, self.weights, self.device, rows, self.out_features
        )
        self._plans.last = None
        if hook.active is not None:
            receipts.collect(self._receipt.receipt)
        return y if self.bias is None else y.sum(self.bias)

    def _native(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        if self._recovers:
            return self._in_worker(rows)
        device = dispatch.registry().devices[self.device]
        if device.memory is not None:
            there = np.empty((len(rows), self.out_features), np.float32)
            of_layer = self._quantizer, self.weights, self.device
            ran = self._on_device.run(device, self._kernels(rows), *of_layer, rows, there)
            self._receipt, self._plans.last = ran, None
            if hook.active is not None:
                receipts.collect(ran.receipt)
            return there
        quantized = self._quantizer.quantized(rows, self.threads, self.device)
        y, receipt = with_receipt(
            quantized.q,
            self.weights,
            act_scale=quantized.scale,
            variant=self.variant,
            threads=self.threads,
            device=self.device,
            requirement=self.requirement,
        )
        self._ran(self._rotating(receipt))
        return y

    def _in_worker(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Compute in the worker of recovering calls."""
        from tritmark.kernels.recovering.layer import linear_in_worker

        y, receipt = linear_in_worker(
            rows,
            self.weights,
            hadamard=self.hadamard,
            dtype="float32",
            device=self.device,
            variant=self.variant,
            threads=self.threads,
            requirement=self.requirement,
        )
        self._ran(self._rotating(receipt))
        return cast("npt.NDArray[np.float32]", y)

    def _kernels(self, rows: npt.NDArray[Any] | ResidentArray) -> tuple[Variant, Variant]:
        """The variants that quantize and multiply these rows. They are cached until the state of the choice changes,
        since a selection takes as long as a copy of the rows."""
        M, K = rows.shape
        asked = (self.threads, self.requirement)
        state = dispatch.state(dispatch.registry(), self.device)
        decides = (state, rows.shape, rows.dtype, self.weights, self.device, self.variant, *asked)
        if self._chosen is None or self._chosen[0] != decides:
            axes = {"M": M, "N": self.out_features, "K": K}
            kernels = (
                dispatch.select(
                    self._quantizer.key(str(rows.dtype), self.device), self._quantizer.axes(M, K), None, *asked
                ),
                product_with(self.weights, self.device, "float32", axes, self.variant, *asked),
            )
            self._chosen = decides, kernels
        return self._chosen[1]

    def _dequantized(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        assert self._float is not None
        floats = self._quantizer.floats(rows, self.threads)
        kernel = f"cpu/ternary_matmul/{self.weights.format}/float32/dequantized"
        watch = hook.active
        if watch is not None:
            watch.ran(hook.named(kernel, {"M": len(rows), "N": self.out_features, "K": self.in_features}, 1))
        receipt = self._rotating(Receipt(kernel=kernel, ran="numpy", runs=1, threads=1, native=False, note=self._note))
        self._ran(receipt)
        if watch is not None:
            receipts.collect(lambda: receipt)
        y: npt.NDArray[np.float32] = floats @ self._float.T
        return y

    def _rotating(self, receipt: Receipt) -> Receipt:
        """A product's receipt with the rotation of its rows."""
        return replace(receipt, note=self._quantizer.noted(receipt.note))


def _checked_on_error(on_error: Any) -> bool:
    # Late, since it imports the worker processes.
    from tritmark.kernels.recovering.client import check_on_error

    return check_on_error(_OP, on_error)


def _declining_plans() -> Any:
    from tritmark.kernels.recovering.client import DecliningPlans

    return DecliningPlans()


def _known_requirement(given: str) -> Requirement:
    if given not in list(Requirement):
        legal = ", ".join(Requirement)
        raise InvalidArgumentError(op=_OP, argument="requirement", found=misspelt(str(given), Requirement), legal=legal)
    return Requirement(given)


def _checked_weights(weights: Any) -> npt.NDArray[Any]:
    if not isinstance(weights, np.ndarray) or weights.ndim != 2 or str(weights.dtype) not in _TAKEN or not weights.size:
        found = (
            f"{weights.dtype} of shape {weights.shape}"
            if isinstance(weights, np.ndarray)
            else f"a {type(weights).__name__}"
        )
        raise InvalidArgumentError(
            op=_OP, argument="weights", found=found, legal=f"{', '.join(_TAKEN)} (N, K), not empty, or PackedWeights"
        )
    return weights


def _checked_bias(bias: Any, out_features: int) -> npt.NDArray[np.float32] | None:
    if bias is None:
        return None
    if not isinstance(bias, np.ndarray) or bias.dtype != np.float32 or bias.shape != (out_features,):
        found = f"{bias.dtype} of shape {bias.shape}" if isinstance(bias, np.ndarray) else f"a {type(bias).__name__}"
        raise InvalidArgumentError(op=_OP, argument="bias", found=found, legal=f"float32 of shape ({out_features},)")
    return bias
