"""The harness can be read from top to bottom: its rooms stand above one another, and what imports goes down.

Looked at are all imports that the files have: at their heads, inside functions, and for types alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tritmark import harness, kernels

pytestmark = pytest.mark.long

(HERE,) = map(Path, harness.__path__)
(KERNELS,) = map(Path, kernels.__path__)
PREFIX = "tritmark.harness"

LAYERS = (
    ("__main__", "toplevel"),
    ("cli",),
    ("monitor", "health"),
    ("doctor", "gate", "soak", "report", "frame", "formats", "criteria"),
    ("verify", "derived"),
    ("selftest", "selection"),
    ("autotune", "judge"),
    ("cross", "advise", "history", "league", "precision"),
    ("recovery",),
    ("validate", "disassembly"),
    ("worker",),
    ("candidate",),
    ("store", "text", "measure"),
    ("record",),
    ("machine", "providers", "weights", "originals"),
    ("registry", "contract", "prefetched"),
    ("tuned",),
    ("suite",),
    ("numbered",),
    ("spec", "dtypes", "resident"),
    ("errors", "extras", "nearest", "caches", "interruption", "judged", "locks", "sealed", "search_path", "utf8"),
)
"""From top to bottom: what stands in one line does not import each other."""

FLOOR = {room: -number for number, layer in enumerate(LAYERS) for room in layer}


def modules(here: Path = HERE) -> dict[str, str]:
    """Every module's source, by its name below tritmark.harness, or below the package in that folder."""
    names = {path: path.relative_to(here).with_suffix("").parts for path in sorted(here.rglob("*.py"))}
    sources = {path: path.read_text(encoding="utf-8") for path in names}
    return {".".join(parts[:-1] if parts[-1] == "__init__" else parts): sources[path] for path, parts in names.items()}


@cache
def statements(source: str) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """What a source imports, wherever in it."""
    return tuple(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom))


def imported(source: str, known: Mapping[str, str], prefix: str = PREFIX) -> Iterator[str]:
    """The modules of a package, which is the harness unless told, that a source imports."""
    for node in statements(source):
        if isinstance(node, ast.ImportFrom) and node.module and f"{node.module}.".startswith(f"{prefix}."):
            module = node.module.removeprefix(prefix).removeprefix(".")
            for alias in node.names:
                inner = f"{module}.{alias.name}".removeprefix(".")
                yield inner if inner in known else module
        elif isinstance(node, ast.Import):
            yield from (
                alias.name.removeprefix(f"{prefix}.") for alias in node.names if alias.name.startswith(f"{prefix}.")
            )


def upward(known: Mapping[str, str]) -> list[str]:
    """The imports from one room to another that does not stand below it."""
    return [
        f"{module} imports {each}"
        for module, source in known.items()
        for each in imported(source, known)
        if (there := each.partition(".")[0]) != (here := module.partition(".")[0]) and FLOOR[here] <= FLOOR[there]
    ]


def circle(known: Mapping[str, str], prefix: str = PREFIX) -> list[str]:
    """Modules that import each other in a circle; empty where there is none."""
    graph = {module: set(imported(source, known, prefix)) - {module} for module, source in known.items()}
    sorter = TopologicalSorter(graph)
    try:
        sorter.prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_every_room_has_its_floor() -> None:
    rooms = {module.partition(".")[0] for module in modules()} - {""}
    # An installation has it as the package tritmark itself.
    assert rooms | {"toplevel"} == FLOOR.keys()


def test_no_import_goes_up() -> None:
    assert upward(modules()) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circle(modules()) == []
    assert circle(modules(KERNELS), "tritmark.kernels") == []


@pytest.mark.parametrize(
    "source",
    [
        "from tritmark.harness.cli.console import console",
        "from tritmark.harness.cli import console",
        "import tritmark.harness.cli",
        "def late():\n    from tritmark.harness.report import page",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tritmark.harness.judge.request import Request",
        "from tritmark.harness import verify",
    ],
)
def test_what_goes_up_is_seen(source: str) -> None:
    known = modules()
    assert len(upward({**known, "measure.survey": source})) == 1


def test_a_circle_is_seen() -> None:
    known = modules()
    assert "errors" in circle({**known, "errors": "def late():\n    from tritmark.harness.spec import Op"})
    known = modules(KERNELS)
    late = "def late():\n    from tritmark.kernels.cuda.launch import CudaLaunch"
    assert "cuda.context" in circle({**known, "cuda.context": late}, "tritmark.kernels")


def test_folders_of_tests_are_rooms() -> None:
    below = {f"kernels/{path.relative_to(KERNELS).as_posix()}" for path in KERNELS.rglob("*") if path.is_dir()}
    rooms = {*FLOOR, "kernels", "pytorch", *below}
    here = Path(__file__).parent
    folders = {path.parent.relative_to(here).as_posix() for path in here.rglob("test_*.py")}
    assert folders - rooms == {".", "hostile"}, "tests of the whole house lie beside this one, or run it in a session"
