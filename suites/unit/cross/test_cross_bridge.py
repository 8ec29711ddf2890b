"""The description of a library's functions: what is wrong with it is said with line and column, and nothing of the
library is loaded."""

from __future__ import annotations

import ctypes.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.cross import CppLibrary, bridge
from tritmark.harness.cross.bridge import BridgeError
from tritmark.harness.cross.position import position
from tritmark.harness.errors import InvalidArgumentError, UsageError
from tritmark.harness.providers import Installed
from tritmark.harness.spec import Peer
from tritmark.harness.validate.cross import known
from tritmark.kernels import PROVIDER

GOOD = """\
source = "somebody's"

[[functions]]
op = "i2s_quantize"
symbol = "f"
formats = ["none"]
dtypes = ["int8"]
arguments = ["const float *x", "float scale", "int8_t *q", "int64_t n"]

[[functions]]
op = "ternary_matmul"
symbol = "dot_{format}_{dtype}"
formats = ["tile64", "row16"]
dtypes = ["int32", "float32"]
encode = "i2_s_x86"
bound = "rounded"
returns = "status"
arguments = [
    "const int8_t *activations",
    'const uint8_t*weights',
    "float weight_scale", "void *out",
    "size_t M", "int N", "int64_t K", "int threads",
]
"""


@pytest.fixture(scope="module")
def installed() -> Installed:
    return Installed({"builtin": PROVIDER})


def peers(tmp_path: Path, installed: Installed, text: str) -> tuple[Peer, ...]:
    path = tmp_path / "functions.toml"
    path.write_text(text)
    return bridge(tmp_path / "lib.so", path, installed)


def test_a_peer_for_each_format_and_dtype(tmp_path: Path, installed: Installed) -> None:
    found = peers(tmp_path, installed, GOOD)
    assert [peer.name for peer in found] == [
        "lib.so:f",
        "lib.so:dot_tile64_int32",
        "lib.so:dot_tile64_float32",
        "lib.so:dot_row16_int32",
        "lib.so:dot_row16_float32",
    ]
    assert found[0].outputs == ("q",)
    assert found[0].error_bound is None
    assert (found[4].formats, found[4].dtypes) == (frozenset({"row16"}), frozenset({"float32"}))
    assert found[4].source == "somebody's, dot_row16_float32"
    assert all(peer.missing() == f"not found: {tmp_path / 'lib.so'}" for peer in found)


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "says"),
    [
        ('op = "i2s_quantize"', 'op = "i2s_quantise"', 4, 1, "did you mean 'i2s_quantize'"),
        ('formats = ["none"]', 'formats = ["nine"]', 6, 12, "did you mean 'none'"),
        ('["int32", "float32"]', '["int32", "float33"]', 14, 20, "did you mean 'float32'"),
        ('encode = "i2_s_x86"', 'encode = "i2_s_x68"', 15, 1, "unknown encoding 'i2_s_x68'; did you mean 'i2_s_x86'"),
        ('bound = "rounded"', 'bound = "op"', 16, 1, "ternary_matmul has no bound of its own"),
        ('bound = "rounded"', 'bound = "near"', 16, 1, "functions.bound is 'near'"),
        ('returns = "status"', "returns = 3", 17, 1, "functions.returns is 3"),
        ('symbol = "f"', 'symbol = "f()"', 5, 1, "legal: a C identifier"),
        ('symbol = "f"', 'simbol = "f"', 5, 1, "unknown key functions.simbol; did you mean 'symbol'"),
        ('symbol = "f"\n', "", 3, 1, "key functions.symbol is missing"),
        ('"float scale"', '"float scales"', 8, 32, "no value named 'scales'; did you mean 'scale'"),
        ('"int8_t *q"', '"const int8_t *q"', 8, 47, "has no input 'q'"),
        ('"int8_t *q", ', "", 8, 1, "no argument is an output"),
        ('"int8_t *q"', '"float *q"', 8, 47, "q is declared as float and holds int8"),
        ('"int8_t *q"', '"int8_t **q"', 8, 47, "is not a declaration of a supported type"),
        ('"int8_t *q"', '"void q"', 8, 47, "is not a declaration of a supported type"),
        ('"int8_t *q"', '"long *q"', 8, 47, "is not a declaration of a supported type"),
        ('"int64_t n"', '"double n"', 8, 60, "n is declared as double; legal: an integer type"),
        ('"int N"', '"size_t M"', 22, 17, "M is declared twice"),
        ("'const uint8_t*weights'", "'const uint8_t*waits'", 20, 5, "has no input 'waits'; did you mean 'weights'"),
        ('source = "somebody\'s"', 'sauce = "x"', 1, 1, "unknown key sauce; did you mean 'source'"),
        ('dtypes = ["int8"]', "dtypes = []", 7, 1, "functions.dtypes is []"),
        ('dtypes = ["int8"]', 'dtypes = ["int8"', 8, 1, "not TOML"),
    ],
)
def test_errors_have_line_and_column(
    tmp_path: Path, installed: Installed, old: str, new: str, line: int, column: int, says: str
) -> None:
    assert GOOD.count(old) == 1 or old in GOOD
    with pytest.raises(UsageError) as refused:
        peers(tmp_path, installed, GOOD.replace(old, new, 1))
    text = str(refused.value)
    assert says in text
    assert f"(at line {line}, column {column})" in text
    assert str(tmp_path / "functions.toml") in text


