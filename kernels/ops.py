"""The ops: the folders here with a spec.py, in the order of their ORDER."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from tritmark.harness.spec import Op

_HERE = Path(__file__).parent


@cache
def names() -> tuple[str, ...]:
    """The folders, in the order in which reports show their ops."""
    found = [path.parent.name for path in sorted(_HERE.glob("*/spec.py"))]
    orders = {name: import_module(f"{__package__}.{name}.spec").ORDER for name in found}
    return tuple(sorted(found, key=orders.__getitem__))


@cache
def contracts() -> tuple[tuple[Op, ModuleType], ...]:
    """Every op, in the order in which reports show them, and its `spec`, which may have several."""
    return tuple(
        (op, spec) for spec in modules("spec") for op in ((spec.OP,) if hasattr(spec, "OP") else spec.OPS.values())
    )


def modules(*parts: str) -> Iterator[ModuleType]:
    """The modules with these names that an op has, op by op: `spec`, `cpu`, `cuda`, `cuda_gpu_int2`, `cuda_scaled`,
    `cuda_grouped`, `mutants`, `decoding`."""
    for op in names():
        for part in parts:
            if (_HERE / op / f"{part}.py").is_file():
                yield import_module(f"{__package__}.{op}.{part}")


def files(name: str) -> list[Path]:
    """The files of that name that ops have, op by op."""
    return [path for op in names() if (path := _HERE / op / name).is_file()]
