"""Layouts of fields with a zero point for each group of a row: a weight is (field - zero point) * scale."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.formats.base import Experts, LayoutOption, Scale, Shape, Tail
from tritmark.kernels.formats.sequential import Sequential


@dataclass(frozen=True, kw_only=True)
class ZeroPointed(Sequential):
    """A layout whose `unpack` also takes the zero points of a model."""

    def unpack(  # type: ignore[override]  # no other option is an array
        self,
        packed: NDArray[np.uint8],
        shape: Shape | Experts,
        *,
        tail: Tail = "drop",
        zero_points: NDArray[Any] | None = None,
        **layout: LayoutOption,
    ) -> tuple[NDArray[np.int8], Scale]:
        """As in other formats. `zero_points` are those of the model: uint8 (N, groups), or (E, N, groups) of experts,
        and for ONNX Runtime also the forms that its method of that name returns. By default all are those of `pack`.

        Also raises InvalidArgumentError for zero points of another dtype or shape, and for weights that are not -1, 0
        or 1.
        """
        if zero_points is None:
            return super().unpack(packed, shape, tail=tail, **layout)
        form = cast(ZeroPointed, self.laid_out(f"formats.{self.name}.unpack", layout))
        if len(shape) == 3:
            op, of_each = f"formats.{self.name}.unpack", (shape[1], shape[2])
            if len(packed) != shape[0] or len(zero_points) != shape[0]:
                found = f"of shapes {packed.shape} and {zero_points.shape}"
                legal = f"{shape[0]} experts on the first axis"
                raise InvalidArgumentError(op=op, argument="packed and zero_points", found=found, legal=legal)
            experts = [
                form.unpack(each, of_each, tail=tail, zero_points=points)
                for each, points in zip(packed, zero_points, strict=True)
            ]
            return np.stack([codes for codes, _ in experts]), np.stack([scale for _, scale in experts])
        anything = replace(form, codes=(0, 1, 2, 3), fields=(0, 1, 2, 3))
        fields, ones = super(ZeroPointed, anything).unpack(packed, shape, tail=tail)
        taken = form._zero_points(zero_points, fields.shape)
        codes = fields - np.repeat(taken, form.group, axis=1)[:, : fields.shape[1]]
        wrong = np.argwhere(np.abs(codes) > 1)
        if wrong.size:
            index = tuple(int(i) for i in wrong[0])
            found = f"field {fields[index]} with zero point {taken[index[0], index[1] // form.group]} at {index}"
            raise InvalidArgumentError(
                op=f"formats.{self.name}.unpack", argument="packed", found=found, legal="a difference of -1, 0 or 1"
            )
        return codes, ones

    def _zero_points(self, given: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.int8]:
        """Zero points as int8 (N, groups)."""
        wanted = self.scale_shape((shape[0], shape[1]))
        if not isinstance(given, np.ndarray) or given.dtype != np.uint8 or given.shape != wanted:
            is_array = isinstance(given, np.ndarray)
            found = f"{given.dtype} of shape {given.shape}" if is_array else f"a {type(given).__name__}"
            op, legal = f"formats.{self.name}.unpack", f"uint8 of shape {wanted}"
            raise InvalidArgumentError(op=op, argument="zero_points", found=found, legal=legal)
        return given.astype(np.int8)


def with_group_size(form: Sequential, op: str, options: dict[str, LayoutOption]) -> Sequential:
    """The format for the option `group_size`, of which its bytes are independent. Raises InvalidArgumentError for
    others."""
    if set(options) - {"group_size"}:
        found = ", ".join(sorted(options))
        raise InvalidArgumentError(op=op, argument="layout options", found=found, legal="group_size")
    size = options.get("group_size", form.group)
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise InvalidArgumentError(op=op, argument="group_size", found=repr(size), legal="an integer above 0")
    return replace(form, group=size)
