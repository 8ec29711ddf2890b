"""Writes the tables of docs/record.md and docs/verdict.md from the code, and those of docs/performance.md,
docs/guides/criteria.md and the README from what is under results/baselines: `python docs/generate.py` after a change of
the Record, of the verdict, of the table's columns, or of a baseline."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tritmark.harness import record
from tritmark.harness.check import CheckVerdict
from tritmark.harness.frame.columns import AXES, COLUMNS, SAMPLES

sys.path.insert(0, str(Path(__file__).parent))
import figures

HERE = Path(__file__).parent
PAGES = (
    HERE / "record.md",
    HERE / "verdict.md",
    HERE / "performance.md",
    HERE / "guides" / "criteria.md",
    HERE.parent / "README.md",
)
BEGIN, END = re.compile(r"<!-- generated: (\S+) -->\n"), "<!-- end -->"


def fields(root: type[record.Record] | type[CheckVerdict] = record.Record) -> str:
    """One table for each object of a schema, in the order of first use from its root."""
    schema = root.model_json_schema(mode="serialization")
    met = [root.__name__]
    parts = []
    for name in met:
        reported = schema if name == root.__name__ else schema["$defs"][name]
        described = descriptions(name, root)
        rows = []
        for field, what in reported["properties"].items():
            met += [each for each in named(what) if each not in met and "properties" in schema["$defs"][each]]
            rows.append(f"| `{field}` | {kind(what, schema)} | {described.get(field, '')} |")
        lead = reported.get("description", "").partition("\n\n")[0].replace("\n", " ")
        parts.append(
            "\n".join(
                [f"### {name}", textwrap.fill(lead, 120), "", "| field | type | description |", "|---|---|---|", *rows]
            )
        )
    return "\n\n".join(parts)


def classes(root: type) -> dict[str, type]:
    """Every class that an object may hold, by name."""
    found: dict[str, type] = {root.__name__: root}
    while new := {
        each.__name__: each
        for cls in found.values()
        for annotation in typing.get_type_hints(cls).values()
        for each in inner(annotation)
        if each.__module__.startswith("tritmark.") and each.__name__ not in found
    }:
        found |= new
    return found


def inner(annotation: Any) -> list[type]:
    """The classes that an annotation is made of."""
    parts = [each for part in typing.get_args(annotation) for each in inner(part)]
    return [*parts, annotation] if isinstance(annotation, type) and not typing.get_args(annotation) else parts


def descriptions(name: str, root: type = record.Record) -> dict[str, str]:
    """The docstring below each field."""
    cls = classes(root)[name]
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__[:-1]):
        if each.__module__.startswith("pydantic"):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=target)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[target] = " ".join(text.split()).replace("|", "\\|")
    return found


def named(what: dict[str, Any]) -> list[str]:
    """The objects that a type is made of."""
    if "$ref" in what:
        return [what["$ref"].rpartition("/")[2]]
    inner = [*what.get("anyOf", ()), *what.get("prefixItems", ())]
    inner += [each for key in ("items", "additionalProperties") if isinstance(each := what.get(key), dict)]
    return [name for each in inner for name in named(each)]


def kind(what: dict[str, Any], schema: dict[str, Any]) -> str:
    """A type in words."""
    if "$ref" in what:
        (name,) = named(what)
        reported = schema["$defs"][name]
        if "enum" in reported:
            return ", ".join(f"`{each}`" for each in reported["enum"])
        return f"[{name}](#{name.lower()})"
    if "anyOf" in what:
        return " or ".join(kind(each, schema) for each in what["anyOf"])
    if "prefixItems" in what:
        return f"[{', '.join(kind(each, schema) for each in what['prefixItems'])}]"
    if what.get("type") == "array":
        return f"list of {kind(what['items'], schema)}"
    if what.get("type") == "object":
        return f"object of {kind(what['additionalProperties'], schema)}"
    return str(what["type"])


def columns() -> str:
    """The columns of `tritmark frame`."""
    rows = [(each.name, each.kind, each.unit, each.description) for each in COLUMNS]
    lines = [
        f"| `{name}` | {type} | {unit} | {description} |" for name, type, unit, description in (*rows, AXES, *SAMPLES)
    ]
    return "\n".join(["| column | type | unit | description |", "|---|---|---|---|", *lines])


def part(name: str) -> str:
    """A generated part by its name: of the code, or KIND:BASELINE."""
    makers: dict[str, Callable[[], str]] = {
        "schema": fields,
        "verdict": partial(fields, CheckVerdict),
        "columns": columns,
    }
    kind, _, of = name.partition(":")
    return makers[name]() if name in makers else OF_BASELINES[kind](of)


OF_BASELINES = {
    "record": figures.section,
    "peers": figures.beside_peers,
    "output": figures.output,
    "model": figures.model,
    "headlines": figures.headlines,
    "run": figures.lines_of_run,
    "criteria": figures.criteria,
}


def page(text: str) -> str:
    """The page's text with its generated parts made anew."""
    made, end = [], 0
    for found in BEGIN.finditer(text):
        made += [text[end : found.end()], part(found[1]), "\n"]
        end = text.index(END, found.end())
    return "".join(made) + text[end:]


if __name__ == "__main__":
    for path in PAGES:
        now = path.read_text(encoding="utf-8")
        path.write_text(page(now), encoding="utf-8")
