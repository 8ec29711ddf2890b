"""Python functions with the decorator `@kernel(...)`. The file is parsed here, and runs only in a worker, which binds
the function."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tritmark.harness.candidate.decorator import kernel as decorator
from tritmark.harness.candidate.expression import Expression, ExpressionError, parse
from tritmark.harness.candidate.frameworks import FRAMEWORKS, Framework
from tritmark.harness.candidate.located import Located, must_be_as_opened, read_text
from tritmark.harness.candidate.manifest import check_names, variant_name
from tritmark.harness.candidate.nonfinite import first_nonfinite
from tritmark.harness.errors import InvalidArgumentError, UsageError
from tritmark.harness.nearest import nearest
from tritmark.harness.spec import (
    Arrays,
    Axes,
    CodeFile,
    Constraint,
    KernelKey,
    Launch,
    MaxSize,
    MinSize,
    MultipleOf,
    Op,
    Tier,
    Variant,
)

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed

_LIMITS: Mapping[str, Callable[[str, int], Constraint]] = {"multiple_of": MultipleOf, "min": MinSize, "max": MaxSize}
_KEYS = {name: parameter.default for name, parameter in signature(decorator).parameters.items()}
_NEEDED = [name for name, default in _KEYS.items() if default is signature(decorator).empty]


@dataclass(frozen=True, slots=True)
class PythonFunctions:
    """A .py file with one or more decorated functions."""

    path: str
    digest: str
    """SHA-256 of the file as it was opened."""

    def variants(self, installed: Installed) -> Sequence[Variant]:
        """Parse the file without running it. Raises UsageError with line and column."""
        text = read_text(Path(self.path), "a Python file")
        must_be_as_opened(Path(self.path), text.encode(), self.digest)
        located = Located(self.path, text)
        found = decorated(located)
        names = [function.name for function, _ in found]
        for function, call in found:
            if names.count(function.name) > 1:
                raise located.error_at(
                    call.lineno, call.col_offset + 1, f"{function.name!r} is defined twice; legal: distinct names"
                )
        return tuple(_Reader(located, installed, function, call).variant(self.digest) for function, call in found)


def decorated(located: Located) -> list[tuple[ast.FunctionDef, ast.Call]]:
    """The functions with `@kernel(...)` at a file's top level. Raises UsageError for a syntax error."""
    tree = parsed(located)
    spellings = {"tritmark.harness.candidate.kernel", "tritmark.harness.candidate.decorator.kernel"}
    for node in ast.walk(tree):
        names = node.names if isinstance(node, ast.Import | ast.ImportFrom) else ()
        origin = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for name in names:
            whole = f"{origin}{name.name}"
            as_named = name.asname or name.name
            spellings |= {
                as_named + each.removeprefix(whole)
                for each in set(spellings)
                if each == whole or each.startswith(f"{whole}.")
            }
    return [
        (node, call)
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        for call in node.decorator_list
        if isinstance(call, ast.Call) and ast.unparse(call.func) in spellings
    ]


