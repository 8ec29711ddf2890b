"""Suites: TOML files that list the workloads on which kernels are judged and measured.

    title = "..."                       # required
    models = "models.toml"              # file of layer shapes beside this one

    [shapes]                            # named lists of axes
    tails = [{ n = 1 }, { n = 129 }]

    [[workloads]]
    op = "i2s_quantize"                 # required
    shapes = ["tails"]                  # names, or tables of axes
    models = ["bitnet-b1.58-*"]         # globs over the models, whose shapes give N and K
    axes = { M = [1, 5] }               # further axes: a size, or several
    families = ["normal"]               # or "all": every family of the op
    layouts = ["aligned"]               # or "unaligned"
    formats = []                        # empty: every format that has kernels
    dtypes = []                         # empty: every dtype that has kernels
    devices = []                        # empty: every device type that has kernels
    measure = false                     # true: also judge performance, memory and cross
    timed = true                        # false: with measure, only memory and cross, which need no clock
    drawn = 0                           # in place of shapes: number of cases, drawn anew for each Record
    fastest = 0                         # number of kernels of each key, from the highest tiers; 0: all
    peers = false                       # true: also judge installed peers
    title = ""                          # shown beside the figures

A package may add workloads of its ops to named suites, in files beside the ops (`Provider.op_workloads`). Their tables
are named by suite:

    op = "i2s_quantize"                 # of all tables; or in each

    [[quick]]
    shapes = [{ n = 129 }]

Each table gives all combinations of its lists. If an op has a table with `drawn`, its tables that are not measured are
judged together with the drawn cases, in one Run for each kernel. An unknown key, name or axis is refused, with the
nearest existing one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tritmark.harness.errors import UsageError
from tritmark.harness.nearest import nearest
from tritmark.harness.numbered import numbered
from tritmark.harness.spec import Op, Workload

Size = Annotated[int, Field(ge=1, strict=True)]
Sizes = Size | Annotated[list[Size], Field(min_length=1)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Entry(_Table):
    """One [[workloads]] table."""

    op: str
    shapes: list[str | dict[str, Size]] = []
    models: list[str] = []
    axes: dict[str, Sizes] = {}
    families: Literal["all"] | Annotated[list[str], Field(min_length=1)] = ["normal"]
    layouts: Annotated[list[Literal["aligned", "unaligned"]], Field(min_length=1)] = ["aligned"]
    formats: list[str] = []
    dtypes: list[str] = []
    devices: list[str] = []
    measure: bool = False
    timed: bool = True
    drawn: Annotated[int, Field(ge=0, strict=True)] = 0
    fastest: Annotated[int, Field(ge=0, strict=True)] = 0
    peers: bool = False
    title: str = ""


class SuiteFile(_Table):
    """A whole suite file."""

    title: str
    models: str = ""
    shapes: dict[str, list[dict[str, Size]]] = {}
    workloads: Annotated[list[Entry], Field(min_length=1)] | None = None


class ModelShapes(_Table):
    """One model's linear layers, as (N, K) = (out_features, in_features)."""

    parameters: str = ""
    layers: int | None = None
    linears: list[tuple[Size, Size, Size]] = []
    """N, K and the number of such layers in a block of the model."""
    fused: list[tuple[Size, Size]] = []
    """Layers that are computed as one: QKV, or gate and up."""
    shapes: list[tuple[Size, Size]] = []
    """Shapes without a model."""

    def sizes(self) -> Iterator[tuple[int, int]]:
        """Each (N, K)."""
        yield from ((n, k) for n, k, _ in self.linears)
        yield from self.fused
        yield from self.shapes


class SelectedWorkload:
    """A workload with its formats, dtypes and device types (empty: all), the number of kernels of each key, from the
    highest tiers (0: all), and whether it includes peers."""

    __slots__ = ("devices", "dtypes", "fastest", "formats", "peers", "workload")

    def __init__(
        self,
        workload: Workload,
        formats: Sequence[str],
        dtypes: Sequence[str],
        devices: Sequence[str] = (),
        fastest: int = 0,
        peers: bool = False,
    ) -> None:
        self.workload = workload
        self.fastest = fastest
        self.peers = peers
        self.formats = frozenset(formats)
        self.dtypes = frozenset(dtypes)
        self.devices = frozenset(devices)

    def with_workload(self, workload: Workload) -> SelectedWorkload:
        """The same for another workload."""
        return SelectedWorkload(
            workload, tuple(self.formats), tuple(self.dtypes), tuple(self.devices), self.fastest, self.peers
        )

    def admits(self, format: str, dtype: str, device: str = "") -> bool:
        """Whether the workload includes that format, dtype and device type ("" for any)."""
        of_kind = numbered(device)
        kind = of_kind[0] if of_kind else device
        pairs = ((self.formats, format), (self.dtypes, dtype), (self.devices if device else (), kind))
        return all(not meant or name in meant for meant, name in pairs)


