"""The correct kernel into which a drawn mutant is planted: the fastest that runs on this CPU, or otherwise the
reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.providers import Installed
from tritmark.harness.spec import Arrays, Axes, Constraint, Decoding, KernelKey, Launch, Op, Tier, Values, Variant
from tritmark.harness.validate.bitwise import same
from tritmark.harness.validate.compare import is_float, rounded


@dataclass(frozen=True)
class CorrectKernel:
    """A correct kernel of a key on the CPU.

    `decode(inputs, axes)` converts a kernel's inputs to the reference's logical inputs. `compute(inputs, axes)` returns
    the reference's outputs.
    """

    op: Op
    key: KernelKey
    bind: Callable[[Arrays, Arrays, Axes, int], Launch]
    constraints: tuple[Constraint, ...]
    decode: Callable[[Arrays, Axes], Mapping[str, Any]]
    compute: Callable[[Arrays, Axes], Mapping[str, Any]]


def keys(installed: Installed, op: str) -> list[KernelKey]:
    """The keys of an op for which mutants are drawn: those of the CPU. If there are none, those of other devices, with
    the CPU as their device."""
    every = installed.keys(op)
    own = [key for key in every if key.device == "cpu"]
    return own or list(dict.fromkeys(replace(key, device="cpu") for key in every))


def right(installed: Installed, key: KernelKey) -> CorrectKernel:
    """The correct kernel of a key."""
    op = installed.ops[key.op]
    said = [
        each for provider in installed.providers.values() for each in provider.mutants() if isinstance(each, Decoding)
    ]
    decoding = next((each for each in said if each.op == key.op), None)

    decode = Memoized(lambda inputs, axes: inputs if decoding is None else decoding.decode(inputs, axes, key))

    compute = Memoized(lambda inputs, axes: op.reference(decode(inputs, axes), axes, key))
    fitting = [
        variant
        for variant, refusal in installed.registry.candidates(key)
        if refusal is None and variant.tier is not Tier.PEER
    ]
    if fitting:
        best: Variant = max(fitting, key=lambda variant: variant.precedence)
        return CorrectKernel(op, key, best.bind, best.constraints, decode, compute)
    limits = tuple(
        dict.fromkeys(limit for v in installed.registry.without_peers if _same(v.key, key) for limit in v.constraints)
    )

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        launch: Launch = _Reference(op, key, compute, inputs, outputs, axes)
        return launch

    return CorrectKernel(op, key, bind, limits, decode, compute)


def _same(key: KernelKey, other: KernelKey) -> bool:
    return replace(key, device=other.device) == other


class Memoized:
    """A function of inputs and axes that is computed again only if these changed: most runs have the data of the
    previous run."""

    def __init__(self, function: Callable[[Arrays, Axes], Mapping[str, Any]]) -> None:
        self._function = function
        self._axes: Axes = {}
        self._inputs: dict[str, Any] = {}
        self._result: Mapping[str, Any] = {}

    def __call__(self, inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
        if self._axes != axes or not all(same(np.asarray(inputs[name]), value) for name, value in self._inputs.items()):
            # Copies, because the result may be the inputs themselves, which change.
            self._inputs = {name: np.array(value) for name, value in inputs.items()}
            self._axes = dict(axes)
            self._result = self._function(self._inputs, axes)
        return self._result


@dataclass
class _Reference:
    """A launch of the reference."""

    op: Op
    key: KernelKey
    compute: Callable[[Arrays, Axes], Mapping[str, Any]]
    inputs: Arrays
    outputs: Arrays
    axes: Axes
    ran: str = "reference"
    runs: int = 0
    threads_used: int = 1
    bad: int = -1
    pointer: int | None = None

    def run(self) -> None:
        self.runs += 1
        self.bad = self._forbidden()
        if self.bad >= 0:  # the contract has no result
            return
        with np.errstate(all="ignore"):
            write(self.outputs, self.compute(self.inputs, self.axes), self.op, self.axes, self.key)

    def _forbidden(self) -> int:
        """The index of the first non-finite element in an input that must be finite, or -1."""
        for tensor in self.op.inputs:
            if tensor.values is Values.FINITE and tensor.axes:
                wrong = np.flatnonzero(~np.isfinite(self.inputs[tensor.name]))
                if wrong.size:
                    return int(wrong[0])
        return -1


def write(outputs: Arrays, computed: Arrays, op: Op, axes: Axes, key: KernelKey) -> None:
    """Write computed values into the outputs, in their dtypes: floats are rounded once, integers wrap."""
    for name, (shape, dtype) in op.outputs_like(axes, key).items():
        value, kind = np.asarray(computed[name]), named_dtype(dtype)
        value = (
            rounded(value.astype(np.float64), kind) if is_float(kind) and value.dtype != kind else value.astype(kind)
        )
        outputs[name][...] = np.broadcast_to(value, shape).reshape(shape)
