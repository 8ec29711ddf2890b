"""A device that no file of tritmark knows, as a stranger's package brings it; test_made_up_device.py installs it.

Its memory holds every byte with some bits turned over, so an array that is read on the host without its own `read` is
garbage. Its kernels are NumPy's over what lies there. MADE_UP_FAULT names what is wrong with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from math import prod
from pathlib import Path
from time import perf_counter_ns
from typing import Any
from weakref import finalize

import numpy as np

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.spec import (
    Axes,
    Ceiling,
    Device,
    DeviceStats,
    KernelKey,
    Launch,
    Launched,
    MemoryFigures,
    Proof,
    Provider,
    Tier,
    Variant,
)
from tritmark.kernels import FORMATS, OPS

NAME, UNIT = "made_up", "MADE-UP-0001"
FAULT = os.environ.get("MADE_UP_FAULT", "")
_BITS = 0xA5
_BYTES = 64 << 20
_CODE = sha256(Path(__file__).read_bytes()).hexdigest()


class Array:
    """Bytes of the device. NumPy takes them for what they seem to be."""

    def __init__(
        self, raw: np.ndarray, offset: int, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...] | None
    ) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.raw, self.offset = raw, offset
        view = np.ndarray(shape, f"V{self.dtype.itemsize}", raw, offset, strides)
        self.strides = view.strides
        self.__array_interface__ = {**view.__array_interface__, "typestr": self.dtype.str}
        self.seeming = view

    def get(self) -> np.ndarray:
        """What the device's kernels read."""
        copied = np.ascontiguousarray(self.seeming).reshape(-1).view(np.uint8) ^ np.uint8(_BITS)
        found: np.ndarray = copied.view(self.dtype).reshape(self.shape)
        return found

    def put(self, values: np.ndarray) -> None:
        """What they write."""
        turned = np.ascontiguousarray(values).reshape(-1).view(np.uint8) ^ np.uint8(_BITS)
        self.seeming[...] = turned.view(self.seeming.dtype).reshape(self.shape)


class Watch:
    """Counts what is allocated within it."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._before, self.peak = memory, memory.used, 0

    @property
    def held(self) -> int:
        return self._memory.used - self._before

    def seen(self) -> None:
        self.peak = max(self.peak, self.held)

    def __enter__(self) -> Watch:
        self._memory.watches.append(self)
        return self

    def __exit__(self, *problem: object) -> None:
        self._memory.watches.remove(self)


class Memory:
    """The device's own memory."""

    cache = None

    def __init__(self) -> None:
        self.used = 0
        self.watches: list[Watch] = []

    def available(self) -> int:
        return _BYTES - self.used

    def allocate(self, nbytes: int) -> Array:
        raw = np.full(nbytes, 0xCD, np.uint8)
        self._count(nbytes)
        finalize(raw, self._count, -nbytes)
        return Array(raw, 0, (nbytes,), np.uint8, None)

    def _count(self, nbytes: int) -> None:
        self.used += nbytes
        for watch in self.watches:
            watch.seen()

    def view(
        self, buffer: Array, offset: int, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...] | None = None
    ) -> Array:
        return Array(buffer.raw, buffer.offset + offset, shape, dtype, strides)

    def write(self, array: Array, values: np.ndarray) -> None:
        array.put(values)

    def read(self, array: Array, into: np.ndarray) -> None:
        into[...] = array.get().reshape(-1).view(into.dtype).reshape(into.shape)

    def watch(self) -> Watch:
        return Watch(self)


MEMORY = Memory()


class MadeUpLaunch:
    """Work over arrays of the device."""

    threads_used, bad = 1, -1
    pointer = 1
    """So that the device's clock is asked."""

    def __init__(self, name: str, function: str, work: Callable[[], None]) -> None:
        self._name, self.function, self._work = name, function, work
        self.ran, self.runs, self.first_ns = "", 0, 0

    def run(self) -> None:
        begun = perf_counter_ns()
        self._work()
        self.runs += 1
        self.ran = self._name
        self.first_ns = self.first_ns or perf_counter_ns() - begun