class Suite:
    """A suite that was read and checked against the ops that exist."""

    def __init__(self, name: str, title: str, digest: str, selected: tuple[SelectedWorkload, ...]) -> None:
        self.name = name
        self.title = title
        self.digest = digest
        """SHA-256 of its files."""
        self.selected = selected


class KnownNames:
    """The names that a suite may use: ops, formats and dtypes with kernels for each op, and device types."""

    def __init__(
        self,
        ops: Iterable[Op],
        formats: Mapping[str, Iterable[str]],
        dtypes: Mapping[str, Iterable[str]],
        devices: Iterable[str] = (),
    ) -> None:
        self.ops = {op.name: op for op in ops}
        self.formats = {op: sorted(set(names)) for op, names in formats.items()}
        self.dtypes = {op: sorted(set(names)) for op, names in dtypes.items()}
        self.devices = sorted(set(devices))


def read_suite(path: Path, name: str, known: KnownNames, parts: Sequence[Path] = ()) -> Suite:
    """Read a suite file, and what is in the files of ops for the suite of that name. Raises UsageError, with the file
    and the key, for any error in one."""
    text = _text(path)
    suite = _parse(path, text, SuiteFile)
    digest = sha256(text.encode())
    models: dict[str, ModelShapes] = {}
    if suite.models:
        if Path(suite.models).name != suite.models:
            raise UsageError(f"{path}: models is {suite.models!r}; legal: the name of a file in the same folder")
        beside = path.parent / suite.models
        inner = _text(beside)
        digest.update(inner.encode())
        models = {key: _validated(beside, table, ModelShapes, key) for key, table in _toml(beside, inner).items()}
    merged: dict[tuple[str, frozenset[str], frozenset[str], frozenset[str]], SelectedWorkload] = {}
    tables = [(path, f"workloads[{index}]", entry) for index, entry in enumerate(suite.workloads or ())]
    for part in parts:
        text = _text(part)
        digest.update(text.encode())
        tables += _part(part, text, name)
    if not tables:
        raise UsageError(f"{path}: key workloads is missing")
    for file, at, entry in tables:
        for item in _expand(file, at, entry, suite.shapes, models, known):
            key = (item.workload.id, item.formats, item.dtypes, item.devices)
            if key not in merged or item.workload.thoroughness > merged[key].workload.thoroughness:
                merged[key] = item
    return Suite(name, suite.title, digest.hexdigest(), tuple(merged.values()))


def part_suites(path: Path) -> list[str]:
    """The suites that the file of an op names. Raises UsageError for a file that is not one."""
    content = _toml(path, _text(path))
    suites = [key for key in content if key != "op"]
    for key in suites:
        if not isinstance(content[key], list) or not all(isinstance(table, dict) for table in content[key]):
            raise UsageError(f"{path}: {key} is {content[key]!r}; legal: op, and tables [[{key}]] for a suite {key!r}")
    return suites


def _part(path: Path, text: str, suite: str) -> Iterator[tuple[Path, str, Entry]]:
    """The tables for a suite in the file of an op, each with its file and its place."""
    content = _toml(path, text)
    of_all = {"op": content["op"]} if "op" in content else {}
    for index, table in enumerate(content.get(suite, ())):
        at = f"{suite}[{index}]"
        yield path, at, _validated(path, {**of_all, **table}, Entry, at)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None


