"""The 2-bit words of MLX's affine quantization; a scale and a bias for each group of a row are separate tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.weights.format_names import MLX_Q2
from tritmark.kernels.formats import affine
from tritmark.kernels.formats.base import Experts, LayoutOption, Scale, Shape, Tail
from tritmark.kernels.formats.sequential import Sequential, split_into_fields

_GROUP_SIZES = (32, 64, 128)
_EPSILON = np.float32(1e-7)


class Affine(NamedTuple):
    """Weights scale * field + bias. For weights (N, K) in groups of G:"""

    packed: NDArray[np.uint8]
    """(N, K / 4)."""
    scales: NDArray[np.float32]
    """(N, K / G)."""
    biases: NDArray[np.float32]
    """(N, K / G)."""


@dataclass(frozen=True, kw_only=True)
class MlxAffine(Sequential):
    """The words of mx.quantize with mode affine and bits = 2: uint32 (N, K / 16) as bytes, 16 weights of a row from the
    lowest bits up. A weight is scale * field + bias, with a scale and a bias for each `group_size` weights.

    A ternary weight is the field w + 1 with bias = -scale. There is no rule: mx.quantize uses all four fields, and
    does not keep ternary weights exactly. `quantize_affine` computes what it does.
    """

    def with_group_size(self, group_size: LayoutOption) -> MlxAffine:
        """The layout for MLX's `group_size`: 32, 64 or 128. Raises InvalidArgumentError for any other."""
        if group_size not in _GROUP_SIZES:
            legal = ", ".join(map(str, _GROUP_SIZES))
            op = f"formats.{self.name}"
            raise InvalidArgumentError(op=op, argument="group_size", found=repr(group_size), legal=legal)
        return replace(self, block=int(group_size), group=int(group_size), column_multiple=int(group_size))

    def laid_out(self, op: str, options: Mapping[str, LayoutOption]) -> MlxAffine:
        if set(options) - {"group_size"}:
            found = ", ".join(sorted(options))
            raise InvalidArgumentError(op=op, argument="layout options", found=found, legal="group_size")
        return self.with_group_size(options["group_size"]) if options else self

    def unpack(  # type: ignore[override]  # no other option is an array
        self,
        packed: NDArray[np.uint8],
        shape: Shape | Experts,
        *,
        tail: Tail = "drop",
        scales: NDArray[Any] | None = None,
        biases: NDArray[Any] | None = None,
        **layout: LayoutOption,
    ) -> tuple[NDArray[np.int8], Scale]:
        """As in other formats. `scales` and `biases` are those of the model, (N, K / group_size) of any float dtype; by
        default they are 1 and -1. With them, the second result is the scales as float32.

        Also raises InvalidArgumentError for one without the other, for another shape, for numbers that are not finite,
        and for a bias that is not -scale: such weights are not ternary.
        """
        codes, ones = super().unpack(packed, shape, tail=tail, **layout)
        if scales is None and biases is None:
            return codes, ones
        op = f"formats.{self.name}.unpack"
        wide = []
        for name, given in (("scales", scales), ("biases", biases)):
            if not isinstance(given, np.ndarray) or given.shape != np.shape(ones):
                found = f"of shape {given.shape}" if isinstance(given, np.ndarray) else f"a {type(given).__name__}"
                raise InvalidArgumentError(op=op, argument=name, found=found, legal=f"floats of shape {np.shape(ones)}")
            wide.append(given.astype(np.float32))
            bad = ~np.isfinite(wide[-1])
            if bad.any():
                index = tuple(int(i) for i in np.argwhere(bad)[0])
                raise InvalidArgumentError(
                    op=op, argument=name, found=f"{given[index]} at {index}", legal="finite numbers"
                )

        # Imported late: readers of files are costly to import.
        from tritmark.harness.weights.words import first_bias_of_other_codes

        at = first_bias_of_other_codes(wide[0], wide[1])
        if at is not None:
            found = f"{wide[1][at]} beside the scale {wide[0][at]} at {at}, so the weights are not ternary"
            raise InvalidArgumentError(op=op, argument="biases", found=found, legal="-scale for each group")
        return codes, wide[0]

    def quantize_affine(self, x: NDArray[np.float32], *, group_size: LayoutOption = 128) -> Affine:
        """What mx.quantize computes on the CPU from float32 weights (N, K) with bits = 2: four levels for each group,
        with the edge of larger magnitude on a level.

        Raises InvalidArgumentError for another dtype, a shape that is no multiple of the group, and numbers that are
        not finite.
        """
        op = f"formats.{self.name}.quantize_affine"
        form = self.with_group_size(group_size)
        shape = affine.checked(form, op, x)
        groups = x.reshape(-1, form.group)
        low, high = groups.min(axis=1), groups.max(axis=1)
        from_low = np.abs(low) > np.abs(high)
        edge = np.where(from_low, low, high)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            scale = np.maximum((high - low) / affine.LARGEST, _EPSILON)
            scale = np.where(from_low, scale, -scale)
            level = np.rint(edge / scale)
            on_edge = level != 0
            scale = np.where(on_edge, edge / np.where(on_edge, level, np.float32(1)), scale)
            bias = np.where(on_edge, edge, np.float32(0))
            fields = np.rint((groups - bias[:, np.newaxis]) / scale[:, np.newaxis])
        return Affine(affine.packed(fields, shape), scale.reshape(shape[0], -1), bias.reshape(shape[0], -1))

    def dequantize_affine(self, packed: NDArray[np.uint8], scales: Any, biases: Any) -> NDArray[np.float32]:
        """scale * field + bias in float32 (N, K), of any four fields; `scales` and `biases` are (N, K / G)."""
        fields = split_into_fields(packed).astype(np.float32)
        groups = fields.reshape(*scales.shape, -1)
        found: NDArray[np.float32] = groups * scales.astype(np.float32)[..., np.newaxis]
        found += biases.astype(np.float32)[..., np.newaxis]
        return found.reshape(fields.shape)


FORMAT = MlxAffine(
    name=MLX_Q2,
    block=128,
    group=128,
    column_multiple=128,
    scale_per="group",
    scale_stored=False,
    options=("group_size",),
    summary="MLX, mode affine, bits 2: 16 weights of a row per uint32, scales and biases beside them",
    source="ml-explore/mlx, mx.quantize",
)

FORMATS = (FORMAT,)
