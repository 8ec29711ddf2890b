"""Integer expressions over an op's axes, such as "ceil_div(n, 256)". Python's parser reads them; only arithmetic
evaluates them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import add, floordiv, mod, mul, sub
from typing import Any

LONGEST = 200
"""Characters of an expression."""

_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mult: mul,
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
}


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


_FUNCTIONS: dict[str, Callable[..., int]] = {"max": max, "min": min, "ceil_div": ceil_div}
_LEGAL = f"integers, names of axes, + - * // %, brackets, {', '.join(_FUNCTIONS)}"


class ExpressionError(ValueError):
    """A fault in an expression. `column` is its character, from 0."""

    def __init__(self, found: str, column: int = 0, offer: str = f"legal: {_LEGAL}") -> None:
        self.found = found
        self.column = column
        super().__init__(f"{found}; {offer}")


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression, made by `parse`."""

    text: str
    _tree: ast.expr

    def value(self, axes: Mapping[str, int]) -> int:
        """The value for these axes. Raises ExpressionError for a division by zero."""
        try:
            return _value(self._tree, axes)
        except ZeroDivisionError:
            raise ExpressionError(
                f"{self.text!r} divides by zero for {dict(axes)}", offer="legal: a divisor that is never 0"
            ) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return parse, (
            self.text,
            tuple(sorted({node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)} - set(_FUNCTIONS))),
        )


def parse(text: str, names: Iterable[str]) -> Expression:
    """Check an expression over `names`. Raises ExpressionError if it contains more than arithmetic on them."""
    if len(text) > LONGEST:
        raise ExpressionError(f"an expression of {len(text)} characters", LONGEST, f"legal: at most {LONGEST}")
    if not text.isascii() or any(character in text for character in "\n\r\0\f\t"):
        at = next(i for i, character in enumerate(text) if not character.isprintable() or not character.isascii())
        raise ExpressionError(f"the character {text[at]!r}", at)
    stripped = text.lstrip(" ")
    shift = len(text) - len(stripped)
    try:
        tree = ast.parse(stripped, mode="eval").body
    except SyntaxError as error:
        raise ExpressionError(
            f"{text!r} is not an expression ({error.msg})", shift + max(0, (error.offset or 1) - 1)
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"{text!r} cannot be read ({error})") from None
    _check(tree, frozenset(names), shift)
    return Expression(text, tree)


def _check(node: ast.expr, names: frozenset[str], shift: int) -> None:
    """Raises ExpressionError for a node that `_value` does not evaluate."""
    at = shift + node.col_offset
    if isinstance(node, ast.Constant):
        if type(node.value) is not int:
            raise ExpressionError(f"{node.value!r}, which is not an integer", at)
    elif isinstance(node, ast.Name):
        if node.id not in names:
            from tritmark.harness.nearest import nearest

            raise ExpressionError(f"unknown name {node.id!r}", at, nearest(node.id, [*sorted(names), *_FUNCTIONS]))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        _check(node.operand, names, shift)
    elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        _check(node.left, names, shift)
        _check(node.right, names, shift)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        raise ExpressionError("the division / gives fractions", at, "legal: // or ceil_div(a, b)")
    elif isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS:
            raise ExpressionError(f"a call of {ast.unparse(node.func)!r}", at, f"legal: {', '.join(_FUNCTIONS)}")
        if node.keywords or len(node.args) < 2 or (node.func.id == "ceil_div" and len(node.args) != 2):
            raise ExpressionError(f"{ast.unparse(node)!r}", at, f"legal: {node.func.id}(a, b)")
        for argument in node.args:
            _check(argument, names, shift)
    else:
        raise ExpressionError(f"{ast.unparse(node)!r}", at)


def _value(node: ast.expr, axes: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=name):
            return axes[name]
        case ast.UnaryOp(operand=operand):
            return -_value(operand, axes)
        case ast.BinOp(left=left, op=operator, right=right):
            return _BINARY[type(operator)](_value(left, axes), _value(right, axes))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _FUNCTIONS[name](*(_value(argument, axes) for argument in arguments))
    raise AssertionError(f"{type(node).__name__} went through the check")
