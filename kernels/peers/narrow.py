"""Peers that compute in float32, for kernels that round their product to 16 bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, KernelKey, Launch, Peer
from tritmark.kernels.formats import row16_grouped
from tritmark.kernels.peers.launch import PeerLaunch
from tritmark.kernels.ternary_matmul.reference import half_unit, reference

Bind = Callable[[Arrays, Arrays, Axes, int], Launch]
ErrorBound = Callable[[Arrays, Axes], Mapping[str, Any]]

_FORMATS = {
    "float16": frozenset({"row16", "gpu_int2", "tq2_0", "iq2_bn", *(form.name for form in row16_grouped.FORMATS)})
}
"""For each dtype that not all kernels write, the formats with kernels that do: float16 is written only on CUDA."""


def rounded(peer: Peer, dtype: str) -> Peer | None:
    """A peer of ternary_matmul with its float32 output rounded once more, to bfloat16 by ml_dtypes or to float16 by
    NumPy. Its time includes the rounding. None if no kernel of the peer's formats writes that dtype."""
    assert peer.error_bound is not None
    formats = peer.formats & _FORMATS.get(dtype, peer.formats)
    if not formats:
        return None
    return replace(
        peer,
        formats=formats,
        dtypes=frozenset({dtype}),
        source=f"{peer.source}; rounded to {dtype}",
        bind=partial(_bind, peer.bind, peer.outputs[0]),
        error_bound=partial(_bound, peer.error_bound, min(peer.formats), dtype, peer.outputs[0]),
    )


def _bind(bind: Bind, output: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    out = outputs[output]
    floats = np.empty(out.shape, np.float32)
    launch = bind(inputs, {output: floats}, axes, threads)

    def run() -> None:
        launch.run()
        with np.errstate(over="ignore"):
            out[...] = floats

    return RoundedLaunch(launch, threads, run)


class RoundedLaunch(PeerLaunch):
    """A launch that reports what the wrapped launch did."""

    def __init__(self, launch: Launch, threads: int, call: Callable[[], None]) -> None:
        super().__init__("", threads, call)
        self._launch = launch

    @property
    def ran(self) -> str:
        return self._launch.ran


def _bound(bound: ErrorBound, format: str, dtype: str, output: str, inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The bound with half a unit in the last place of the float32 result added. That needs the product itself; any of
    the peer's formats works, since the format determines the scales."""
    exact = np.abs(reference(inputs, axes, KernelKey("cpu", "ternary_matmul", format, "float32"))[output])
    float32 = bound(inputs, axes)[output]
    return {output: float32 + half_unit(exact + float32, dtype)}
