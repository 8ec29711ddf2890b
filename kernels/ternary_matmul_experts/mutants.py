"""Mutants of ternary_matmul_experts: faults of the offsets and experts. Those of the products themselves are mutants of
ternary_matmul."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.selftest.mutants import TILE
from tritmark.harness.spec import Arrays, Axes, EquivalentMutants, KernelKey, Mutant
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.ternary_matmul.reference import accumulate
from tritmark.kernels.ternary_matmul.scales import grouped
from tritmark.kernels.ternary_matmul_experts.offsets import expert_of
from tritmark.kernels.ternary_matmul_experts.reference import product, reference
from tritmark.kernels.ternary_matmul_experts.spec import expert_scales

Array = npt.NDArray[Any]


def _changed(inputs: Arrays, axes: Axes, key: KernelKey, **changed: Any) -> dict[str, Any]:
    """Correct outputs of changed inputs. The scales of groups stay those of the original inputs."""
    scales = expert_scales(inputs, axes, key.weight_format)
    return reference({**inputs, "weight_scale": scales, **changed}, axes, key)


def _by_expert(experts: Array, inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Correct outputs if row m belonged to experts[m]: the experts are put in order, one for each row."""
    scales = expert_scales(inputs, axes, key.weight_format)
    of_rows = {"weights": inputs["weights"][experts], "weight_scale": scales[experts]}
    M = axes["M"]
    return reference({**inputs, **of_rows, "offsets": np.arange(M + 1, dtype=np.int32)}, {**axes, "E": M}, key)


def _rows(inputs: Arrays, axes: Axes) -> Array:
    return expert_of(inputs["offsets"], axes["M"])


