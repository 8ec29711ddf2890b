"""Calls of public functions made from the contracts of their ops, so that tests know each new op by its folder.
Benchmarks run them on earlier builds too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any

import numpy as np

from tritmark import kernels
from tritmark.harness.spec import Op
from tritmark.kernels import OPS, PROVIDER

SIZES = {"M": 2, "N": 16, "K": 256, "n": 512, "block": 32}
"""Axes of small inputs; others have 64."""


def ops_on(device: str) -> frozenset[str]:
    """The ops with kernels for that device."""
    return frozenset(each.key.op for each in PROVIDER.variants if each.key.device == device)


def function_of(op: Op) -> Callable[..., Any] | None:
    """The public function of an op, if the inputs of the op are the parameters that it needs; else None."""
    if op.name not in kernels.__all__:
        return None
    function: Callable[..., Any] = getattr(kernels, op.name)
    needed = {name for name, each in signature(function).parameters.items() if each.default is Parameter.empty}
    return function if needed == {each.name for each in op.inputs} else None


def contract_calls(
    device: str, sizes: Mapping[str, int] = SIZES, place: Callable[[np.ndarray], Any] = np.asarray
) -> dict[str, Callable[..., Any]]:
    """By op: a call of its public function on drawn inputs, for the ops of a device. Arrays are placed by `place`, in
    each first call. The call takes further arguments of the function."""
    formats = {each.key.op: each.key.format for each in reversed(PROVIDER.variants) if each.key.device == device}
    return {
        op.name: _Call(op, function, {axis: sizes.get(axis, 64) for axis in op.axes}, formats[op.name], place)
        for op in OPS
        if op.name in formats and (function := function_of(op)) is not None
    }


class _Call:
    def __init__(
        self, op: Op, function: Callable[..., Any], axes: dict[str, int], format: str, place: Callable[..., Any]
    ) -> None:
        self._op, self._function, self._axes, self._format, self._place = op, function, axes, format, place
        self._inputs: dict[str, Any] | None = None

    def __call__(self, **more: Any) -> Any:
        if self._inputs is None:
            drawn = self._op.generate(self._axes, self._op.input_families[0], np.random.default_rng(0))
            encoded = self._op.encode(drawn, self._axes, self._format)
            self._inputs = {
                name: self._place(value) if isinstance(value, np.ndarray) and value.ndim else value
                for name, value in encoded.items()
            }
        return self._function(**self._inputs, **more)
