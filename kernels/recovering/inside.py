"""The worker's side of recovering calls: it calls the public function, and reports each kernel before it begins."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness import tuned
from tritmark.harness.errors import (
    DeviceError,
    InvalidArgumentError,
    NoCompatibleKernelError,
    RegistrationError,
    TritmarkError,
)
from tritmark.harness.providers import take_loaded
from tritmark.harness.recovery.failures import Diagnosis, FailureKind, of_exception
from tritmark.harness.recovery.reply import CallerError, Reply
from tritmark.harness.recovery.strategies import Attempt, Strategy
from tritmark.harness.recovery.supervisor import BegunKernel, LowerKernel, lower_kernels
from tritmark.harness.registry import ROWS
from tritmark.harness.spec import Arrays, Axes, Op, Receipt, Values, Variant
from tritmark.harness.validate.pieces import grown
from tritmark.harness.worker import Site
from tritmark.harness.worker.shared import SharedBlock
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.dispatch.offload import FinishedCall, joined
from tritmark.kernels.native.huge_pages import HUGE_PAGES
from tritmark.kernels.recovering.finite import excluded_value
from tritmark.kernels.recovering.message import CallRequest, KnownWeights, StridedArray
from tritmark.kernels.weights.packed import PackedWeights

_LINE = 64
"""Alignment of realigned copies in bytes: a cache line, and the longest vector."""
_STATE = "recovering calls"
_OF_DEVICE = frozenset({"block", "device", "dtype", "format", "weights"})
"""Arguments that may be legal on one device and not on another."""


class KernelRaisedError(Exception):
    """A kernel raised while it was bound or ran. Its cause is the exception."""


class KernelIncorrectError(Exception):
    """A kernel gave a value that the contract excludes."""


class ImpossibleError(Exception):
    """The attempt cannot be made for this call."""


class CallObserver:
    """Stands between the public functions and the kernels of one worker."""

    def __init__(self, begun: BegunKernel) -> None:
        self._begun = begun
        self.attempt = Attempt(device="")
        self.finished: list[tuple[tuple[Receipt, ...], FinishedCall]] = []
        """Of the current call, in order: the receipts of earlier pieces, and the last or only launch."""
        self.weights: dict[int, Any] = {}

    def begin(self, variant: Variant, axes: Axes) -> None:
        """Report a kernel, before it is bound."""
        self._begun.write(variant.id, _lower(dispatch.registry().version, variant, tuple(axes.items())))

    def run(
        self, op: Op, variant: Variant, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int, flat: bool
    ) -> FinishedCall:
        """See dispatch.run."""
        if self.attempt.pieces > 1:
            return self._in_pieces(op, variant, inputs, outputs, axes, threads)
        if not self.attempt.realigned:
            return self._run(op, variant, inputs, outputs, axes, threads, flat)
        copies = {name: _realigned(value) for name, value in inputs.items()}
        results = {name: _realigned(value) for name, value in outputs.items()}
        done = self._run(op, variant, copies, results, axes, threads, flat)
        for name, value in results.items():
            outputs[name][...] = value
        return done

    def _run(
        self, op: Op, variant: Variant, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int, flat: bool
    ) -> FinishedCall:
        self.begin(variant, axes)
        try:
            done = dispatch.run_unobserved(op, variant, inputs, outputs, axes, threads, flat=flat)
        except (InvalidArgumentError, NoCompatibleKernelError):
            raise
        except Exception as error:
            raise KernelRaisedError from error
        wrong = excluded_value(op, inputs, outputs, axes)
        if wrong:
            raise KernelIncorrectError(f"{variant.id}: {wrong}")
        self.finished.append(((), done))
        return done

    def _in_pieces(
        self, op: Op, variant: Variant, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int
    ) -> FinishedCall:
        axis, unit = (ROWS, 1) if axes.get(ROWS, 1) > 1 else _independent(op, variant, axes)
        units = -(-axes.get(axis, 0) // unit)
        along = {each.name: each.axes.index(axis) for each in op.inputs if axis in each.axes}
        offsets = {each.name for each in op.inputs if each.values is Values.OFFSETS}
        lengths = grown(op, variant.key, axes, axis, unit)
        whole = all(inputs[name].shape[at : at + 1] == (axes[axis],) for name, at in along.items())
        if units < 2 or lengths is None or not along or not whole:
            raise ImpossibleError("the op has no independent parts of this call")
        for name in along:
            # An index in a piece would mean nothing to the caller.
            array = inputs[name]
            if isinstance(array, np.ndarray) and array.dtype.kind == "f":
                dispatch.finite(op, name, array, "error", preflight=True)
        size = unit * -(-units // self.attempt.pieces)
        receipts: list[Receipt] = []
        for begin in range(0, axes[axis], size):
            end = min(begin + size, axes[axis])
            part = {**axes, axis: end - begin}
            cut = {
                name: _cut(value, along[name], begin, end) if name in along else value for name, value in inputs.items()
            }
            if axis == ROWS:
                cut |= {name: np.clip(inputs[name] - begin, 0, end - begin) for name in offsets}
            filled = {}
            for name, value in outputs.items():
                at, length = lengths[name]
                stop = value.shape[at] if end == axes[axis] else end // unit * length
                filled[name] = _cut(value, at, begin // unit * length, stop)
            chosen = variant if _takes(variant, part) else dispatch.select(variant.key, part, None)
            done = self._run(op, chosen, cut, filled, part, threads, False)
            self.finished.pop()
            if end == axes[axis]:
                self.finished.append((tuple(receipts), done))
                return done
            receipts.append(done.receipt())
            del done  # a launch keeps the memory of its arrays on the device
        raise AssertionError("no axis is empty")


def begin(site: Site, block: SharedBlock) -> None:
    """The first task of a worker."""
    take_loaded(site.installed)  # instead of loading all packages again
    site.kept[_STATE] = CallObserver(BegunKernel(block))
    dispatch.observe(site.kept[_STATE])


def call(site: Site, request: CallRequest) -> Reply:
    """Make one attempt."""
    observer: CallObserver = site.kept[_STATE]
    try:
        if request.choices_changed:
            tuned.forget()
        if request.variants:
            _register(request.variants)
        for number in request.dropped:
            observer.weights.pop(number, None)
        for number, sent in request.weights.items():
            # Out of the shared memory, where they end at a page and begin anywhere.
            observer.weights[number] = replace(sent, data=HUGE_PAGES.copied(np.ascontiguousarray(sent.data)))
        observer.attempt, observer.finished = request.attempt, []
        if request.attempt.freed:
            for each in observer.weights.values():
                each._kept.clear()
            gc.collect()
        arguments = _arguments(observer, request)
        if arguments is None:
            return Reply(impossible="the function has no such argument")
        result = _function(request.function, request.attempt)(**arguments)
        receipts = tuple(joined([*earlier, last.receipt()]) for earlier, last in observer.finished)
        if isinstance(result, _WithReceipt):
            result, receipts = result
        return Reply(result=result, receipts=receipts)
    except KernelIncorrectError as error:
        return Reply(failure=Diagnosis(kind=FailureKind.NUMERICAL, found=str(error), code="not finite"))
    except ImpossibleError as error:
        return Reply(impossible=str(error))
    except KernelRaisedError as error:
        cause = error.__cause__ or error
        return Reply(failure=of_exception(cause, "".join(traceback.format_exception(cause))))
    except (DeviceError, MemoryError, OSError) as error:
        return Reply(failure=of_exception(error, "".join(traceback.format_exception(error))))
    except Exception as error:
        return _of_the_caller(request.attempt, error)


def _of_the_caller(attempt: Attempt, error: Exception) -> Reply:
    """The contract was broken; or, in another attempt than the first, the attempt does not suit the call."""
    later = attempt.strategy is not Strategy.NONE
    if later and isinstance(error, NoCompatibleKernelError):
        return Reply(impossible=str(error))
    if later and isinstance(error, InvalidArgumentError) and error.argument in _OF_DEVICE:
        return Reply(impossible=str(error))
    return Reply(caller=CallerError.of(error))


def _arguments(observer: CallObserver, request: CallRequest) -> dict[str, Any] | None:
    given = {name: _taken(observer, value) for name, value in request.arguments.items()}
    attempt = request.attempt
    if given["device"] != attempt.device:  # weights may name a kernel of the device that failed
        given = {
            name: replace(value, variant=None) if isinstance(value, PackedWeights) and value.variant else value
            for name, value in given.items()
        }
    given["device"] = attempt.device
    if attempt.strategy is not Strategy.NONE:
        given["variant"] = attempt.variant
        if attempt.threads is not None:
            if "threads" not in given:
                return None
            given["threads"] = attempt.threads
    return given


def _taken(observer: CallObserver, value: Any) -> Any:
    if isinstance(value, KnownWeights):
        return observer.weights[value.number]
    return value.made() if isinstance(value, StridedArray) else value


class _WithReceipt(tuple[Any, tuple[Any, ...]]):
    """A result, and the receipts of functions that do not go through dispatch.run."""


def _function(name: str, attempt: Attempt) -> Callable[..., Any]:
    # By name, because the public functions import what is above this module.
    if name == "ternary_matmul":
        product: Callable[..., Any] = import_module("tritmark.kernels.ternary_matmul.api").with_receipt
        return lambda **given: product(**given)[0]
    if name == "matmul":
        return partial(_matmul, attempt.pieces)
    found: Callable[..., Any] = getattr(import_module("tritmark.kernels"), name)
    return found


def _matmul(pieces: int, a: npt.NDArray[np.float32], **given: Any) -> _WithReceipt:
    """A product with its receipt, in so many pieces of the rows of `a`. It does not go through dispatch.run."""
    multiplied: Callable[..., Any] = import_module("tritmark.kernels.matmul.api").with_receipt
    if pieces == 1:
        result, receipt = multiplied(a, **given)
        return _WithReceipt((result, (receipt,)))
    if len(a) < 2:
        raise ImpossibleError("the product has one row")
    parts = [multiplied(rows, **given) for rows in np.array_split(a, min(pieces, len(a)))]
    result = np.concatenate([each for each, _ in parts])
    return _WithReceipt((result, (joined([receipt for _, receipt in parts]),)))


def _register(variants: tuple[Variant, ...]) -> None:
    known = {each.id for each in dispatch.registry().variants}
    try:
        dispatch.register(*(each for each in variants if each.id not in known))
    except RegistrationError as error:
        raise TritmarkError(f"the worker of a recovering call cannot register a kernel: {error}") from error


@lru_cache(maxsize=1024)
def _lower(version: int, variant: Variant, axes: tuple[tuple[str, int], ...]) -> tuple[LowerKernel, ...]:
    return lower_kernels(dispatch.registry(), variant, dict(axes))


def _independent(op: Op, variant: Variant, axes: Axes) -> tuple[str, int]:
    return ("", 1) if op.independent_axis is None else op.independent_axis(axes, variant.key)


def _takes(variant: Variant, axes: Axes) -> bool:
    return any(each is variant and why is None for each, why in dispatch.registry().candidates(variant.key, axes))


def _cut(array: Any, at: int, begin: int, end: int) -> Any:
    return array[(slice(None),) * at + (slice(begin, end),)]


def _realigned(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or not value.ndim:
        return value
    buffer = np.empty(value.nbytes + _LINE, np.uint8)
    begin = -buffer.ctypes.data % _LINE
    made: npt.NDArray[Any] = buffer[begin : begin + value.nbytes].view(value.dtype).reshape(value.shape)
    made[...] = value
    return made
