"""One name means one thing: no two modules of the harness and the kernels have a class of the same name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import tritmark.harness
import tritmark.kernels


def test_no_class_name_occurs_in_two_modules() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for room in (tritmark.harness, tritmark.kernels):
        assert room.__file__ is not None
        folder = Path(room.__file__).parent
        for path in folder.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    places[node.name].add(str(path.relative_to(folder.parent)))
    assert {name: sorted(where) for name, where in places.items() if len(where) > 1} == {}
