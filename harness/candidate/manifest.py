"""The manifest of a user's kernel, FILE.toml: its op, and how the function is called.

    op = "i2s_quantize"
    format = "none"                               # default: "none"
    dtype = "int8"                                # of the output
    function = "my_quantize"
    arguments = ["x", "q", "scale", "n", "bad"]   # in the function's order
    grid = "ceil_div(n, 256)"                     # .cu only; also block, shared (bytes) and capability
    block = 256

The words for arguments:

- An input or output: its pointer; a scalar by value.
- An axis: int64_t, or int with "n:int32".
- "x.stride": elements from one row of x to the next, int64_t. Without it, the function gets contiguous rows.
- "threads": int.
- "bad": a pointer to an int64_t that holds -1. The function stores the index of the first input element that the
  contract forbids. In a .cu it is an unsigned long long with all bits set, for atomicMin. Without "bad", the harness
  searches the inputs itself.

Arrays are aligned to their elements' size, or to `alignment` bytes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tritmark.harness.candidate.expression import Expression, ExpressionError, parse
from tritmark.harness.candidate.located import Located, must_be_as_opened, read_text
from tritmark.harness.errors import UsageError
from tritmark.harness.nearest import nearest
from tritmark.harness.spec import Axes, Constraint, MaxSize, MinSize, MultipleOf, Op, Tensor

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed

Amount = Annotated[int, Field(ge=1, strict=True)] | str
Dims = Amount | Annotated[list[Amount], Field(min_length=1, max_length=3)]
Sizes = dict[str, Annotated[int, Field(ge=1, strict=True)]]


_LARGEST_GRID = (2**31 - 1, 65535, 65535)


class Manifest(BaseModel):
    """The fields of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    op: str
    dtype: str
    function: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    arguments: Annotated[list[str], Field(min_length=1)]
    format: str = "none"
    grid: Dims | None = None
    block: Dims | None = None
    shared: Annotated[int, Field(ge=0, strict=True)] | str = 0
    capability: Annotated[str, Field(pattern=r"^\d+\.\d$")] = ""
    alignment: Annotated[int, Field(ge=1, strict=True)] = 1
    workspace: Annotated[int, Field(ge=0, strict=True)] | str = 0
    """Scratch memory of a call in bytes, over the axes; only for a function on the host."""
    multiple_of: Sizes = {}
    min: Sizes = {}
    max: Sizes = {}
    options: list[str] = []
    """Compiler options that replace -O3 -march=native."""


class ArgumentKind(StrEnum):
    """The kind of a function's argument."""

    INPUT = "input"
    OUTPUT = "output"
    AXIS = "axis"
    STRIDE = "stride"
    THREADS = "threads"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of the function. `name` is the tensor or axis; `int32`: the axis is passed as an int."""

    kind: ArgumentKind
    name: str = ""
    int32: bool = False


@dataclass(frozen=True, slots=True)
class Geometry:
    """The launch geometry of a .cu kernel, as expressions over the axes."""

    grid: tuple[Expression, ...]
    block: tuple[Expression, ...]
    shared: Expression

    def values(self, axes: Axes) -> tuple[tuple[int, int, int], tuple[int, int, int], int]:
        """Grid, block, and bytes of dynamic shared memory. Raises UsageError for sizes out of range."""
        try:
            grid, block, shared = _three(self.grid, axes), _three(self.block, axes), self.shared.value(axes)
        except ExpressionError as error:
            raise UsageError(str(error)) from None
        if min(*grid, *block) < 1 or shared < 0:
            raise UsageError(
                f"grid {grid}, block {block}, shared {shared} for {dict(axes)}; legal: at least 1, 1 and 0"
            )
        if any(size > most for size, most in zip(grid, _LARGEST_GRID, strict=True)):
            raise UsageError(f"grid {grid} for {dict(axes)}; legal: at most {_LARGEST_GRID}")
        return grid, block, shared


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A manifest, checked against the installed ops and formats: the argument of a device's `adopt`."""

    path: Path
    op: Op
    format: str
    dtype: str
    function: str
    arguments: tuple[Argument, ...]
    geometry: Geometry | None
    capability: tuple[int, int] | None
    alignment: int
    dense: frozenset[str]
    """Inputs with strided rows whose stride is not an argument: the function gets contiguous rows."""
    workspace: Expression
    constraints: tuple[Constraint, ...]
    options: tuple[str, ...]
    located: Located

    @property
    def name(self) -> str:
        """The variant's name."""
        return variant_name(self.path, self.function)

    def tensor(self, name: str) -> Tensor:
        """The op's input or output of that name."""
        return next(tensor for tensor in (*self.op.inputs, *self.op.outputs) if tensor.name == name)

    @property
    def reports_bad(self) -> bool:
        """Whether the function itself reports inputs that the contract forbids."""
        return any(argument.kind is ArgumentKind.BAD for argument in self.arguments)


