"""Products of other projects from weights with a scale for each group, as variants of ternary_matmul; see products.py.

A project has keys in the formats whose bytes it reads (products.py), or else in tile64_g32 to tile64_g256: there bind
converts the weights into its own layout, exactly. Scales of longer groups than that layout has are repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, Launch, Variant
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.formats.tile64_grouped import FORMATS
from tritmark.kernels.peers import isa, libik, onnx
from tritmark.kernels.peers.launch import LEAST, PeerLaunch, gamma, scaled_times, times
from tritmark.kernels.peers.products import (
    ONNX,
    ErrorBound,
    ggml_variant,
    held,
    ik_variant,
    inverse_scales,
    packed,
    peer_variant,
    stored_scales,
    summable,
)
from tritmark.kernels.ternary_matmul.scales import weight_scales

GGML = {"tile64_g128": "q2_0"}
"""ggml's types for formats whose groups are not those of a type of its own: PQ2_0 and PTQ1_0 become tile64_g128."""
_FIELD = 16
"""Q4_0's field w + 8, and the 8 that are subtracted: each term is at most |w| + 16 times an activation."""


def ik_bound(format: str, inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The bound of ik_llama.cpp's Q4_0_R8. It sums (w + 8) * a for each 32 columns in integers, and adds these sums,
    times their scales, in float32, and so the sums of the activations, of which 8 times are subtracted."""
    terms, activations = axes["K"] // 32 + 16, np.abs(inputs["activations"].astype(np.float64))
    inverse = inverse_scales(inputs).astype(np.float64)
    held(libik.MULTIPLY, inverse, np.zeros((axes["M"], 1)))
    scales, group = np.abs(weight_scales(inputs, axes, format)), BUILT_IN[format].group
    scaled = inverse[:, np.newaxis] * scaled_times(activations, inputs["weights"], scales, group, plus=_FIELD)
    lost = LEAST * (times(activations, inputs["weights"], plus=_FIELD) + terms)
    return summable(libik.MULTIPLY, {"out": gamma(4 + terms) * scaled + lost})


def _bind_onnx(format: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    form = BUILT_IN[format]
    block = onnx.block_of(form)
    weights = packed(format, f"{ONNX}, {block}", partial(onnx.pack, block=block), inputs, axes)
    scales = np.repeat(stored_scales(format, inputs, axes), form.group // block, axis=1)
    shared = onnx.pool(threads)
    product = onnx.OnnxProduct(weights, scales, axes["K"], threads=shared)
    return PeerLaunch(ONNX, shared, product.into(onnx.floats(inputs), outputs["out"]))


def _onnx_bound(format: str, inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    # The quantization step of activations is as small as their scale.
    held("MatMulNBits", 1 / inputs["act_scale"].astype(np.float64), np.full((axes["M"], 1), 128.0))
    return summable("MatMulNBits", onnx.grouped_bound(BUILT_IN[format], inputs, axes))


def _onnx(format: str) -> Variant:
    return peer_variant(
        format,
        ONNX,
        f"ONNX Runtime, a session of MatMulNBits with 2 bits, blocks of {onnx.block_of(BUILT_IN[format])} and int8, "
        "from float activations on",
        partial(_bind_onnx, format),
        isa.limited(onnx.missing, isa.dispatches),
        onnx.load,
        partial(_onnx_bound, format),
        version=onnx.version,
        needs=isa.dispatches,
    )


def of_ik(format: str) -> ErrorBound:
    """The bound of ik_llama.cpp's product for that format."""
    return partial(ik_bound, format)


VARIANTS: tuple[Variant, ...] = tuple(
    each
    for form in FORMATS
    for each in (
        *([ggml_variant(form.name, GGML[form.name])] if form.name in GGML else []),
        ik_variant(form.name, libik.GROUPED, of_ik(form.name)),
        _onnx(form.name),
    )
)
"""The variants of packages on PyPI; they register through the entry-point group `tritmark.variants`."""
