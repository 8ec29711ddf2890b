"""Plans: launches of one or more variants, prepared once for given shapes; each launch supplies the arrays.

The steps of a variant use only the address of a DeviceArray. In a plan this address encodes the source: one of the
launch's own arrays, in the order of `given`, or an offset in the one workspace, which each launch supplies too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import LaunchError
from tritmark.harness.machine.gpu import DeviceInfo
from tritmark.harness.spec import Axes, KernelKey, Op, Variant
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.backend import DeviceFunction
from tritmark.kernels.cuda.driver.tensor_map import TensorMap, encoded
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch.launch import STEPS, Call
from tritmark.kernels.cuda.launch.params import launch_params
from tritmark.kernels.cuda.plans.choice import chosen
from tritmark.kernels.native.cpu import native

ALIGNMENT = 256
"""Alignment of the workspace and of arrays in it, as allocators of device memory provide it."""
SCALAR = np.float32(float.fromhex("-0x1.5a5a5ap-100"))
"""Placeholder for the number that each launch supplies. Scales are above zero, so no other argument equals it."""
_APART = 1 << 44
"""Distance of the addresses that encode arrays: more bytes than any array has."""
_WORKSPACE = 15
"""The workspace's number until the number of given arrays is known."""


class PlanContext(Protocol):
    """The context that plans run in, such as PrimaryContext."""

    info: DeviceInfo
    bad: DeviceArray
    """Where all kernels write Call.bad, uint64 (1,). It is never read."""

    @property
    def handle(self) -> int:
        """Handle of the context for launches."""

    @property
    def driver(self) -> tuple[int, ...]:
        """See CudaPlan."""

    def function(self, kernel: Kernel) -> DeviceFunction:
        """The loaded kernel."""

    def prepared(self, kernel: Kernel, shared: int) -> int:
        """Handle of its function, for launches with so many bytes of dynamic shared memory."""


@dataclass(frozen=True, slots=True)
class _Stand:
    """Placeholder for memory that a launch supplies, with the number of its source."""

    source: int

    @property
    def pointer(self) -> int:
        return (1 + self.source) * _APART

    @property
    def nbytes(self) -> int:
        return _APART

    def free(self) -> None:
        """Does nothing."""


class NoCopies:
    """The copies of arrays that only encode an address."""

    def write(self, pointer: int, values: npt.NDArray[Any], stream: object = None) -> None:
        """Raises AssertionError."""
        raise AssertionError("a plan has no values")

    read = write


class Planner:
    """Collects the launches of a plan: first `given` arrays, in the order of the addresses that launches supply, then
    `add` for each op or `run` for a variant, with these arrays and arrays in the workspace."""

    def __init__(self, context: PlanContext) -> None:
        self._context = context
        self._steps: list[Step] = []
        self.kernels: list[str] = []
        """Ids of the variants, in the order in which they run."""
        self._given: list[DeviceArray] = []
        self._alignments: list[int] = []
        self._room = 0
        space = _Stand(_WORKSPACE)
        self._space = DeviceArray(NoCopies(), space, space.pointer, (_APART,), np.uint8)

    def given(
        self,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        strides: tuple[int, ...] | None = None,
        *,
        constant: bool = False,
    ) -> DeviceArray:
        """An array whose address each launch supplies; see DeviceArray.constant."""
        stand = _Stand(len(self._given))
        made = DeviceArray(NoCopies(), stand, stand.pointer, shape, dtype, strides)
        if constant:
            made.mark_filled()
        self._given.append(made)
        self._alignments.append(made.dtype.itemsize)
        return made

    def scratch(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """An array in the workspace."""
        made = self._space.view(shape, dtype, self._room)
        self._room += -(-made.nbytes // ALIGNMENT) * ALIGNMENT
        return made

    def add(
        self, op: Op, key: KernelKey, inputs: Mapping[str, Any], outputs: Mapping[str, DeviceArray], axes: Axes
    ) -> dict[str, DeviceArray]:
        """Add the best variant of the key; outputs that are not given are in the workspace. Returns all outputs."""
        every = {
            name: outputs[name] if name in outputs else self.scratch(shape, named_dtype(dtype))
            for name, (shape, dtype) in op.outputs_like(axes, key).items()
        }
        self.run(chosen(key, axes, self._context.info), inputs, every, axes)
        return every

    def run(self, variant: Variant, inputs: Mapping[str, Any], outputs: Mapping[str, DeviceArray], axes: Axes) -> None:
        """Add the launches of a variant. Its report of forbidden values is not read, because that would wait for the
        device."""
        for each in (*inputs.values(), *outputs.values()):
            stand = each.owner if isinstance(each, DeviceArray) else None
            if isinstance(stand, _Stand) and stand.source != _WORKSPACE:
                self._alignments[stand.source] = max(self._alignments[stand.source], variant.alignment)
        space = variant.workspace(axes)
        call = Call(
            inputs=inputs,
            outputs=outputs,
            axes=axes,
            info=self._context.info,
            bad=self._context.bad,
            workspace=self.scratch((space,), np.uint8) if space else None,
            function=self._context.function,
        )
        steps = STEPS[variant.id](call)
        self.kernels.append(variant.id)
        asked = any(_scalar(value) for value in inputs.values())
        if asked and not any(_scalar(arg) for step in steps for arg in step.args):
            found = f"{variant.id} computes with a scale before it launches"
            raise LaunchError(found, next_step="pass the scale to the kernel unchanged")
        self._steps += steps

    def made(self) -> tuple[Callable[..., int], int]:
        """`launch(stream, addresses, scalar)`, see CudaPlan, and the bytes of the workspace, whose address is the last;
        it may be 0 if the workspace has 0 bytes.

        Raises LaunchError, CompileError, DeviceError.
        """
        context = self._context
        steps = []
        for step in self._steps:
            threads = math.prod(step.block)
            launch_params(context.function(step.kernel), context.info, 1, threads, shared=step.shared)
            values = tuple(self._value(step, place, arg) for place, arg in enumerate(step.args))
            handle = context.prepared(step.kernel, step.shared)
            overlaps = step.kernel.overlaps_on(context.info.capability)
            steps.append((handle, step.grid, step.block, step.shared, overlaps, values))
        alignments = (*self._alignments, ALIGNMENT)
        plan = native("cuda_plan").CudaPlan(context.driver, context.handle, steps, alignments)
        return plan.launch, self._room

    def _value(
        self, step: Step, place: int, arg: Any
    ) -> bytes | tuple[int, int] | tuple[int, int, tuple[int, ...]] | None:
        """An argument in the form of CudaPlan."""
        if isinstance(arg, TensorMap):
            stand = arg.array.owner
            if not isinstance(stand, _Stand):
                made: bytes = encoded(arg.array.pointer, arg.numbers).tobytes()
                return made
            return min(stand.source, len(self._given)), arg.array.pointer - stand.pointer, arg.numbers
        if isinstance(arg, np.void):
            return arg.tobytes()
        if isinstance(arg, DeviceArray):
            stand = arg.owner
            if not isinstance(stand, _Stand):
                return np.uint64(arg.pointer).tobytes()
            return min(stand.source, len(self._given)), arg.pointer - stand.pointer
        if not isinstance(arg, np.integer | np.floating) or (isinstance(arg, np.integer) and arg >= _APART):
            found = f"{step.kernel.name}: argument {place} is {arg!r}"
            raise LaunchError(found, next_step="pass a DeviceArray or a NumPy number, not an address")
        return None if _scalar(arg) else arg.tobytes()


def _scalar(value: Any) -> bool:
    return isinstance(value, np.float32) and value == SCALAR
