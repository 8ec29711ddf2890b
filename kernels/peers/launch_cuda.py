"""Shared parts of the peers on CUDA: a launch that puts third-party code into tritmark's stream, and error bounds.

The launched functions are not taken from the peer's own statement: the call is recorded when it is bound, and the
driver reports the functions of the recording. The receipt has the SHA-256 of the peer's file that contains them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import LaunchError
from tritmark.harness.spec import Arrays, Axes, KernelKey, Launch, Launched, Proof, Tier, Variant
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.backend import Stream
from tritmark.kernels.cuda.context import cuda_context, simulated
from tritmark.kernels.cuda.device_type import DEVICE
from tritmark.kernels.cuda.driver.graphs import RecordedKernel, nodes, read, recorded
from tritmark.kernels.cuda.launch.counted import CountedLaunch
from tritmark.kernels.cuda.launch.launch import compute
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.peers import products
from tritmark.kernels.peers.launch import times
from tritmark.kernels.ternary_matmul import cuda
from tritmark.kernels.ternary_matmul.scales import weight_scales

FEATURES = frozenset({compute((8, 0))})
"""bfloat16 in tensor cores."""
ALIGNMENT = 16
"""Alignment in bytes that matrix libraries require of outputs. Their inputs are copies."""
FASTEST = cuda.FORMAT
"""The format of the keys of peers that repack weights."""
BFLOAT16 = 2.0**-8
"""Unit roundoff of bfloat16."""
BFLOAT16_LEAST = 2.0**-133
"""Its least number above zero."""

Call = Callable[[Stream], None]
Bind = Callable[[Arrays, Arrays, Axes, int], Launch]
Floats = npt.NDArray[np.float64]


class CudaPeerLaunch(CountedLaunch):
    """A call of a peer on the device. It keeps the call's objects and the outputs alive.

    `binaries`: the files that contain the launched functions. Raises LaunchError if it launches nothing.
    """

    bad = -1
    """Peers get only legal values and do not check them."""

    def __init__(self, name: str, call: Call, outputs: Arrays, binaries: Callable[[], Iterable[Path]]) -> None:
        here = cuda_context()
        self._call, self._outputs = call, outputs
        stream = here.backend.stream
        # The first call may compile, load and allocate, which must not be recorded; its outputs are restored.
        before = [(array, array.numpy()) for array in outputs.values()]
        call(stream)
        stream.synchronize()
        for array, values in before:
            array.write(values)
        self._binary = hash_of(tuple(binaries()))
        kernels, others = self._record(stream)
        if not kernels:
            step = "check that it is compiled for these shapes and this GPU"
            raise LaunchError(f"{name} launched no kernel", next_step=step)
        super().__init__(name, here, len(kernels), others)
        self._kernels = kernels

    def _record(self, stream: Stream) -> tuple[list[RecordedKernel], int]:
        from cuda.bindings import driver

        graph = recorded(stream, self._call)
        try:
            kernels, others = nodes(graph)
            return [read(node) for node in kernels], others
        finally:
            driver.cuGraphDestroy(graph)

    def put(self, stream: Stream) -> None:
        """Put the peer's call into the stream."""
        self._call(stream)

    @property
    def pointer(self) -> int | None:
        """Handle of the first function: the device's clock can launch it."""
        return self._kernels[0].handle

    @property
    def proof(self) -> Proof:
        """The proof of the runs so far."""
        return Proof(
            uuid=self._context.backend.info.uuid,
            functions=tuple(dict.fromkeys(each.function for each in self._kernels)),
            launches=self._launches,
            device_ns=self._device_ns,
            timed_runs=self._timed,
            code_hash=self._binary,
            launched=tuple(
                Launched(
                    function=each.function,
                    binary=self._binary,
                    grid=each.grid,
                    block=each.block,
                    shared=each.shared,
                    resident=each.resident,
                )
                for each in self._kernels
            ),
        )


