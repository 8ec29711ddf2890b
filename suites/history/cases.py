"""The measurements over the commits: every op x variant at a few shapes, bound as the harness binds them.

Parameters are the same for every commit and machine, since asv stores results by the position of parameters. Variants
that a commit does not have, or that this machine cannot run, are skipped. Only parts that every commit of this project
has are used: the provider's ops, variants and devices.
"""

from __future__ import annotations

import os
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from asv_runner.benchmarks.mark import SkipNotImplemented, skip_benchmark_if

# Imported once in asv's fork server; OpenMP and drivers are loaded in its children only.
from tritmark.kernels import PROVIDER

from .machine import refuse_another

refuse_another()
# Threads that stay on their cores; read when a child loads OpenMP.
os.environ.setdefault("OMP_PROC_BIND", "true")

SEED = 20

ONCE = (1, (5, 50, 0.3), 0.05)
"""asv's rounds, repeat (fewest, most, seconds) and seconds of warm-up: times are for orientation, so each gets a third
of a second."""

GPU = Path("/dev/nvidiactl").exists()
on_gpu = skip_benchmark_if(not GPU)
"""For benchmarks that exist only if an NVIDIA driver is loaded."""


class Bound:
    """One variant bound to its arrays: `launch.run()` is a call. Raises SkipNotImplemented if there is no such variant
    here.

    `kernel` is OP/FORMAT/DTYPE, `variant` DEVICE:NAME, and `shape` lists the op's axes: "n=65536", "M=1 N=2560 K=6912".
    """

    def __init__(self, kernel: str, variant: str, shape: str) -> None:
        name, format, dtype = kernel.split("/")
        device, _, variant_name = variant.partition(":")
        self.axes = {axis: int(size) for axis, _, size in (word.partition("=") for word in shape.split())}
        self.op = next((op for op in PROVIDER.ops if op.name == name), None)
        self.device = next((each for each in PROVIDER.devices if each.type == device), None)
        wanted = (device, name, format, dtype, variant_name)
        self.variant = next((v for v in PROVIDER.variants if _names(v) == wanted), None)
        if self.op is None or self.device is None or self.variant is None:
            raise SkipNotImplemented(f"this commit has no {kernel} as {variant}")
        _refuse(self.variant, self.device, self.axes)
        rng = np.random.default_rng(SEED)
        family = "normal" if "normal" in self.op.input_families else self.op.input_families[0]
        self.logical = self.op.generate(self.axes, family, rng)
        self.encoded = self.op.encode(self.logical, self.axes, format)
        self._memory = memory_of(self.device)
        inputs = {key: self._placed(value) for key, value in self.encoded.items()}
        like = self.op.outputs_like(self.axes, self.variant.key)
        self.outputs = {
            key: self._memory.place(np.zeros(shape, named_dtype(kind))) for key, (shape, kind) in like.items()
        }
        self.threads = self.device.cores()
        self.launch: Any = self.variant.bind(inputs, self.outputs, self.axes, self.threads)

    def mismatches(self) -> int:
        """Elements of the outputs that differ from the reference, rounded to the output's type; differences within
        bounds do not count."""
        assert self.op is not None
        assert self.variant is not None
        self.launch.run()
        expected = self.op.reference(self.logical, self.axes, self.variant.key)
        count = 0
        for name, output in self.outputs.items():
            found = self._memory.fetch(output)
            if name + ".bound" in expected:
                wide = np.abs(found.astype(np.float64) - expected[name].astype(np.float64))
                count += int((~(wide <= expected[name + ".bound"])).sum())
            else:
                wanted = np.asarray(expected[name]).astype(found.dtype)
                # Bits decide, so that a NaN equals itself and -0 is not 0.
                differ = found.reshape(-1).view(np.uint8) != wanted.reshape(-1).view(np.uint8)
                count += int(differ.reshape(-1, found.itemsize).any(axis=1).sum())
        return count

    def _placed(self, value: Any) -> Any:
        return self._memory.place(value) if isinstance(value, np.ndarray) and value.ndim else value


class _Host:
    """The host's memory: arrays are used unchanged."""

    def place(self, array: np.ndarray) -> np.ndarray:
        nbytes = array.nbytes
        whole = np.zeros(nbytes + 64, np.uint8)
        start = -whole.ctypes.data % 64
        placed = whole[start : start + nbytes].view(array.dtype).reshape(array.shape)
        placed[...] = array
        return placed

    def fetch(self, array: np.ndarray) -> np.ndarray:
        return array


class _Own:
    """A device's own memory."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    def place(self, array: np.ndarray) -> Any:
        placed = self._memory.view(self._memory.allocate(array.nbytes), 0, array.shape, array.dtype)
        self._memory.write(placed, np.ascontiguousarray(array))
        return placed

    def fetch(self, array: Any) -> np.ndarray:
        found = np.empty(array.shape, array.dtype)
        self._memory.read(array, found)
        return found


def memory_of(device: Any) -> Any:
    """The memory of the device's kernels."""
    own = getattr(device, "memory", None)
    return _Host() if own is None else _Own(own())


def named_dtype(name: str) -> np.dtype:
    """NumPy's type of that name, bfloat16 included."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name) if name == "bfloat16" else name)


def packed_bits(kernel: str, variant: str, shape: str) -> float:
    """Bits per weight of the packed array that the kernel reads or writes."""
    bound = Bound(kernel, variant, shape)
    weights = (
        bound.encoded.get("weights")
        if bound.op is not None and bound.op.name == "ternary_matmul"
        else bound.outputs.get("q")
    )
    if weights is None:
        weights = next(iter(bound.outputs.values()))
    count = bound.axes["n"] if "n" in bound.axes else bound.axes["N"] * bound.axes["K"]
    return 8 * _nbytes(weights) / count


def _nbytes(array: Any) -> int:
    held = getattr(array, "data", None)
    if held is not None and hasattr(held, "nbytes") and not isinstance(array, np.ndarray):
        return int(held.nbytes)
    return int(prod(array.shape) * np.dtype(array.dtype).itemsize)


def _names(variant: Any) -> tuple[str, ...]:
    key = variant.key
    return key.device, key.op, key.format, key.dtype, variant.name


def _refuse(variant: Any, device: Any, axes: dict[str, int]) -> None:
    missing = getattr(device, "missing", lambda: None)()
    if missing is not None:
        raise SkipNotImplemented(missing)
    lacking = sorted(variant.features - device.features())
    if lacking:
        raise SkipNotImplemented(f"this {device.type} lacks {', '.join(lacking)}")
    for constraint in variant.constraints:
        refusal = constraint.refusal(axes)
        if refusal is not None:
            raise SkipNotImplemented(refusal)
