"""A Python function in memory as a file, because kernels run in processes of their own and are read without being run.

The file has the function's source, and before it what its global names are: imports of modules and of what modules
define, source of functions of the session, and constants. Anything else is refused by name.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from tritmark.harness.errors import UsageError

_NEXT = "next: put the kernel into a .py file, and check that"
_DECORATOR = "tritmark.harness.candidate.kernel"
_CONSTANTS = (bool, int, float, complex, str, bytes, type(None))
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]")


def written(function: Callable[..., Any], folder: Path, *, op: str, dtype: str, format: str) -> Path:
    """Write a function as a candidate file and return its path, which has a digest of the text: equal functions have
    one file. `op`, `dtype` and `format` describe a function without the decorator `kernel`.

    Raises UsageError for an object that is no plain function, without source, or with a name that has no source.
    """
    if not isinstance(function, FunctionType):
        raise UsageError(
            f"check: kernel is a {type(function).__module__}.{type(function).__qualname__}; legal: the path of a file, "
            f"or a function made by def; {_NEXT}"
        )
    source = _source(function)
    lines = ["from __future__ import annotations", ""]
    described = _described(function, source)
    if described and (op != "*" or dtype or format):
        raise UsageError(
            f"check: {function.__name__} has the decorator kernel; legal: no op, dtype and format beside it"
        )
    if not described:
        if op == "*" or not dtype:
            missing = " and ".join(name for name, value in (("op", op.strip("*")), ("dtype", dtype)) if not value)
            raise UsageError(
                f"check: {missing} is missing; legal: those of the function, such as op='i2s_dequantize', "
                "dtype='float32'; next: tritmark list ops"
            )
        told = f"op={op!r}, dtype={dtype!r}" + (f", format={format!r}" if format else "")
        source = f"@{_DECORATOR}({told})\n{source}"
    body = [*_names(function, {function.__name__}), "", "", _as_decorator(function, source)]
    text = "\n".join([*lines, "import tritmark.harness.candidate", *body]).rstrip() + "\n"
    path = folder / sha256(text.encode()).hexdigest()[:12] / f"{function.__name__}.py"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return path


def _source(function: FunctionType) -> str:
    name = function.__name__
    if name == "<lambda>":
        raise UsageError(
            f"check: kernel is a lambda, which has no source of its own; legal: a function by def; {_NEXT}"
        )
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        raise UsageError(
            f"check: the source of {name} cannot be read: it was made by exec or in an interactive Python; legal: a "
            f"function of a file or a notebook; {_NEXT}"
        ) from None


def _definition(source: str, name: str) -> ast.FunctionDef:
    try:
        (node,) = ast.parse(source).body
    except (SyntaxError, ValueError):
        node = None
    if not isinstance(node, ast.FunctionDef):
        raise UsageError(f"check: the source of {name} is not one function by def; {_NEXT}")
    return node


def _described(function: FunctionType, source: str) -> bool:
    """Whether the function has the decorator; another decorator is refused."""
    from tritmark.harness.candidate.decorator import kernel

    node = _definition(source, function.__name__)
    for each in node.decorator_list:
        if isinstance(each, ast.Call) and _value(function, each.func) is kernel:
            continue
        raise UsageError(
            f"check: {function.__name__} has the decorator {ast.unparse(each)}; legal: {_DECORATOR}(...) alone; {_NEXT}"
        )
    return bool(node.decorator_list)


def _as_decorator(function: FunctionType, source: str) -> str:
    """The source with the decorator under its whole name, as the reader of files expects it."""
    node = _definition(source, function.__name__)
    (call,) = node.decorator_list
    assert isinstance(call, ast.Call)
    call.func = ast.parse(_DECORATOR, mode="eval").body
    for keyword in call.keywords:
        keyword.value = ast.Constant(_literal(function, keyword))
    kept = source.splitlines()[node.lineno - 1 :]  # comments stay as they are
    return "\n".join([f"@{ast.unparse(call)}", *kept])


def _literal(function: FunctionType, keyword: ast.keyword) -> Any:
    try:
        return ast.literal_eval(keyword.value)
    except ValueError:
        value = _value(function, keyword.value)
        if isinstance(value, _CONSTANTS):
            return value
        raise UsageError(
            f"check: {keyword.arg} of {function.__name__} is {ast.unparse(keyword.value)}; legal: a literal or a name "
            f"of one; {_NEXT}"
        ) from None


def _value(function: FunctionType, node: ast.expr) -> Any:
    """The object that a name with dots means there; None if it means none."""
    if isinstance(node, ast.Attribute):
        return getattr(_value(function, node.value), node.attr, None)
    return function.__globals__.get(node.id) if isinstance(node, ast.Name) else None


def _names(function: FunctionType, known: set[str]) -> list[str]:
    """Statements that define the names that the function takes from outside, and those of such functions."""
    made: list[str] = []
    closed = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    outside: Mapping[str, Any] = {
        **{name: function.__globals__[name] for name in _used(function) if name in function.__globals__},
        **{name: cell.cell_contents for name, cell in closed.items()},
    }
    for name, value in outside.items():
        if name not in known:
            known.add(name)
            made += _statements(function, name, value, known)
    return made


def _used(function: FunctionType) -> list[str]:
    """Names that the source reads and the function does not define; its decorators do not count."""
    node = _definition(_source(function), function.__name__)
    node.decorator_list = []
    own = {*function.__code__.co_varnames, *function.__code__.co_cellvars}
    read = (each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))
    return [name for name in dict.fromkeys(read) if name not in own]


def _statements(function: FunctionType, name: str, value: Any, known: set[str]) -> list[str]:
    module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None) or ""
    if _importable(module):
        if isinstance(value, ModuleType):
            return [f"import {module} as {name}"]
        own = getattr(value, "__qualname__", name)
        if getattr(sys.modules.get(module), own, None) is value:
            return [f"from {module} import {own} as {name}"]
    if isinstance(value, _CONSTANTS) or (isinstance(value, tuple) and all(isinstance(v, _CONSTANTS) for v in value)):
        return [f"{name} = float({str(value)!r})" if isinstance(value, float) else f"{name} = {value!r}"]
    if isinstance(value, FunctionType) and value.__name__ == name:
        return [*_names(value, known), "", "", _source(value).rstrip()]
    raise UsageError(
        f"check: {function.__name__} uses {name}, a {type(value).__module__}.{type(value).__qualname__} of this "
        f"session; legal: installed modules, what they define, functions by def, and constants; {_NEXT}"
    )


def _importable(module: str) -> bool:
    """Whether every process can import the module: workers do not import from the current folder."""
    root = module.partition(".")[0]
    place = getattr(sys.modules.get(root), "__file__", None) or ""
    return root in {*sys.stdlib_module_names, "tritmark"} - {"__main__"} or _INSTALLED.search(place) is not None
