"""CUDA variants with several instances: the built-in choice is the launched one, every instance is correct, and a
stored choice is launched where it applies."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from cuda_products import data_of, expected, product, same
from hypothesis import given
from hypothesis import strategies as st
from lazy_device import INFO as DEVICE_INFO

from tritmark.harness import caches, tuned
from tritmark.harness.autotune.keep import keep
from tritmark.harness.spec import Variant
from tritmark.harness.tuned import Choice
from tritmark.kernels.cuda.launch.launch import STEPS
from tritmark.kernels.cuda.launch.tuning import Tuning
from tritmark.kernels.ternary_matmul import cuda as row16
from tritmark.kernels.ternary_matmul import cuda_gemm, cuda_gemv_shared, cuda_gpu_int2, cuda_grouped

if TYPE_CHECKING:
    from tritmark.kernels.cuda.context import CudaContext

VARIANTS = [each for each in (*row16.VARIANTS, *cuda_gpu_int2.VARIANTS) if each.instances and each.key.dtype == "int32"]
GROUPED = [each for each in cuda_grouped.VARIANTS if (each.key.format, each.key.dtype) == ("row16_g64", "float32")]
INFO = replace(DEVICE_INFO, sms=132)
ROWS = {"gemv_dp4a": 1, "gemv": 8}
"""Maximum rows of activations for a variant."""


LAUNCHERS = (
    (cuda_gemm, "_launch"),
    (row16, "_launch_mma"),
    (row16, "_launch_rows"),
    (row16, "_launch_dp4a"),
    (cuda_gemv_shared, "launch"),
    (cuda_gpu_int2, "_launched"),
    (cuda_grouped, "_launch"),
)
"""The function that launches an instance."""


def _id(variant: Variant) -> str:
    return "-".join(variant.id.split("/")[2:])


def tuning_of(variant: Variant) -> Tuning:
    found = STEPS[variant.id]
    assert isinstance(found, Tuning)
    return found


@pytest.mark.parametrize("variant", [*VARIANTS, *GROUPED], ids=_id)
@given(data=st.data())
def test_the_first_instance_is_what_is_launched(variant: Variant, data: st.DataObject) -> None:
    axes = {
        "M": data.draw(st.integers(1, ROWS.get(variant.name, 600))),
        "N": 16 * data.draw(st.integers(1, 2000)),
        "K": 128 * data.draw(st.integers(1, 200)),
    }
    made, told = tuning_of(variant), []
    names = made.by_name(axes, INFO)

    def tell(instance: Any, kind: int, call: Any) -> tuple[()]:
        told.append(instance)
        return ()

    with pytest.MonkeyPatch.context() as patch:
        for module, maker in LAUNCHERS:
            patch.setattr(module, maker, tell)
        inputs = {"weights": SimpleNamespace(constant=True)}  # like the tuning
        made.builtin(SimpleNamespace(axes=axes, info=INFO, inputs=inputs))
    first = next(iter(names.values()))
    assert isinstance(first, partial)
    assert told == [first.args[0]]


@pytest.mark.parametrize(
    ("variant", "shape"),
    [
        *((each, (1, 64, 512)) for each in VARIANTS if each.name in ROWS),
        *((each, (3, 64, 512)) for each in VARIANTS if each.name == "gemv"),
        *((each, (20, 32, 256)) for each in VARIANTS if each.key.format == "gpu_int2"),
    ],
    ids=lambda told: _id(told) if isinstance(told, Variant) else "x".join(map(str, told)),
)
def test_every_instance_is_right(cuda: CudaContext, variant: Variant, shape: tuple[int, int, int]) -> None:
    """Instances of gemm have their own tests."""
    assert variant.instances is not None
    data = data_of(*shape)
    found = variant.instances(dict(zip("MNK", shape, strict=True)))
    assert len(found.each) > 2
    for each in found.each.values():
        same(product(cuda, each, data), expected(data, "int32"))


def test_a_choice_is_launched_where_it_holds(
    cuda: CudaContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (variant,) = (each for each in VARIANTS if each.name == "gemv_dp4a")
    assert variant.instances is not None
    data, axes = data_of(1, 64, 512), {"M": 1, "N": 64, "K": 512}
    found = variant.instances(axes)
    builtin, *_, other = found.each
    choice = Choice(
        variant=variant.id,
        axes=axes,
        identity=found.identity,
        instance=other,
        builtin=builtin,
        ratio=(0.9, 0.89, 0.91),
        created="",
    )
    monkeypatch.setenv(caches.CACHE, str(tmp_path))

    def tuned_name(choice: Choice) -> str:
        keep(choice.variant, choice.axes, choice.identity, choice)
        launched: list[str] = []
        receipt = variant.bind

        def bind(*arguments: Any) -> Any:
            launch: Any = receipt(*arguments)
            launched.append(launch.proof.tuned)
            grids.append([(step.grid, step.block) for step in launch.steps])
            return launch

        same(product(cuda, replace(variant, bind=bind), data), expected(data, "int32"))
        return launched[0]

    grids: list[Any] = []
    assert tuned_name(choice) == other
    assert tuned_name(replace(choice, identity={**choice.identity, "code": "another"})) == ""
    assert tuned_name(replace(choice, builtin="what was launched once")) == ""
    assert tuned_name(replace(choice, instance="what there was once")) == ""
    assert tuned_name(replace(choice, axes={**axes, "N": 65})) == ""
    assert grids[0] != grids[1] == grids[2] == grids[3] == grids[4]
    tuned.forget()


def test_the_code_hash_holds_sources_options_and_launches() -> None:
    (variant,) = (each for each in VARIANTS if each.name == "gemv_dp4a")
    made = tuning_of(variant)
    known = made.identity(INFO)["code"]
    assert known == made.identity(INFO)["code"]
    few = replace(made, kernels=made.kernels[:1])
    options = replace(made, kernels=tuple(replace(kernel, options=("-G",)) for kernel in made.kernels))
    launches = replace(made, by_name=partial(cuda_gpu_int2._mma_by_name, 0))
    elsewhere = {each.identity(INFO)["code"] for each in (few, options, launches)}
    assert len(elsewhere | {known, made.identity(replace(INFO, capability=(8, 0)))["code"]}) == 5
