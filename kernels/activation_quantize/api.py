"""The public function activation_quantize."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from tritmark.harness.contract import check_array
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.monitor import hook, receipts
from tritmark.harness.resident import ResidentArray
from tritmark.kernels.activation_quantize import auto_device, plans
from tritmark.kernels.activation_quantize.spec import KEY, OP, key_for
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.dispatch.plans import widened
from tritmark.kernels.public import elementwise
from tritmark.kernels.public.foreign import AUTO, with_plans


class ActivationQuantized(NamedTuple):
    """Quantized activations: q / scale approximates the activations."""

    q: npt.NDArray[np.int8]
    """-127 to 127, in the shape of the activations."""
    scale: npt.NDArray[np.float32]
    """The factor of each row, in the shape of the activations without the last axis."""
    sum: npt.NDArray[np.int32]
    """The sum of each row's q, in the same shape as `scale`."""


@with_plans
def activation_quantize(
    x: npt.NDArray[Any],
    *,
    out: ActivationQuantized | None = None,
    nonfinite: str = "error",
    variant: str | None = None,
    threads: int | None = None,
    device: str = "cpu",
    on_error: str = "raise",
) -> ActivationQuantized:
    """int8 activations by row: scale = 127 / max(absmax, 1e-5), q = clamp(rint(x * scale), -128, 127), ties to even,
    and the sum of q.

    `x` is float32, float16 or bfloat16 (ml_dtypes), (..., K), K at most 16,777,215; rows are contiguous, with
    one stride between them. Quotient and product are float32. `out`, if given, is an earlier result of the same shape;
    its arrays are overwritten. `device` is "cpu", "cuda", a package's or "auto"
    (docs/python.md); `variant` forces one of its kernels. Source: BitNet b1.58 (arXiv:2402.17764).

    Raises InvalidArgumentError for arguments outside the contract and for a NaN or infinity in x (with the index in the
    flat array; `nonfinite="zero"` replaces them by 0), NoCompatibleKernelError for a missing device or variant and for
    a larger K, DeviceError if a GPU fails; `out` is then untouched. `on_error="recover"`: see docs/guides/recover.md.
    """
    watch = hook.active
    thread: Any = None
    planned = type(x) is np.ndarray and nonfinite == "error" and device == "cpu"
    if watch is not None:
        thread, planned = watch.begin(), planned and not receipts.collects()
    if not planned and device == AUTO:
        told: dict[str, Any] = {"out": out, "nonfinite": nonfinite, "threads": threads, "on_error": on_error}
        return auto_device.rows(x, threads, variant).run(activation_quantize, x, **told)
    if on_error != "raise":
        from tritmark.kernels.recovering.client import call

        given: dict[str, Any] = {
            "x": x,
            "nonfinite": nonfinite,
            "variant": variant,
            "threads": threads,
            "device": device,
        }
        given |= {"op": OP.name, "on_error": on_error, "out": out}
        recovered = call(**given) if thread is None or watch is None else watch.call(thread, OP.name, call, (), given)
        return cast("ActivationQuantized", recovered)
    wide = None
    if planned and (out is None or type(out) is ActivationQuantized):
        found = plans.quantize_plans().run(dispatch.registry(), x, out, variant, threads)
        if found is None and out is None and variant is None and (wide := widened(x)) is not None:
            found = plans.quantize_plans().run(dispatch.registry(), wide, None, None, threads)
        if found is not None:
            if thread is not None and watch is not None:
                K = x.shape[-1]
                watch.end(thread, OP.name, plans.PLANNED.get((x.size // K, K, variant, threads)))
            return ActivationQuantized._make(found)
    asked = x, out, nonfinite, variant, threads, device
    made: ActivationQuantized = (
        _computed(*asked) if thread is None or watch is None else watch.call(thread, OP.name, _computed, asked, None)
    )
    if planned and (x.dtype == np.float32 or wide is not None):
        plans.plan_quantize(x.size // x.shape[-1], x.shape[-1], variant, threads)
    return made


def _computed(
    x: Any,
    out: ActivationQuantized | None,
    nonfinite: str,
    variant: str | None,
    threads: int | None,
    device: str,
) -> ActivationQuantized:
    rows = _rows(x)
    key = key_for(str(rows.dtype) if isinstance(rows, np.ndarray | ResidentArray) else "", device)
    check_array(OP.name, OP.inputs[0], rows, None if key.input_dtype == KEY.input_dtype else key.input_dtype)
    axes = dict(zip(OP.axes, rows.shape, strict=True))
    shapes = x.shape, x.shape[:-1], x.shape[:-1]
    arrays = [
        elementwise.output(OP, tensor, array, shape, {"x": x})
        for tensor, array, shape in zip(OP.outputs, _given(out), shapes, strict=True)
    ]
    checked = dispatch.finite(OP, "x", rows, nonfinite, preflight=out is not None)
    chosen = dispatch.select(key, axes, variant, threads, arrays=(checked, *arrays))
    outputs = {"q": arrays[0].reshape(rows.shape), "scale": arrays[1], "sum": arrays[2]}
    dispatch.run(OP, chosen, {"x": checked}, outputs, axes, dispatch.threads_for(key, threads), flat=True)
    return ActivationQuantized(*(array.reshape(shape) for array, shape in zip(outputs.values(), shapes, strict=True)))


def _rows(x: Any) -> Any:
    """`x` as (M, K), never a copy. Other objects are returned as they are, and the contract refuses them."""
    if not isinstance(x, np.ndarray | ResidentArray) or x.ndim == 0:
        return x
    if isinstance(x, ResidentArray):
        return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    try:
        return x.reshape(math.prod(x.shape[:-1]), x.shape[-1], copy=False)
    except ValueError:
        legal = "rows with one stride between them; np.ascontiguousarray makes such a copy"
        raise InvalidArgumentError(op=OP.name, argument="x", found=f"strided {x.strides}", legal=legal) from None


def _given(out: Any) -> tuple[Any, Any, Any]:
    """The arrays of `out` to fill."""
    if out is None:
        return None, None, None
    if not isinstance(out, ActivationQuantized):
        found = f"a {type(out).__name__}"
        raise InvalidArgumentError(
            op=OP.name, argument="out", found=found, legal="ActivationQuantized, as this returns it"
        )
    return out
