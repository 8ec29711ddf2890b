"""The public function ternary_matmul_batch: many products, over the streams of a GPU or the threads of the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.monitor import hook, receipts
from tritmark.harness.numbered import numbered
from tritmark.kernels.cuda.device_type import DEVICE
from tritmark.kernels.dispatch import dispatch, offload
from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_matmul.api import PreparedTernaryProduct, prepare
from tritmark.kernels.ternary_matmul.spec import OP
from tritmark.kernels.weights.packed import PackedWeights

__all__ = ["ternary_matmul_batch"]

_NAME = "ternary_matmul_batch"
Pairs = Iterable[tuple[npt.NDArray[np.int8], PackedWeights]]


def ternary_matmul_batch(
    pairs: Pairs,
    *,
    act_scales: Sequence[npt.ArrayLike] | None = None,
    dtype: npt.DTypeLike | str = "float32",
    variant: str | None = None,
    threads: int | None = None,
    device: str = "cpu",
) -> list[npt.NDArray[Any]]:
    """ternary_matmul of each pair (activations, weights), with the same bits; pairs may have any shapes and formats.

    Activations are NumPy arrays. `act_scales` has the `act_scale` of each pair, by default 1. `dtype`, `variant`,
    `threads` and `device` ("cpu", "cuda", "cuda:1" and so on) are those of ternary_matmul, for all pairs. Returns the
    products in the order of the pairs; without pairs nothing runs.

    The largest product is first. On the CPU products share the threads as in kernels/spreading/on_cpu.py, `threads` at
    most. On the GPU all pairs are in its memory at once, products run in several streams, and the host waits once
    (kernels/cuda/launch/batch.py). Source: specification, 3.6.

    Raises the errors of ternary_matmul, with the number of the pair in a note: before anything runs if an argument is
    outside the contract or a GPU's memory is too small. A DeviceFaultError names the pair, or the candidates if there
    are several.
    """
    watch = hook.active
    if watch is not None and (thread := watch.begin()) is not None:
        given: dict[str, Any] = {"act_scales": act_scales, "dtype": dtype, "variant": variant, "threads": threads}
        call = partial(ternary_matmul_batch, device=device, **given)
        watched: list[npt.NDArray[Any]] = watch.call(thread, _NAME, call, (pairs,), None)
        return watched
    given_pairs = list(pairs)
    if not given_pairs:
        return []
    together = _together(device)
    products = _prepared(given_pairs, act_scales, {"dtype": dtype, "variant": variant, "threads": threads}, device)
    together(products, threads, device)
    if watch is not None:
        kernels = ", ".join(sorted({each.variant.id for each in products}))
        where = dispatch.registry().devices[device]
        watch.ran(hook.named(f"{kernels}, batch of {len(products)}", {}, simulated=where.simulated()))
    return [each.result for each in products]


def _together(device: str) -> Callable[[list[PreparedTernaryProduct], int | None, str], None]:
    """What runs the products on that device."""
    dispatch.check_device(_NAME, device)
    dispatch.registry().device(device, f"{_NAME} on {device!r}")
    kind, _ = numbered(device) or (device, 0)
    if kind == DEVICE:
        return _over_streams
    if device == cpu.DEVICE.type:
        return _over_threads
    legal = f"{cpu.DEVICE.type}, {DEVICE}, {DEVICE}:1, ..."
    raise InvalidArgumentError(op=_NAME, argument="device", found=repr(device), legal=legal)


def _prepared(
    pairs: list[Any], act_scales: Sequence[npt.ArrayLike] | None, asked: dict[str, Any], device: str
) -> list[PreparedTernaryProduct]:
    if act_scales is not None and len(act_scales) != len(pairs):
        found, legal = f"{len(act_scales)} for {len(pairs)} pairs", "one for each pair, or None"
        raise InvalidArgumentError(op=_NAME, argument="act_scales", found=found, legal=legal)
    made = []
    for number, pair in enumerate(pairs):
        with _noted(number):
            if not (isinstance(pair, tuple | list) and len(pair) == 2):
                found, legal = f"a {type(pair).__name__} as pair {number}", "(activations, weights)"
                raise InvalidArgumentError(op=_NAME, argument="pairs", found=found, legal=legal)
            scale = 1.0 if act_scales is None else act_scales[number]
            made.append(prepare(*pair, act_scale=scale, device=device, **asked))
    return made


def _over_threads(products: list[PreparedTernaryProduct], threads: int | None, device: str) -> None:
    from tritmark.kernels.spreading.on_cpu import over_threads

    def run(number: int, count: int) -> None:
        each = products[number]
        dispatch.run(OP, each.variant, each.inputs, each.outputs, each.axes, count, note=each.note)

    over_threads(run, dict(enumerate(map(_work, products))), threads, _note)


def _over_streams(products: list[PreparedTernaryProduct], threads: int | None, device: str) -> None:
    from tritmark.kernels.cuda.context import on_gpu
    from tritmark.kernels.cuda.launch.batch import Batch
    from tritmark.kernels.cuda.launch.launch import CudaLaunch

    where = dispatch.registry().devices[device]
    _, index = numbered(device) or (device, 0)
    with on_gpu(index):
        batch, outputs = Batch(), []
        for number, each in enumerate(products):
            with _noted(number):
                dispatch.announce(each.variant, each.axes)
                launch, there = offload.launch(where, OP, each.variant, each.inputs, each.axes)
                if not isinstance(launch, CudaLaunch):
                    found, legal = each.variant.id, "a kernel of tritmark, which can run in any stream"
                    raise InvalidArgumentError(op=_NAME, argument="variant", found=found, legal=legal)
                batch.add(launch, _work(each), f"pair {number}")
                outputs.append(there)
        batch.run()
        for number, (each, there, item) in enumerate(zip(products, outputs, batch.items, strict=True)):
            with _noted(number):
                dispatch.raise_for_bad(OP, each.inputs, item.launch, axes=each.axes)
            offload.fetch(where, there, each.outputs)
            if hook.active is not None:
                receipts.collect(offload.FinishedCall(where, each.variant, [item.launch], each.note or None).receipt)


def _work(product: PreparedTernaryProduct) -> int:
    """Multiplications."""
    return math.prod(product.axes[axis] for axis in OP.axes)


def _note(number: int) -> str:
    return f"{_NAME}: pair {number}"


@contextmanager
def _noted(number: int) -> Iterator[None]:
    """Adds the number of the pair to an error."""
    try:
        yield
    except Exception as error:
        error.add_note(_note(number))
        raise
