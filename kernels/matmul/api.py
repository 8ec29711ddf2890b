"""The public function matmul. It runs only on the GPU: precisions are those of tensor cores, and batches use
streams."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from tritmark.harness.contract import unify
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.monitor import hook, receipts
from tritmark.harness.numbered import numbered, same_device
from tritmark.harness.resident import ResidentArray
from tritmark.harness.spec import Device, KernelKey, Launch, Receipt, Variant
from tritmark.kernels.cuda.device_type import DEVICE
from tritmark.kernels.dispatch import dispatch, offload
from tritmark.kernels.float_narrow.spec import OP as NARROW
from tritmark.kernels.matmul.precision import PrecisionMode, effective_precision
from tritmark.kernels.matmul.spec import OPS
from tritmark.kernels.public.foreign import takes_any_array

if TYPE_CHECKING:
    from tritmark.kernels.cuda.array import DeviceArray
    from tritmark.kernels.cuda.launch.launch import CudaLaunch

__all__ = ["matmul", "matmul_batch"]


@dataclass(frozen=True, slots=True)
class PreparedProduct:
    """A product that is ready to run, with its factors converted on the device."""

    variant: Variant
    launch: CudaLaunch
    c: DeviceArray
    receipts: list[Receipt]
    """Of the conversions."""
    conversions: list[Launch]
    """The conversions, which ran once and can run again."""


@takes_any_array
def matmul(
    a: npt.NDArray[np.float32],
    b: npt.NDArray[np.float32],
    *,
    mode: PrecisionMode | str = PrecisionMode.AUTO,
    variant: str | None = None,
    device: str = DEVICE,
    on_error: str = "raise",
) -> npt.NDArray[np.float32]:
    """C = A B on the GPU, float32 (M, K) times float32 (K, N), in mixed precision (specification, 3.2).

    `mode` is the precision to which the factors are rounded on the device, to nearest even: "fp32", "fp16" (values
    above 65504 become infinity), "bf16", or "auto", the best of the device. Sums and C are float32. A mode that the
    device lacks is replaced by fp32; a warning is logged and the receipt reports it. `variant` forces one of the
    kernels, `device` selects one of several GPUs ("cuda:1"). NaN and infinities propagate.

    Raises InvalidArgumentError for arguments outside the contract, NoCompatibleKernelError if no kernel fits (K above
    2^20, a missing variant), DeviceError if there is no GPU or it fails. `on_error="recover"`: see
    docs/guides/recover.md.
    """
    if on_error != "raise":
        from tritmark.kernels.recovering.client import call

        found = call("matmul", on_error, host=False, a=a, b=b, mode=mode, variant=variant, device=device)
        return cast("npt.NDArray[np.float32]", found)
    result, _ = with_receipt(a, b, mode=mode, variant=variant, device=device)
    return result


def with_receipt(
    a: npt.NDArray[np.float32],
    b: npt.NDArray[np.float32],
    *,
    mode: PrecisionMode | str = PrecisionMode.AUTO,
    variant: str | None = None,
    device: str = DEVICE,
) -> tuple[npt.NDArray[np.float32], Receipt]:
    """As matmul, with the receipt of what ran: the conversions and the product."""
    from tritmark.kernels.cuda.context import cuda_context, on_gpu

    unify(OPS["float32"], {"a": a, "b": b})
    with on_gpu(_gpu(device, a, b)):
        effective, note = effective_precision(mode, cuda_context().backend.info)
        bound = bind(a, b, effective, variant)
        bound.launch.run()
    receipt = _receipt(bound, note)
    if hook.active is not None:
        receipts.collect(lambda: receipt)
    return bound.c if isinstance(a, ResidentArray) else bound.c.numpy(), receipt


def _receipt(bound: PreparedProduct, note: str) -> Receipt:
    """The receipt of the conversions and the product. `note` is that of the precision."""
    made = offload.joined([*bound.receipts, offload.receipt(_device(), bound.variant, bound.launch)])
    return replace(made, note="; ".join(filter(None, (note, made.note))))


def matmul_batch(
    factors: Iterable[tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]],
    *,
    mode: PrecisionMode | str = PrecisionMode.AUTO,
    variant: str | None = None,
    device: str = DEVICE,
    on_error: str = "raise",
) -> list[npt.NDArray[np.float32]]:
    """The products C = A B of several pairs (A, B), each as in matmul, over several streams: the largest is launched
    first, and the host waits once for all (specification, 3.6). Without pairs, returns no products.

    Raises the errors of matmul, before any launch if an argument is outside the contract. A DeviceError names the pair,
    or the candidates if there are several. With `on_error="recover"` (docs/guides/recover.md) products run one after
    another, so that a failure belongs to one of them: `last_recoveries()` has the `index` of each that failed.
    """
    from tritmark.kernels.cuda.context import cuda_context, on_gpu
    from tritmark.kernels.cuda.launch.batch import Batch

    watch = hook.active
    if watch is not None and (thread := watch.begin()) is not None:
        call = partial(matmul_batch, mode=mode, variant=variant, device=device, on_error=on_error)
        watched: list[npt.NDArray[np.float32]] = watch.call(thread, "matmul_batch", call, (factors,), None)
        return watched
    pairs = list(factors)
    for a, b in pairs:
        unify(OPS["float32"], {"a": a, "b": b})
    if on_error != "raise":
        return _recovering(pairs, on_error, mode=mode, variant=variant, device=device)
    if not pairs:
        return []
    with on_gpu(_gpu(device)):
        effective, note = effective_precision(mode, cuda_context().backend.info)
        bound = [bind(a, b, effective, variant) for a, b in pairs]
        batch = Batch()
        for number, (each, (a, b)) in enumerate(zip(bound, pairs, strict=True)):
            batch.add(each.launch, 2 * a.size * b.shape[1], f"pair {number}")
        batch.run()
        if watch is not None:
            kernels = ", ".join(sorted({each.variant.id for each in bound}))
            name = f"{kernels}, batch of {len(bound)}"
            watch.ran(hook.named(name, {}, simulated=_device().simulated()))
            for each in bound:
                receipts.collect(partial(_receipt, each, note))
    return [each.c.numpy() for each in bound]


def _recovering(
    pairs: list[tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]], on_error: str, **asked: Any
) -> list[npt.NDArray[np.float32]]:
    from tritmark.kernels.recovering.client import call, check_on_error, together

    check_on_error("matmul_batch", on_error)
    with together():
        return [
            call("matmul", on_error, host=False, index=index, a=a, b=b, **asked) for index, (a, b) in enumerate(pairs)
        ]


def bind(
    a: npt.NDArray[np.float32], b: npt.NDArray[np.float32], mode: PrecisionMode, variant: str | None
) -> PreparedProduct:
    """The product in a mode that the device supports. Converts the factors, but does not run the product."""
    from tritmark.kernels.cuda.launch.launch import CudaLaunch

    op = OPS[mode.dtype]
    axes = {"M": a.shape[0], "N": b.shape[1], "K": a.shape[1]}
    chosen = dispatch.select(KernelKey(DEVICE, op.name, "none", "float32"), axes, variant)
    watch = hook.active
    if watch is not None:
        watch.ran(hook.chosen(chosen, axes, 0, _device().simulated()))
    dispatch.announce(chosen, axes)
    receipts: list[Receipt] = []
    conversions: list[Launch] = []
    factors: dict[str, Any] = {"a": a, "b": b}
    if mode is not PrecisionMode.FP32:
        for name, array in factors.items():
            factors[name], receipt, conversion = _narrowed(array, mode.dtype)
            receipts.append(receipt)
            conversions.append(conversion)
    if isinstance(a, ResidentArray):
        c: Any = a.new((axes["M"], axes["N"]), np.float32)
        launch = offload.bound(_device(), chosen, factors, {"c": c}, axes)
    else:
        launch, outputs = offload.launch(_device(), op, chosen, factors, axes)
        c = outputs["c"]
    assert isinstance(launch, CudaLaunch)
    return PreparedProduct(chosen, launch, c, receipts, conversions)


def _narrowed(array: npt.NDArray[np.float32], dtype: str) -> tuple[DeviceArray, Receipt, Launch]:
    """The matrix on the device in `dtype`, and the launch that converted it."""
    axes = {"n": array.size}
    chosen = dispatch.select(KernelKey(DEVICE, NARROW.name, "none", dtype), axes, None)
    device = _device()
    launch, outputs = offload.launch(device, NARROW, chosen, {"x": array.reshape(-1)}, axes)
    launch.run()
    return outputs["h"].view(array.shape), offload.receipt(device, chosen, launch), launch


def _gpu(device: str, *arrays: Any) -> int:
    """The number of that GPU. Raises NoCompatibleKernelError if it is missing, InvalidArgumentError if `device` is not
    a GPU, and for arrays on another device."""
    dispatch.check_device("matmul", device)
    kind, index = numbered(device) or (device, 0)
    dispatch.registry().device(device, f"matmul on {device!r}")
    if kind != DEVICE:
        raise InvalidArgumentError(
            op="matmul", argument="device", found=repr(device), legal=f"{DEVICE}, {DEVICE}:1, ..."
        )
    for name, array in zip("ab", arrays, strict=False):
        if isinstance(array, ResidentArray) and not same_device(array.device, device):
            raise InvalidArgumentError(op="matmul", argument=name, found=f"on {array.device}", legal=f"on {device}")
    return index


def _device() -> Device:
    return dispatch.registry().devices[DEVICE]
