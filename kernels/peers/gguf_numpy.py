"""gguf's NumPy quantizers, with which llama.cpp's scripts write weight files, as a peer of ternary_quantize; and its
dequantizers with NumPy's product as a peer of ternary_matmul. Both are references that define the bytes: their values
are compared, their times are not."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import Arrays, Axes, Launch, Peer
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.peers import onnx, tq2_0
from tritmark.kernels.peers.launch import PeerLaunch, float_bound, is_installed, not_installed
from tritmark.kernels.ternary_matmul.formats import GROUPED
from tritmark.kernels.ternary_matmul.scales import weight_scales

_TYPES = {"tq1_0": "TQ1_0", "tq2_0": "TQ2_0"}


def missing() -> str | None:
    """Why gguf cannot be used here and what to do about it, or None."""
    return None if is_installed("gguf") else not_installed()


def version() -> str:
    """The version of the package."""
    from importlib.metadata import version as version_of

    return f"gguf {version_of('gguf')}"


def quantize(format: str, x: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Blocks of tq1_0 or tq2_0, uint8 (N, K/256*54 or *66), of float32 (N, K)."""
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize as by_gguf

    if format not in _TYPES:
        raise InvalidArgumentError(op="gguf.quantize", argument="format", found=repr(format), legal=", ".join(_TYPES))
    # Overflow and NaN propagate, as in C.
    with np.errstate(all="ignore"):
        return by_gguf(x, GGMLQuantizationType[_TYPES[format]])


def _bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    x, codes = inputs["x"], outputs["codes"]

    def run() -> None:
        codes[...] = quantize("tq2_0", x.reshape(-1, tq2_0.BLOCK)).reshape(-1)

    return PeerLaunch("gguf.quants.quantize", 1, run)


def _encode_product(format: str, inputs: Arrays, axes: Axes) -> Arrays:
    """The bytes of the weights as the kernel takes them; activations as float values."""
    packed = BUILT_IN[format].pack(inputs["weights"], weight_scales(inputs, axes, format))
    return {"weights": packed.reshape(axes["N"], -1), "activations": onnx.floats(inputs)}


def _bind_product(format: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    kind = GGMLQuantizationType[_TYPES[format]]

    def run() -> None:
        np.matmul(inputs["activations"], dequantize(inputs["weights"], kind).T, out=outputs["out"])

    return PeerLaunch("gguf.quants.dequantize", 1, run)


PEERS = (
    *(
        Peer(
            name="gguf",
            op="ternary_matmul",
            formats=frozenset({format.name}),
            dtypes=frozenset({"float32"}),
            source=f"llama.cpp, gguf.quants.dequantize of {_TYPES[format.name]}, and NumPy's product; from PyPI's gguf",
            version=version,
            missing=missing,
            encode=partial(_encode_product, format.name),
            bind=partial(_bind_product, format.name),
            outputs=("out",),
            error_bound=partial(float_bound, format.name),
            reference=True,
        )
        for format in GROUPED
        if format.name in _TYPES
    ),
    Peer(
        name="gguf",
        op="ternary_quantize",
        formats=frozenset({"tq2_0"}),
        dtypes=frozenset({"uint8"}),
        source="llama.cpp, gguf.quants.quantize(x, TQ2_0) in NumPy; from PyPI's gguf",
        version=version,
        missing=missing,
        encode=tq2_0.encode,
        bind=_bind,
        outputs=("codes",),
        refusal=tq2_0.refusal,
        error_bound=tq2_0.bound,
        reference=True,
    ),
)