class Ticks:
    """The device's clock."""

    name = "made-up ticks"

    def sample(self, launches: Sequence[Launch], first: int, calls: int) -> int:
        begun = perf_counter_ns()
        for call in range(calls):
            launches[(first + call) % len(launches)].run()
        return perf_counter_ns() - begun


def proof(launch: Launch) -> Proof | None:
    """What the launcher collected."""
    if FAULT == "no proof" or not isinstance(launch, MadeUpLaunch):
        return None
    return Proof(
        uuid="MADE-UP-0002" if FAULT == "another unit" else UNIT,
        functions=(launch.function,),
        launches=launch.runs,
        device_ns=float(launch.first_ns),
        timed_runs=min(1, launch.runs),
        code_hash=_CODE,
        launched=(Launched(function=launch.function, binary=_CODE, grid=(1, 1, 1), block=(1, 1, 1)),),
    )


def _probe(work: Callable[[np.ndarray], Any], buffer: Array, threads: int) -> Launch:
    flat = buffer.seeming.view(np.uint8)
    return MadeUpLaunch("probe", "made_up_probe", lambda: work(flat))


def _ceilings() -> Mapping[str, Ceiling]:
    works: dict[str, Callable[[np.ndarray], Any]] = {
        "read": lambda flat: flat.max(),
        "write": lambda flat: flat.fill(1),
        "compute": lambda flat: np.add(flat, 1, out=flat),
    }
    units = {"compute": "operations/s"}
    return {
        name: Ceiling(
            name=name, unit=units.get(name, "bytes/s"), summary="NumPy's", bind=partial(_probe, work), work=int
        )
        for name, work in works.items()
    }


_CEILINGS = _ceilings()


def stats() -> DeviceStats:
    """Its memory counts what is in use; everything else is as an honest device would count."""
    MADE.append(1)
    return DeviceStats(
        device=NAME,
        launches=10 * len(MADE),
        bytes_uploaded=3 * len(MADE),
        pool=MemoryFigures(active=MEMORY.used, refused=2),
    )


MADE: list[int] = []

DEVICE = Device(
    type=NAME,
    summary="bits turned over",
    features=frozenset,
    cores=lambda: 1,
    clock=None if FAULT == "no clock" else Ticks,
    ceilings=lambda: _CEILINGS,
    memory=lambda: MEMORY,
    proof=proof,
    units=lambda: (UNIT,),
    stats=stats,
)


def _variant(op_name: str, format: str, dtype: str) -> Variant:
    """The reference of an op, over arrays of the device."""
    (op,) = (each for each in OPS if each.name == op_name)
    key = KernelKey(NAME, op_name, format, dtype)

    def bind(inputs: Mapping[str, Any], outputs: Mapping[str, Array], axes: Axes, threads: int) -> Launch:
        def work() -> None:
            given = {name: value.get() if isinstance(value, Array) else value for name, value in inputs.items()}
            if format in FORMATS:
                given["weights"] = FORMATS[format].unpack(given["weights"], (axes["N"], axes["K"]))[0]
            found = op.reference(given, axes, key)
            for name, (_, kind) in op.outputs_like(axes, key).items():
                values = np.asarray(found[name]).astype(named_dtype(kind))
                if FAULT == "wrong":
                    values.reshape(-1)[-1] += 1
                outputs[name].put(values)

        assert all(isinstance(array, Array) and prod(array.shape) for array in outputs.values())
        return MadeUpLaunch("turned", f"{NAME}_{op_name}", work)

    return Variant(
        key=key, name="turned", tier=Tier.BASELINE, summary="the reference", bind=bind, reports_nonfinite=False
    )


PROVIDER = Provider(
    ops=(),
    variants=(
        _variant("i2s_dequantize", "none", "float32"),
        _variant("activation_quantize", "none", "int8"),
        _variant("ternary_matmul", "tile64", "float32"),
    ),
    devices=(DEVICE,),
    functions=(f"{NAME}_",),
)
