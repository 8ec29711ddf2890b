"""libggml as a peer of ternary_quantize and ternary_matmul."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import Arrays, Axes, Launch, Peer
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.peers import libggml, onnx, tq2_0
from tritmark.kernels.peers.experts_bound import of_experts
from tritmark.kernels.peers.launch import LEAST, PeerLaunch, float_bound, gamma, scaled_times, times, wide_scales
from tritmark.kernels.peers.libggml_graph import GgmlProduct
from tritmark.kernels.ternary_matmul.formats import GROUPED, INTEGERS, PRODUCTS, ROWS, one_scale
from tritmark.kernels.ternary_matmul.scales import weight_scales
from tritmark.kernels.ternary_matmul_experts.offsets import expert_of
from tritmark.kernels.ternary_matmul_experts.spec import expert_scales

_LANES = 16
"""The most partial sums of a row's dot product: float32 in a 512-bit register."""
_EXACT = 1 << 24
"""float32 holds every integer up to this one."""


def _quantize(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    x, codes = inputs["x"], outputs["codes"]

    def run() -> None:
        libggml.quantize_into("tq2_0", x, codes)

    return PeerLaunch("quantize_row_tq2_0_ref", 1, run)


def _integers(inputs: Arrays, axes: Axes) -> Arrays:
    return _encoded(inputs, axes, np.ones(axes["M"], np.float32))


def _scaled(inputs: Arrays, axes: Axes) -> Arrays:
    return _encoded(inputs, axes, _scale(inputs).astype(np.float32))


def _scale(inputs: Arrays) -> Any:
    """weight_scale / act_scale in float64, (M,)."""
    return np.float64(inputs["weight_scale"]) / inputs["act_scale"].astype(np.float64)


def _encoded(inputs: Arrays, axes: Axes, scale: Any) -> Arrays:
    """Weights as TQ2_0, activations as Q8_K, columns padded with zeros to whole blocks.

    Q8_K's float32 scale contains both scales; TQ2_0's, which is float16, is 1.
    """
    pad = ((0, 0), (0, -axes["K"] % libggml.BLOCK))
    weights = FORMATS["tq2_0"].pack(np.pad(inputs["weights"], pad), 1.0)
    return {"weights": weights, "activations": libggml.pack_q8_K(np.pad(inputs["activations"], pad), scale)}


def _multiply(format: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    M, N, K = axes["M"], axes["N"], -(-axes["K"] // libggml.BLOCK) * libggml.BLOCK
    K = axes["K"] if format == "f32" else K
    more = {name: inputs.get(name) for name in ("row_scales", "out_scales", "experts")}
    product = GgmlProduct(format, inputs["weights"], N, K, M, threads, **more)
    activations, out = inputs["activations"], outputs["out"]
    if out.dtype == np.float32:
        return PeerLaunch("ggml_mul_mat", threads, lambda: product.run(activations, out))
    floats = np.empty(out.shape, np.float32)

    def run() -> None:
        product.run(activations, floats)
        out[...] = floats

    return PeerLaunch("ggml_mul_mat", threads, run)


def _too_long(axes: Axes) -> str | None:
    # Partial sums grow by up to 2 * 128 for each column, and their offset by another 128.
    longest = _EXACT // (3 * 128)
    return f"K = {axes['K']} is over {longest}, and its float32 sums need not be exact" if axes["K"] > longest else None


def roundings(axes: Axes) -> int:
    """Roundings of a term: the scale, its product with a block's integer, one addition for each block, and the final
    additions of lanes."""
    return 2 + -(-axes["K"] // libggml.BLOCK) + _LANES


def _bound(inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The bound. Blocks are summed in integers, as (w + 1) * a minus the sum of a; the sums of blocks are scaled and
    added in float32."""
    sums = times(np.abs(inputs["activations"].astype(np.float64)), inputs["weights"], plus=2)
    sums *= gamma(roundings(axes)) * _scale(inputs)[:, np.newaxis]
    return {"out": sums}


def _grouped(format: str, inputs: Arrays, axes: Axes) -> Arrays:
    """The kernel's own weights; activations as Q8_K with the reciprocal of their scale, rounded to float32."""
    weights = FORMATS[format].pack(inputs["weights"], weight_scales(inputs, axes, format))
    return {"weights": weights, "activations": libggml.pack_q8_K(inputs["activations"], inverse_scales(inputs))}


def inverse_scales(inputs: Arrays) -> Any:
    """1 / act_scale as float32, (M,). Raises InvalidArgumentError if they are not normal numbers of it."""
    inverse, info = 1 / inputs["act_scale"].astype(np.float64), np.finfo(np.float32)
    if inverse.min() < info.tiny or inverse.max() > info.max:
        found, legal = (
            f"inverses from {inverse.min():.3g} to {inverse.max():.3g}",
            "normal numbers of float32",
        )
        raise InvalidArgumentError(op="ggml_mul_mat", argument="act_scale", found=found, legal=legal)
    return inverse.astype(np.float32)


def grouped_bound(format: str, own: str, inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """As _bound, for weights of `format` in ggml's type `own`. The scale of each block has one more rounding, from the
    scale of the activations, and loses more if it is denormal. Raises InvalidArgumentError for scales of activations
    that are not normal."""
    inverse = inverse_scales(inputs).astype(np.float64)[:, np.newaxis]
    terms = axes["K"] // libggml.TYPES[own].addition + _LANES
    scales, group = np.abs(weight_scales(inputs, axes, format)), FORMATS[format].group
    activations = np.abs(inputs["activations"].astype(np.float64))
    scaled = inverse * scaled_times(activations, inputs["weights"], scales, group, plus=2)
    return {"out": gamma(4 + terms) * scaled + LEAST * (times(activations, inputs["weights"], plus=2) + terms)}


def _rows(format: str, inputs: Arrays, axes: Axes) -> Arrays:
    """Weights as TQ2_0, with the scales of rows as a separate array."""
    return {**_encoded(inputs, axes, inverse_scales(inputs)), "row_scales": weight_scales(inputs, axes, format)}


def _rows_bound(format: str, inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """As _bound, with a final product with the row's scale; only that product may be denormal."""
    inverse = inverse_scales(inputs).astype(np.float64)[:, np.newaxis]
    sums = times(np.abs(inputs["activations"].astype(np.float64)), inputs["weights"], plus=2)
    scales = np.abs(weight_scales(inputs, axes, format).astype(np.float64))
    return {"out": gamma(roundings(axes) + 2) * inverse * scales * sums + LEAST}


def _of_experts(format: str, own: str, inputs: Arrays, axes: Axes) -> Arrays:
    """Weights of all experts in ggml's type, and the expert of each row."""
    form, experts = FORMATS[format], expert_of(inputs["offsets"], axes["M"])
    scales: Any = 1.0
    beside = inverse_scales(inputs)
    if form.scale_per == "tensor":
        beside = (inputs["weight_scale"][experts] / inputs["act_scale"].astype(np.float64)).astype(np.float32)
    else:
        scales = FORMATS[own].regrouped(expert_scales(inputs, axes, format), form)
    return {
        "weights": FORMATS[own].pack(inputs["weights"], scales),
        "activations": libggml.pack_activations(own, inputs["activations"], beside),
        "experts": experts.astype(np.int32),
        **({"out_scales": beside} if libggml.TYPES[own].scaled_beside else {}),
    }


def _part_of_a_block(own: str, axes: Axes) -> str | None:
    block = libggml.TYPES[own].block
    return f"K = {axes['K']} is no multiple of {block}" if axes["K"] % block else None


def _floats(format: str, inputs: Arrays, axes: Axes) -> Arrays:
    """Weights times their scales, and activations as float values."""
    weights = inputs["weights"] * wide_scales(format, inputs, axes)
    return {"weights": weights, "activations": onnx.floats(inputs)}


OWN = ("tq1_0", "tq2_0")
"""Formats with scales of groups whose bytes every libggml reads."""
EXPERTS = {"tile64": "tq2_0", "tile64_g64": "q2_0", "tile64_g128": "q2_0", "tile64_g256": "tq2_0"}
"""ggml's type for each format of weights of experts."""
_PRODUCT = (
    "libggml, ggml_mul_mat of TQ2_0 weights and Q8_K activations (ggml_vec_dot_tq2_0_q8_K); from PyPI's pywhispercpp"
)

PEERS = (
    *(
        Peer(
            name="ggml",
            op="ternary_matmul_experts",
            formats=frozenset({format}),
            dtypes=frozenset({"float32"}),
            source=f"libggml, ggml_mul_mat_id of {own.upper()} weights ({libggml.dot_symbol(own)})",
            version=libggml.version,
            missing=partial(libggml.missing, own),
            encode=partial(_of_experts, format, own),
            bind=partial(_multiply, own),
            outputs=("out",),
            refusal=partial(_part_of_a_block, own),
            error_bound=partial(of_experts, _bound if format == "tile64" else partial(grouped_bound, format, own)),
        )
        for format, own in EXPERTS.items()
    ),
    Peer(
        name="ggml",
        op="ternary_quantize",
        formats=frozenset({"tq2_0"}),
        dtypes=frozenset({"uint8"}),
        source="libggml, quantize_row_tq2_0_ref; from PyPI's pywhispercpp",
        version=libggml.version,
        missing=libggml.missing,
        encode=tq2_0.encode,
        bind=_quantize,
        outputs=("codes",),
        refusal=tq2_0.refusal,
        error_bound=tq2_0.bound,
    ),
    Peer(
        name="ggml",
        op="ternary_matmul",
        formats=INTEGERS,
        takes=one_scale,
        dtypes=frozenset({"int32"}),
        source=_PRODUCT,
        version=libggml.version,
        missing=libggml.missing,
        encode=_integers,
        bind=partial(_multiply, "tq2_0"),
        outputs=("out",),
        refusal=_too_long,
    ),
    Peer(
        name="ggml",
        op="ternary_matmul",
        formats=PRODUCTS,
        takes=one_scale,
        dtypes=frozenset({"float32"}),
        source=_PRODUCT,
        version=libggml.version,
        missing=libggml.missing,
        encode=_scaled,
        bind=partial(_multiply, "tq2_0"),
        outputs=("out",),
        error_bound=_bound,
    ),
    *(
        Peer(
            name="ggml",
            op="ternary_matmul",
            formats=frozenset({format.name}),
            dtypes=frozenset({"float32"}),
            source=_PRODUCT.replace("TQ2_0", format.name.upper()).replace("tq2_0", format.name),
            version=libggml.version,
            missing=libggml.missing,
            encode=partial(_grouped, format.name),
            bind=partial(_multiply, format.name),
            outputs=("out",),
            error_bound=partial(grouped_bound, format.name, format.name),
        )
        for format in GROUPED
        if format.name in OWN
    ),
    *(
        Peer(
            name="ggml",
            op="ternary_matmul",
            formats=frozenset({format.name}),
            dtypes=frozenset({"float32"}),
            source=_PRODUCT.replace("ggml_mul_mat", "ggml_mul by the rows' scales of ggml_mul_mat"),
            version=libggml.version,
            missing=libggml.missing,
            encode=partial(_rows, format.name),
            bind=partial(_multiply, "tq2_0"),
            outputs=("out",),
            error_bound=partial(_rows_bound, format.name),
        )
        for format in ROWS
    ),
    *(
        # Q2_0 is missing in the wheel that the extra brings. What has it is a variant (products.py).
        Peer(
            name="ggml",
            op="ternary_matmul",
            formats=frozenset({format.name}),
            dtypes=frozenset({"float32"}),
            source="libggml, ggml_mul_mat of weights and activations as F32; from PyPI's pywhispercpp",
            version=libggml.version,
            missing=libggml.missing,
            encode=partial(_floats, format.name),
            bind=partial(_multiply, "f32"),
            outputs=("out",),
            error_bound=partial(float_bound, format.name),
        )
        for format in GROUPED
        if format.name not in OWN
    ),
)
