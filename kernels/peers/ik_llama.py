"""ik_llama.cpp's products of IQ2_BN_R4, and of F16 for formats with a scale for each group, as peers of
ternary_matmul."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, Launch, Peer
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.native.cpu import features, native
from tritmark.kernels.peers import ggml, libik, onnx
from tritmark.kernels.peers.launch import LEAST, PeerLaunch, float_bound, gamma, times, wide_scales
from tritmark.kernels.ternary_matmul.formats import GROUPED, INTEGERS, PRODUCTS, ROWS, one_scale
from tritmark.kernels.ternary_matmul.scales import weight_scales

_FORMAT, _ROWS = "iq2_bn_r4", 4
_EXACT = 1 << 24
"""float32 holds every integer up to this one."""


def _missing() -> str | None:
    lacking = ", ".join(sorted(libik.FEATURES - features()))
    return libik.missing() or (f"compiled for {lacking}, which this CPU lacks" if lacking else None)


def _integers(inputs: Arrays, axes: Axes) -> Arrays:
    return _encoded(inputs, axes, np.ones(axes["M"], np.float32))


def _scaled(inputs: Arrays, axes: Axes) -> Arrays:
    return _encoded(inputs, axes, _scale(inputs).astype(np.float32))


def _scale(inputs: Arrays) -> Any:
    """weight_scale / act_scale in float64, (M,)."""
    return np.float64(inputs["weight_scale"]) / inputs["act_scale"].astype(np.float64)


def _encoded(inputs: Arrays, axes: Axes, scale: Any) -> Arrays:
    """Rows padded to a multiple of four and columns to whole blocks, with zeros; the activations' scale contains both
    scales."""
    columns = (0, -axes["K"] % libik.BLOCK)
    weights = libik.pack(_FORMAT, np.pad(inputs["weights"], ((0, -axes["N"] % _ROWS), columns)))
    activations = libik.pack_activations(_FORMAT, np.pad(inputs["activations"], ((0, 0), columns)), scale)
    return {"weights": weights, "activations": activations}


def _bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    weights, out, N = inputs["weights"], outputs["out"], axes["N"]
    own = weights.shape[0] == N and out.dtype == np.float32
    floats = out if own else np.empty((axes["M"], weights.shape[0]), np.float32)
    call = native("peers").PeerCall(
        _FORMAT,
        libik.address(),
        weights,
        inputs["activations"],
        axes["K"] + -axes["K"] % libik.BLOCK,
        floats,
        threads,
        types=libik.TYPES[_FORMAT],
    )

    def run() -> None:
        call.run()
        if not own:
            out[...] = floats[:, :N]

    return PeerLaunch(libik.MULTIPLY, threads, run)


def _too_long(axes: Axes) -> str | None:
    # Sums of (w + 1) * a, each up to 2 * 128, and the sum of the activations.
    longest = _EXACT // (3 * 128)
    return f"K = {axes['K']} is over {longest}, and its float32 sums need not be exact" if axes["K"] > longest else None


def _bound(inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The bound from the roundings of each term; a denormal scale loses more."""
    sums = times(np.abs(inputs["activations"].astype(np.float64)), inputs["weights"], plus=2)
    sums *= gamma(libik.roundings(axes)) * _scale(inputs)[:, np.newaxis] + LEAST
    return {"out": sums}


def _own(format: str, inputs: Arrays, axes: Axes) -> Arrays:
    """The weights with the scales of their rows, padded to a multiple of four rows."""
    more = (0, -axes["N"] % _ROWS)
    scales = np.pad(weight_scales(inputs, axes, format), more, constant_values=1)
    return {
        "weights": BUILT_IN[_FORMAT].pack(np.pad(inputs["weights"], (more, (0, 0))), scales),
        "activations": libik.pack_activations(_FORMAT, inputs["activations"], ggml.inverse_scales(inputs)),
    }


def own_bound(format: str, inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """As _bound, with the scale of each row."""
    inverse = ggml.inverse_scales(inputs).astype(np.float64)[:, np.newaxis]
    sums = times(np.abs(inputs["activations"].astype(np.float64)), inputs["weights"], plus=2)
    scales = np.abs(weight_scales(inputs, axes, format).astype(np.float64))
    return {"out": (gamma(libik.roundings(axes) + 1) * inverse * scales + LEAST) * sums}


def _halves(format: str, inputs: Arrays, axes: Axes) -> Arrays:
    """Weights times their scales as bytes of float16, which holds them exactly; activations as bytes of float32."""
    weights = (inputs["weights"] * wide_scales(format, inputs, axes)).astype(np.float16)
    return {"weights": weights.view(np.uint8), "activations": onnx.floats(inputs).view(np.uint8)}


def _bind_halves(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    weights, activations = inputs["weights"], inputs["activations"]
    call = native("peers").PeerCall(
        "f16", libik.address(), weights, activations, axes["K"], outputs["out"], threads, types=libik.TYPES["f16"]
    )
    return PeerLaunch(libik.MULTIPLY, threads, call.run)


_SOURCE = "ik_llama.cpp, iqk_mul_mat of IQ2_BN_R4 weights and Q8_K16 activations; from PyPI's ik-llama-cpp-python"

PEERS = (
    Peer(
        name="ik_llama",
        op="ternary_matmul",
        formats=INTEGERS,
        takes=one_scale,
        dtypes=frozenset({"int32"}),
        source=_SOURCE,
        version=libik.version,
        missing=_missing,
        encode=_integers,
        bind=_bind,
        outputs=("out",),
        refusal=_too_long,
    ),
    Peer(
        name="ik_llama",
        op="ternary_matmul",
        formats=PRODUCTS,
        takes=one_scale,
        dtypes=frozenset({"float32"}),
        source=_SOURCE,
        version=libik.version,
        missing=_missing,
        encode=_scaled,
        bind=_bind,
        outputs=("out",),
        error_bound=_bound,
    ),
    *(
        Peer(
            name="ik_llama",
            op="ternary_matmul",
            formats=frozenset({format.name}),
            dtypes=frozenset({"float32"}),
            source=_SOURCE,
            version=libik.version,
            missing=_missing,
            encode=partial(_own, format.name),
            bind=_bind,
            outputs=("out",),
            error_bound=partial(own_bound, format.name),
        )
        for format in ROWS
    ),
    *(
        Peer(
            name="ik_llama",
            op="ternary_matmul",
            formats=frozenset({format.name}),
            dtypes=frozenset({"float32"}),
            source="ik_llama.cpp, iqk_mul_mat of F16 weights and F32 activations; from PyPI's ik-llama-cpp-python",
            version=libik.version,
            missing=_missing,
            encode=partial(_halves, format.name),
            bind=_bind_halves,
            outputs=("out",),
            error_bound=partial(float_bound, format.name),
        )
        for format in GROUPED
        if format.name not in ggml.OWN and format.scale_dtype == "float16"
    ),
)