def variant_name(path: Path, function: str) -> str:
    """File and function, without characters that are special in globs, paths or shells."""
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', path.stem)}.{function}"


def check_names(located: Located, at: Mapping[str, int], installed: Installed, op: str, format: str, dtype: str) -> Op:
    """The op of that name. Raises UsageError for an unknown op, format or dtype. `at` has the offset of each in the
    text."""
    if op not in installed.ops:
        raise located.error(at["op"], f"unknown op {op!r}; {nearest(op, installed.ops)}")
    keys = installed.keys(op)
    # An op for one weight format admits all of them, with or without an installed kernel.
    formats = list(dict.fromkeys(key.format for key in keys))
    if any(name in installed.formats for name in formats) and "none" not in formats:
        formats = list(dict.fromkeys([*formats, *installed.formats]))
    if format not in formats:
        raise located.error(at["format"], f"{op} has no format {format!r}; {nearest(format, formats)}")
    dtypes = list(
        dict.fromkeys(key.dtype for key in keys if key.format == format or format not in {each.format for each in keys})
    )
    if dtype not in dtypes:
        raise located.error(at["dtype"], f"{op} in {format} has no output dtype {dtype!r}; {nearest(dtype, dtypes)}")
    return installed.ops[op]


@dataclass(frozen=True, slots=True)
class WithManifest:
    """A source or library with a manifest beside it."""

    path: str
    manifest: str
    digest: str
    """SHA-256 of the file as it was opened."""

    def described(self, installed: Installed, *, launched: bool) -> Described:
        """The checked manifest; `launched` as in read_manifest. Raises UsageError, also if the source changed after it
        was opened."""
        path, beside = Path(self.path), Path(self.manifest)
        found = read_manifest(path, beside, read_text(beside, "the manifest of a kernel"), installed, launched=launched)
        must_be_as_opened(path, path.read_bytes(), self.digest)
        return found


def read_manifest(source: Path, manifest: Path, text: str, installed: Installed, *, launched: bool) -> Described:
    """Read and check the manifest of a source. `launched`: it needs grid and block. Raises UsageError with file, line
    and column."""
    located = Located(str(manifest), text)
    reported = _parsed(located)
    at = {key: located.find(key, getattr(reported, key)) for key in ("op", "format", "dtype")}
    op = check_names(located, at, installed, reported.op, reported.format, reported.dtype)
    arguments = tuple(_argument(located, op, word) for word in reported.arguments)
    _complete(located, op, arguments)
    strides = {argument.name for argument in arguments if argument.kind is ArgumentKind.STRIDE}
    apart = [tensor.name for tensor in op.inputs if tensor.strided_rows and tensor.name not in strides]
    if reported.alignment & (reported.alignment - 1):
        raise located.error(located.find("alignment"), f"alignment is {reported.alignment}; legal: a power of two")
    limits = (*_limits(located, op, reported), *(MaxSize(a.name, (1 << 31) - 1) for a in arguments if a.int32))
    return Described(
        path=source,
        op=op,
        format=reported.format,
        dtype=reported.dtype,
        function=reported.function,
        arguments=arguments,
        geometry=_geometry(located, op, reported, launched=launched),
        capability=_capability(reported.capability),
        alignment=reported.alignment,
        dense=frozenset(apart),
        workspace=_workspace(located, op, reported, launched=launched),
        constraints=limits,
        options=tuple(reported.options),
        located=located,
    )


