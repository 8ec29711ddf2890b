"""The program's side of recovering calls."""

from __future__ import annotations

import atexit
import pickle
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cache, partial
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness import judged
from tritmark.harness.contract import check_output
from tritmark.harness.errors import CandidateError, InvalidArgumentError, NoCompatibleKernelError, UsageError
from tritmark.harness.monitor import hook, receipts
from tritmark.harness.providers import installed
from tritmark.harness.recovery.engine import Recovering, result_of
from tritmark.harness.recovery.reply import Reply
from tritmark.harness.recovery.result import Recovery, UnrecoveredError
from tritmark.harness.recovery.strategies import Attempt
from tritmark.harness.recovery.supervisor import Supervised, Supervisor
from tritmark.harness.registry import Registry
from tritmark.harness.resident import ResidentArray
from tritmark.harness.spec import Receipt, Tensor, Variant
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.recovering import inside
from tritmark.kernels.recovering.message import CallRequest, KnownWeights, copied_anew, sent
from tritmark.kernels.weights.packed import PackedWeights

RAISE, RECOVER = "raise", "recover"
HOST = "cpu"
"""The device to which calls fall back."""

_LAST: ContextVar[tuple[Recovery, ...]] = ContextVar("tritmark_recoveries", default=())
_TOGETHER: ContextVar[bool] = ContextVar("tritmark_together", default=False)
_NUMBERS = count(1)


class SentWeights:
    """The weights that a worker has."""

    def __init__(self) -> None:
        self.numbers: dict[int, tuple[weakref.ref[PackedWeights], int, npt.NDArray[np.uint8], bytes]] = {}
        """By id: the weights, their number, and copies of their bytes and scale. Read-only arrays too: they may be
        views of what the caller can change."""

        self._replaced: list[int] = []
        """Numbers of weights whose bytes have changed, or whose id others have."""

    def forget(self) -> None:
        """Send all anew: a kernel that failed may have written to those in the worker."""
        self._replaced += [number for _, number, *_ in self.numbers.values()]
        self.numbers.clear()

    def gone(self) -> tuple[int, ...]:
        """Numbers that the worker no longer needs."""
        dead = {key: number for key, (weights, number, *_) in self.numbers.items() if weights() is None}
        for key in dead:
            del self.numbers[key]
        replaced, self._replaced = self._replaced, []
        return (*dead.values(), *replaced)

    def number(self, weights: PackedWeights) -> tuple[int, bool]:
        """Their number, and whether they are new or their bytes have changed."""
        found = self.numbers.get(id(weights))
        if found is not None:
            reference, number, data, scale = found
            if (
                reference() is weights
                and scale == np.asarray(weights.scale).tobytes()
                and np.array_equal(data, weights.data)
            ):
                return number, False
            self._replaced.append(number)
        number = next(_NUMBERS)
        self.numbers[id(weights)] = (
            weakref.ref(weights),
            number,
            weights.data.copy(),
            np.asarray(weights.scale).tobytes(),
        )
        return number, True


@cache
def _supervisor() -> Supervisor:
    made = Supervisor(dispatch.registry(), inside.begin)
    atexit.register(made.leave)
    return made


def close_workers() -> None:
    """End the worker processes of recovering calls. A later call starts new ones."""
    _supervisor().close()


def last_recoveries() -> tuple[Recovery, ...]:
    """What failed in the last recovering call of this thread, in order, also if the call was refused; () if nothing
    did. A call of a layer has up to two: of the quantization and of the product. A batch has up to one for each of its
    products, with their `index`."""
    return _LAST.get()


@contextmanager
def together() -> Iterator[None]:
    """Inside, all recovering calls of this thread count as one in `last_recoveries`."""
    _LAST.set(())
    before = _TOGETHER.set(True)
    try:
        yield
    finally:
        _TOGETHER.reset(before)


