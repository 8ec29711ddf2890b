"""Writes functions.pyi and awaited.pyi: the public functions of the ops, for type checkers and editors.

python kernels/stubs.py; the build does it too. It imports nothing, since the build has none of the dependencies.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
_MARK = '"""Written by stubs.py from the ops that are there."""'


def functions(here: Path = HERE) -> Iterator[tuple[str, str]]:
    """Each public function and its module, sorted. Raises ValueError for an op whose `api.py` names none."""
    found = []
    for spec in here.glob("*/spec.py"):
        for part in ("api", "batch"):
            path = spec.with_name(f"{part}.py")
            if path.is_file():
                module = f"tritmark.kernels.{spec.parent.name}.{part}"
                found += [(name, module) for name in _named(path)]
    return iter(sorted(found))


def _named(path: Path) -> list[str]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return list(ast.literal_eval(value))
    raise ValueError(f"{path}: no __all__; legal: a list of the op's public functions")


def texts(here: Path = HERE) -> dict[str, str]:
    """The text of each stub, by the name of its file."""
    found = list(functions(here))
    listed = ["__all__ = [", *(f'    "{name}",' for name, _ in found), "]"]
    plain = [f"from {module} import {name} as {name}" for name, module in found]
    hidden = [f"from {module} import {name} as _{name}" for name, module in found]
    awaited = [f"{name} = awaitable(_{name})" for name, _ in found]
    return {
        "functions.pyi": "\n".join([_MARK, "", *plain, "", *listed, ""]),
        "awaited.pyi": "\n".join(
            [_MARK, "", "from tritmark.kernels.aio import awaitable", *hidden, "", *listed, "", *awaited, ""]
        ),
    }


def write(here: Path = HERE) -> None:
    """Write the stubs that do not have their text already."""
    for name, text in texts(here).items():
        path = here / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
