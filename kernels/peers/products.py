"""Products of other projects as variants of ternary_matmul, of tier PEER: judged like tritmark's, and never selected.

A peer has keys in the formats that it reads, and in FASTEST, the format of tritmark's fastest kernels. Bind packs
weights and int8 activations into the peer's layout, as its users do beforehand. Timed is only the product, from packed
weights and quantized activations to floats, so its launches do not see later writes to the inputs. A single scale of
the matrix is merged into the activations' scale.

Functions of libraries are called by tritmark's threads (cython_ext/peers.pyx), ONNX Runtime as a session from Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import Arrays, Axes, Constraint, KernelKey, Launch, MultipleOf, Tier, Variant
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.native.cpu import native
from tritmark.kernels.peers import ggml, ik_llama, isa, libggml, libik, onnx, torch_cpu
from tritmark.kernels.peers.launch import PeerLaunch, gamma, times
from tritmark.kernels.ternary_matmul import cpu
from tritmark.kernels.ternary_matmul.scales import weight_scales
from tritmark.kernels.ternary_matmul_experts.offsets import expert_of

OP, DTYPE = "ternary_matmul", "float32"
ONNX = "onnxruntime-int8"
FASTEST = next(iter(cpu.FORMATS))
"""The fastest of tritmark's formats with one scale: peers that repack weights have their keys in it."""

_GGML_FEATURES = frozenset({"avx2", "f16c"})

_LEAST, _MOST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)

ErrorBound = Callable[[Arrays, Axes], Mapping[str, Any]]


Bytes = npt.NDArray[np.uint8]
Codes = npt.NDArray[np.int8]

_LAST: dict[str, Bytes] = {}
"""The last packed weights, by a hash of their source: a measurement binds copies of the same weights, and packing takes
a thousand times as long as a call."""


def packed(format: str, own: str, pack: Callable[[Codes], Bytes], inputs: Arrays, axes: Axes) -> Bytes:
    """The weights in another layout, in their own memory; codes are (N, K), or (E, N, K) of experts."""
    weights, matrix = np.ascontiguousarray(inputs["weights"]).reshape(-1), (axes["N"], axes["K"])
    shape = (axes["E"], *matrix) if "E" in axes else matrix
    mark = sha256(repr((format, own, shape)).encode() + weights.tobytes()).hexdigest()
    if mark not in _LAST:
        _LAST.clear()
        _LAST[mark] = pack(BUILT_IN[format].unpack(weights, shape)[0])
    return _LAST[mark].copy()


def both_scales(inputs: Arrays) -> npt.NDArray[np.float32]:
    """weight_scale / act_scale, (M,), rounded once."""
    scale: npt.NDArray[np.float64] = np.float64(inputs["weight_scale"]) / inputs["act_scale"].astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        return scale.astype(np.float32)


def inverse_scales(inputs: Arrays) -> npt.NDArray[np.float32]:
    """1 / act_scale, (M,), rounded once."""
    with np.errstate(over="ignore", under="ignore"):
        inverse: npt.NDArray[np.float32] = (1 / inputs["act_scale"].astype(np.float64)).astype(np.float32)
    return inverse


def held(name: str, scale: npt.NDArray[np.float64], sums: npt.NDArray[np.float64]) -> None:
    """Raise InvalidArgumentError if the scales (M,), or their products with sums (M, N), are not normal float32
    numbers: the contract divides in float64."""
    with np.errstate(over="ignore"):
        most = float((scale[:, np.newaxis] * np.maximum(sums, 1)).max())
    if float(scale.min()) < _LEAST or most > _MOST:
        found = f"scales of {scale.min():.3g} or more, and scaled sums of up to {most:.3g}"
        raise InvalidArgumentError(op=name, argument="act_scale", found=found, legal="normal numbers of float32")


