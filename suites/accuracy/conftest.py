"""Shared parts of the numerics tests: arrays at a chosen distance from an aligned address, with guards around them,
here and on the device."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.spec import Arrays, Axes, Launch, Variant
from tritmark.harness.validate.guards import GuardedArray, bits
from tritmark.kernels import OPS

if TYPE_CHECKING:
    from tritmark.kernels.cuda.array import DeviceArray
    from tritmark.kernels.cuda.context import CudaContext

ZONE = 256
"""Bytes before and after each array on the device that no kernel may change."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all of this folder: another interpreter may bring another NumPy."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker("interpreter")


@pytest.fixture(scope="session")
def guarded() -> Callable[[int, npt.DTypeLike, int], GuardedArray]:
    """guarded(n, dtype, offset): an output array of n elements, `offset` of them past a 64-byte boundary, with
    guards."""

    def make(n: int, dtype: npt.DTypeLike, offset: int) -> GuardedArray:
        kind = np.dtype(dtype)
        array = GuardedArray((n,), kind, seed=n, offset=offset * kind.itemsize)
        array.poison()
        return array

    return make


@pytest.fixture(scope="session")
def at_offset(guarded: Callable[[int, npt.DTypeLike, int], GuardedArray]) -> Callable[[np.ndarray, int], np.ndarray]:
    """at_offset(values, offset): a copy that begins `offset` elements past a 64-byte boundary."""

    def copy(values: np.ndarray, offset: int) -> np.ndarray:
        array = guarded(values.size, values.dtype, offset).array
        array[:] = values
        return array

    return copy


class Placed:
    """An array on the device, `offset` elements past an aligned address, `gap` elements between its rows, zones on
    both sides."""

    def __init__(
        self, context: CudaContext, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int = 0, gap: int = 0
    ) -> None:
        item = dtype.itemsize
        self._start = ZONE + offset * item
        row = (shape[-1] + gap) * item if shape else item
        self._strides = (row, item) if len(shape) == 2 else None
        span = (shape[0] - 1) * row + shape[1] * item if len(shape) == 2 else int(np.prod(shape)) * item
        self._before = np.random.default_rng(span).integers(0, 256, self._start + span + ZONE, dtype=np.uint8)
        self._raw = context.upload(self._before)
        self._here: np.ndarray[Any, Any] = np.ndarray(shape, dtype, self._before, self._start, self._strides)
        self.handle: DeviceArray = self._raw.view(shape, dtype, self._start, self._strides)

    def write(self, values: np.ndarray) -> None:
        """Everything else is as it was in the beginning."""
        self._here[...] = values
        self._raw.write(self._before)

    def read(self) -> np.ndarray:
        """A copy, after a check that nothing beside the array has changed."""
        raw = self._raw.numpy()
        found = np.ndarray(self._here.shape, self._here.dtype, raw, self._start, self._strides).copy()
        self._here[...] = found
        assert np.array_equal(raw, self._before), "memory beside the array was written"
        return found


class Bound:
    """A variant bound to placed arrays; `inputs` are encoded for it."""

    def __init__(
        self, context: CudaContext, variant: Variant, inputs: Arrays, axes: Axes, offset: int = 0, gap: int = 0
    ) -> None:
        like = _op(variant).outputs_like(axes, variant.key)
        self.inputs = {
            name: Placed(context, value.shape, value.dtype, offset, gap)
            for name, value in inputs.items()
            if np.ndim(value)
        }
        self.outputs = {
            name: Placed(context, shape, named_dtype(dtype), offset) for name, (shape, dtype) in like.items()
        }
        handles = {name: placed.handle for name, placed in self.inputs.items()}
        self.launch: Launch = variant.bind(
            {**inputs, **handles}, {name: placed.handle for name, placed in self.outputs.items()}, axes, 1
        )

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """Its outputs for other arrays; scalars stay those of the bind."""
        for name, placed in self.inputs.items():
            placed.write(inputs[name])
        self.launch.run()
        for name, placed in self.inputs.items():
            assert np.array_equal(bits(placed.read()), bits(inputs[name])), "an input was changed"
        return {name: placed.read() for name, placed in self.outputs.items()}


def _op(variant: Variant) -> Any:
    return next(op for op in OPS if op.name == variant.key.op)


@pytest.fixture
def bound(cuda: CudaContext) -> Callable[..., Bound]:
    """bound(variant, inputs, axes, offset=0, gap=0): see Bound."""
    return partial(Bound, cuda)


@pytest.fixture
def judge(bound: Callable[..., Bound]) -> Callable[..., None]:
    """judge(variant, axes, family, offset=0, gap=0, seed=0): two sets of data in the same memory give the
    reference's bits."""

    def check(variant: Variant, axes: Axes, family: str, offset: int = 0, gap: int = 0, seed: int = 0) -> None:
        op, format = _op(variant), variant.key.format
        first, second = (op.generate(axes, family, np.random.default_rng([seed, nth])) for nth in range(2))
        second = {name: value if np.ndim(value) else first[name] for name, value in second.items()}
        there = bound(variant, op.encode(first, axes, format), axes, offset, gap)
        for logical in (first, second):
            found = there.run(op.encode(logical, axes, format))
            assert there.launch.bad == -1
            for name, expected in op.reference(logical, axes, variant.key).items():
                wanted = np.asarray(expected).astype(found[name].dtype)
                wrong = np.flatnonzero(bits(found[name]) != bits(wanted))
                assert not wrong.size, (
                    name,
                    axes,
                    wrong[:8],
                    found[name].reshape(-1)[wrong[:8]],
                    wanted.reshape(-1)[wrong[:8]],
                )
        assert (there.launch.ran, there.launch.runs) == (variant.name, 2)

    return check


@pytest.fixture(scope="session")
def emulated_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of objects of kernels with instructions in C, shared with the other processes that test."""
    base = tmp_path_factory.getbasetemp()
    made = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "emulated"
    made.mkdir(exist_ok=True)
    return made
