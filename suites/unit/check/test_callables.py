"""A function in memory becomes a file that a worker can run, or is refused by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tritmark.harness.candidate import kernel
from tritmark.harness.candidate.callables import written
from tritmark.harness.candidate.opening import open_candidate
from tritmark.harness.errors import UsageError
from tritmark.harness.providers import load

FACTOR = 2.0
ARRAY = np.ones(3)
DTYPE = "float32"


def scaled(q: Any, scale: Any) -> Any:
    return np.multiply(q, np.float32(scale), dtype=np.float32) * np.float32(FACTOR / 2)


def dequantize(q, scale, x):  # type: ignore[no-untyped-def]
    x[...] = scaled(q, scale)
    assert math.isfinite(scale)


@kernel(op="i2s_dequantize", dtype=DTYPE)
def described(q, scale):  # type: ignore[no-untyped-def]
    return scaled(q, scale)  # a comment that stays


def with_array(q, scale, x):  # type: ignore[no-untyped-def]
    x[...] = ARRAY[0] * q * scale


def cached(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


@cached
def decorated(q, scale, x):  # type: ignore[no-untyped-def]
    x[...] = q * scale


def named(function: Callable[..., Any], folder: Path, **more: str) -> Path:
    told = {"op": "i2s_dequantize", "dtype": "float32", "format": "", **more}
    return written(function, folder, **told)


def run(path: Path) -> dict[str, Any]:
    """The file, run without this module."""
    found: dict[str, Any] = {"__name__": "elsewhere"}
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), found)
    return found


def test_a_function_with_what_it_uses_runs_elsewhere_and_is_a_candidate(tmp_path: Path) -> None:
    path = named(dequantize, tmp_path)
    x = np.zeros(2, np.float32)
    run(path)["dequantize"](np.array([1, -1], np.int8), np.float32(0.5), x)
    assert x.tolist() == [0.5, -0.5]
    (variant,) = open_candidate(path).variants(load())
    assert variant.id == "cpu/i2s_dequantize/none/float32/dequantize.dequantize"
    assert named(dequantize, tmp_path) == path, "an equal function has the same file"


def test_the_decorator_describes_a_function(tmp_path: Path) -> None:
    path = written(described, tmp_path, op="*", dtype="", format="")
    assert "  # a comment that stays" in path.read_text(encoding="utf-8")
    (variant,) = open_candidate(path).variants(load())
    assert variant.key.dtype == "float32"
    with pytest.raises(UsageError, match="described has the decorator kernel; legal: no op"):
        named(described, tmp_path)


def test_closures_of_constants_are_kept(tmp_path: Path) -> None:
    factor = 3

    def inner(q, scale, x):  # type: ignore[no-untyped-def]
        x[...] = q * scale * factor

    x = np.zeros(1, np.float32)
    run(named(inner, tmp_path))["inner"](np.ones(1, np.int8), np.float32(1), x)
    assert x.tolist() == [3]


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda q: q, "kernel is a lambda"),
        (np.multiply, "kernel is a numpy.ufunc; legal: the path of a file"),
        (with_array, "with_array uses ARRAY, a numpy.ndarray of this session; legal: installed modules"),
        (decorated, "decorated has the decorator cached"),
    ],
    ids=["lambda", "ufunc", "array", "decorator"],
)
def test_what_has_no_source_is_refused_by_name(function: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=told):
        named(function, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_function_of_exec_is_refused_by_name(tmp_path: Path) -> None:
    made: dict[str, Any] = {}
    exec("def of_exec(q, scale, x): pass", made)
    with pytest.raises(UsageError, match="the source of of_exec cannot be read: it was made by exec"):
        named(made["of_exec"], tmp_path)


@pytest.mark.parametrize(("more", "missing"), [({"op": "*"}, "op"), ({"dtype": ""}, "dtype")])
def test_what_the_decorator_would_say_is_needed(more: dict[str, str], missing: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"check: {missing} is missing; legal: those of the function"):
        named(dequantize, tmp_path, **more)
