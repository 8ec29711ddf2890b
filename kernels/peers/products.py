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

OP, DTYPE = "ternary_matmul", "float32"
ONNX = "onnxruntime-int8"
FASTEST = next(iter(cpu.FORMATS))
"""The fastest of tritmark's formats with one scale: peers that repack weights have their keys in it."""

_LEAST, _MOST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)

ErrorBound = Callable[[Arrays, Axes], Mapping[str, Any]]


Bytes = npt.NDArray[np.uint8]
Codes = npt.NDArray[np.int8]

_LAST: dict[str, Bytes] = {}
"""The last packed weights, by a hash of their source: a measurement binds copies of the same weights, and packing takes
a thousand times as long as a call."""


def packed(format: str, own: str, pack: Callable[[Codes], Bytes], inputs: Arrays, axes: Axes) -> Bytes:
    """The weights in another layout, in their own memory."""
    weights, shape = np.ascontiguousarray(inputs["weights"]), (axes["N"], axes["K"])
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


def call(
    name: str, address: int, weights: Any, activations: Any, outputs: Arrays, axes: Axes, threads: int, **more: Any
) -> Launch:
    """A launch of a function with arrays that were packed for it, and the variant's name."""
    made: Launch = native("peers").PeerCall(
        name, address, weights, activations, axes["K"], outputs["out"], threads, **more
    )
    return made


def blocks(format: str, own: str, inputs: Arrays, axes: Axes) -> tuple[Bytes, npt.NDArray[np.float32]]:
    """Weights in ggml's format `own`, (N, bytes), and the scales of the activations, (M,). The bytes are unchanged if
    `own` is the key's format; otherwise their scale is 1."""
    if format == own:
        return inputs["weights"].reshape(axes["N"], -1), inverse_scales(inputs)
    weights = packed(format, own, lambda codes: BUILT_IN[own].pack(codes, 1.0), inputs, axes)
    return weights.reshape(axes["N"], -1), both_scales(inputs)