def check_on_error(op: str, on_error: Any) -> bool:
    """Whether failures are recovered from. Raises InvalidArgumentError for an invalid value, UsageError in a process
    that judges kernels."""
    if on_error == RAISE:
        return False
    if on_error != RECOVER:
        raise InvalidArgumentError(op=op, argument="on_error", found=repr(on_error), legal='"raise" or "recover"')
    if judged.judges():
        raise UsageError(
            f'{op}: on_error is "recover" in a process that judges kernels, where every failure counts; legal: "raise"'
        )
    return True


def call(
    op: str,
    on_error: str,
    *,
    out: Any = None,
    host: bool = True,
    out_of: int | None = None,
    index: int | None = None,
    **given: Any,
) -> Any:
    """Call the public function `op` with these arguments in a worker. `out` is filled after a kernel succeeded; with
    `out_of`, it is that member of the result. `host`: whether the CPU may compute the same result. `index`: of a
    batch's product, for its Recovery.

    Raises the errors of the function for invalid arguments, UnrecoveredError and NumericalFailureError.
    """
    return call_with_receipt(op, on_error, out=out, host=host, out_of=out_of, index=index, **given)[0]


def call_with_receipt(
    op: str,
    on_error: str,
    *,
    out: Any = None,
    host: bool = True,
    out_of: int | None = None,
    index: int | None = None,
    **given: Any,
) -> tuple[Any, Receipt | None]:
    """As `call`, and the receipt of the last kernel, with the recovery in its note."""
    if not _TOGETHER.get():
        _LAST.set(())
    check_on_error(op, on_error)
    device = given["device"]
    dispatch.check_device(op, device)
    for name, value in {**given, "out": out}.items():
        if isinstance(value, ResidentArray) or (
            isinstance(value, tuple) and any(isinstance(each, ResidentArray) for each in value)
        ):
            found, legal = "in a device's memory", 'in the host\'s memory, which workers share, or on_error="raise"'
            raise InvalidArgumentError(op=op, argument=name, found=found, legal=legal)
    variant, threads = given.get("variant"), given.get("threads")

    def perform(worker: Supervised, attempt: Attempt) -> Reply:
        request = _request(op, given, worker, attempt)
        try:
            reply: Reply = worker.call(op, inside.call, request)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            found, legal = f"not sent to the worker ({error})", "numbers, texts, NumPy arrays and PackedWeights"
            raise InvalidArgumentError(op=op, argument="an argument", found=found, legal=legal) from error
        except CandidateError:
            worker.state["weights"].forget()
            raise
        if reply.failure is not None:
            worker.state["weights"].forget()
        return reply

    run = Recovering(_supervisor(), dispatch.registry(), op, perform, HOST if host and device != HOST else "", index)
    try:
        reply, recovery = run.run(Attempt(device=device, variant=variant, threads=threads))
    except UnrecoveredError as error:
        _LAST.set((*_LAST.get(), error.recovery))
        raise
    if recovery is not None:
        _LAST.set((*_LAST.get(), recovery))
    result = result_of(reply)
    if out is not None:
        result = _filled(op, out, result, given, out_of)
    receipt: Receipt | None = reply.receipts[-1] if reply.receipts else None
    if recovery is not None and receipt is not None:
        receipt = replace(receipt, note="; ".join(filter(None, (receipt.note, str(recovery)))))
    watch = hook.active
    if watch is not None and receipt is not None:
        watch.ran(hook.named(f"{receipt.kernel}, in a worker", _sizes(given), receipt.threads))
        for each in (*reply.receipts[:-1], receipt):
            receipts.collect(partial(_same, each))
    return result, receipt


def _same(receipt: Receipt) -> Receipt:
    return receipt


def _sizes(given: dict[str, Any]) -> dict[str, int]:
    """The shapes of a call in a worker, whose axes have no names here."""
    arrays = [(name, value) for name, value in given.items() if getattr(value, "shape", ())]
    return {f"{name}{axis}": int(size) for name, value in arrays for axis, size in enumerate(value.shape)}


