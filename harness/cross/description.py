"""Reads the description of a library's functions: a TOML file, checked against the installed ops.

    source = "libbitnet 1.0"                     # project and version; default: the library's path
    name = "libbitnet"                           # name in reports; default: file and symbol of each function
    reference = true                             # written for readability: its time is not compared; default: false

    [[functions]]
    op = "ternary_matmul"
    symbol = "dot_{format}_{dtype}"              # {format} and {dtype} are replaced by each entry of the lists below
    formats = ["tile64"]                         # formats and output dtypes of the kernels that it is compared with
    dtypes = ["int32", "float32"]
    arguments = ["const int8_t *activations", "const uint8_t *weights", "float weight_scale", "void *out", "int64_t M",
    "int threads"]
    encode = "i2_s_x86"                          # encoding of the inputs: a format, or "logical"; default: the kernel's
    returns = "status"                           # an int, 0 on success; default: "void"
    bound = "rounded"                            # within 1 ulp; or "op": the op's own bound; default: "exact"

An argument is a C declaration. Its name is an input, output or axis of the op, or `threads`. A pointer to const is an
input, any other pointer an output. A value is an axis, `threads`, or an input that is one number. float16 and bfloat16
arrays are uint16_t. Arrays are C-contiguous.
"""

from __future__ import annotations

import ctypes
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tritmark.harness.cross.position import position
from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import UsageError
from tritmark.harness.nearest import nearest
from tritmark.harness.spec import KernelKey, Op

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed

LOGICAL = "logical"
THREADS = "threads"

_TYPES: Mapping[str, tuple[Any, str]] = {
    "int8_t": (ctypes.c_int8, "int8"),
    "uint8_t": (ctypes.c_uint8, "uint8"),
    "int16_t": (ctypes.c_int16, "int16"),
    "uint16_t": (ctypes.c_uint16, "uint16"),
    "int32_t": (ctypes.c_int32, "int32"),
    "uint32_t": (ctypes.c_uint32, "uint32"),
    "int64_t": (ctypes.c_int64, "int64"),
    "uint64_t": (ctypes.c_uint64, "uint64"),
    "int": (ctypes.c_int, "int32"),
    "size_t": (ctypes.c_size_t, "uint64"),
    "float": (ctypes.c_float, "float32"),
    "double": (ctypes.c_double, "float64"),
    "void": (None, ""),
}
_DECLARATION = re.compile(r"\s*(const\s+)?(\w+)\s*(\*)?\s*(\w+)\s*")
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Kind = Literal["input", "output", "scalar", "axis", "threads"]


@dataclass(frozen=True, slots=True)
class LibraryArgument:
    """One parameter of a function: its role, and its C type (the element type for an array)."""

    name: str
    kind: Kind
    type: str

    @property
    def ctype(self) -> Any:
        """The ctypes type of the argument."""
        return ctypes.c_void_p if self.kind in {"input", "output"} else _TYPES[self.type][0]

    def refusal(self, dtype: np.dtype[Any]) -> str | None:
        """Why an array of that dtype does not match the declaration, or None."""
        wanted = "uint16" if dtype.name in {"float16", "bfloat16"} else dtype.name
        if self.type == "void" or _TYPES[self.type][1] == wanted:
            return None
        return f"{self.name} is declared as {self.type} and holds {dtype.name}"