def bound(name: str, roundings: Callable[[Axes], int], inputs: Arrays, axes: Axes) -> dict[str, Any]:
    """The error bound of a product that sums (w + 1) * a exactly, in parts, and subtracts the sum of a. Each term has
    `roundings`, including that of the scale. Denormals cause no loss: the scale is normal, and all else is integer."""
    sums = times(np.abs(inputs["activations"].astype(np.float64)), inputs["weights"], plus=2)
    scale = np.float64(inputs["weight_scale"]) / inputs["act_scale"].astype(np.float64)
    held(name, scale, sums)
    return {"out": gamma(roundings(axes)) * scale[:, np.newaxis] * sums}


def stored_scales(format: str, inputs: Arrays, axes: Axes) -> npt.NDArray[np.float32]:
    """The scales in the bytes of the weights, for the rows of all matrices: (N, groups) or (E * N, groups)."""
    each = np.ascontiguousarray(inputs["weights"]).reshape(axes.get("E", 1), -1)
    return np.concatenate([BUILT_IN[format].stored_scales(one, (axes["N"], axes["K"])) for one in each])


def scales_beside(format: str, inputs: Arrays, axes: Axes) -> npt.NDArray[np.float32]:
    """The factor of each row of activations, (M,): the inverse of its scale, times that of its matrix if the bytes of
    the weights have none."""
    if BUILT_IN[format].scale_per != "tensor":
        return inverse_scales(inputs)
    if "offsets" in inputs:
        return both_scales({**inputs, "weight_scale": inputs["weight_scale"][expert_of(inputs["offsets"], axes["M"])]})
    return both_scales(inputs)


def blocks(format: str, own: str, inputs: Arrays, axes: Axes) -> Bytes:
    """Weights in ggml's format `own`, (N, bytes) or (E * N, bytes). The bytes are unchanged if `own` is the key's
    format. Otherwise they have its codes, and its scales or 1."""
    rows = axes.get("E", 1) * axes["N"]
    if format == own:
        unchanged: Bytes = inputs["weights"].reshape(rows, -1)
        return unchanged
    if BUILT_IN[format].scale_per == "tensor":
        return packed(format, own, lambda codes: BUILT_IN[own].pack(codes, 1.0), inputs, axes).reshape(rows, -1)
    scales = BUILT_IN[own].regrouped(stored_scales(format, inputs, axes), BUILT_IN[format])
    return packed(format, own, lambda codes: BUILT_IN[own].pack(codes.reshape(rows, -1), scales), inputs, axes)


def call(
    name: str,
    address: int,
    weights: Bytes,
    activations: Bytes,
    inputs: Arrays,
    outputs: Arrays,
    axes: Axes,
    threads: int,
    **more: Any,
) -> Launch:
    """A launch of a function with arrays that were packed for it, and the variant's name. It keeps the offsets of
    experts as they are now."""
    if "offsets" in inputs:
        more["offsets"] = np.array(inputs["offsets"])
    made: Launch = native("peers").PeerCall(
        name, address, weights, activations, axes["K"], outputs["out"], threads, **more
    )
    return made


