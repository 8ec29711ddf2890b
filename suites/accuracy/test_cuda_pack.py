"""The CUDA kernels of pack_codes and unpack_codes against the formats, on the GPU if there is one, else in the
simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.spec import Axes, Op, Variant
from tritmark.kernels import pack_codes, unpack_codes
from tritmark.kernels.cuda.context import CudaContext
from tritmark.kernels.cuda.launch import launch
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.pack_codes import cuda as pack_cuda
from tritmark.kernels.pack_codes.api import with_receipt as pack_with_receipt
from tritmark.kernels.pack_codes.spec import OP as PACK
from tritmark.kernels.pack_codes.spec import PACKED_FORMATS, scales_like
from tritmark.kernels.unpack_codes import cuda as unpack_cuda
from tritmark.kernels.unpack_codes.api import with_receipt as unpack_with_receipt
from tritmark.kernels.unpack_codes.spec import OP as UNPACK

OPS = {PACK.name: PACK, UNPACK.name: UNPACK}
SHAPES = (
    (1, 1),
    (2, 64),
    (3, 65),
    (5, 128),
    (4, 32),
    (7, 256),
    (2, 512),
    (3, 768),
    (13, 80),
    (64, 112),
    (1, 128),
    (33, 48),
    (2, 5000),
)

every_variant = pytest.mark.parametrize(
    "variant", [*pack_cuda.VARIANTS, *unpack_cuda.VARIANTS], ids=lambda v: f"{v.key.op}-{v.key.format}"
)


def _with_shapes(variants: tuple[Variant, ...], *shapes: tuple[int, int]) -> Any:
    """Each variant with each of the shapes that it takes."""
    pairs = [
        (variant, shape) for variant in variants for shape in shapes if _takes(variant, {"N": shape[0], "K": shape[1]})
    ]
    return pytest.mark.parametrize(
        ("variant", "shape"), pairs, ids=[f"{variant.key.format}-{n}x{k}" for variant, (n, k) in pairs]
    )


def _takes(variant: Variant, axes: Axes) -> bool:
    return not any(limit.refusal(axes) for limit in variant.constraints)


def _encoded(op: Op, variant: Variant, axes: Axes, family: str, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs as the kernel takes them, and the expected outputs."""
    logical = op.generate(axes, family, np.random.default_rng([seed, axes["K"]]))
    return op.encode(logical, axes, variant.key.format), op.reference(logical, axes, variant.key)


@every_variant
def test_every_shape(judge: Callable[..., None], variant: Variant):
    taken = [{"N": n, "K": k} for n, k in SHAPES if _takes(variant, {"N": n, "K": k})]
    assert len(taken) >= 3
    for axes in taken:
        for offset in (0, 16):
            judge(variant, axes, "uniform", offset)


@every_variant
def test_every_family(judge: Callable[..., None], variant: Variant):
    for family in PACK.input_families:
        judge(variant, {"N": 6, "K": 768}, family)


@every_variant
def test_a_grid_smaller_than_the_work_goes_round(
    judge: Callable[..., None], variant: Variant, monkeypatch: pytest.MonkeyPatch
):
    whole = launch.launch_params  # type: ignore[attr-defined]
    monkeypatch.setattr(launch, "launch_params", lambda *a, **k: replace(whole(*a, **k), grid=(2, 1, 1)))
    judge(variant, {"N": 37, "K": 768}, "uniform")


@every_variant
def test_an_address_that_is_not_aligned_is_refused(bound: Callable[..., Any], variant: Variant):
    axes = {"N": 2, "K": 256}
    inputs, _ = _encoded(OPS[variant.key.op], variant, axes, "uniform", 0)
    with pytest.raises(InvalidArgumentError, match="a multiple of 16 bytes"):
        bound(variant, inputs, axes, offset=4)


@_with_shapes(pack_cuda.VARIANTS, (9, 256), (5, 77))
def test_the_first_illegal_code_is_named_and_then_forgotten(
    bound: Callable[..., Any], variant: Variant, shape: tuple[int, int]
):
    axes = {"N": shape[0], "K": shape[1]}
    good, _ = _encoded(PACK, variant, axes, "uniform", 0)
    there = bound(variant, good, axes)
    size = shape[0] * shape[1]
    for code in (2, -2, 127, -128, 3, 126):
        for places in ((0,), (size - 1,), (17, 16), (300, 301, 299), (255, 256), (2, 370)):
            codes = good["codes"].copy()
            codes.reshape(-1)[list(places)] = code
            there.run({**good, "codes": codes})
            assert there.launch.bad == min(places), (code, places)
    there.run(good)
    assert there.launch.bad == -1