def parsed(located: Located) -> ast.Module:
    """The file's syntax tree. Raises UsageError for a syntax error."""
    try:
        return ast.parse(located.text)
    except SyntaxError as error:
        raise located.error_at(error.lineno or 1, error.offset or 1, f"not Python: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise located.error(0, f"not Python: {error}") from None


class _Reader:
    """Reads one decorated function."""

    def __init__(self, located: Located, installed: Installed, function: ast.FunctionDef, call: ast.Call) -> None:
        self._located = located
        self._installed = installed
        self._function = function
        self._call = call
        self._at: dict[str, ast.expr] = {}
        self._told = dict(_KEYS)
        if call.args:
            raise self._error(call.args[0], "a positional argument; legal: op=..., dtype=..., format=...")
        for keyword in call.keywords:
            if keyword.arg not in _KEYS:
                raise self._error(keyword.value, f"unknown key {keyword.arg!r}; {nearest(str(keyword.arg), _KEYS)}")
            self._at[keyword.arg] = keyword.value
            try:
                self._told[keyword.arg] = ast.literal_eval(keyword.value)
            except (ValueError, TypeError, SyntaxError):
                raise self._error(keyword.value, f"{keyword.arg} is computed; legal: a literal") from None
        for name in _NEEDED:
            if name not in self._at:
                raise self._error(call, f"{name} is missing; required: {', '.join(_NEEDED)}")

    def variant(self, digest: str) -> Variant:
        """The variant that the decorator describes. Raises UsageError."""
        reported = self._told
        for name in ("op", "dtype", "format", "device", "framework"):
            if not isinstance(reported[name], str):
                raise self._error(self._place(name), f"{name} is {reported[name]!r}; legal: a string")
        at = {name: self._offset(self._place(name)) for name in ("op", "format", "dtype")}
        op = check_names(self._located, at, self._installed, reported["op"], reported["format"], reported["dtype"])
        for name, legal in (("device", self._installed.registry.devices), ("framework", FRAMEWORKS)):
            if reported[name] not in legal:
                raise self._error(
                    self._place(name), f"unknown {name} {reported[name]!r}; {nearest(reported[name], legal)}"
                )
        alignment = reported["alignment"]
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise self._error(self._place("alignment"), f"alignment is {alignment!r}; legal: a power of two")
        workspace = self._workspace(op)
        path = Path(self._located.path)
        name = variant_name(path, self._function.name)
        key = KernelKey(reported["device"], op.name, reported["format"], reported["dtype"])
        source = _Source(str(path), digest, self._function.name, self._parameters(op), reported["framework"])
        return Variant(
            key=key,
            name=name,
            tier=Tier.CANDIDATE,
            summary=f"{self._function.name} of {path.name}, {reported['framework']}",
            bind=partial(_bind, source, op, name),
            constraints=self._limits(op),
            alignment=alignment,
            reports_nonfinite=False,
            workspace=workspace.value,
            code_hash=digest,
            code=partial(source_code, str(path.resolve())),
        )

    def _parameters(self, op: Op) -> tuple[str, ...]:
        arguments = self._function.args
        legal = [*(tensor.name for tensor in (*op.inputs, *op.outputs)), *op.axes, "threads"]
        for star in (arguments.vararg, arguments.kwarg):
            if star is not None:
                raise self._error(star, f"*{star.arg} takes any arguments; legal: named parameters: {', '.join(legal)}")
        if arguments.posonlyargs:
            raise self._error(
                arguments.posonlyargs[0], "a parameter before '/' cannot be passed by name; legal: no '/'"
            )
        for parameter in (*arguments.args, *arguments.kwonlyargs):
            if parameter.arg not in legal:
                raise self._error(parameter, f"unknown parameter {parameter.arg!r}; {nearest(parameter.arg, legal)}")
        return tuple(parameter.arg for parameter in (*arguments.args, *arguments.kwonlyargs))

    def _workspace(self, op: Op) -> Expression:
        reported = self._told["workspace"]
        if not isinstance(reported, str) and (type(reported) is not int or reported < 0):
            raise self._error(
                self._place("workspace"),
                f"workspace is {reported!r}; legal: bytes, as a number or an expression over the axes",
            )
        try:
            return parse(str(reported), op.axes)
        except ExpressionError as error:
            raise self._error(self._place("workspace"), f"workspace: {error}") from None

    def _limits(self, op: Op) -> tuple[Constraint, ...]:
        limits: list[Constraint] = []
        for key, make in _LIMITS.items():
            sizes = self._told[key]
            if sizes is None:
                continue
            if not isinstance(sizes, dict) or not all(type(size) is int and size > 0 for size in sizes.values()):
                raise self._error(self._place(key), f"{key} is {sizes!r}; legal: a dict of axes and sizes above 0")
            for axis, size in sizes.items():
                if axis not in op.axes:
                    raise self._error(
                        self._place(key), f"{op.name} has no axis {axis!r}; {nearest(str(axis), op.axes)}"
                    )
                limits.append(make(axis, size))
        return tuple(limits)

    def _place(self, name: str) -> ast.expr:
        return self._at.get(name, self._call)

    def _offset(self, node: ast.expr | ast.arg) -> int:
        lines = self._located.text.splitlines(keepends=True)
        line = lines[node.lineno - 1]
        return sum(map(len, lines[: node.lineno - 1])) + len(line.encode()[: node.col_offset].decode())

    def _error(self, node: ast.expr | ast.arg, message: str) -> UsageError:
        return self._located.error(self._offset(node), message)


@dataclass(frozen=True, slots=True)
class _Source:
    """The function's file, its parameters and its framework."""

    path: str
    digest: str
    name: str
    parameters: tuple[str, ...]
    framework: str


@cache
def _module(path: str, digest: str) -> ModuleType:
    """The file as a module; it runs once in a process."""
    data = Path(path).read_bytes()
    must_be_as_opened(Path(path), data, digest)
    spec = spec_from_file_location(f"tritmark_candidate_{sha256(path.encode()).hexdigest()[:16]}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: not a Python file; legal: a file that ends in .py")
    module = module_from_spec(spec)
    # The file can import its neighbours. They come last, so that they do not hide installed modules.
    sys.path.append(str(Path(path).parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{path}: cannot be run: {type(error).__name__}: {error}") from error
    return module


def source_code(path: str, target: str, binaries: frozenset[str] = frozenset()) -> tuple[CodeFile, ...]:
    """The Python file as source code of a variant."""
    return (CodeFile(kind="python", name=Path(path).name, entries=(), target="", path=path),)


def _bind(source: _Source, op: Op, name: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    function = getattr(_module(source.path, source.digest), source.name, None)
    if not callable(function):
        raise UsageError(f"{source.path}: {source.name} is {function!r:.80} after the file has run; legal: a function")
    framework = FRAMEWORKS[source.framework]()
    return FunctionLaunch(function, source, op, name, framework, inputs, outputs, axes, threads)


class FunctionLaunch:
    """A Python function bound to its arguments."""

    pointer = None

    def __init__(
        self,
        function: Callable[..., Any],
        source: _Source,
        op: Op,
        name: str,
        framework: Framework,
        inputs: Arrays,
        outputs: Arrays,
        axes: Axes,
        threads: int,
    ) -> None:
        self._function = function
        self._op = op
        self._prefix = name.removesuffix(source.name)
        self._framework = framework
        self._inputs = inputs
        self.threads_used = threads if "threads" in source.parameters or source.framework == "torch" else 1
        framework.begin(self.threads_used)
        taken = {tensor.name for tensor in op.inputs if not tensor.axes}
        given = {key: value if key in taken else framework.array(value) for key, value in inputs.items()}
        self._outputs = {key: framework.array(value) for key, value in outputs.items()}
        offered = {**given, **self._outputs, **axes, "threads": threads}
        for parameter in source.parameters:
            if parameter not in offered:
                raise InvalidArgumentError(
                    op=op.name, argument=parameter, found="missing in this format", legal=", ".join(offered)
                )
        self._arguments = {parameter: offered[parameter] for parameter in source.parameters}
        self._returned = [key for key in self._outputs if key not in self._arguments]
        self.ran = ""
        self.runs = 0

    def run(self) -> None:
        """Call the function and copy its results to the outputs. Raises InvalidArgumentError if a result has another
        type, dtype or shape than the output."""
        returned = self._function(**self._arguments)
        if returned is not None or self._returned:
            self._keep(returned)
        self._framework.wait()
        self.runs += 1
        self.ran = f"{self._prefix}{getattr(self._function, '__name__', '')}"

    def _keep(self, returned: Any) -> None:
        wanted = self._returned or list(self._outputs)
        if isinstance(returned, dict):
            found = returned
        else:
            several = returned if isinstance(returned, tuple | list) else (returned,)
            if len(several) != len(wanted):
                raise self._wrong("the returned value", f"{len(several)} values", f"{len(wanted)}: {', '.join(wanted)}")
            found = dict(zip(wanted, several, strict=True))
        if set(found) != set(wanted):
            raise self._wrong(
                "the returned value", f"a dict of {', '.join(map(str, found)) or 'nothing'}", ", ".join(wanted)
            )
        for name in wanted:
            value, into = found[name], self._outputs[name]
            if not self._framework.is_one(value):
                raise self._wrong(
                    name,
                    f"returned as a {type(value).__module__}.{type(value).__qualname__}",
                    f"a {self._framework.kind}",
                )
            if value.dtype != into.dtype or tuple(value.shape) != tuple(into.shape):
                text = f"{into.dtype} of shape {tuple(into.shape)}"
                raise self._wrong(name, f"returned as {value.dtype} of shape {tuple(value.shape)}", text)
            self._framework.copy(into, value)

    def _wrong(self, argument: str, found: str, legal: str) -> InvalidArgumentError:
        return InvalidArgumentError(op=self._op.name, argument=argument, found=found, legal=legal)

    @property
    def bad(self) -> int:
        """The index that the harness finds in the inputs: a Python function reports none."""
        return first_nonfinite(self._op, self._inputs)
