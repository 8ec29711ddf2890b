"""Several bound layers in one call, such as q, k and v, gate and up, or all layers of a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.monitor import hook
from tritmark.harness.spec import Receipt
from tritmark.kernels.linear.bound_linear import BoundLinear, Quantizations
from tritmark.kernels.linear.linear import QuantizedLinear
from tritmark.kernels.native import cpu

_OP = "bind_linears"
_LEGAL = "pairs (layer, x) or triples (layer, x, out), with layers of QuantizedLinear"
Outs = tuple[npt.NDArray[np.float32], ...]


def bind_linears(calls: Iterable[tuple[Any, ...]]) -> BoundLinears:
    """Calls of several layers, checked and bound once, that run in one native call:
    `bind_linears([(q, x), (k, x), (v, x)]).run()` fills and returns the three outputs.

    Each call is (layer, x) or (layer, x, out), with the arguments of QuantizedLinear.bind. Calls run in order, so an
    `x` may be the `out` of an earlier one. Neighbours with the same array `x` and the same `threads` quantize it once.
    Outputs have the bits of separate calls. Raises the errors of `bind`, with the number of the call in a note, and
    InvalidArgumentError for no calls.
    """
    bound: list[BoundLinear] = []
    among = Quantizations()
    for nth, call in enumerate(calls):
        if not isinstance(call, tuple) or len(call) not in {2, 3} or not isinstance(call[0], QuantizedLinear):
            raise InvalidArgumentError(op=_OP, argument="calls", found=f"{call!r:.80} as call {nth}", legal=_LEGAL)
        layer, x, *out = call
        try:
            bound.append(layer.bound(x, out[0] if out else None, among))
        except Exception as error:
            error.add_note(f"in call {nth} of {_OP}")
            raise
    if not bound:
        raise InvalidArgumentError(op=_OP, argument="calls", found="none", legal=_LEGAL)
    return BoundLinears(bound)


class BoundLinears:
    """Calls of layers that bind_linears bound. Only one thread may run it at a time."""

    def __init__(self, bound: list[BoundLinear]) -> None:
        self._bound = tuple(bound)
        self.outs: Outs = tuple(each.out for each in bound)
        calls = [each.launch for each in bound]
        kind: Any = cpu.native("host_plan").LinearCall
        whole = all(isinstance(each.launch, kind) and each.complete for each in bound)
        self.launch: Any = (
            cpu.native("host_plan").LinearsCall(calls, [each.shares for each in bound]) if whole else None
        )
        """The native call; None if a layer has a kernel of another package, or a bias that native code does not
        take."""

    def __repr__(self) -> str:
        quantized = sum(not each.shares for each in self._bound)
        return f"BoundLinears({len(self._bound)} calls, {quantized} quantizations)"

    def run(self) -> Outs:
        """Fill and return the outputs. Raises InvalidArgumentError if an element of an `x` is not finite: then outputs
        of calls before it are filled, and those of it and behind it are untouched."""
        if self.launch is None or hook.active is not None:
            return self._one_by_one()
        if not self.launch.succeeds():
            nth = self.launch.done
            try:
                self._bound[nth].refuse(self.launch)
            except InvalidArgumentError as error:
                error.add_note(f"in call {nth} of {_OP}")
                raise
        return self.outs

    __call__ = run

    def _one_by_one(self) -> Outs:
        """With their own quantizations, which a monitor and `receipts` report for each layer."""
        for each in self._bound:
            each.run()
        return self.outs

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """The receipts of the last calls, in order."""
        return tuple(each.receipt for each in self._bound)