def _request(op: str, given: dict[str, Any], worker: Supervised, attempt: Attempt) -> CallRequest:
    known: SentWeights = worker.state.setdefault("weights", SentWeights())
    weights: dict[int, PackedWeights] = {}
    arguments: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, PackedWeights):
            number, new = known.number(value)
            if new:
                weights[number] = replace(value, data=copied_anew(value.data), scale=_own(value.scale))
            arguments[name] = KnownWeights(number)
        else:
            arguments[name] = sent(value) if isinstance(value, np.ndarray) else value
    dropped = known.gone()
    registry = dispatch.registry()
    seen: dict[str, int] = worker.state.setdefault("versions", {})
    changed = seen.get(op) != registry.version
    variants = _registered(registry, worker, op) if changed else ()
    seen[op] = registry.version
    return CallRequest(op, arguments, attempt, weights, dropped, variants, changed)


def _own(scale: Any) -> Any:
    return copied_anew(scale) if isinstance(scale, np.ndarray) else scale


def _registered(registry: Registry, worker: Supervised, op: str) -> tuple[Variant, ...]:
    """Variants of an op that this process registered and the worker does not have. Raises NoCompatibleKernelError if
    one cannot be sent: the worker might select another kernel in silence."""
    added, sent_before = installed().added, worker.state.setdefault("variants", set())
    found = []
    for each in registry.variants:
        # Ops of several dtypes have names that begin with that of their function.
        if each.id not in added or each.id in sent_before or not each.key.op.startswith(op):
            continue
        try:
            if b"__main__" in pickle.dumps(each):
                raise pickle.PicklingError("it is defined in the program's script, which workers do not run")
        except Exception as error:  # pickling a user's objects may raise anything
            why = (
                f"was registered in this process and cannot be sent to the worker of a recovering call ({error}); "
                "next: define its functions at the top of a module that can be imported"
            )
            raise NoCompatibleKernelError(request="a recovering call", candidates=[(each.id, why)]) from None
        found.append(each)
    sent_before.update(each.id for each in found)
    return tuple(found)


def _filled(op: str, out: Any, result: Any, given: dict[str, Any], out_of: int | None) -> Any:
    """The result in the caller's arrays."""
    make: Any = type(result)
    if out_of is not None:
        kept = list(result)
        kept[out_of] = _filled(op, out, kept[out_of], given, None)
        return make._make(kept)
    inputs = {name: value.data if isinstance(value, PackedWeights) else value for name, value in given.items()}
    if isinstance(result, tuple):
        form = getattr(out, "format", None) == getattr(result, "format", None)
        if type(out) is not type(result) or not form:
            found = f"a {type(out).__name__}" if form else f"packed as {out.format}"
            raise InvalidArgumentError(op=op, argument="out", found=found, legal=f"an earlier result of {op}")
        pairs = list(zip(out, result, strict=True))
        for mine, new in pairs:
            if isinstance(new, np.ndarray):
                _check(op, mine, new, inputs)
        return make._make(_copied(mine, new) if isinstance(new, np.ndarray) else new for mine, new in pairs)
    _check(op, out, result, inputs)
    return _copied(out, result)


def _check(op: str, out: Any, new: Any, inputs: dict[str, Any]) -> None:
    tensor = Tensor("out", tuple(map(str, new.shape)), str(new.dtype), "the result")
    check_output(op, tensor, out, new.shape, str(new.dtype), inputs)


def _copied(out: Any, new: Any) -> Any:
    out[...] = new
    return out


class DecliningPlans:
    """Plans of a layer whose calls all go to a worker: none is kept, and none is found."""

    last: Any = None

    def run(self, *_: Any) -> None:
        """Decline."""

    def current(self, _: Any) -> bool:
        """There is nothing that could be outdated."""
        return False

    def __contains__(self, _: Any) -> bool:
        return True  # nothing is to be made