@cache
def hash_of(paths: tuple[Path, ...]) -> str:
    """The SHA-256 of a file, or of the sorted hashes of several files: the driver does not report which one contains a
    function."""
    with ThreadPoolExecutor() as pool:  # libraries of a gigabyte
        found = sorted(pool.map(_file_hash, paths))
    return found[0] if len(found) == 1 else sha256("".join(found).encode()).hexdigest()


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def unsimulated() -> str | None:
    """Why third-party code does not run here, if a simulator replaces the GPU; else None."""
    return "the simulator runs this project's own kernels only: unset TRITMARK_CUDA" if simulated() else None


def on_host(inputs: Arrays) -> dict[str, Any]:
    """Inputs that are bound on the device, as NumPy arrays."""
    return {name: value.numpy() if isinstance(value, DeviceArray) else value for name, value in inputs.items()}


def variant(
    name: str,
    dtype: str,
    summary: str,
    bind: Bind,
    missing: Callable[[], str | None],
    load: Callable[[], object],
    *,
    format: str = FASTEST,
    op: str = products.OP,
    **more: Any,
) -> Variant:
    """A peer's product on the device."""
    return Variant(
        key=KernelKey(DEVICE, op, format, dtype),
        name=name,
        tier=Tier.PEER,
        summary=summary,
        bind=bind,
        features=FEATURES,
        alignment=ALIGNMENT,
        reports_nonfinite=False,
        missing=missing,
        load=load,
        packs=True,
        **more,
    )


def terms(name: str, inputs: Arrays) -> tuple[Floats, Floats, Floats]:
    """The scale of each row, (M, 1), the exact sums without it, and the sums of the magnitudes of their terms, (M, N).

    Raises InvalidArgumentError if scales or sums exceed float32, which has the range of bfloat16.
    """
    products.bound(name, lambda axes: 0, inputs, {})
    inverse = 1 / inputs["act_scale"].astype(np.float64)
    products.held(name, inverse, np.full((len(inverse), 1), 128.0))
    products.held(name, np.atleast_1d(np.float64(inputs["weight_scale"])), np.ones((1, 1)))
    activations = inputs["activations"].astype(np.float64)
    scale = (np.float64(inputs["weight_scale"]) * inverse)[:, np.newaxis]
    return scale, times(activations, inputs["weights"]), times(np.abs(activations), np.abs(inputs["weights"]))


def grouped_terms(name: str, format: str, inputs: Arrays, axes: Axes) -> tuple[Floats, Floats, Floats, float]:
    """For weights with a scale for each group: 1 / act_scale, (M, 1), or ones for activations without it; the sums of
    the magnitudes of the terms with the weights' scales and without them, (M, N); the largest magnitude of a scale.

    Raises InvalidArgumentError if scales or sums exceed float32.
    """
    group = BUILT_IN[format].group
    scales = np.abs(weight_scales(inputs, axes, format).astype(np.float64))
    activations, codes = np.abs(inputs["activations"].astype(np.float64)), np.abs(inputs["weights"])
    magnitudes, plain = np.zeros((axes["M"], axes["N"])), np.zeros((axes["M"], axes["N"]))
    for g, start in enumerate(range(0, axes["K"], group)):
        part = times(activations[:, start : start + group], codes[:, start : start + group])
        magnitudes += part * scales[:, g]
        plain += part
    quantized = "act_scale" in inputs
    inverse = 1 / inputs["act_scale"].astype(np.float64) if quantized else np.ones(axes["M"])
    products.held(name, inverse, np.maximum(magnitudes, 128.0))
    return inverse[:, np.newaxis], magnitudes, plain, float(scales.max())


def rounded_once(exact: Floats, off: Floats) -> Mapping[str, Any]:
    """The error bound after rounding to bfloat16, for a float32 with an error of at most `off`."""
    within = np.abs(exact) + off
    return {"out": within * (1 + BFLOAT16) - np.abs(exact)}
