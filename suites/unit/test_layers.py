"""Each house can be read from top to bottom: its rooms stand above one another, and what imports goes down. The harness
is a house, and so are kernels/ and kernels/cuda/.

Looked at are all imports that the files have: at their heads, inside functions, and for types alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tritmark import harness, kernels
from tritmark.kernels import ops

pytestmark = pytest.mark.long

(HERE,) = map(Path, harness.__path__)
(THERE,) = map(Path, kernels.__path__)
TOP, OPS = "__init__", "<op>"
"""The package itself, and the folders of all ops."""
STUBS = frozenset({"awaited"})
"""Stubs without a module: nothing imports them when a program runs."""
TEMPLATES = "templates"
"""Files for users, who import what is public."""


@dataclass(frozen=True)
class House:
    """A package whose rooms stand above one another."""

    prefix: str
    folder: Path
    layers: tuple[tuple[str, ...], ...]
    """From top to bottom: what stands in one line does not import each other."""
    ops: frozenset[str] = frozenset()
    """The folders that are one room, OPS."""

    @property
    def floors(self) -> dict[str, int]:
        """The height of each room."""
        return {room: -number for number, layer in enumerate(self.layers) for room in layer}

    def room(self, module: str) -> str:
        """The room of a module, named below the prefix."""
        first = module.partition(".")[0]
        return OPS if first in self.ops else first or TOP


HARNESS = House(
    "tritmark.harness",
    HERE,
    (
        ("__main__", "toplevel"),
        ("cli",),
        ("monitor", "health", "mcp", "fleet", "sweep"),
        ("pytest_plugin",),
        ("doctor", "gate", "soak", "report", "frame", "formats", "criteria"),
        ("check", "signing"),
        ("verify", "derived"),
        ("selftest", "selection"),
        ("autotune", "judge", "engines", "model_advice"),
        ("cross", "advise", "history", "league", "precision", "models"),
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
        (
            *("errors", "extras", "nearest", "caches", "interruption", "judged", "locks", "requirement", "sandbox"),
            *("sealed", "search_path", "utf8"),
        ),
        (TOP,),
    ),
)
KERNELS = House(
    "tritmark.kernels",
    THERE,
    (
        ("aio",),
        (TOP,),
        ("provider", "functions"),
        ("linear", "peers"),
        (OPS,),
        ("recovering", "public", "spreading"),
        ("weights", "cuda"),
        ("dispatch",),
        ("native", "formats", "numerics", "ops", "stubs"),
    ),
    frozenset(ops.names()),
)
CUDA = House(
    "tritmark.kernels.cuda",
    THERE / "cuda",
    (
        ("plans",),
        ("device",),
        ("access", "measure", "sharing", "tiles"),
        ("launch",),
        ("context",),
        ("memory", "simulator"),
        ("driver",),
        ("array",),
        ("backend",),
        ("kernel", "device_type"),
        (TOP,),
    ),
)
HOUSES = (HARNESS, KERNELS, CUDA)
each_house = pytest.mark.parametrize("house", HOUSES, ids=lambda house: house.prefix)


def modules(house: House) -> dict[str, str]:
    """Every module's source, by its name below the prefix."""
    paths = [path for path in sorted(house.folder.rglob("*.py")) if path.parent.name != TEMPLATES]
    names = {path: path.relative_to(house.folder).with_suffix("").parts for path in paths}
    sources = {path: path.read_text(encoding="utf-8") for path in names}
    return {".".join(parts[:-1] if parts[-1] == TOP else parts): sources[path] for path, parts in names.items()}


@cache
def statements(source: str) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """What a source imports, wherever in it."""
    return tuple(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom))


def imported(source: str, known: Mapping[str, str], prefix: str) -> Iterator[str]:
    """The modules of a package that a source imports; "" is the package itself."""
    for node in statements(source):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                inner = name.removeprefix(prefix).removeprefix(".")
                if name == prefix or (name.startswith(f"{prefix}.") and inner in known):
                    yield inner
                elif f"{node.module}.".startswith(f"{prefix}."):
                    yield node.module.removeprefix(prefix).removeprefix(".")
        elif isinstance(node, ast.Import):
            yield from (
                alias.name.removeprefix(prefix).removeprefix(".")
                for alias in node.names
                if f"{alias.name}.".startswith(f"{prefix}.")
            )


