"""The tiles of bitnet.cpp's look-up kernels: BM rows and BK columns, with bm interleaved rows.

The original reads the three numbers (there bm, bk and bmm) from an ini file, which its code generator writes for one
model. tl1.py and tl2.py have those of its published presets. A shape without a preset gets `Layout.by_rule`, a rule of
tritmark: the original has no layout for such a shape.
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
"""bm of the rule; N must be a multiple of it."""
NO_CODE = 2
"""A NaN among codes from `signs`."""
_ZERO_BELOW = np.float32(1e-6)


class Layout(NamedTuple):
    """Rows and columns of a tile, and the number of its interleaved rows."""

    BM: int
    BK: int
    bm: int

    @classmethod
    def by_rule(cls, shape: Shape, widths: tuple[int, ...]) -> Layout:
        """The layout of a shape (N, K) without a preset. BM is the largest divisor of N among 256, 128, 64 and 32; BK
        is the first divisor of K among `widths`, or the last of them; bm is 32."""
        BM = next((rows for rows in (256, 128, 64) if shape[0] % rows == 0), ROWS)
        return cls(BM, next((width for width in widths if shape[1] % width == 0), widths[-1]), ROWS)


Presets = Mapping[str, Mapping[Shape, Layout]]


@dataclass(frozen=True, kw_only=True)
class TL(Format):
    """TL1 or TL2.

    `pack`, `unpack` and `quantize` take BM=, BK= and bm=, all three, or preset=, the name of a published model. Without
    them the layout is the one published for that shape, or that of `Layout.by_rule`.
    """

    presets: Presets = field(repr=False, hash=False)
    """By model and shape, from its preset_kernels/*/kernel_config_tl?.ini. No shape occurs twice."""
    widths: tuple[int, ...]
    """The values of BK in the rule."""
    given: Layout | None = None
    """The layout of every shape, if the options give one."""
    preset: str | None = None
    """The model whose layouts are used, if the options name one."""

    def layout(self, op: str, shape: Shape) -> Layout:
        """The layout of a matrix of this shape. Raises InvalidArgumentError if the preset has none that can be
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

    def decided(self, shape: Shape) -> bool:
        """Whether a published preset has this shape; the rule's layouts are tritmark's own."""
        published = {each: layout for listed in self.presets.values() for each, layout in listed.items()}
        return shape in published and self.unfit(published[shape]) is None

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
        """Number of rows in an independent unit of bytes. Units begin at row 0 and divide N."""

    @abstractmethod
    def unfit(self, layout: Layout) -> str | None:
        """The layouts that the original's packer accepts, in words, or None if this is one of them."""

    @abstractmethod
    def columns_of(self, layout: Layout) -> int:
        """K must be a multiple of this."""


def signs(x: NDArray[np.float32]) -> tuple[NDArray[np.int8], Scale]:
    """The rule of transform_to_tl1 and transform_to_tl2: the sign of each weight, or 0 for |x| < float32(1e-6), and the
    largest magnitude as the scale. A NaN becomes NO_CODE and makes the scale NaN."""
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
    """One byte for each four codes of a row (rows, columns / 4): nibbles 3 * (w0 + 1) + w1 + 1, the first pair in the
    high nibble. 0 if one of a pair is NO_CODE, the result of the original's cast of NaN to uint8 on x86."""
    first, second = codes[:, ::2], codes[:, 1::2]
    fields = first * np.int8(3)
    fields += second
    fields += 4
    if (codes == NO_CODE).any():
        fields[(first == NO_CODE) | (second == NO_CODE)] = 0
    return nibbles(fields.view(np.uint8))


def nibbles(fields: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Join adjacent fields of a row in a byte, the first in the high nibble."""
    joined: NDArray[np.uint8] = fields[:, ::2] << np.uint8(4)
    joined |= fields[:, 1::2]
    return joined


def of_pairs(fields: NDArray[np.uint8]) -> NDArray[np.int8]:
    """The codes of fields from 0 to 8, two along the last axis for each field."""
    table = np.array([(field // 3 - 1, field % 3 - 1) for field in range(9)], np.int8)
    return table[fields].reshape(*fields.shape[:-1], 2 * fields.shape[-1])
