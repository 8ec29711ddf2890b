"""Expressions in manifests: only arithmetic on axes is legal."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from operator import add, floordiv, mod, mul, sub

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tritmark.harness.candidate.expression import LONGEST, ExpressionError, ceil_div, parse

AXES = {"M": 3, "N": 130, "K": 257}


def _quotient_up(a: int, b: int) -> int:
    return a // b + (1 if a % b else 0)


OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "({}) + ({})": add,
    "({}) - ({})": sub,
    "({}) * ({})": mul,
    "({}) // ({})": floordiv,
    "({}) % ({})": mod,
    "max({}, {})": max,
    "min({}, {})": min,
    "ceil_div({}, {})": _quotient_up,
}


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> tuple[str, int]:
    """An expression's text and its expected value, built together."""
    if not depth or draw(st.booleans()):
        number = draw(st.integers(0, 10**6))
        return draw(st.sampled_from([(str(number), number), *AXES.items(), ("-M", -AXES["M"])]))
    shape = draw(st.sampled_from(sorted(OPERATIONS)))
    (left, a), (right, b) = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    assume(b != 0 or OPERATIONS[shape] not in (floordiv, mod, _quotient_up))
    return shape.format(left, right), OPERATIONS[shape](a, b)


@given(expressions())
def test_arithmetic_has_the_value_of_its_parts(pair: tuple[str, int]) -> None:
    text, expected = pair
    assume(len(text) <= LONGEST)
    found = parse(text, AXES)
    assert found.value(AXES) == expected
    assert pickle.loads(pickle.dumps(found)).value(AXES) == expected


@given(st.text("MNK0129+-*/%(),.[]{}=: '\"\\_abcdfilmvx\n\0\u00f1\u00b2\u0660", max_size=60))
def test_whatever_is_written_is_a_number_or_an_error(text: str) -> None:
    found: int | ExpressionError
    try:
        found = parse(text, AXES).value(AXES)
    except ExpressionError as error:
        found = error
    assert 0 <= found.column <= len(text) if isinstance(found, ExpressionError) else type(found) is int


WORDS = (
    "M N K open __import__ max lambda x ( ) [ ] . , : = := ** / // +",
    "'a' 1 if else for in f'' { } await yield *",
)


@given(st.lists(st.sampled_from([word for line in WORDS for word in line.split()]), max_size=12))
def test_no_sequence_of_words_does_more_than_arithmetic(words: list[str]) -> None:
    text = " ".join(words)
    try:
        value = parse(text, AXES).value(AXES)
    except ExpressionError:
        return
    assert type(value) is int
    assert not set(words) & {"open", "__import__", "lambda", ".", "[", ":=", "**", "/", "'a'", "for", "await"}


@pytest.mark.parametrize(
    ("text", "column", "told"),
    [
        ("n // ", None, "is not an expression"),
        ("ceil_div(n, 256", None, "is not an expression"),
        ("m + 1", 0, "unknown name 'm'; did you mean 'min'?"),
        ("1 + nn", 4, "unknown name 'nn'; did you mean 'n'?"),
        ("n / 2", 0, "legal: // or ceil_div(a, b)"),
        ("n ** 2", 0, "'n ** 2'"),
        ("n << 3", 0, "'n << 3'"),
        ("1.5", 0, "1.5, which is not an integer"),
        ("True + n", 0, "True, which is not an integer"),
        ("'n'", 0, "not an integer"),
        ("__import__('os').system('true')", 0, "a call of"),
        ("2 * (n.real)", 5, "'n.real'"),
        ("[n][0]", 0, "'[n][0]'"),
        ("ceil_div(n)", 0, "legal: ceil_div(a, b)"),
        ("ceil_div(n, 1, 2)", 0, "legal: ceil_div(a, b)"),
        ("max(n, key=n)", 0, "legal: max(a, b)"),
        ("max(*n, 1)", 4, "'*n'"),
        ("n if n else 1", 0, "'n if n else 1'"),
        ("(n := 3)", 1, "(n := 3)"),
        ("lambda: 1", 0, "'lambda: 1'"),
        ("n\n+ 1", 1, "the character '\\n'"),
        ("n + ñ", 4, "the character 'ñ'"),
        ("n" * (LONGEST + 1), LONGEST, f"legal: at most {LONGEST}"),
        ("", None, "is not an expression"),
        ("  m", 2, "unknown name"),
    ],
)
def test_what_is_no_arithmetic_is_refused_where_it_stands(text: str, column: int | None, told: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text, ["n"])
    assert told in str(caught.value)
    # The position of a syntax error depends on the Python version.
    assert 0 <= caught.value.column <= len(text) if column is None else caught.value.column == column


def test_a_division_by_zero_is_told() -> None:
    with pytest.raises(ExpressionError, match=r"divides by zero for \{'n': 4\}"):
        parse("8 // (n - 4)", ["n"]).value({"n": 4})


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**6))
def test_ceil_div_covers_all_and_no_more(a: int, b: int) -> None:
    assert b * (ceil_div(a, b) - 1) < a <= b * ceil_div(a, b)