class _DescriptionTable(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


Names = Annotated[list[str], Field(min_length=1)]


class _Entry(_DescriptionTable):
    """One [[functions]] table."""

    op: str
    symbol: str
    formats: Names
    dtypes: Names
    arguments: Names
    encode: str = ""
    returns: Literal["void", "status"] = "void"
    bound: Literal["exact", "rounded", "op"] = "exact"


class _File(_DescriptionTable):
    source: str = ""
    name: str = ""
    reference: bool = False
    functions: Annotated[list[_Entry], Field(min_length=1)] | None = None


@dataclass(frozen=True, slots=True)
class LibraryFunction:
    """A function of the library for one key."""

    op: Op
    key: KernelKey
    symbol: str
    arguments: tuple[LibraryArgument, ...]
    encode: str
    """A format, or LOGICAL."""
    status: bool
    bound: str
    file: _File

    @property
    def source(self) -> str:
        """Project and version; "" if the description has none."""
        return self.file.source

    @property
    def name(self) -> str:
        """The name in reports; "" if the description has none."""
        return self.file.name

    @property
    def reference(self) -> bool:
        """Whether only its values are compared."""
        return self.file.reference

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs that it computes."""
        return tuple(argument.name for argument in self.arguments if argument.kind == "output")


def read_description(path: Path, installed: Installed, parts: Sequence[Path] = ()) -> tuple[LibraryFunction, ...]:
    """Every function that the file describes, and those of further files for the same library. Raises UsageError, with
    line and column, for an invalid description."""
    file = _parsed(path)[0]
    if not (file.functions or parts):
        raise UsageError(f"{path}: key functions is missing")
    return tuple(function for each in (path, *parts) for function in _described(each, installed, file))


def _described(path: Path, installed: Installed, file: _File) -> Iterator[LibraryFunction]:
    found, refuse = _parsed(path)
    for index, entry in enumerate(found.functions or ()):
        yield from _functions(
            entry, installed, file, lambda *at, index=index, what: refuse(("functions", index, *at), what)
        )


def _parsed(path: Path) -> tuple[_File, Callable[[Sequence[int | str], str], UsageError]]:
    """The content of a file, and what makes its errors."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; legal: a TOML file that describes the library's functions") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not TOML: {error}") from None

    def refuse(at: Sequence[int | str], what: str) -> UsageError:
        line, column = position(text, at)
        return UsageError(f"{path}: {what} (at line {line}, column {column})")

    try:
        return _File.model_validate(table), refuse
    except ValidationError as error:
        # A misspelt key is also a missing key; the unknown key is the better message.
        first = min(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
        at = first["loc"]
        name = ".".join(str(part) for part in at if isinstance(part, str))
        if first["type"] == "extra_forbidden":
            legal = (_Entry if len(at) > 1 else _File).model_fields
            raise refuse(at, f"unknown key {name}; {nearest(str(at[-1]), legal)}") from None
        if first["type"] == "missing":
            raise refuse(at[:-1], f"key {name} is missing") from None
        raise refuse(at, f"{name} is {first['input']!r:.80}: {first['msg']}") from None


Refuse = Callable[..., UsageError]


def _functions(entry: _Entry, installed: Installed, file: _File, refuse: Refuse) -> list[LibraryFunction]:
    op = installed.ops.get(entry.op)
    if op is None and file.reference:
        return []
    if op is None:
        raise refuse("op", what=f"unknown op {entry.op!r}; {nearest(entry.op, installed.ops)}")
    keys = installed.keys(op.name)
    if file.reference:  # it covers all of its package, but some devices may not be installed
        formats, dtypes = {key.format for key in keys}, {key.dtype for key in keys}
        entry = entry.model_copy(
            update={
                "formats": [each for each in entry.formats if each in formats],
                "dtypes": [each for each in entry.dtypes if each in dtypes],
            }
        )
    for field, names, legal in (
        ("formats", entry.formats, {k.format for k in keys}),
        ("dtypes", entry.dtypes, {k.dtype for k in keys}),
    ):
        for index, name in enumerate(names):
            if name not in legal:
                raise refuse(
                    field, index, what=f"{op.name} has no kernels for {name!r}; {nearest(name, sorted(legal))}"
                )
    encodings = {LOGICAL, *installed.formats, *(key.format for key in keys)}
    if entry.encode and entry.encode not in encodings:
        raise refuse("encode", what=f"unknown encoding {entry.encode!r}; {nearest(entry.encode, sorted(encodings))}")
    if entry.bound == "op" and op.tolerance_kind != "bounded":
        raise refuse(
            "bound",
            what=f"{op.name} has no bound of its own: its tolerance kind is {op.tolerance_kind.value}; legal: exact, "
            "rounded",
        )
    found = []
    for format in entry.formats:
        for dtype in entry.dtypes:
            symbol = entry.symbol.replace("{format}", format).replace("{dtype}", dtype)
            if not _SYMBOL.fullmatch(symbol):
                raise refuse(
                    "symbol", what=f"symbol is {symbol!r}; legal: a C identifier, with {{format}} and {{dtype}} in it"
                )
            arguments = tuple(
                _argument(op, dtype, text, entry.encode, _within(refuse, "arguments", index))
                for index, text in enumerate(entry.arguments)
            )
            for index, argument in enumerate(arguments):
                if argument in arguments[:index]:
                    raise refuse("arguments", index, what=f"{argument.name} is declared twice; legal: once")
            if not any(argument.kind == "output" for argument in arguments):
                those = ", ".join(tensor.name for tensor in op.outputs)
                raise refuse(
                    "arguments", what=f"no argument is an output; legal: a non-const pointer to one of {those}"
                )
            key = KernelKey("cpu", op.name, format, dtype)
            found.append(
                LibraryFunction(
                    op, key, symbol, arguments, entry.encode or format, entry.returns == "status", entry.bound, file
                )
            )
    return found


def _within(refuse: Refuse, *place: int | str) -> Refuse:
    """`refuse` for an enclosed place."""
    return lambda *at, what: refuse(*place, *at, what=what)


def _argument(op: Op, dtype: str, text: str, encode: str, refuse: Refuse) -> LibraryArgument:
    """One C declaration, checked against the op."""
    match = _DECLARATION.fullmatch(text)
    if match is None or match[2] not in _TYPES or (match[2] == "void" and not match[3]):
        legal = "such as 'const int8_t *weights' or 'int64_t M', of the types " + ", ".join(_TYPES)
        raise refuse(what=f"{text!r} is not a declaration of a supported type; legal: one {legal}")
    const, kind_of, pointer, name = match.groups()
    inputs, outputs = ({tensor.name: tensor for tensor in side} for side in (op.inputs, op.outputs))
    if pointer:
        side = inputs if const else outputs
        if name not in side:
            what = "input" if const else "output"
            raise refuse(
                what=f"{op.name} has no {what} {name!r}; {nearest(name, side)} (a pointer to const is an input)"
            )
        argument = LibraryArgument(name, "input" if const else "output", kind_of)
        if not const or encode == LOGICAL:
            wrong = argument.refusal(named_dtype(dtype if side[name].dtype == "key" else side[name].dtype))
            if wrong is not None:
                raise refuse(what=wrong)
        return argument
    numbers = {tensor.name for tensor in op.inputs if not tensor.axes}
    if name in numbers:
        return LibraryArgument(name, "scalar", kind_of)
    if name == THREADS or name in op.axes:
        if kind_of in {"float", "double"}:
            raise refuse(what=f"{name} is declared as {kind_of}; legal: an integer type")
        return LibraryArgument(name, "axis" if name in op.axes else "threads", kind_of)
    raise refuse(what=f"{op.name} has no value named {name!r}; {nearest(name, [*op.axes, *sorted(numbers), THREADS])}")
