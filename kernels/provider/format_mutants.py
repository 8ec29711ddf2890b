"""Typical faults of packers and unpackers, for `tritmark selftest --formats`.

Each fault is planted into the unpacker alone, into the packer alone, and into both, where they agree with each other
and only bytes of the original show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np

from tritmark.harness.spec import FormatMutant
from tritmark.kernels.formats import BUILT_IN, Format

Change = Callable[[Any, Any, Format], tuple[Any, Any]]
"""From codes, scale and format to other codes and another scale."""


@dataclass(frozen=True, slots=True)
class _Fault:
    """A fault, and what undoes it; None: nothing does."""

    name: str
    read: Change
    write: Change | None = None


def mutants() -> Iterator[FormatMutant]:
    """All mutants of the formats of this package."""
    for name, form in BUILT_IN.items():
        for fault in _faults(form):
            yield FormatMutant(format=name, name=f"unpack: {fault.name}", make=partial(_planted, fault.read, None))
            if fault.write is not None:
                yield FormatMutant(format=name, name=f"pack: {fault.name}", make=partial(_planted, None, fault.write))
                both = partial(_planted, fault.read, fault.write)
                yield FormatMutant(format=name, name=f"pack and unpack: {fault.name}", make=both)
        for other in _CONFUSED.get(name, ()):
            text = f"read and written as {other}"
            yield FormatMutant(format=name, name=text, make=partial(_renamed, other))
        if hasattr(form, "dequantize_affine"):
            for text, change in {**(_OF_BIASES if name == "mlx_q2" else _OF_POINTS), **_OF_SCALES}.items():
                yield FormatMutant(format=name, name=f"values: {text}", make=partial(_of_values, change))


def _planted(read: Change | None, write: Change | None, form: Format) -> Format:
    kind: Any = type(form)

    class Faulty(kind):  # type: ignore[misc]
        def _unpack(self, packed: Any, shape: Any) -> Any:
            codes, scale = super()._unpack(packed, shape)
            return (codes, scale) if read is None else read(codes, scale, self)

        def _pack(self, codes: Any, scale: Any) -> Any:
            if write is not None:
                codes, scale = write(codes, scale, self)
            return super()._pack(codes, scale)

    faulty: Any = Faulty
    made: Format = faulty(**_members(form))
    return made


def _of_values(change: Callable[..., Any], form: Format) -> Format:
    kind: Any = type(form)

    class Faulty(kind):  # type: ignore[misc]
        def dequantize_affine(self, packed: Any, *args: Any, **beside: Any) -> Any:
            return change(super().dequantize_affine, packed, *args, **beside)

    made: Format = Faulty(**_members(form))
    return made


def _renamed(other: str, form: Format) -> Format:
    return replace(BUILT_IN[other], name=form.name)


def _members(form: Format) -> dict[str, Any]:
    return {each.name: getattr(form, each.name) for each in fields(form) if each.init}


def _codes(change: Callable[[Any], Any]) -> Change:
    return lambda codes, scale, form: (change(np.ascontiguousarray(codes)), scale)


def _offset(step: int) -> Change:
    """Every code one on, and the largest to the smallest: fields w + 2 for w + 1."""

    def change(codes: Any, scale: Any, form: Format) -> tuple[Any, Any]:
        first = form.codes[0]
        return ((codes - first + step) % len(form.codes) + first).astype(np.int8), scale

    return change


def _permuted(order: Callable[[Format], Any], *, back: bool = False) -> Change:
    """The weights of each unit of a row in another order."""

    def change(codes: Any, scale: Any, form: Format) -> tuple[Any, Any]:
        places = np.asarray(order(form))
        places = np.argsort(places) if back else places
        n, k = codes.shape
        whole = k // len(places) * len(places)
        made = codes.copy()
        made[:, :whole] = codes[:, :whole].reshape(n, -1, len(places))[..., places].reshape(n, whole)
        return made, scale

    return change


def _order(name: str, order: Callable[[Format], Any]) -> _Fault:
    return _Fault(name, _permuted(order), _permuted(order, back=True))


def _scales(change: Callable[[Any], Any]) -> Change:
    return lambda codes, scale, form: (codes, change(np.asarray(scale)))


def _faults(form: Format) -> Iterator[_Fault]:
    yield _Fault("codes one on", _offset(1), _offset(-1))
    yield _Fault("codes -1 and 1 swapped", *[_codes(lambda w: np.where(np.abs(w) == 1, -w, w))] * 2)
    yield _order("four weights in reverse", lambda form: [3, 2, 1, 0])
    yield _order("neighbours swapped", lambda form: [1, 0])
    yield _order("halves of 32 swapped", lambda form: np.roll(np.arange(32), 16))
    yield _Fault("rows one on", _codes(partial(np.roll, shift=1, axis=0)), _codes(partial(np.roll, shift=-1, axis=0)))
    if form.group:
        half = form.group // 2
        yield _order("halves of a group swapped", lambda form: np.roll(np.arange(2 * half), half))
    if form.scale_per == "group" and form.scale_stored:
        one_on = (_scales(partial(np.roll, shift=each, axis=1)) for each in (1, -1))
        yield _Fault("scales of the groups one on", *one_on)
        rows = (_scales(partial(np.roll, shift=each, axis=0)) for each in (1, -1))
        yield _Fault("scales of the next row's groups", *rows)
        yield _Fault("the first scale for all of a row", _scales(lambda s: np.broadcast_to(s[:, :1], s.shape).copy()))
        yield _Fault("one scale for two groups", _scales(lambda s: s[:, np.arange(s.shape[1]) // 2 * 2]))
    for name, of, order in _OF_LAYOUTS:
        if form.name in of:
            yield _order(name, partial(_same, order))


def _same(order: list[int], form: Format) -> list[int]:
    return order


def _digits(parts: tuple[tuple[int, int], ...], *, reverse: bool) -> list[int]:
    """The place of each weight if a byte holds neighbours, or with `reverse` if its first digit is the least
    significant. A part has bytes and digits."""
    found: list[int] = []
    for width, count in parts:
        start = len(found)
        for e in range(width * count):
            byte, digit = e % width, e // width
            found.append(start + (width * (count - 1 - digit) + byte if reverse else count * byte + digit))
    return found


_PTQ1_0, _TQ1_0 = ((16, 5), (8, 5), (2, 4)), ((32, 5), (16, 5), (4, 4))
_STRIDE_16 = [64 * (e // 64) + 16 * (e % 4) + e % 64 // 4 for e in range(256)]
"""The place in groups 16 apart of each weight of groups of neighbours."""
_SM80 = [16 * (k % 8 // 2) + 2 * (k // 8) + k % 2 for k in range(64)]
"""The row of each weight of 64 after the permutation for ldmatrix."""
_OF_LAYOUTS: tuple[tuple[str, tuple[str, ...], list[int]], ...] = (
    ("digits of a byte taken for neighbours", ("ptq1_0",), _digits(_PTQ1_0, reverse=False)),
    ("digits of a byte in reverse", ("ptq1_0",), _digits(_PTQ1_0, reverse=True)),
    ("digits of a byte taken for neighbours", ("tq1_0",), _digits(_TQ1_0, reverse=False)),
    ("digits of a byte in reverse", ("tq1_0",), _digits(_TQ1_0, reverse=True)),
    ("members of a group of the other layout", ("stq1_0",), _STRIDE_16),
    ("members of a group of the other layout", ("stq1_0_quads",), np.argsort(_STRIDE_16).tolist()),
    ("rows not permuted", ("ort_q2_sm80",), _SM80),
    ("rows permuted backwards", ("ort_q2_sm80",), np.argsort(_SM80)[np.argsort(_SM80)].tolist()),
    (
        "words in big-endian",
        ("mlx_q2", "compressed_tensors_2", "gptq_2"),
        [*range(12, 16), *range(8, 12), *range(4, 8), *range(4)],
    ),
)
"""Orders of weights of one layout: what the fault is, the formats, and where it takes each weight from."""
_CONFUSED = {
    "q2_0": ("pq2_0", "stq1_0_quads", "tq2_0"),
    "pq2_0": ("q2_0", "ptq1_0"),
    "ptq1_0": ("pq2_0", "tq1_0"),
    "stq1_0": ("stq1_0_quads", "q2_0"),
    "stq1_0_quads": ("stq1_0", "q2_0"),
    "ort_q2": ("ort_q2_sm80",),
    "ort_q2_sm80": ("ort_q2",),
    "gptq_2": ("compressed_tensors_2",),
    "compressed_tensors_2": ("mlx_q2", "gptq_2"),
    "mlx_q2": ("compressed_tensors_2",),
    **{f"{kind}_g{size}": (f"{kind}_g{2 * size}", kind) for kind in ("tile64", "row16") for size in (32, 64, 128)},
    **{f"{kind}_g256": (f"{kind}_g128", kind) for kind in ("tile64", "row16")},
}
"""Formats that others are taken for, as the three meanings of GGUF type 42 are, or groups of another size."""


def _no_bias(right: Callable[..., Any], packed: Any, *, scales: Any, biases: Any) -> Any:
    return right(packed, scales=scales, biases=np.zeros_like(biases))


def _bias_as_zero_point(right: Callable[..., Any], packed: Any, *, scales: Any, biases: Any) -> Any:
    return right(packed, scales=scales, biases=scales * biases)


def _usual_point(right: Callable[..., Any], packed: Any, *, zero_points: Any, **beside: Any) -> Any:
    return right(packed, zero_points=None, **beside)


def _points_of_next_block(right: Callable[..., Any], packed: Any, *, zero_points: Any, **beside: Any) -> Any:
    if zero_points is None or zero_points.dtype == np.uint8:
        moved = None if zero_points is None else zero_points >> np.uint8(2)
    else:
        moved = np.roll(zero_points, -1)
    return right(packed, zero_points=moved, **beside)


def _next_scales(right: Callable[..., Any], packed: Any, *, scales: Any, **beside: Any) -> Any:
    return right(packed, scales=np.roll(scales, -1, axis=-1), **beside)


def _column_scales(right: Callable[..., Any], packed: Any, *, scales: Any, **beside: Any) -> Any:
    """Scales stored by group and not by row."""
    by_group = scales.reshape(len(packed), -1)
    return right(packed, scales=by_group.T.reshape(by_group.shape).reshape(scales.shape), **beside)


_OF_BIASES: dict[str, Callable[..., Any]] = {"bias left out": _no_bias, "bias times scale": _bias_as_zero_point}
_OF_POINTS: dict[str, Callable[..., Any]] = {
    "zero points left out": _usual_point,
    "zero points of the next block": _points_of_next_block,
}
_OF_SCALES: dict[str, Callable[..., Any]] = {
    "scales of the next group": _next_scales,
    "scales in order of groups": _column_scales,
}
