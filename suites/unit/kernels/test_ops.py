"""Each op is a folder, a name in one list, and a public function."""

from __future__ import annotations

from pathlib import Path

from tritmark import kernels
from tritmark.kernels import ops

FOLDER = Path(kernels.__file__).parent


def test_every_folder_with_a_contract_is_listed() -> None:
    assert sorted(ops.NAMES) == sorted(path.parent.name for path in FOLDER.glob("*/spec.py"))


def test_every_op_has_a_public_function() -> None:
    for name in ops.NAMES:
        assert name in kernels.__all__
        assert callable(getattr(kernels, name))


def test_all_that_an_op_brings_is_found_in_the_order_of_the_list() -> None:
    assert [module.__name__.split(".")[-2] for module in ops.modules("spec")] == list(ops.NAMES)
    for part in ("cpu", "cuda", "faults"):
        there = [name for name in ops.NAMES if (FOLDER / name / f"{part}.py").exists()]
        assert [module.__name__.split(".")[-2:] for module in ops.modules(part)] == [[name, part] for name in there]