def bind_ggml(format: str, own: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    """Rows in ggml's type `own` times rows of activations, for one matrix or experts."""
    opened, scales = libggml.library(), scales_beside(format, inputs, axes)
    weights = blocks(format, own, inputs, axes)
    activations = libggml.pack_activations(own, np.ascontiguousarray(inputs["activations"]), scales)
    more: dict[str, Any] = {"scales": scales} if libggml.TYPES[own].scaled_beside else {}
    address = libggml.address(opened, libggml.dot_symbol(own))
    return call(f"ggml-{own}", address, weights, activations, inputs, outputs, axes, threads, **more)


def bind_ik(format: str, own: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    """ik_llama.cpp's product of its type `own`, for one matrix or experts."""
    scales, rows, weights = scales_beside(format, inputs, axes), axes.get("E", 1) * axes["N"], inputs["weights"]
    codes, more = np.ascontiguousarray(inputs["activations"]), dict[str, Any](types=libik.TYPES[own])
    if own == libik.GROUPED:
        stored = stored_scales(format, inputs, axes)
        weights = packed(format, own, lambda each: libik.pack_q4_0_r8(each.reshape(rows, -1), stored), inputs, axes)
        activations, more["scales"] = libik.pack_q8_2_x4(codes), scales
    else:
        if format != own:
            weights = packed(format, own, lambda each: libik.pack(own, each.reshape(rows, -1)), inputs, axes)
        activations = libik.pack_activations(own, codes, scales)
    return call(f"ik_llama-{own}", libik.address(), weights, activations, inputs, outputs, axes, threads, **more)


def _onnx(format: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    weights = packed(format, ONNX, onnx.pack, inputs, axes)
    shared = onnx.pool(threads)
    product = onnx.OnnxProduct(weights, float(inputs["weight_scale"]), axes["K"], threads=shared)
    return PeerLaunch(ONNX, shared, product.into(onnx.floats(inputs), outputs["out"]))


def grouped_bound(format: str, own: str, inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The bound of ggml's product of a format with a scale for each group, in its type `own`. Raises
    InvalidArgumentError if float32 does not hold its sums."""
    return summable("ggml", ggml.grouped_bound(format, own, inputs, axes))


def summable(name: str, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """That bound. Raises InvalidArgumentError if float32 does not hold the sums."""
    # The bound is a share of the sums of magnitudes, which float32 must hold.
    if float(found["out"].max()) > _MOST * gamma(1):
        what = f"sums with an error of up to {float(found['out'].max()):.3g}"
        raise InvalidArgumentError(op=name, argument="weight_scale", found=what, legal="sums that float32 holds")
    return found


def _onnx_bound(inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    bound("MatMulNBits", lambda axes: 0, inputs, axes)
    inverse = 1 / inputs["act_scale"].astype(np.float64)
    # The quantization step of activations is as small as their scale; the weights' scale is separate.
    held("MatMulNBits", inverse, np.full((axes["M"], 1), 128.0))
    held("MatMulNBits", np.atleast_1d(np.float64(inputs["weight_scale"])), np.ones((1, 1)))
    return onnx.bound(inputs, axes)


def peer_variant(
    format: str,
    name: str,
    summary: str,
    bind: Callable[[Arrays, Arrays, Axes, int], Launch],
    missing: Callable[[], str | None],
    load: Callable[[], object],
    admits: ErrorBound,
    constraints: tuple[Constraint, ...] = (),
    features: frozenset[str] = frozenset(),
    *,
    op: str = OP,
    version: Callable[[], str],
    needs: isa.Needs,
) -> Variant:
    """A product of another project. `version` and `needs` say what is installed, `admits` is its error bound."""
    return Variant(
        key=KernelKey("cpu", op, format, DTYPE),
        name=name,
        tier=Tier.PEER,
        summary=summary,
        bind=bind,
        features=features,
        constraints=constraints,
        reports_nonfinite=False,
        missing=missing,
        load=load,
        packs=True,
        error_bound=admits,
        version=partial(_version, version, needs),
    )


def _version(version: Callable[[], str], needs: isa.Needs) -> str:
    return f"{version()}, {isa.in_words(needs)}"


def _rows_bound(format: str, inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The bound of ik_llama.cpp's product of a format with a scale for each row. Raises InvalidArgumentError if float32
    does not hold the sums times the scales of the activations, or those times the scales of rows."""
    sums = times(np.abs(inputs["activations"].astype(np.float64)), inputs["weights"], plus=2)
    inverse = 1 / inputs["act_scale"].astype(np.float64)
    held(libik.MULTIPLY, inverse, sums)
    rows = np.abs(weight_scales(inputs, axes, format).astype(np.float64))
    held(libik.MULTIPLY, inverse, sums * np.maximum(rows, 1))
    return ik_llama.own_bound(format, inputs, axes)


def ggml_variant(format: str, own: str, op: str = OP, product: str = "product") -> Variant:
    """libggml's product of weights in its type `own`, for keys in `format`."""
    one = BUILT_IN[format].scale_per == "tensor"
    symbol = libggml.dot_symbol(own)
    return peer_variant(
        format,
        f"ggml-{own}",
        f"libggml, {symbol}, as its own {product} calls it",
        partial(bind_ggml, format, own),
        isa.limited(partial(libggml.installed, own), libggml.needs),
        libggml.library,
        partial(bound, symbol, ggml.roundings) if one else partial(grouped_bound, format, own),
        (MultipleOf("K", libggml.TYPES[own].block),),
        _GGML_FEATURES,
        op=op,
        version=libggml.version,
        needs=libggml.needs,
    )


def ik_variant(format: str, own: str, admits: ErrorBound, op: str = OP) -> Variant:
    """ik_llama.cpp's product of weights in its type `own`, for keys in `format`."""
    columns, rows = libik.MULTIPLES[own]
    return peer_variant(
        format,
        f"ik_llama-{own}",
        f"ik_llama.cpp, {libik.MULTIPLY} of {own.upper()}; from PyPI's {libik.PACKAGE}",
        partial(bind_ik, format, own),
        isa.limited(libik.missing, libik.needs),
        libik.library,
        admits,
        (MultipleOf("K", columns), *([MultipleOf("N", rows)] if rows > 1 else [])),
        libik.FEATURES,
        op=op,
        version=libik.version,
        needs=libik.needs,
    )


# Compiled for AVX2 without VNNI, as in the wheel, IQ2_BN is incorrect for an odd number of blocks in a row
# (mul_mat_iq2bn_q8_K64 multiplies half of the last one twice). It gets a FAIL; there is no constraint.
IK_BOUND: ErrorBound = partial(bound, libik.MULTIPLY, libik.roundings)
"""The bound of ik_llama.cpp's products with one scale for a matrix."""


def _bfloat16_bound(inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    bound("torch.matmul", lambda axes: 0, inputs, axes)
    return torch_cpu.bfloat16_bound(inputs, axes)


VARIANTS: tuple[Variant, ...] = (
    ggml_variant(FASTEST, "tq2_0"),
    *(ggml_variant(own, own) for own in libggml.TYPES if own in cpu.FORMATS),
    ik_variant(FASTEST, "iq2_bn", IK_BOUND),
    ik_variant(FASTEST, "iq2_bn_r4", IK_BOUND),
    ik_variant("iq2_bn_r4", "iq2_bn_r4", partial(_rows_bound, "iq2_bn_r4")),
    peer_variant(
        FASTEST,
        ONNX,
        "ONNX Runtime, a session of MatMulNBits with 2 bits, blocks of 128 and int8, from float activations on",
        partial(_onnx, FASTEST),
        isa.limited(onnx.missing, isa.dispatches),
        onnx.load,
        _onnx_bound,
        version=onnx.version,
        needs=isa.dispatches,
    ),
    peer_variant(
        FASTEST,
        "torch-int8",
        "PyTorch, torch._int_mm of dense int8 weights, and that times the scales",
        partial(torch_cpu.bind_int8, "torch-int8", FASTEST),
        torch_cpu.missing,
        torch_cpu.load,
        partial(bound, "torch._int_mm", torch_cpu.int8_roundings),
        version=torch_cpu.version,
        needs=isa.dispatches,
    ),
    peer_variant(
        FASTEST,
        "torch-bfloat16",
        "PyTorch, torch.matmul of dense bfloat16 weights, and that times the scales",
        partial(torch_cpu.bind_bfloat16, "torch-bfloat16", FASTEST),
        torch_cpu.missing,
        torch_cpu.load,
        _bfloat16_bound,
        version=torch_cpu.version,
        needs=isa.dispatches,
    ),
)
"""The variants of packages on PyPI; they register through the entry-point group `tritmark.variants`."""