def test_a_name_stands_for_one_function(tmp_path: Path, installed: Installed) -> None:
    description = tmp_path / "lib.toml"
    description.write_text(GOOD)
    library = CppLibrary(str(tmp_path / "lib.so"))
    assert len(known(installed, (library,))) == len(known(installed)) + 5
    with pytest.raises(UsageError, match=r"two peers are called 'lib.so:f' for i2s_quantize/none/int8"):
        known(installed, (library, library))


def test_a_logical_input_has_the_contracts_type(tmp_path: Path, installed: Installed) -> None:
    text = GOOD.replace('symbol = "f"', 'symbol = "f"\nencode = "logical"')
    assert peers(tmp_path, installed, text)[0].encode({"x": 1}, {}) == {"x": 1}
    with pytest.raises(UsageError, match=r"x is declared as double and holds float32 \(at line 9, column 14\)"):
        peers(tmp_path, installed, text.replace("const float *x", "const double *x"))


def test_files_that_are_not_there(tmp_path: Path, installed: Installed) -> None:
    library = tmp_path / "lib.so"
    nowhere = CppLibrary(str(library)).peers(installed)
    assert {peer.op for peer in nowhere} == installed.ops.keys()
    assert {peer.missing() for peer in nowhere} == {f"not found: {library}"}
    with pytest.raises(BridgeError, match="was not found"):
        nowhere[0].bind({}, {}, {}, 1)
    library.write_bytes(b"")
    with pytest.raises(UsageError, match=r"lib\.toml: no such file"):
        CppLibrary(str(library)).peers(installed)
    (tmp_path / "lib.toml").write_bytes(b"\xff")
    with pytest.raises(UsageError, match="cannot be read"):
        CppLibrary(str(library)).peers(installed)
    (tmp_path / "lib.toml").write_text(GOOD)
    assert CppLibrary(str(library)).peers(installed)[0].missing().startswith("cannot be loaded: ")  # type: ignore[union-attr]


@pytest.fixture
def absolute(installed: Installed, tmp_path: Path) -> Peer:
    """A function of the C library that writes nothing, as if it quantized."""
    found = ctypes.util.find_library("c")
    paths = [
        Path(folder) / (found or "libc.so.6")
        for folder in ("/lib/x86_64-linux-gnu", "/lib64", "/usr/lib", "/lib/aarch64-linux-gnu")
    ]
    library = next((path for path in paths if path.is_file()), None)
    if library is None:
        pytest.skip("where the C library lies is not known here")
    description = tmp_path / "libc.toml"
    description.write_text(GOOD.replace('symbol = "f"', 'symbol = "labs"'))
    return bridge(library, description, installed)[0]


def test_arrays_are_checked_when_they_are_bound(absolute: Peer) -> None:
    assert absolute.missing() is None
    inputs = {"x": np.zeros(4, np.float32), "scale": np.float32(1)}
    launch = absolute.bind(inputs, {"q": np.zeros(4, np.int8)}, {"n": 4}, 1)
    launch.run()
    assert (launch.ran, launch.runs, launch.pointer) == ("labs", 1, None)
    with pytest.raises(InvalidArgumentError, match="x is float64; legal: an array of float, as in the declaration"):
        absolute.bind({**inputs, "x": np.zeros(4)}, {"q": np.zeros(4, np.int8)}, {"n": 4}, 1)
    with pytest.raises(InvalidArgumentError, match="strided"):
        absolute.bind({**inputs, "x": np.zeros(8, np.float32)[::2]}, {"q": np.zeros(4, np.int8)}, {"n": 4}, 1)
    with pytest.raises(InvalidArgumentError, match="x is not among the arrays of encoding none"):
        absolute.bind({"scale": 1.0}, {"q": np.zeros(4, np.int8)}, {"n": 4}, 1)


def test_positions() -> None:
    text = 'a = 1\n  [[functions]]\n  op = "x"\n[[functions]]\nlist = [\n "p", # "no"\n\t\'q\']\n'
    assert position(text, ("a",)) == (1, 1)
    assert position(text, ("functions", 0)) == (2, 3)
    assert position(text, ("functions", 0, "op")) == (3, 3)
    assert position(text, ("functions", 1, "list")) == (5, 1)
    assert position(text, ("functions", 1, "list", 0)) == (6, 2)
    assert position(text, ("functions", 0, "list")) == (2, 3)
    assert position("functions = [{op = 1}]", ("functions", 0, "op")) == (1, 1)


@given(
    text=st.text(alphabet=list('[]=" \n\tabfunctions#')),
    index=st.integers(0, 2),
    key=st.sampled_from(["functions", "a", "b"]),
)
def test_a_position_is_always_inside_the_text(text: str, index: int, key: str) -> None:
    line, column = position(text, ("functions", index, key, 0))
    lines = text.split("\n")
    assert 1 <= line <= len(lines)
    assert 1 <= column <= len(lines[line - 1]) + 1