def _parsed(located: Located) -> Manifest:
    try:
        table = tomllib.loads(located.text)
    except tomllib.TOMLDecodeError as error:
        found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", str(error), re.DOTALL)
        if found is None:
            raise located.error(len(located.text), f"not TOML: {error}") from None
        raise located.error_at(int(found[2]), int(found[3]), f"not TOML: {found[1]}") from None
    try:
        return Manifest.model_validate(table)
    except ValidationError as error:
        # A misspelt key is also reported as missing; the unknown key is the better clue.
        first = min(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
        key = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            raise located.error(
                located.find(key), f"unknown key {key!r}; {nearest(key, Manifest.model_fields)}"
            ) from None
        if first["type"] == "missing":
            raise located.error(0, f"key {key!r} is missing; required: {', '.join(_needed())}") from None
        raise located.error(
            located.find(key, str(first["input"])), f"{key} is {first['input']!r}: {first['msg']}"
        ) from None


def _needed() -> list[str]:
    return [name for name, field in Manifest.model_fields.items() if field.is_required()]


def _argument(located: Located, op: Op, word: str) -> Argument:
    if word in (ArgumentKind.THREADS, ArgumentKind.BAD):
        return Argument(ArgumentKind(word))
    name, colon, width = word.partition(":")
    if name in op.axes:
        if colon and width not in ("int32", "int64"):
            raise located.error(located.find("arguments", word), f"{word!r}: {nearest(width, ('int32', 'int64'))}")
        return Argument(ArgumentKind.AXIS, name, width == "int32")
    if word.endswith(".stride") and word.removesuffix(".stride") in {
        tensor.name for tensor in op.inputs if tensor.strided_rows
    }:
        return Argument(ArgumentKind.STRIDE, word.removesuffix(".stride"))
    # An op that unpacks gets its packed inputs under the names of its outputs: outputs come first.
    for kind, tensors in ((ArgumentKind.OUTPUT, op.outputs), (ArgumentKind.INPUT, op.inputs)):
        if word in {tensor.name for tensor in tensors}:
            return Argument(kind, word)
    legal = argument_names(op)
    raise located.error(located.find("arguments", word), f"unknown argument {word!r}; {nearest(word, legal)}")


def argument_names(op: Op) -> list[str]:
    """The legal words for an op's arguments."""
    strides = [f"{tensor.name}.stride" for tensor in op.inputs if tensor.strided_rows]
    return [
        *(tensor.name for tensor in (*op.inputs, *op.outputs)),
        *op.axes,
        *strides,
        ArgumentKind.THREADS.value,
        ArgumentKind.BAD.value,
    ]


def _complete(located: Located, op: Op, arguments: Iterable[Argument]) -> None:
    reported = [argument.name for argument in arguments if argument.kind is ArgumentKind.OUTPUT]
    for tensor in op.outputs:
        if reported.count(tensor.name) != 1:
            how = "missing" if tensor.name not in reported else "named twice"
            raise located.error(
                located.find("arguments"), f"the output {tensor.name!r} is {how}; legal: each output of {op.name} once"
            )


def _limits(located: Located, op: Op, given: Manifest) -> tuple[Constraint, ...]:
    limits: list[Constraint] = []
    for key, make in (("multiple_of", MultipleOf), ("min", MinSize), ("max", MaxSize)):
        for axis, size in getattr(given, key).items():
            if axis not in op.axes:
                raise located.error(
                    located.find(key, axis), f"{op.name} has no axis {axis!r}; {nearest(axis, op.axes)}"
                )
            limits.append(make(axis, size))
    return tuple(limits)


def _geometry(located: Located, op: Op, given: Manifest, *, launched: bool) -> Geometry | None:
    for key in ("grid", "block"):
        if launched and getattr(given, key) is None:
            raise located.error(0, f"key {key!r} is missing; a kernel in a .cu needs grid and block")
        if not launched and getattr(given, key) is not None:
            raise located.error(located.find(key), f"{key} is for kernels in a .cu only; next: remove it")
    if given.grid is None or given.block is None:
        return None

    def dims(key: str, value: Dims) -> tuple[Expression, ...]:
        return tuple(_expression(located, op, key, each) for each in (value if isinstance(value, list) else [value]))

    return Geometry(
        dims("grid", given.grid), dims("block", given.block), _expression(located, op, "shared", given.shared)
    )


def _workspace(located: Located, op: Op, given: Manifest, *, launched: bool) -> Expression:
    if launched and given.workspace:
        raise located.error(
            located.find("workspace"), "workspace is for functions; a kernel in a .cu is given no scratch memory"
        )
    return _expression(located, op, "workspace", given.workspace)


def _expression(located: Located, op: Op, key: str, value: int | str) -> Expression:
    try:
        return parse(str(value), op.axes)
    except ExpressionError as error:
        raise located.error(located.find(key, str(value)) + error.column, f"{key}: {error}") from None


def _three(dims: tuple[Expression, ...], axes: Axes) -> tuple[int, int, int]:
    x, y, z = (*(each.value(axes) for each in dims), 1, 1)[:3]
    return x, y, z


def _capability(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    major, _, minor = text.partition(".")
    return int(major), int(minor)
