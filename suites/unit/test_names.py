"""One name means one thing: no two modules of the rooms have a public class of the same name."""

from __future__ import annotations

import re
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

_CLASS = re.compile(r"^[ \t]*class ([A-Za-z]\w*)[(:\[]", re.MULTILINE)
"""The statement, without names that begin with an underscore. Parsing every file takes four seconds."""


def test_no_public_class_name_occurs_in_two_modules() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for room in ("harness", "kernels", "torch"):
        found = find_spec(f"tritmark.{room}")
        assert found is not None
        assert found.origin is not None
        folder = Path(found.origin).parent
        for path in folder.rglob("*.py"):
            for name in _CLASS.findall(path.read_text(encoding="utf-8")):
                places[name].add(str(path.relative_to(folder.parent)))
    assert len(places) > 100
    assert {name: sorted(where) for name, where in places.items() if len(where) > 1} == {}
