"""One build's kernel, bound to data and ready to be timed."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tritmark.harness.gate.identity import code_hash
from tritmark.harness.gate.opened import OpenedBuild
from tritmark.harness.gate.task import GateTask
from tritmark.harness.measure.alternate import Timed, calibrate
from tritmark.harness.measure.buffers import HOST, Rotation, memory_of
from tritmark.harness.measure.clocks import clock_for
from tritmark.harness.spec import Variant
from tritmark.harness.validate.cases import is_array
from tritmark.harness.validate.sets import Sets

Logical = Mapping[str, Any]

_STEP, _SMALL, _POOL = 16, 512, 1 << 14
"""Python's allocator rounds small objects up to a multiple of 16 bytes, at most 512. Each size has pools of 16 KiB."""
_HEAD = sys.getsizeof(b"")


class BoundKernel(Protocol):
    """A kernel of one build on one workload."""

    code: str

    @property
    def clock(self) -> str:
        """Name of the clock of the last sample."""

    def outputs(self) -> dict[str, npt.NDArray[np.uint8]]:
        """Run once into poisoned arrays. Returns the bytes of each output."""

    def calibrate(self) -> float:
        """Fit the number of calls in a sample. Returns nanoseconds per call."""

    @property
    def calls(self) -> int:
        """Calls in a sample."""

    def take(self, calls: int) -> None:
        """Set the number of calls in a sample."""

    def sample(self) -> float:
        """Take a sample. Returns its mean in nanoseconds per call."""

    def again(self) -> BoundKernel:
        """The same kernel, bound a second time."""


class LocalBoundKernel:
    """A BoundKernel in this process.

    `beside`: a kernel of the other build. If both encode to equal bits in host memory, its arrays are shared, so that
    no difference comes from their addresses. Each build manages device memory itself: there each binding has its own
    arrays, and so has the second binding of BASE.
    """

    def __init__(
        self, build: OpenedBuild, task: GateTask, logical: Logical | None = None, beside: LocalBoundKernel | None = None
    ) -> None:
        self._build, self._task = build, task
        with build.inside():
            variant = next(each for each in build.installed.registry.variants if each.id == task.kernel)
            self._device = build.installed.registry.devices[task.device]
            self.logical = logical if logical is not None else _logical(build, task)
            encoded = build.installed.ops[task.op].encode(self.logical, task.axes, task.format)
            self._sets = self._arrays(variant, encoded, beside)
            self._bind(variant)
            self.code = code_hash(build, variant, self._launch)

    def _arrays(self, variant: Variant, encoded: Mapping[str, Any], beside: LocalBoundKernel | None) -> Sets:
        task, memory = self._task, memory_of(self._device)
        if (
            memory is HOST
            and beside is not None
            and _same(encoded, beside._sets.cases[0])
            and beside._like == self._outputs(variant)
        ):
            return beside._sets
        op = self._build.installed.ops[task.op]
        return Sets(op, variant.key, task.axes, (encoded,), memory, task.layout, Rotation(nbytes=1, wanted=1))

    def _outputs(self, variant: Variant) -> dict[str, Any]:
        return dict(self._build.installed.ops[self._task.op].outputs_like(self._task.axes, variant.key))

    def _bind(self, variant: Variant) -> None:
        self._variant = variant
        self._like = self._outputs(variant)
        each = self._sets.each[0]
        self._ballast = ballast()
        self._launch = variant.bind(each.inputs, each.outputs, self._task.axes, self._task.threads)
        clock = clock_for(self._device, [self._launch])
        self._timed = Timed([self._launch], clock)
        # Native code imports nothing, and a native clock runs no Python: `inside` is not needed.
        self._direct = self._launch.pointer is not None and not isinstance(
            getattr(type(clock), "sample", None), types.FunctionType
        )

    @property
    def clock(self) -> str:
        return str(self._timed.clock.name)

    @property
    def calls(self) -> int:
        return self._timed.calls

    def take(self, calls: int) -> None:
        self._timed.calls = calls

    def outputs(self) -> dict[str, npt.NDArray[np.uint8]]:
        with self._build.inside():
            self._sets.poison(0)
            self._launch.run()
            return self._sets.written(0)

    def calibrate(self) -> float:
        with self._build.inside():
            return calibrate(self._timed)

    def sample(self) -> float:
        if self._direct:
            return self._timed.sample()
        with self._build.inside():
            return self._timed.sample()

    def again(self) -> LocalBoundKernel:
        other = LocalBoundKernel.__new__(LocalBoundKernel)
        other._build, other._task, other._device, other.logical, other.code = (
            self._build,
            self._task,
            self._device,
            self.logical,
            self.code,
        )
        with self._build.inside():
            own = self._device.memory is not None
            other._sets = self._arrays(self._variant, self._sets.cases[0], None) if own else self._sets
            other._bind(self._variant)
        return other


def ballast() -> list[bytes]:
    """A random number of small objects of every size. While they are kept, new objects lie at other addresses.

    Without them, every fresh process puts a kernel's arguments at the same addresses. If such an address and an
    output's agree in the low 12 bits, each read of the argument waits for a store (suites/gate/placed.py). Fresh
    processes would then repeat the same bias.
    """
    rng = np.random.default_rng()
    return [
        bytes(size - _HEAD)
        for size in range(_STEP, _SMALL + 1, _STEP)
        if size > _HEAD
        for _ in range(rng.integers(_POOL // size))
    ]


def _logical(build: OpenedBuild, task: GateTask) -> dict[str, Any]:
    """The workload's data, fixed by its seed, from the build's own op."""
    mark = [task.seed, *task.workload.id.encode()]
    return build.installed.ops[task.op].generate(task.axes, task.family, np.random.default_rng(mark))


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether encoded inputs are equal bit for bit. A value that is no array or number counts as different."""
    if one.keys() != other.keys():
        return False
    for name, value in one.items():
        if is_array(value):
            if not is_array(other[name]) or (value.shape, value.dtype) != (other[name].shape, other[name].dtype):
                return False
            if not np.array_equal(_bytes(value), _bytes(other[name])):
                return False
        elif (
            not isinstance(value, int | float | np.generic | np.ndarray)
            or np.asarray(value).tobytes() != np.asarray(other[name]).tobytes()
        ):
            return False
    return True


def _bytes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