def _ggml(format: str, own: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    library = libggml.library()
    weights, d = blocks(format, own, inputs, axes)
    activations = libggml.pack_q8_K(np.ascontiguousarray(inputs["activations"]), d)
    address = libggml.address(library, f"ggml_vec_dot_{own}_q8_K")
    return call(f"ggml-{own}", address, weights, activations, outputs, axes, threads)


def _ik(format: str, own: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    weights, scales = inputs["weights"], inverse_scales(inputs)
    if format != own:
        weights, scales = packed(format, own, partial(libik.pack, own), inputs, axes), both_scales(inputs)
    activations = libik.pack_activations(own, np.ascontiguousarray(inputs["activations"]), scales)
    name, types = f"ik_llama-{own}", libik.TYPES[own]
    return call(name, libik.address(), weights, activations, outputs, axes, threads, types=types)


def _onnx(format: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    weights = packed(format, ONNX, onnx.pack, inputs, axes)
    shared = onnx.pool(threads)
    product = onnx.OnnxProduct(weights, float(inputs["weight_scale"]), axes["K"], threads=shared)
    return PeerLaunch(ONNX, shared, product.into(onnx.floats(inputs), outputs["out"]))


def grouped_bound(format: str, inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The bound of ggml's product of a format with a scale for each group. Raises InvalidArgumentError if float32 does
    not hold its sums."""
    found = ggml.grouped_bound(format, inputs, axes)
    # The bound is a share of the sums of magnitudes, which float32 must hold.
    if float(found["out"].max()) > _MOST * gamma(1):
        what = f"sums with an error of up to {float(found['out'].max()):.3g}"
        raise InvalidArgumentError(op="ggml", argument="weight_scale", found=what, legal="sums that float32 holds")
    return found


def _onnx_bound(inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    bound("MatMulNBits", lambda axes: 0, inputs, axes)
    inverse = 1 / inputs["act_scale"].astype(np.float64)
    # The quantization step of activations is as small as their scale; the weights' scale is separate.
    held("MatMulNBits", inverse, np.full((axes["M"], 1), 128.0))
    held("MatMulNBits", np.atleast_1d(np.float64(inputs["weight_scale"])), np.ones((1, 1)))
    return onnx.bound(inputs, axes)


def _variant(
    format: str,
    name: str,
    summary: str,
    bind: Callable[[Arrays, Arrays, Axes, int], Launch],
    missing: Callable[[], str | None],
    load: Callable[[], object],
    admits: ErrorBound,
    constraints: tuple[Constraint, ...] = (),
    features: frozenset[str] = frozenset(),
) -> Variant:
    return Variant(
        key=KernelKey("cpu", OP, format, DTYPE),
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
    )


def _rows_bound(format: str, inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The bound of ik_llama.cpp's product of a format with a scale for each row. Raises InvalidArgumentError if float32
    does not hold the sums times the scales of the activations, or those times the scales of rows."""
    sums = times(np.abs(inputs["activations"].astype(np.float64)), inputs["weights"], plus=2)
    inverse = 1 / inputs["act_scale"].astype(np.float64)
    held(libik.MULTIPLY, inverse, sums)
    rows = np.abs(weight_scales(inputs, axes, format).astype(np.float64))
    held(libik.MULTIPLY, inverse, sums * np.maximum(rows, 1))
    return ik_llama.own_bound(format, inputs, axes)


def _ggml_variants() -> tuple[Variant, ...]:
    block = (MultipleOf("K", libggml.BLOCK),)
    features = frozenset({"avx2", "f16c"})
    own = [format for format in libggml.BLOCK_BYTES if format in cpu.FORMATS]
    here = [
        _variant(
            format,
            f"ggml-{format}",
            f"libggml, ggml_vec_dot_{format}_q8_K, as its own product calls it",
            partial(_ggml, format, format),
            isa.limited(libggml.installed, libggml.needs),
            libggml.library,
            partial(grouped_bound, format),
            block,
            features,
        )
        for format in own
    ]
    anew = _variant(
        FASTEST,
        "ggml-tq2_0",
        "libggml, ggml_vec_dot_tq2_0_q8_K, as its own product calls it",
        partial(_ggml, FASTEST, "tq2_0"),
        isa.limited(libggml.installed, libggml.needs),
        libggml.library,
        partial(bound, "ggml_vec_dot_tq2_0_q8_K", ggml.roundings),
        block,
        features,
    )
    return (anew, *here)


def _ik_variants() -> tuple[Variant, ...]:
    # Compiled for AVX2 without VNNI, as in the wheel, IQ2_BN is incorrect for an odd number of blocks in a row
    # (mul_mat_iq2bn_q8_K64 multiplies half of the last one twice). It gets a FAIL; there is no constraint.
    anew = partial(bound, libik.MULTIPLY, libik.roundings)
    places: tuple[tuple[str, str, ErrorBound], ...] = (
        (FASTEST, "iq2_bn", anew),
        (FASTEST, "iq2_bn_r4", anew),
        ("iq2_bn_r4", "iq2_bn_r4", partial(_rows_bound, "iq2_bn_r4")),
    )
    return tuple(
        _variant(
            format,
            f"ik_llama-{own}",
            f"ik_llama.cpp, {libik.MULTIPLY} of {own.upper()}; from PyPI's {libik.PACKAGE}",
            partial(_ik, format, own),
            isa.limited(libik.missing, libik.needs),
            libik.library,
            admits,
            (MultipleOf("K", libik.BLOCK), *([MultipleOf("N", rows)] if rows > 1 else [])),
            libik.FEATURES,
        )
        for format, own, admits in places
        for rows in (BUILT_IN[own].row_multiple,)
    )


def _bfloat16_bound(inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    bound("torch.matmul", lambda axes: 0, inputs, axes)
    return torch_cpu.bfloat16_bound(inputs, axes)


VARIANTS: tuple[Variant, ...] = (
    *_ggml_variants(),
    *_ik_variants(),
    _variant(
        FASTEST,
        ONNX,
        "ONNX Runtime, a session of MatMulNBits with 2 bits, blocks of 128 and int8, from float activations on",
        partial(_onnx, FASTEST),
        isa.limited(onnx.missing, isa.dispatches),
        onnx.load,
        _onnx_bound,
    ),
    _variant(
        FASTEST,
        "torch-int8",
        "PyTorch, torch._int_mm of dense int8 weights, and that times the scales",
        partial(torch_cpu.bind_int8, "torch-int8", FASTEST),
        torch_cpu.missing,
        torch_cpu.load,
        partial(bound, "torch._int_mm", torch_cpu.int8_roundings),
    ),
    _variant(
        FASTEST,
        "torch-bfloat16",
        "PyTorch, torch.matmul of dense bfloat16 weights, and that times the scales",
        partial(torch_cpu.bind_bfloat16, "torch-bfloat16", FASTEST),
        torch_cpu.missing,
        torch_cpu.load,
        _bfloat16_bound,
    ),
)
"""The variants of packages on PyPI; they register through the entry-point group `tritmark.variants`."""
