"""Names of before that packages outside the repository may use: they work, with a DeprecationWarning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tritmark.harness import spec
from tritmark.harness.spec import KernelKey, Launch, Op, Tensor, Tier, ToleranceKind, Traffic, Variant
from tritmark.harness.spec.renamed import old_name

FIELDS: dict[str, Any] = {
    "name": "double",
    "summary": "y = 2 x",
    "source": "this file",
    "axes": ("n",),
    "inputs": (),
    "outputs": (),
    "generate": lambda axes, family, rng: {},
    "outputs_like": lambda axes, key: {},
    "reference": lambda inputs, axes, key: {},
    "traffic": lambda axes, key: Traffic(0, 0, 0),
}


@pytest.fixture
def warned() -> Iterator[None]:
    with pytest.warns(DeprecationWarning, match=r"is deprecated: use "):
        yield


@pytest.mark.usefixtures("warned")
def test_an_op_takes_its_old_fields() -> None:
    made: Any = Op
    op = made(**FIELDS, family=ToleranceKind.EXACT, families=("normal",), apart=None)
    assert (op.tolerance_kind, op.input_families, op.independent_axis) == (ToleranceKind.EXACT, ("normal",), None)
    assert (op.family, op.families, op.apart) == (ToleranceKind.EXACT, ("normal",), None)
    assert replace(op, input_families=("uniform",)).input_families == ("uniform",)


@pytest.mark.usefixtures("warned")
def test_a_tensor_takes_its_old_field() -> None:
    made: Any = Tensor
    tensor = made("x", ("M", "K"), "int8", "codes", rows_apart=True)
    assert tensor.strided_rows
    assert tensor.rows_apart


@pytest.mark.usefixtures("warned")
def test_a_variant_takes_its_old_field() -> None:
    def bind(*_: Any) -> Launch:
        raise AssertionError

    made: Any = Variant
    key = KernelKey("cpu", "double", "none", "float32")
    variant = made(key=key, name="fast", tier=Tier.BASELINE, summary="", bind=bind, bound=len)
    assert (variant.error_bound, variant.bound) == (len, len)


@pytest.mark.usefixtures("warned")
def test_the_old_name_of_the_tolerance_kind_is_the_same_class() -> None:
    assert spec.Family is ToleranceKind


def test_new_names_do_not_warn_and_a_name_that_never_was_is_refused() -> None:
    assert Op(**FIELDS, tolerance_kind=ToleranceKind.EXACT, input_families=("normal",)).tolerance_kind == "exact"
    assert (old_name(Op, "tolerance_kind"), old_name(Op, "name")) == ("family", "name")
    with pytest.raises(AttributeError, match="has no attribute 'Familly'"):
        spec.Familly  # noqa: B018
    with pytest.raises(TypeError, match="colour"):
        Op(**FIELDS, colour=1)  # type: ignore[call-arg]
