"""Each op is a folder with a contract and a place of its own in lists, and a public function."""

from __future__ import annotations

from pathlib import Path

from tritmark import kernels
from tritmark.kernels import ops

FOLDER = Path(kernels.__file__).parent


def test_every_folder_with_a_contract_is_listed_at_its_place() -> None:
    assert set(ops.names()) == {path.parent.name for path in FOLDER.glob("*/spec.py")}
    orders = [module.ORDER for module in ops.modules("spec")]
    assert orders == sorted(set(orders)), "two ops have the same place"


def test_every_op_has_a_public_function() -> None:
    for name in ops.names():
        assert name in kernels.__all__
        assert callable(getattr(kernels, name))


def test_all_that_an_op_brings_is_found_in_the_order_of_the_list() -> None:
    assert [module.__name__.split(".")[-2] for module in ops.modules("spec")] == list(ops.names())
    for part in ("cpu", "cuda", "mutants", "decoding"):
        there = [name for name in ops.names() if (FOLDER / name / f"{part}.py").exists()]
        assert there
        assert [module.__name__.split(".")[-2:] for module in ops.modules(part)] == [[name, part] for name in there]
    for file in ("reference.cpp", "reference.toml", "workloads.toml"):
        assert [path.parent.name for path in ops.files(file)] == list(ops.names()), file
