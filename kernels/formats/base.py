"""The interface of all weight formats, and their common checks."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.formats.bits import slabs

Tail = Literal["drop", "error"]
Nonfinite = Literal["keep", "error"]
Shape = tuple[int, int]
Experts = tuple[int, int, int]
"""(E, N, K)."""
LayoutOption = int | str
"""A size, or a preset's name."""
Scale = np.float32 | NDArray[np.float32]
Rule = Callable[[NDArray[np.float32]], tuple[NDArray[np.int8], Scale]]


class TailDroppedWarning(UserWarning):
    """A layout cannot hold the last weights of this shape: the original packer drops them, and they read back as -1."""


class NonFiniteWarning(UserWarning):
    """Float weights contained NaN or infinity, or their scale overflowed. The original quantizer stores this without
    a warning."""


class Content(NamedTuple):
    """What another format must hold of weights."""

    codes: tuple[int, ...]
    scale_dtype: str
    """The narrowest of the dtypes of scales that holds all of them."""


@dataclass(frozen=True, kw_only=True)
class Format(ABC):
    """A bit layout of a matrix of ternary codes, shape (N, K), row-major, together with its scale or scales.

    `pack`, `unpack` and `quantize` never modify their arguments and accept any memory layout (views, strides, Fortran
    order). If the original silently does something unexpected, they do the same with a warning, or refuse it with
    `tail="error"` or `nonfinite="error"`. All other faults raise InvalidArgumentError.

    Experts (E, N, K) are E matrices, each packed on its own: bytes and scales have E as their first axis.
    """

    name: str
    """Key in FORMATS."""
    block: int
    """Number of weights in the smallest unit of the layout."""
    scale_per: Literal["tensor", "row", "group"]
    """The weights that share a scale: the matrix, a row, or a `group`; see `scale_shape`."""
    group: int = 0
    """Consecutive weights of a row that share a scale with scale_per "group"; otherwise 0."""
    summary: str
    """One line for lists."""
    source: str
    """The project and function that write the same bytes."""
    codes: tuple[int, ...] = (-1, 0, 1)
    """The legal codes in ascending order."""
    fields: tuple[int, ...] = (0, 1, 2)
    """The bit field of each code, in layouts with 2 bits per weight."""
    scale_stored: bool = True
    """False if the scale is stored beside the bytes: `pack` checks and drops it, `unpack` returns 1."""
    options: tuple[str, ...] = ()
    """Names of the layout options of `pack`, `unpack` and `quantize`."""
    scale_dtype: Literal["float32", "float16"] = "float32"
    """Dtype of stored scales, little-endian; arguments and results are always float32."""
    row_multiple: int = 1
    """N must be a multiple of this."""
    column_multiple: int = 1
    """K must be a multiple of this."""
    tiled: bool = False
    """True for layouts of this package's kernels with a scale for each group. Products from other formats with such
    scales are computed in them, because that is faster."""
    drops_tail: bool = False
    """True if the original drops the last N*K modulo `block` weights."""
    limit: str = ""
    """What the layout requires of codes beyond `codes`, in words; "" if it holds all of them."""
    rule: Rule | None = None
    """The original's rule from float32 (N, K) to codes and scale, if it has one. Code 2 becomes the reserved field
    3."""

    @abstractmethod
    def packed_shape(self, shape: Shape) -> tuple[int, ...]:
        """Shape of the uint8 array that `pack` returns for weights of this shape, with scales and padding."""

    def row_ranges(self, shape: Shape, begin: int, end: int) -> list[tuple[int, int]] | None:
        """The ranges [begin, end) of packed bytes of rows [begin, end) of weights of this shape, in the same order for
        any N. None: adjacent rows, each with as many bytes, from the first byte on; or rows that share bytes."""
        return None

    def packed_bytes(self, shape: Shape) -> int:
        """Size in bytes of packed weights of this shape, with scales and padding."""
        return math.prod(self.packed_shape(shape))

    def bits_per_weight(self, shape: Shape) -> float:
        """Stored bits per weight of a matrix of this shape, with scales and padding."""
        return 8 * self.packed_bytes(shape) / math.prod(shape)

    def scale_shape(self, shape: Shape) -> tuple[int, ...]:
        """Shape of the scales of a matrix (N, K): () for one per tensor, (N,) for one per row, (N, K/group) for one per
        group."""
        if self.scale_per == "tensor":
            return ()
        return (shape[0],) if self.scale_per == "row" else (shape[0], shape[1] // self.group)

    def refusal(self, other: Format, shape: Shape, content: Content | None = None) -> str | None:
        """The reason why weights (N, K) of another format cannot be repacked exactly into this one, or None. `content`
        is that of the weights, by default all that their format can have."""
        holds = content or other.content
        finer = self.group and other.group % self.group == 0
        if self.scale_per != other.scale_per or (self.group != other.group and not finer):
            return f"{other.name} has {other.scales}, {self.name} {self.scales}"
        if np.promote_types(self.scale_dtype, holds.scale_dtype) != self.scale_dtype:
            return f"{other.name} has scales of {holds.scale_dtype}, {self.name} of {self.scale_dtype}"
        if not set(holds.codes) <= set(self.codes):
            if holds.codes == other.codes:
                return f"{other.name} has codes that {self.name} cannot store"
            return f"the weights have code {max(set(holds.codes) - set(self.codes))}, which {self.name} cannot store"
        if self.limit and self.limit != other.limit:
            return f"{self.name} holds only weights with {self.limit}"
        if not self.holds(shape):
            return f"{self.name} cannot hold weights of shape {shape}"
        return None

    @property
    def content(self) -> Content:
        """All that weights of this format can have."""
        return Content(self.codes, self.scale_dtype)

    def regrouped(self, scale: Scale, other: Format) -> Scale:
        """Scales of another format without a `refusal`, repeated if the groups of this format are smaller."""
        return scale if self.group == other.group else np.repeat(scale, other.group // self.group, axis=-1)

    def stored_scales(self, packed: NDArray[np.uint8], shape: Shape) -> Scale:
        """Only the scales that `unpack` returns, of flat bytes of `packed_shape(shape)`; not checked."""
        return self._unpack(packed, shape)[1]

    def holds(self, shape: Shape) -> bool:
        """Whether the layout can hold all weights of a matrix of this shape."""
        return not (shape[0] % self.row_multiple or shape[1] % self.column_multiple or self.dropped(shape))

    def decided(self, shape: Shape) -> bool:
        """Whether bytes of this shape have one layout, so that they are read without options."""
        return self.holds(shape)

    @property
    def ternary(self) -> bool:
        """Whether it holds any ternary weights."""
        return {-1, 0, 1} <= set(self.codes) and not self.limit

    def sample(self, shape: Shape, rng: np.random.Generator) -> NDArray[np.int8]:
        """Codes (N, K) that the format holds, for checks: every code, in random order."""
        codes = np.resize(np.array(self.codes, np.int8), math.prod(shape))
        return rng.permutation(codes).reshape(shape)

    def interchangeable(self, shape: Shape) -> bool:
        """Whether it holds any ternary weights of this shape with one float32 scale: all such formats hold the same
        weights, each in its own bytes."""
        return self.ternary and self.scale_per == "tensor" and self.scale_dtype == "float32" and self.holds(shape)

    @property
    def scales(self) -> str:
        """The number of scales, in words."""
        return {
            "tensor": "one scale",
            "row": "a scale for each row",
            "group": f"a scale for each group of {self.group}",
        }[self.scale_per]

    def dropped(self, shape: Shape) -> int:
        """Number of weights at the end of a matrix of this shape that the layout cannot hold."""
        return math.prod(shape) % self.block if self.drops_tail else 0

    def laid_out(self, op: str, options: Mapping[str, LayoutOption]) -> Format:
        """This format with the layout that the options of `op` select: itself without options. A format with one layout
        accepts none."""
        if options:
            raise InvalidArgumentError(
                op=op, argument=next(iter(options)), found=f"an option for {self.name}", legal="no layout options"
            )
        return self

    def pack(
        self, codes: NDArray[np.int8], scale: float | Scale, *, tail: Tail = "drop", **layout: LayoutOption
    ) -> NDArray[np.uint8]:
        """Pack int8 codes (N, K) and their scale into the original packer's bytes: uint8, shape `packed_shape((N, K))`.

        `scale` is one finite number >= 0 that fits float32. Formats with several scales take float32 of `scale_shape`,
        or one number for all; finite values must not overflow. Without `scale_stored` it is checked and dropped. Bytes
        that the original never writes are zero.

        `tail` is for the `dropped(shape)` weights that the original packer loses. "drop" loses them too, for the same
        bytes, with a TailDroppedWarning; "error" refuses. `layout` are the options of a format with several layouts
        (`laid_out`).

        Raises InvalidArgumentError for a type, dtype or shape that does not fit, a code that is not in `codes` (with
        the first index in row-major order), a scale that the layout cannot store, a tail under tail="error", and
        options that the format does not have.
        """
        op = f"formats.{self.name}.pack"
        form = self.laid_out(op, layout)
        _check_array(op, "codes", codes, np.int8)
        if codes.ndim == 3 and len(codes):
            scales = form._of_experts(op, scale, codes.shape)
            packed = (partial(form.pack, each, one, tail=tail) for each, one in zip(codes, scales, strict=True))
            return np.stack(list(_each(packed)))
        shape = form.check_shape(op, "codes", codes.shape)
        stored = form.check_scale(op, scale, shape)
        index = _first_illegal(codes, self.codes)
        if index:
            legal = ", ".join(map(str, self.codes))
            raise InvalidArgumentError(op=op, argument="codes", found=f"{codes[index]} at {index}", legal=legal)
        self.check_tail(op, shape, tail)
        return form._pack(codes, stored)

    def unpack(
        self, packed: NDArray[np.uint8], shape: Shape | Experts, *, tail: Tail = "drop", **layout: LayoutOption
    ) -> tuple[NDArray[np.int8], Scale]:
        """Unpack bytes: int8 codes (N, K), and the scale as np.float32, or float32 of `scale_shape` in formats with
        several. The scale is 1 if the bytes have none (`scale_stored`).

        `packed` is uint8 of `packed_shape(shape)`, or flat with the same size. Weights that the original packer lost
        are returned as -1, with a TailDroppedWarning; tail="error" refuses such a shape. `layout` is as in `pack`.

        Raises InvalidArgumentError for a type, dtype or size that does not fit, a bit field that is no code (with the
        index of the first such weight), a scale per tensor that is negative or not finite, bytes that the packer never
        writes, and a tail under tail="error".
        """
        op = f"formats.{self.name}.unpack"
        form = self.laid_out(op, layout)
        if not (isinstance(shape, tuple) and all(isinstance(n, (int, np.integer)) for n in shape)):
            raise InvalidArgumentError(
                op=op, argument="shape", found=repr(shape), legal="a tuple of two integers (N, K)"
            )
        if len(shape) == 3 and shape[0] > 0:
            _check_array(op, "packed", packed, np.uint8)
            count, of_each = int(shape[0]), form.check_shape(op, "shape", (shape[1], shape[2]))
            if packed.size % count or packed.ndim not in {1, 1 + len(form.packed_shape(of_each))}:
                legal = f"the bytes of {count} experts, each as for weights of shape {of_each}"
                raise InvalidArgumentError(op=op, argument="packed", found=f"of shape {packed.shape}", legal=legal)
            experts = np.ascontiguousarray(packed).reshape(count, -1)
            unpacked = list(_each(partial(form.unpack, each, of_each, tail=tail) for each in experts))
            return np.stack([codes for codes, _ in unpacked]), np.stack([scale for _, scale in unpacked])
        shape = form.check_shape(op, "shape", shape)
        _check_array(op, "packed", packed, np.uint8)
        expected = form.packed_shape(shape)
        if packed.shape not in (expected, (math.prod(expected),)):
            legal = f"shape {expected} for weights of shape {shape}, or flat"
            raise InvalidArgumentError(op=op, argument="packed", found=f"of shape {packed.shape}", legal=legal)
        self.check_tail(op, shape, tail)
        codes, scale = form._unpack(np.ascontiguousarray(packed).reshape(-1), shape)
        if self.scale_per == "tensor":
            _check_tensor_scale(op, scale)
        index = _first_illegal(codes, self.codes)
        if index:
            (reserved,) = set(range(4)) - set(self.fields)
            legal = f"{', '.join(map(str, self.fields))} for {', '.join(map(str, self.codes))}"
            found = f"field {reserved} for the weight at {index}"
            raise InvalidArgumentError(op=op, argument="packed", found=found, legal=legal)
        return codes, scale

    def quantize(
        self,
        x: NDArray[np.float32],
        *,
        tail: Tail = "drop",
        nonfinite: Nonfinite = "keep",
        **layout: LayoutOption,
    ) -> NDArray[np.uint8]:
        """Quantize float32 weights (N, K) by the original's rule and pack them: uint8, shape `packed_shape((N, K))`.

        `tail` and `layout` are as in `pack`. `nonfinite` is for NaN, infinities and scales that overflow: "keep"
        returns the original's bytes with a NonFiniteWarning, "error" refuses.

        Raises InvalidArgumentError for a type, dtype or shape that does not fit, for what `tail` or `nonfinite` refuse,
        and in a format without a rule.
        """
        op = f"formats.{self.name}.quantize"
        form = self.laid_out(op, layout)
        if self.rule is None:
            found = f"{self.name}, which has no quantization rule"
            raise InvalidArgumentError(
                op=op, argument="format", found=found, legal="a format with a rule; or pack(codes, scale)"
            )
        _check_array(op, "x", x, np.float32)
        if x.ndim == 3 and len(x):
            return np.stack(list(_each(partial(form.quantize, each, tail=tail, nonfinite=nonfinite) for each in x)))
        shape = form.check_shape(op, "x", x.shape)
        _check_choice(op, "nonfinite", nonfinite, ("keep", "error"))
        self.check_tail(op, shape, tail)
        codes, scale = self.rule(x)
        bad = _first_nonfinite(x)
        overflow = ~np.isfinite(self._stored(scale))
        if not bad and overflow.any():
            index = _first_index(overflow)
            bad = f"{np.asarray(scale)[index]} as the largest of block {index}, too large for {self.scale_dtype}"
        if bad and nonfinite == "error":
            raise InvalidArgumentError(
                op=op, argument="x", found=bad, legal=f"finite numbers with {self.scale_dtype} scales"
            )
        if bad:
            warnings.warn(f"{op}: x is {bad}; the bytes are the original's", NonFiniteWarning, stacklevel=2)
        return form._pack(codes, scale)

    def _of_experts(self, op: str, scale: Any, shape: tuple[int, ...]) -> list[Any]:
        """The scales of each of the experts (E, N, K): one number is that of all."""
        if not isinstance(scale, np.ndarray) or scale.ndim == 0:
            return [scale] * shape[0]
        wanted = (shape[0], *self.scale_shape((shape[1], shape[2])))
        if scale.shape != wanted:
            legal = f"float32 of shape {wanted}, or one number"
            raise InvalidArgumentError(
                op=op, argument="scale", found=f"{scale.dtype} of shape {scale.shape}", legal=legal
            )
        return list(scale)

    @abstractmethod
    def _pack(self, codes: NDArray[np.int8], scale: Scale) -> NDArray[np.uint8]:
        """Pack checked arguments; a code 2 from a rule becomes field 3."""

    @abstractmethod
    def _unpack(self, packed: NDArray[np.uint8], shape: Shape) -> tuple[NDArray[np.int8], Scale]:
        """Unpack flat, contiguous bytes of the expected size; a field that is no code becomes a value that is not in
        `codes`."""

    def _stored(self, scale: Scale) -> NDArray[np.floating[Any]]:
        """Scales in their stored dtype, little-endian. Overflow becomes infinity, and every NaN the quiet NaN of its
        sign, as in libggml."""
        with np.errstate(over="ignore"):
            stored = np.asarray(scale).astype(np.dtype(self.scale_dtype).newbyteorder("<"))
        np.copyto(stored, np.copysign(np.float32(np.nan), scale), where=np.isnan(stored), casting="same_kind")
        return stored

    def check_shape(self, op: str, argument: str, shape: tuple[int, ...]) -> Shape:
        if len(shape) != 2 or min(shape) < 1:
            raise InvalidArgumentError(
                op=op, argument=argument, found=f"of shape {shape}", legal="two axes (N, K), both at least 1"
            )
        n, k = int(shape[0]), int(shape[1])
        if n % self.row_multiple or k % self.column_multiple:
            legal = f"N a multiple of {self.row_multiple} and K of {self.column_multiple}"
            raise InvalidArgumentError(op=op, argument=argument, found=f"of shape {(n, k)}", legal=legal)
        return n, k

    def check_tail(self, op: str, shape: Shape, tail: Tail) -> None:
        _check_choice(op, "tail", tail, ("drop", "error"))
        count = self.dropped(shape)
        if count and tail == "error":
            found = f"{shape}, of which the layout drops the last {count} weights"
            raise InvalidArgumentError(
                op=op, argument="shape", found=found, legal=f"N*K a multiple of {self.block}, or tail='drop'"
            )
        if count:
            message = f"{op}: the layout drops the last {count} of {math.prod(shape)} weights, which read back as -1"
            warnings.warn(message, TailDroppedWarning, stacklevel=3)

    def check_scale(self, op: str, scale: Any, shape: Shape) -> Scale:
        """Return the scale as np.float32, or as float32 of `scale_shape` in formats with several."""
        several = self.scale_shape(shape)
        legal = "one number" if self.scale_per == "tensor" else f"float32 of shape {several}, or one number"
        if isinstance(scale, np.ndarray):
            found = f"{scale.dtype} of shape {scale.shape}"
            is_number = scale.ndim == 0 and np.issubdtype(scale.dtype, np.floating)
            is_several = scale.dtype == np.float32 and scale.shape == several
        else:
            found = f"a {type(scale).__name__}"
            is_number, is_several = isinstance(scale, Real) and not isinstance(scale, bool), False
        checked: NDArray[np.float32]
        if self.scale_per != "tensor" and is_several:
            checked = scale
        elif is_number:
            with np.errstate(over="ignore"):
                number = np.float32(scale)
            if self.scale_per == "tensor":
                _check_tensor_scale(op, number)
                return number
            checked = np.full(several, number)
        else:
            raise InvalidArgumentError(op=op, argument="scale", found=found, legal=legal)
        overflow = np.isfinite(checked) & ~np.isfinite(self._stored(checked))
        if overflow.any():
            index = _first_index(overflow)
            legal = f"finite as {self.scale_dtype}"
            raise InvalidArgumentError(op=op, argument="scale", found=f"{checked[index]} at {index}", legal=legal)
        return checked


_Result = TypeVar("_Result")


def _each(calls: Iterable[Callable[[], _Result]]) -> Iterator[_Result]:
    """The results for all experts; a refusal names the expert."""
    for expert, call in enumerate(calls):
        try:
            yield call()
        except InvalidArgumentError as error:
            argument = f"{error.argument} of expert {expert}"
            raise InvalidArgumentError(op=error.op, argument=argument, found=error.found, legal=error.legal) from error


def _check_array(op: str, argument: str, value: Any, dtype: type[np.generic]) -> None:
    found = f"of dtype {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
    if not isinstance(value, np.ndarray) or value.dtype != dtype:
        raise InvalidArgumentError(
            op=op, argument=argument, found=found, legal=f"a NumPy array of {np.dtype(dtype)} in native byte order"
        )


def _check_tensor_scale(op: str, scale: Scale) -> None:
    # Zero is legal: the originals store it for all-zero weights.
    if not (np.isfinite(scale) and scale >= 0):
        raise InvalidArgumentError(op=op, argument="scale", found=str(scale), legal="a finite float32 >= 0")


def _check_choice(op: str, argument: str, value: object, legal: tuple[str, ...]) -> None:
    if value not in legal:
        raise InvalidArgumentError(op=op, argument=argument, found=repr(value), legal=" or ".join(map(repr, legal)))


def _first_index(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    """Index of the first true element in row-major order; one must be true."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), mask.shape))


def _first_illegal(codes: NDArray[np.int8], legal: tuple[int, ...]) -> tuple[int, ...]:
    """Index of the first code that is not in `legal`, or (). Two reductions need no memory; codes are compared one by
    one only if they find an illegal code."""
    without_gap = legal[-1] - legal[0] == len(legal) - 1
    if without_gap and codes.min() >= legal[0] and codes.max() <= legal[-1]:
        return ()
    is_legal = np.zeros(256, np.bool_)
    is_legal[np.array(legal, np.int8).view(np.uint8)] = True
    for part in slabs(*codes.shape):
        right = is_legal[codes[part].view(np.uint8)]
        if not right.all():
            row, column = _first_index(~right)
            return part.start + row, column
    return ()


def _first_nonfinite(x: NDArray[np.float32]) -> str:
    """Value and index of the first NaN or infinity of a matrix in row-major order, or ""."""
    for part in slabs(len(x), x.shape[1] * x.itemsize):
        finite = np.isfinite(x[part])
        if not finite.all():
            row, column = _first_index(~finite)
            return f"{x[part][row, column]} at {(part.start + row, column)}"
    return ""