def _field(format: str, k: int, row: int, width: int) -> tuple[int, int]:
    """Byte and shift of weight (row, k) of a matrix of rows of `width`: i2_s_x86, row16, tq2_0."""
    flat = row * width + k
    if format == "i2_s_x86":
        return flat // 128 * 32 + flat % 32, 6 - flat % 128 // 32 * 2
    if format == "row16":
        return (row * -(-width // 64) * 4 + k // 16) * 4 + k % 4, k % 16 // 4 * 2
    return flat // 256 * 66 + flat % 256 // 128 * 32 + flat % 32, flat % 128 // 32 * 2


@_with_shapes(unpack_cuda.VARIANTS, (4, 256), (6, 77))
def test_the_first_field_3_is_named_and_then_forgotten(
    bound: Callable[..., Any], variant: Variant, shape: tuple[int, int]
):
    axes = {"N": shape[0], "K": shape[1]}
    form = FORMATS[variant.key.format]
    good, _ = _encoded(UNPACK, variant, axes, "uniform", 0)
    there = bound(variant, good, axes)
    for places in (
        ((0, 0),),
        ((shape[0] - 1, shape[1] - 1),),
        ((2, 40), (2, 39)),
        ((3, 0), (2, 76)),
        ((1, 15), (1, 16)),
    ):
        packed = good["packed"].copy()
        for row, k in places:
            byte, shift = _field(form.name, k, row, shape[1])
            packed.reshape(-1)[byte] |= 3 << shift
        there.run({"packed": packed})
        assert there.launch.bad == min(row * shape[1] + k for row, k in places), places
        with pytest.raises(InvalidArgumentError, match="field 3"):
            form.unpack(packed, shape)
    there.run(good)
    assert there.launch.bad == -1


@pytest.mark.parametrize("shape", [(3, 65), (3, 112), (3, 36), (3, 16)])
def test_weights_in_the_padding_of_row16_are_reported_behind_all_others(
    bound: Callable[..., Any], shape: tuple[int, int]
):
    (variant,) = (v for v in unpack_cuda.VARIANTS if v.key.format == "row16")
    axes = {"N": shape[0], "K": shape[1]}
    good, _ = _encoded(UNPACK, variant, axes, "uniform", 0)
    there = bound(variant, good, axes)
    padded = -(-shape[1] // 64) * 64
    for row, k in ((0, padded - 1), (2, shape[1]), (1, padded - 16)):
        packed = good["packed"].copy()
        byte, shift = _field("row16", k, row, shape[1])
        packed[byte] ^= 1 << shift
        there.run({"packed": packed})
        assert there.launch.bad == shape[0] * shape[1] + row
        with pytest.raises(InvalidArgumentError, match="padding"):
            FORMATS["row16"].unpack(packed, shape)


def test_unpacking_gives_back_what_was_packed(bound: Callable[..., Any]):
    codes = np.random.default_rng(5).integers(-1, 2, (6, 512), np.int8)
    for packer, unpacker in zip(pack_cuda.VARIANTS, unpack_cuda.VARIANTS, strict=True):
        assert packer.key.format == unpacker.key.format
        axes = {"N": 6, "K": 512}
        scales = np.full(scales_like(axes, packer.key.format), 0.375, np.float32)
        packed = bound(packer, {"codes": codes, "scales": scales}, axes).run({"codes": codes, "scales": scales})[
            "packed"
        ]
        found = bound(unpacker, {"packed": packed}, axes).run({"packed": packed})
        assert np.array_equal(found["codes"], codes)
        assert np.array_equal(found["scales"], scales)


@pytest.mark.parametrize(
    ("format", "shape", "why"),
    [
        ("i2_s_x86", (3, 64), "i2_s_x86 drops the last 64 weights of (3, 64): N * K is no multiple of 128"),
        ("tq2_0", (4, 128), "tq2_0 takes N a multiple of 1 and K of 256, not (4, 128)"),
        ("i2_s_x86", (2, 64), None),
        ("row16", (3, 5), None),
        ("tq2_0", (1, 256), None),
    ],
)
def test_shapes_that_a_format_cannot_hold_are_refused(format: str, shape: tuple[int, int], why: str | None):
    for variants in (pack_cuda.VARIANTS, unpack_cuda.VARIANTS):
        (variant,) = (v for v in variants if v.key.format == format)
        assert [limit.refusal({"N": shape[0], "K": shape[1]}) for limit in variant.constraints] == [why]


# The public functions

every_format = pytest.mark.parametrize("format", PACKED_FORMATS)
NANS = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)


def _matrix(rows: int = 4, columns: int = 512) -> np.ndarray:
    return np.random.default_rng(rows * columns).integers(-1, 2, (rows, columns), np.int8)


def _same(found: Any, wanted: Any) -> None:
    assert (type(found), found.dtype, found.shape) == (type(wanted), wanted.dtype, wanted.shape)
    assert found.tobytes() == wanted.tobytes()


def _refused(call: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[str, str, str]:
    with pytest.raises(InvalidArgumentError) as caught:
        call(*arguments, **named)
    return caught.value.argument, caught.value.found, caught.value.legal


def _outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """Its bytes, or the refusal."""
    try:
        return call(*arguments).tobytes()
    except InvalidArgumentError as error:
        return error.argument, error.found, error.legal


@pytest.mark.parametrize("scale", [0.375, np.float32(0), np.float64(1) / 3, 65504.0])
@every_format
def test_functions_give_the_formats_bytes_and_codes(cuda: CudaContext, format: str, scale: Any):
    form, codes = FORMATS[format], _matrix()
    for layout in (codes, np.asfortranarray(codes), np.repeat(codes, 2, axis=1)[:, ::2]):
        packed, receipt = pack_with_receipt(layout, scale, format)
        _same(packed, form.pack(codes, scale))
        assert receipt.kernel == f"cuda/pack_codes/{format}/uint8/v1"
        assert (receipt.launches, receipt.simulated) == (1, cuda.backend.simulated)
    for given in (packed, packed.reshape(-1)):
        found, wanted = unpack_with_receipt(given, codes.shape, format), form.unpack(packed, codes.shape)
        _same(found[0], wanted[0])
        _same(found[1], wanted[1])
        assert found[2].kernel == f"cuda/unpack_codes/{format}/int8/v1"


@pytest.mark.parametrize("bits", [1, 0x3FF, 0x3C00, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x7FFF])
def test_block_scales_are_those_of_tq2_0_whatever_they_hold(cuda: CudaContext, bits: int):
    codes, form = _matrix(3, 1024), FORMATS["tq2_0"]
    scales = np.resize(
        np.concatenate([NANS, np.array([np.inf, -np.inf, -1, 65519.996, 1e-8, 2.0**-25], np.float32)]), (3, 4)
    )
    packed = pack_codes(codes, scales, "tq2_0")
    _same(packed, form.pack(codes, scales))
    packed.reshape(-1, 66)[:, 64:] = np.array([bits], "<u2").view(np.uint8)
    found, wanted = unpack_codes(packed, codes.shape, "tq2_0"), form.unpack(packed, codes.shape)
    _same(found[0], wanted[0])
    _same(found[1], wanted[1])


@pytest.mark.parametrize("code", [2, -2, 127, -128])
@every_format
def test_a_code_that_is_none_is_refused_as_the_format_does(cuda: CudaContext, format: str, code: int):
    codes = _matrix()
    codes[1, 77] = codes[2, 3] = code
    refusal = _refused(pack_codes, codes, 1.0, format)
    assert refusal == _refused(FORMATS[format].pack, codes, 1.0) == ("codes", f"{code} at (1, 77)", "-1, 0, 1")


@pytest.mark.parametrize(
    "scale",
    [
        -1.0,
        np.nan,
        np.inf,
        1e39,
        65520.0,
        "1",
        None,
        np.ones((4, 2), np.float32),
        np.full((4, 2), 7e4, np.float32),
        np.ones(3),
    ],
)
@every_format
def test_scales_are_refused_as_the_format_does(cuda: CudaContext, format: str, scale: Any):
    assert _outcome(pack_codes, _matrix(), scale, format) == _outcome(FORMATS[format].pack, _matrix(), scale)


def test_a_scale_that_float16_cannot_hold_is_named(cuda: CudaContext):
    scales = np.ones((4, 2), np.float32)
    scales[2, 1] = 65520
    assert _refused(pack_codes, _matrix(), scales, "tq2_0") == ("scale", "65520.0 at (2, 1)", "finite as float16")


@every_format
def test_field_3_is_refused_as_the_format_does(cuda: CudaContext, format: str):
    packed = FORMATS[format].pack(_matrix(), 1.0)
    for row, k in ((2, 401), (1, 500)):
        byte, shift = _field(format, k, row, 512)
        packed.reshape(-1)[byte] |= 3 << shift
    refusal = _refused(unpack_codes, packed, (4, 512), format)
    assert refusal == _refused(FORMATS[format].unpack, packed, (4, 512))
    assert refusal == ("packed", "field 3 for the weight at (1, 500)", "0, 1, 2 for -1, 0, 1")


@pytest.mark.parametrize("scale", [-1.0, np.nan, -np.inf, -0.0])
@pytest.mark.parametrize("format", ["i2_s_x86", "row16"])
def test_a_tensors_scale_is_read_back_as_the_format_does(cuda: CudaContext, format: str, scale: float):
    packed = FORMATS[format].pack(_matrix(), 1.0)
    packed[4 * 512 // 4 :][:4] = np.array([scale], np.float32).view(np.uint8)
    if scale == 0:
        _same(unpack_codes(packed, (4, 512), format)[1], FORMATS[format].unpack(packed, (4, 512))[1])
    else:
        assert _refused(unpack_codes, packed, (4, 512), format) == _refused(FORMATS[format].unpack, packed, (4, 512))


def test_padding_is_refused_as_the_format_does(cuda: CudaContext):
    packed = FORMATS["row16"].pack(_matrix(5, 77), 1.0)
    for row in (4, 3):
        packed[row * 32 + 31] ^= 1 << 6
    refusal = _refused(unpack_codes, packed, (5, 77), "row16")
    assert refusal == _refused(FORMATS["row16"].unpack, packed, (5, 77))
    assert refusal == ("packed", "with weights other than 0 in the padded columns of row 3", "0 in the padding")


def test_shapes_are_refused_as_the_formats_do(cuda: CudaContext):
    codes = _matrix(3, 64)
    for format in ("i2_s_x86", "tq2_0"):
        form = FORMATS[format]
        assert _refused(pack_codes, codes, 1.0, format) == _refused(form.pack, codes, 1.0, tail="error")
        packed = np.zeros(80, np.uint8)
        assert _refused(unpack_codes, packed, (3, 64), format) == _refused(form.unpack, packed, (3, 64), tail="error")
    form, packed = FORMATS["row16"], np.zeros(7, np.uint8)
    for shape in ((3, 64), (0, 4), (3,), [3, 64], (3.0, 64)):
        assert _refused(unpack_codes, packed, shape) == _refused(form.unpack, packed, shape)
    assert (
        _refused(unpack_codes, packed.astype(np.int8), (3, 64))[:2]
        == _refused(form.unpack, packed.astype(np.int8), (3, 64))[:2]
    )
    for wrong in (codes.astype(np.int32), codes.tolist(), codes[0]):
        assert _refused(pack_codes, wrong, 1.0)[:2] == _refused(form.pack, wrong, 1.0)[:2]


def test_other_formats_and_devices_are_refused(cuda: CudaContext):
    for call in (
        lambda **named: pack_codes(_matrix(), 1.0, **named),
        lambda **named: unpack_codes(np.zeros(576, np.uint8), (4, 512), **named),
    ):
        assert _refused(call, format="tile64") == ("format", "'tile64'", "i2_s_x86, row16, tq2_0")
        with pytest.raises(NoCompatibleKernelError):
            call(device="cpu")
        with pytest.raises(NoCompatibleKernelError, match="unknown device"):
            call(device="tpu")
        with pytest.raises(NoCompatibleKernelError, match="'v9'"):
            call(variant="v9")