def upward(house: House, known: Mapping[str, str]) -> list[str]:
    """The imports from one room to another that does not stand below it."""
    floors = house.floors
    return [
        f"{module} imports {each}"
        for module, source in known.items()
        for each in imported(source, known, house.prefix)
        if each not in STUBS
        if (there := house.room(each)) != (here := house.room(module)) and floors[here] <= floors[there]
    ]


def circle(house: House, known: Mapping[str, str]) -> list[str]:
    """Modules that import each other in a circle; empty where there is none."""
    graph = {module: set(imported(source, known, house.prefix)) - {module} for module, source in known.items()}
    sorter = TopologicalSorter(graph)
    try:
        sorter.prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@each_house
def test_every_room_has_its_floor(house: House) -> None:
    rooms = {house.room(module) for module in modules(house)}
    # An installation has it as the package tritmark itself.
    assert rooms | ({"toplevel"} if house is HARNESS else set()) == house.floors.keys()


@each_house
def test_no_import_goes_up(house: House) -> None:
    assert upward(house, modules(house)) == []


@each_house
def test_no_modules_import_each_other_in_a_circle(house: House) -> None:
    assert circle(house, modules(house)) == []


@pytest.mark.parametrize(
    ("house", "module", "source"),
    [
        (HARNESS, "measure.survey", "from tritmark.harness.cli.console import console"),
        (HARNESS, "measure.survey", "from tritmark.harness.cli import console"),
        (HARNESS, "measure.survey", "import tritmark.harness.cli"),
        (HARNESS, "measure.survey", "def late():\n    from tritmark.harness.report import page"),
        (
            HARNESS,
            "measure.survey",
            "from typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    from tritmark.harness.judge.request import Request",
        ),
        (HARNESS, "measure.survey", "from tritmark.harness import verify"),
        (KERNELS, "dispatch.offload", "from tritmark.kernels.float_widen.spec import OP"),
        (KERNELS, "public.elementwise", "def late():\n    from tritmark.kernels.float_widen import spec"),
        (KERNELS, "cuda.plans.plan", "from tritmark.kernels.ternary_linear.spec import OPS"),
        (KERNELS, "float_widen.api", "from tritmark.kernels.linear.linear import QuantizedLinear"),
        (KERNELS, "linear.warming", "from tritmark.kernels import PROVIDER"),
        (KERNELS, "native.cpu", "from tritmark import kernels"),
        (KERNELS, "native.threads", "from tritmark.kernels.dispatch.dispatch import registry"),
        (CUDA, "memory.lanes", "from tritmark.kernels.cuda.launch import Call"),
        (CUDA, "driver.driver", "def late():\n    from tritmark.kernels.cuda import context"),
        (CUDA, "kernel", "import tritmark.kernels.cuda.driver.compile"),
    ],
)
def test_what_goes_up_is_seen(house: House, module: str, source: str) -> None:
    known = modules(house)
    assert module in known
    assert len(upward(house, {**known, module: source})) == 1


def test_what_goes_down_is_not_reported() -> None:
    known = modules(KERNELS)
    down = "from tritmark.kernels.matmul.reference import reference\nfrom tritmark.kernels.public import foreign"
    assert upward(KERNELS, {**known, "ternary_matmul.reference": down}) == []


def test_a_circle_is_seen() -> None:
    known = modules(HARNESS)
    assert "errors" in circle(HARNESS, {**known, "errors": "def late():\n    from tritmark.harness.spec import Op"})
    known = modules(KERNELS)
    late = "def late():\n    from tritmark.kernels.cuda.launch.launch import CudaLaunch"
    assert "cuda.context" in circle(KERNELS, {**known, "cuda.context": late})


def test_folders_of_tests_are_rooms() -> None:
    rooms = {*HARNESS.floors, "kernels", "pytorch"}
    rooms |= {f"kernels/{path.relative_to(THERE).as_posix()}" for path in THERE.rglob("*") if path.is_dir()}
    here = Path(__file__).parent
    folders = {path.parent.relative_to(here).as_posix() for path in here.rglob("test_*.py")}
    assert folders - rooms == {".", "hostile"}, "tests of the whole house lie beside this one, or run it in a session"