def _next_expert(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Each row times the weights of the next expert."""
    return _by_expert((_rows(inputs, axes) + 1) % axes["E"], inputs, axes, key)


def _next_busy_expert(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Experts counted without those that have no rows."""
    _, order = np.unique(_rows(inputs, axes), return_inverse=True)
    return _by_expert(order, inputs, axes, key)


def _first_expert(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The weights of expert 0 for all rows."""
    return _by_expert(np.zeros(axes["M"], np.int64), inputs, axes, key)


def _moved(by: int, inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Each expert's rows begin and end one row early or late: a row of each belongs to a neighbour."""
    rows = _rows(inputs, axes)
    at = np.clip(np.arange(axes["M"]) + by, 0, axes["M"] - 1)
    return _by_expert(rows[at], inputs, axes, key)


def _without(which: str, inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Rows of one expert, or the last row of each expert, are not computed: they are zero."""
    made, rows = dict(reference(inputs, axes, key)), _rows(inputs, axes)
    ends = np.append(rows[1:] != rows[:-1], True)
    several = np.append(False, rows[1:] == rows[:-1])
    dropped = {"first": rows == rows[0], "last": rows == rows[-1], "end": ends & several}[which]
    made["out"] = np.where(dropped[:, np.newaxis], 0, made["out"])
    return made


def _scale_of(by: int, inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The scales of a neighbour expert."""
    return _changed(inputs, axes, key, weight_scale=np.roll(expert_scales(inputs, axes, key.weight_format), by, axis=0))


def _act_scale_within(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The scales of the activations counted from the first row of each expert."""
    rows = _rows(inputs, axes)
    within = np.arange(axes["M"]) - np.searchsorted(rows, rows)
    return _changed(inputs, axes, key, act_scale=inputs["act_scale"][within])


def _activations_within(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The activations of each expert read from the first row of all."""
    rows = _rows(inputs, axes)
    within = np.arange(axes["M"]) - np.searchsorted(rows, rows)
    return _changed(inputs, axes, key, activations=inputs["activations"][within])


def _at_most(most: int, inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Only the first rows of each expert are computed."""
    made, rows = dict(reference(inputs, axes, key)), _rows(inputs, axes)
    within = np.arange(axes["M"]) - np.searchsorted(rows, rows)
    made["out"] = np.where((within >= most)[:, np.newaxis], 0, made["out"])
    return made


def _int16(x: Array, w: Array) -> Array:
    """Sums wrapped to int16."""
    return accumulate(x, w).astype(np.int16).astype(np.int64)


def _wrapped(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    return product(inputs, axes, key, _int16)


def _narrow_scale(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The scales of the activations rounded to bfloat16."""
    narrow = inputs["act_scale"].astype(named_dtype("bfloat16")).astype(np.float32)
    return _changed(inputs, axes, key, act_scale=np.where(np.isfinite(narrow) & (narrow > 0), narrow, np.float32(1)))


def _is_float(key: KernelKey) -> bool:
    return key.dtype != "int32"


def _is_int(key: KernelKey) -> bool:
    return key.dtype == "int32"


def _is_narrow(key: KernelKey) -> bool:
    return key.dtype in {"bfloat16", "float16"}


def _has_groups(key: KernelKey) -> bool:
    return grouped(key.weight_format) is not None


def _has_long_sums(key: KernelKey) -> bool:
    """Whether 257 products may share a sum."""
    form = grouped(key.weight_format)
    return form is None or form.group > 256


def _has_no_tail(key: KernelKey) -> bool:
    """Whether a row is always a multiple of the unit after which the mutant drops the rest."""
    form = FORMATS.get(key.weight_format)
    return form is not None and form.scale_per == "group" and form.column_multiple % (4 * TILE) == 0


_OP = "ternary_matmul_experts"

MUTANTS: tuple[Mutant | EquivalentMutants, ...] = (
    Mutant(op=_OP, name="weights of the next expert", compute=_next_expert, drawn=True),
    Mutant(op=_OP, name="experts counted without empty ones", compute=_next_busy_expert, drawn=True),
    Mutant(op=_OP, name="weights of expert 0 for all rows", compute=_first_expert, drawn=True),
    Mutant(op=_OP, name="rows of experts begin one early", compute=partial(_moved, 1), drawn=True),
    Mutant(op=_OP, name="rows of experts begin one late", compute=partial(_moved, -1), drawn=True),
    Mutant(op=_OP, name="the first expert not computed", compute=partial(_without, "first")),
    Mutant(op=_OP, name="the last expert not computed", compute=partial(_without, "last")),
    Mutant(op=_OP, name="the last of an expert's rows not computed", compute=partial(_without, "end"), drawn=True),
    Mutant(op=_OP, name="scales of the next expert", compute=partial(_scale_of, -1), only=_is_float, drawn=True),
    Mutant(op=_OP, name="scales of the expert before", compute=partial(_scale_of, 1), only=_is_float, drawn=True),
    Mutant(op=_OP, name="act_scale counted within the expert", compute=_act_scale_within, only=_is_float, drawn=True),
    Mutant(op=_OP, name="activations counted within the expert", compute=_activations_within, drawn=True),
    *(
        Mutant(op=_OP, name=f"at most {most} rows of an expert", compute=partial(_at_most, most), drawn=True)
        for most in (1, 16, 96)
    ),
    Mutant(op=_OP, name="sums wrapped to int16", compute=_wrapped, only=_has_long_sums),
    Mutant(op=_OP, name="act_scale rounded to bfloat16", compute=_narrow_scale, only=_is_float, drawn=True),
    EquivalentMutants(
        op=_OP,
        mutant="input offsets: two neighbours swapped",
        reason="the reference of mutants counts the ends at or below a row, in any order",
    ),
    EquivalentMutants(op=_OP, mutant="input *_scale: *", only=_is_int, reason="int32 outputs are the sums themselves"),
    EquivalentMutants(
        op=_OP,
        mutant="input *_scale: one unit of the last place larger",
        only=_is_narrow,
        reason="a unit of float32's last place is far less than the one of 16 bits that the contract admits",
    ),
    EquivalentMutants(
        op=_OP,
        mutant="input activations: tail not read",
        only=_has_no_tail,
        reason="rows are whole groups of the weights' format",
    ),
    EquivalentMutants(
        op=_OP,
        mutant="input weights: tail not read",
        only=_has_no_tail,
        reason="rows are whole groups of the weights' format",
    ),
    EquivalentMutants(
        op=_OP,
        mutant="input *_scale: one unit of the last place larger",
        only=_has_groups,
        reason="the sum over groups may have more roundings than that, and float16 scales do not hold it",
    ),
)