def _toml(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not TOML: {error}") from None


TableT = TypeVar("TableT", bound=_Table)


def _parse(path: Path, text: str, model: type[TableT]) -> TableT:
    return _validated(path, _toml(path, text), model, "")


def _validated(path: Path, table: Any, model: type[TableT], at: str) -> TableT:
    try:
        return model.model_validate(table)
    except ValidationError as error:
        # A misspelt key is also missing; the unknown key is the better hint.
        first = min(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
        where = _where(at, first["loc"])
        if first["type"] == "extra_forbidden":
            fields = Entry if len(first["loc"]) > 1 else model
            raise UsageError(
                f"{path}: unknown key {where}; {nearest(str(first['loc'][-1]), fields.model_fields)}"
            ) from None
        if first["type"] == "missing":
            raise UsageError(f"{path}: key {where} is missing") from None
        raise UsageError(f"{path}: {where or 'the file'} is {first['input']!r}: {first['msg']}") from None


def _where(at: str, loc: Sequence[int | str]) -> str:
    """A key such as workloads[3].axes, without the names that pydantic adds for members of a union."""
    text = at
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        elif "[" not in part and not part.startswith(("constrained-", "literal")) and part not in {"int", "str"}:
            text += f".{part}" if text else part
    return text


def _expand(
    path: Path,
    at: str,
    entry: Entry,
    shapes: Mapping[str, list[dict[str, int]]],
    models: Mapping[str, ModelShapes],
    known: KnownNames,
) -> Iterator[SelectedWorkload]:
    def refuse(key: str, found: str, offer: str) -> UsageError:
        return UsageError(f"{path}: {at}.{key}: {found}; {offer}")

    op = known.ops.get(entry.op)
    if op is None:
        raise refuse("op", f"unknown op {entry.op!r}", nearest(entry.op, known.ops))
    for key, found, legal in (("formats", entry.formats, known.formats), ("dtypes", entry.dtypes, known.dtypes)):
        for name in found:
            if name not in legal.get(op.name, ()):
                raise refuse(key, f"{op.name} has no kernels for {name!r}", nearest(name, legal.get(op.name, ())))
    for name in entry.devices:
        if name not in known.devices:
            raise refuse("devices", f"unknown device type {name!r}", nearest(name, known.devices))
    if entry.drawn:
        for name in ("shapes", "models", "axes", "families", "layouts", "measure", "timed"):
            if name in entry.model_fields_set:
                raise refuse(
                    name,
                    "given beside drawn",
                    "legal: one of the two; drawn cases have every shape, family and layout",
                )
        drawn = Workload(op=op.name, axes={}, family="drawn", layout="drawn", title=entry.title, drawn=entry.drawn)
        yield SelectedWorkload(drawn, entry.formats, entry.dtypes, entry.devices, peers=entry.peers)
        return
    if not (entry.timed or entry.measure):
        raise refuse("timed", "false, and nothing is measured", "legal: true, or with measure = true")
    families = op.input_families if entry.families == "all" else entry.families
    for name in families:
        if name not in op.input_families:
            raise refuse("families", f"{op.name} has no input family {name!r}", nearest(name, op.input_families))

    titled: list[tuple[dict[str, int], str]] = []
    for shape in entry.shapes:
        if isinstance(shape, dict):
            titled.append((shape, entry.title))
        elif shape in shapes:
            titled += [(each, entry.title) for each in shapes[shape]]
        else:
            raise refuse("shapes", f"unknown list {shape!r}", nearest(shape, shapes))
    for pattern in entry.models:
        matching = [name for name in models if fnmatchcase(name, pattern)]
        if not matching:
            raise refuse("models", f"no model matches {pattern!r}", nearest(pattern, models))
        titled += [({"N": n, "K": k}, entry.title or name) for name in matching for n, k in models[name].sizes()]

    further = {axis: sizes if isinstance(sizes, list) else [sizes] for axis, sizes in entry.axes.items()}
    for shape, title in titled or [({}, entry.title)]:
        for sizes in product(*further.values()):
            given = {**shape, **dict(zip(further, sizes, strict=True))}
            for axis in given:
                if axis not in op.axes:
                    raise refuse("axes", f"{op.name} has no axis {axis!r}", nearest(axis, op.axes))
            for axis in op.axes:
                if axis not in given:
                    raise refuse("axes", f"{op.name} needs the axis {axis!r}", f"given: {', '.join(given) or 'none'}")
            axes = {axis: given[axis] for axis in op.axes}
            for family, layout in product(families, entry.layouts):
                workload = Workload(
                    op=op.name,
                    axes=axes,
                    family=family,
                    layout=layout,
                    measure=entry.measure,
                    timed=entry.timed,
                    title=title,
                )
                yield SelectedWorkload(workload, entry.formats, entry.dtypes, entry.devices, entry.fastest, entry.peers)
