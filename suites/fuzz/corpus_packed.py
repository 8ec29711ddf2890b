"""Bad packed weights that `unpack` of a format must refuse. Named as in corpus_safetensors.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.formats import BUILT_IN, FORMATS

Packed = NDArray[np.uint8]


class Bad(NamedTuple):
    """Bytes of a file, the claimed shape, and the required text of the error."""

    format: str
    shape: Any
    packed: Any
    argument: str
    found: str


def good(format: str, shape: tuple[int, int], scale: float = 1.5) -> Packed:
    form = FORMATS[format]
    codes = (
        form.sample(shape, np.random.default_rng(0)) if form.limit else np.resize(np.array(form.codes, np.int8), shape)
    )
    return form.pack(codes, scale)


def bad(
    format: str,
    shape: tuple[int, int],
    change: Callable[[Packed], Any],
    argument: str,
    found: str,
    *,
    claim: Any = None,
) -> Bad:
    return Bad(format, shape if claim is None else claim, change(good(format, shape)), argument, found)


def filled(where: slice, *values: int) -> Callable[[Packed], Packed]:
    """A flat copy with these bytes at that place; several bytes are repeated."""

    def change(packed: Packed) -> Packed:
        flat = packed.reshape(-1).copy()
        flat[where] = values
        return flat

    return change


def scaled(value: float, end: int) -> Callable[[Packed], Packed]:
    """The float32 scale, `end` bytes before the end, changed."""
    return filled(slice(-end, 4 - end or None), *np.array([value], "<f4").view(np.uint8).tolist())


RAGGED = {
    "i2_s_x86_r4": (4, 3),
    "tile64": (65, 5),
    "row16": (3, 70),
    "hf_pack": (5, 3),
    "ort_q2": (1, 130),
    "compressed_tensors_2": (2, 19),
    "qk256": (1, 257),
    "tile80": (81, 5),
    **{f"tile64_g{group}": (65, group) for group in (32, 64, 128, 256)},
}
"""Small shapes with padding, of formats that pad."""


def smallest(name: str) -> tuple[int, int]:
    """The smallest shape without padding that the format can hold."""
    form = FORMATS[name]
    shape = form.row_multiple, form.column_multiple
    return (form.row_multiple, form.block) if form.dropped(shape) else shape


SHAPES = {name: RAGGED.get(name) or smallest(name) for name in BUILT_IN}
TRAILER = {"i2_s_x86": 32, "i2_s_arm": 32, "i2_s_x86_r4": 32, "tile64": 64, "tile80": 64, "row16": 64, "qk256_i2_s": 32}
"""Offset of the scale in bytes from the end, for formats with one scale."""
ILLEGAL = {
    "tq1_0": (0, 1, "1 in byte 0 of block 0"),
    "iq1_bn": (2, 1, "1 in byte 0 of block 0"),
    "tile80": (0, 1, "1 in byte 0 of block 0"),
    "iq2_bn": (4, 0xFF, "field 3 for the weight at (0, 0)"),
    "hf_pack": (0, 0x3F, "field 3 for the weight at (0, 0)"),
    "gpu_int2": (0, 0x00, "field 0 for the weight at (0, 0)"),
    "compressed_tensors_2": (0, 0x00, "field 0 for the weight at (0, 0)"),
    "gptq_2": (0, 0x00, "field 0 for the weight at (0, 0)"),
    "bitnet_rs_32": (0, 0xAA, "field 2 for the weight at (0, 0)"),
    "tl1": (0, 0x90, "0x90 in byte 0"),
    "tl2": (0, 0x0E, "0x0e in byte 0"),
    "iq2_bn_r4": (16, 0xFF, "field 3 for the weight at"),
}
"""An illegal byte, its place, and the text of its error."""
ANY_BYTE = ("ptq1_0", "stq1_0", "stq1_0_quads")
"""Formats with three codes in which every byte encodes codes."""


def illegal(name: str) -> tuple[int, int, str] | None:
    """As in ILLEGAL, or the first byte that is refused if it is 0xFF; None if every byte encodes codes."""
    if name in ILLEGAL:
        return ILLEGAL[name]
    if len(FORMATS[name].codes) == 4 or name in ANY_BYTE:
        return None
    packed = good(name, SHAPES[name])
    for at in range(packed.size):
        try:
            FORMATS[name].unpack(filled(slice(at, at + 1), 0xFF)(packed), SHAPES[name])
        except InvalidArgumentError as error:
            if error.argument == "packed":
                return at, 0xFF, "byte" if "byte" in error.found else "field 3 for the weight at"
    raise ValueError(f"{name} accepts every byte")


BAD: dict[str, Bad] = {}
for _name, _shape in SHAPES.items():
    if (_illegal := illegal(_name)) is not None:
        _at, _byte, _found = _illegal
        BAD[f"{_name} with a byte that no codes give"] = bad(
            _name, _shape, filled(slice(_at, _at + 1), _byte), "packed", _found
        )
    BAD |= {
        f"{_name} cut by a byte": bad(_name, _shape, lambda packed: packed.reshape(-1)[:-1], "packed", "of shape"),
        f"{_name} with a byte more": bad(
            _name, _shape, lambda packed: np.append(packed, np.uint8(0)), "packed", "of shape"
        ),
        f"{_name} of nothing": bad(_name, _shape, lambda packed: packed.reshape(-1)[:0], "packed", "of shape"),
        f"{_name} as int8": bad(_name, _shape, lambda packed: packed.view(np.int8), "packed", "of dtype int8"),
        f"{_name} of 0 rows": bad(_name, _shape, lambda packed: packed, "shape", "of shape (0, 4)", claim=(0, 4)),
        f"{_name} of -4 columns": bad(_name, _shape, lambda packed: packed, "shape", "of shape (4, -4)", claim=(4, -4)),
        f"{_name} of 2**62 rows": bad(_name, _shape, lambda packed: packed, "packed", "of shape", claim=(1 << 62, 256)),
        f"{_name} of four axes": bad(_name, _shape, lambda packed: packed, "shape", "of shape", claim=(1, 1, *_shape)),
        f"{_name} of fractional rows": bad(
            _name, _shape, lambda packed: packed, "shape", "(4.0, 256)", claim=(4.0, 256)
        ),
    }
for _name, _end in TRAILER.items():
    _shape = SHAPES[_name]
    BAD |= {
        f"{_name} with a NaN scale": bad(_name, _shape, scaled(np.nan, _end), "scale", "nan"),
        f"{_name} with an infinite scale": bad(_name, _shape, scaled(np.inf, _end), "scale", "inf"),
        f"{_name} with a negative scale": bad(_name, _shape, scaled(-1.0, _end), "scale", "-1.0"),
    }
BAD |= {
    "tile64 with weights in the padded rows": bad(
        "tile64", (3, 4), filled(slice(12, 13), 0x56), "packed", "with weights other than 0 in"
    ),
    "tile64 with weights in the padded columns": bad(
        "tile64", (64, 3), filled(slice(3, 4), 0x56), "packed", "with weights other than 0"
    ),
    "tile80 with weights in the padded rows": bad(
        "tile80", (3, 4), filled(slice(12, 13), 2), "packed", "with weights other than 0 in"
    ),
    "tile80 with weights in the padded columns": bad(
        "tile80", (80, 3), filled(slice(3, 4), 2), "packed", "with weights other than 0"
    ),
    "row16 with weights in the padded columns": bad(
        "row16", (1, 60), filled(slice(15, 16), 0xAA), "packed", "with weights other than 0"
    ),
    "hf_pack with weights in the padded rows": bad(
        "hf_pack", (5, 3), filled(slice(3, 4), 0x55), "packed", "with fields other than 0 in the padded rows"
    ),
    "gpu_int2 of half a tile": bad(
        "gpu_int2", (16, 32), lambda packed: packed, "shape", "of shape (8, 32)", claim=(8, 32)
    ),
    "iq2_bn of half a block": bad("iq2_bn", (1, 64), lambda packed: packed, "shape", "of shape (1, 32)", claim=(1, 32)),
    "tq2_0 of half a block": bad(
        "tq2_0", (1, 256), lambda packed: packed, "shape", "of shape (1, 128)", claim=(1, 128)
    ),
    "tl1 with a nibble over 8": bad("tl1", (32, 8), filled(slice(63, 64), 0x09), "packed", "0x09 in byte 63"),
    "tl2 with a sign of zeros": bad(
        "tl2", (32, 128), filled(slice(0, 513), *[0] * 512, 1), "packed", "the sign of a triple of zeros"
    ),
    "tl2 with a pair over 8": bad("tl2", (32, 128), filled(slice(640, 641), 0x09), "packed", "0x09 in byte 640"),
    "tl2 with bytes in the padding": bad("tl2", (32, 128), filled(slice(-1, None), 1), "packed", "0x01 in byte"),
    "tl2 of half a tile of pairs": bad(
        "tl2", (32, 128), lambda packed: packed, "shape", "of shape (32, 112)", claim=(32, 112)
    ),
    "q2_0 of half a block": bad("q2_0", (1, 64), lambda packed: packed, "shape", "of shape (1, 32)", claim=(1, 32)),
    "iq2_bn_r4 of three rows": bad(
        "iq2_bn_r4", (4, 64), lambda packed: packed, "shape", "of shape (3, 64)", claim=(3, 64)
    ),
    "i2_s_x86_r4 of three rows": bad(
        "i2_s_x86_r4", (4, 3), lambda packed: packed, "shape", "of shape (3, 4)", claim=(3, 4)
    ),
}
