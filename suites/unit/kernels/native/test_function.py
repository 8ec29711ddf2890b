"""Calls of C functions with any arguments: each gets what it was given, from registers and from the stack."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from typing import Any

import numpy as np
import pytest

from tritmark.kernels.native import extensions

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

_TYPES = {"int8_t": "<b", "int": "<i", "int64_t": "<q", "uint64_t": "<Q", "float": "<f", "double": "<d"}
_MOST = 64


def signatures() -> list[list[str]]:
    """As many arguments as find room in registers, one more, and mixtures of all lengths."""
    rng = np.random.default_rng(20261128)
    drawn = [list(rng.choice(list(_TYPES), int(count))) for count in (1, 5, 9, 14, 16, 22, 23, 30, 31, 48, _MOST)]
    return [[], ["int64_t"] * 6, ["int64_t"] * 7, ["float"] * 8, ["double"] * 9, ["float"] * _MOST, *drawn]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("functions")
    text = "#include <stdint.h>\n#include <string.h>\nextern char left[];\nchar left[4096];\n"
    for number, types in enumerate(signatures()):
        parameters = ", ".join(f"{kind} a{at}" for at, kind in enumerate(types)) or "void"
        copies = "".join(f"    memcpy(left + {8 * at}, &a{at}, sizeof a{at});\n" for at in range(len(types)))
        text += f"void f{number}({parameters})\n{{\n{copies}}}\n"
    text += "void tells(int64_t *bad) { memcpy(left, bad, 8); *bad = 7; }\n"
    (folder / "f.c").write_text(text, encoding="utf-8")
    # -O2: a function then looks at no stack word as if it were 8 bytes where its argument has fewer
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", folder / "f.so", folder / "f.c"], check=True)
    return ctypes.CDLL(str(folder / "f.so"))


def address(function: Any) -> int:
    found = ctypes.cast(function, ctypes.c_void_p).value
    assert found
    return found


def drawn(kind: str, rng: np.random.Generator) -> bytes:
    size = struct.calcsize(_TYPES[kind])
    if kind in ("float", "double"):
        return struct.pack(_TYPES[kind], rng.normal())
    return bytes(rng.bytes(size))


def as_argument(kind: str, value: bytes) -> tuple[bool, bytes]:
    if kind in ("float", "double"):
        return True, value.ljust(8, b"\0")
    (number,) = struct.unpack(_TYPES[kind], value)
    return False, number.to_bytes(8, "little", signed=number < 0)


@pytest.mark.parametrize("number", range(len(signatures())))
def test_a_function_gets_what_it_was_given(library: ctypes.CDLL, number: int) -> None:
    types, rng = signatures()[number], np.random.default_rng(number)
    left = (ctypes.c_char * 4096).in_dll(library, "left")
    for _ in range(3):
        given = [drawn(kind, rng) for kind in types]
        arguments = [as_argument(kind, value) for kind, value in zip(types, given, strict=True)]
        call = extensions.native("function").FunctionCall("f", address(library[f"f{number}"]), arguments, 3, ())
        assert (call.ran, call.runs) == ("", 0)
        ctypes.memset(left, 0, 4096)
        call.run()
        assert [left.raw[8 * at : 8 * at + len(value)] for at, value in enumerate(given)] == given
        assert (call.ran, call.runs, call.threads_used, call.bad) == ("f", 1, 3, -1)


def test_bad_is_no_element_before_each_call(library: ctypes.CDLL) -> None:
    left = ctypes.c_int64.in_dll(library, "left")
    call = extensions.native("function").FunctionCall("tells", address(library.tells), [None], 1, ())
    for run in (1, 2):
        left.value = 0
        call.run()
        assert (left.value, call.bad, call.runs) == (-1, 7, run)


def test_the_native_clock_calls_it_as_often_as_it_says(library: ctypes.CDLL) -> None:
    call = extensions.native("function").FunctionCall("f0", address(library.f0), [], 1, ())
    clock = extensions.native("clock").NativeClock()
    assert clock.sample([call], 0, 1000) > 0
    assert call.runs == 1000


def test_what_finds_no_room_is_refused(library: ctypes.CDLL) -> None:
    word = (False, bytes(8))
    with pytest.raises(ValueError, match="legal: 64 beside those in registers"):
        extensions.native("function").FunctionCall("f", address(library.f0), [word] * 80, 1, ())
    with pytest.raises(ValueError, match="at 0"):
        extensions.native("function").FunctionCall("f", 0, [], 1, ())
