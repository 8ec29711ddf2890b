"""How bitnet.cpp cuts matrices for its look-up kernels: tiles of BM rows and BK columns, in which bm rows lie side by
side.

The original reads the three (bm, bk and bmm there) from an ini file that its code generator writes for one model. Those
of its published presets are in tl1.py and tl2.py. A shape that none of them has gets `Layout.by_rule`, which is
tritmark's own: no file of the original's says anything of such a shape.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.nearest import misspelt
from tritmark.kernels.formats.base import Format, LayoutOption, Scale, Shape
from tritmark.kernels.formats.bits import slabs

ROWS = 32
"""bm of the rule, and what N must be a multiple of for it."""
NO_CODE = 2
"""Stands for a NaN among codes that come from `signs`."""
_ZERO_BELOW = np.float32(1e-6)


class Layout(NamedTuple):
    """Rows and columns of a tile, and how many of its rows lie side by side."""

    BM: int
    BK: int
    bm: int

    @classmethod
    def by_rule(cls, shape: Shape, widths: tuple[int, ...]) -> Layout:
        """For a shape (N, K) that no preset has: BM is the largest of 256, 128, 64 and 32 that N is a multiple of, BK
        the first of `widths` that K is a multiple of, or else the last; bm is 32."""
        BM = next((rows for rows in (256, 128, 64) if shape[0] % rows == 0), ROWS)
        return cls(BM, next((width for width in widths if shape[1] % width == 0), widths[-1]), ROWS)


Presets = Mapping[str, Mapping[Shape, Layout]]


@dataclass(frozen=True, kw_only=True)
class TL(Format):
    """TL1 or TL2.

    `pack`, `unpack` and `quantize` take BM=, BK= and bm=, all three, or preset=, a published model's name. Without them
    the layout is the one that is published for that shape, or else that of `Layout.by_rule`.
    """

    presets: Presets = field(repr=False, hash=False)
    """By model and shape, from its preset_kernels/*/kernel_config_tl?.ini. No shape has two."""
    widths: tuple[int, ...]
    """From which the rule takes BK."""
    given: Layout | None = None
    """The layout of every shape, where it is told."""
    preset: str | None = None
    """The model whose layouts are asked for, where one is."""

    def layout(self, op: str, shape: Shape) -> Layout:
        """The layout of a matrix of this shape. Raises InvalidArgumentError where the preset has none that can be
        packed."""
        if self.given is not None:
            return self.given
        published = {
            each: layout
            for name, listed in self.presets.items()
            for each, layout in listed.items()
            if self.preset in (None, name) and self.unfit(layout) is None
        }
        if shape in published:
            return published[shape]
        if self.preset is None:
            return Layout.by_rule(shape, self.widths)
        legal = ", ".join(map(str, published))
        raise InvalidArgumentError(op=op, argument="preset", found=f"{self.preset!r} for {shape}", legal=legal)

    def laid_out(self, op: str, options: Mapping[str, LayoutOption]) -> TL:
        if not options:
            return self
        if set(options) == {"preset"}:
            name = options["preset"]
            if name not in self.presets:
                found = misspelt(name, self.presets)
                raise InvalidArgumentError(op=op, argument="preset", found=found, legal=", ".join(self.presets))
            return replace(self, preset=str(name))
        if set(options) != set(Layout._fields):
            found, legal = ", ".join(sorted(options)), "BM, BK and bm, or preset"
            raise InvalidArgumentError(op=op, argument="layout options", found=found, legal=legal)
        sizes = {}
        for name, size in options.items():
            if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
                raise InvalidArgumentError(op=op, argument=name, found=repr(size), legal="an integer of at least 1")
            sizes[name] = int(size)
        layout = Layout(**sizes)
        legal_layout = self.unfit(layout)
        if legal_layout is not None:
            found = f"BM={layout.BM}, BK={layout.BK}, bm={layout.bm}"
            raise InvalidArgumentError(op=op, argument="layout options", found=found, legal=legal_layout)
        return replace(self, given=layout, row_multiple=layout.BM, column_multiple=self.columns_of(layout))

    def check_shape(self, op: str, argument: str, shape: tuple[int, ...]) -> Shape:
        checked = super().check_shape(op, argument, shape)
        self.layout(op, checked)
        return checked

    @abstractmethod
    def rows_apart(self, shape: Shape) -> int:
        """How many rows have bytes of their own, side by side: a whole number of times, from row 0 on."""

    @abstractmethod
    def unfit(self, layout: Layout) -> str | None:
        """What layouts the original's packer takes, in words, where this is none of them; else None."""

    @abstractmethod
    def columns_of(self, layout: Layout) -> int:
        """What K must be a multiple of."""


def signs(x: NDArray[np.float32]) -> tuple[NDArray[np.int8], Scale]:
    """The rule of transform_to_tl1 and transform_to_tl2: the sign of each weight but 0 for |x| < float32(1e-6), and the
    largest magnitude as the scale; NO_CODE for NaN, and NaN as the scale where there is one."""
    scale = np.float32(0)
    codes = np.empty(x.shape, np.int8)
    for part in slabs(len(x), x.shape[1] * x.itemsize):
        magnitudes = np.abs(x[part])
        scale = np.maximum(scale, magnitudes.max())
        np.copyto(codes[part], np.sign(x[part]), casting="unsafe", where=magnitudes >= _ZERO_BELOW)
        np.copyto(codes[part], 0, where=magnitudes < _ZERO_BELOW)
        np.copyto(codes[part], NO_CODE, where=np.isnan(magnitudes))
    return codes, scale


def pair_bytes(codes: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Bytes of four codes of a row each (rows, columns / 4): nibbles 3 * (w0 + 1) + w1 + 1, the first pair's the high
    one. 0 where one of the two is NO_CODE, for that is what the original's cast of NaN to uint8 gives on x86."""
    first, second = codes[:, ::2], codes[:, 1::2]
    fields = first * np.int8(3)
    fields += second
    fields += 4
    if (codes == NO_CODE).any():
        fields[(first == NO_CODE) | (second == NO_CODE)] = 0
    return nibbles(fields.view(np.uint8))


def nibbles(fields: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Neighbouring fields of a row in a byte, the first in the high nibble."""
    joined: NDArray[np.uint8] = fields[:, ::2] << np.uint8(4)
    joined |= fields[:, 1::2]
    return joined


def of_pairs(fields: NDArray[np.uint8]) -> NDArray[np.int8]:
    """The codes of fields up to 8, two along the last axis for each."""
    table = np.array([(field // 3 - 1, field % 3 - 1) for field in range(9)], np.int8)
    return table[fields].reshape(*fields.shape[:-1], 2 * fields.shape[-1])
