"""Manifests: legal contents, and the positions of errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.candidate.manifest import ArgumentKind, Described, Manifest, read_manifest, variant_name
from tritmark.harness.errors import UsageError
from tritmark.harness.providers import load
from tritmark.harness.spec import MaxSize, MinSize, MultipleOf

INSTALLED = load()
QUANTIZE = """\
op = "i2s_quantize"
dtype = "int8"
function = "f"
arguments = ["x", "scale", "q", "n", "bad"]
"""
LAUNCHED = QUANTIZE + 'grid = "ceil_div(n, 256)"\nblock = 256\n'


def read(text: str, *, launched: bool = False) -> Described:
    return read_manifest(Path("my.c"), Path("my.toml"), text, INSTALLED, launched=launched)


def test_a_manifest_is_read() -> None:
    found = read(
        LAUNCHED + 'multiple_of = { n = 4 }\nmin = { n = 8 }\nmax = { n = 99 }\ncapability = "8.0"\nshared = "4 * 32"',
        launched=True,
    )
    assert found.op.name == "i2s_quantize"
    assert (found.format, found.dtype, found.function, found.name) == ("none", "int8", "f", "my.f")
    assert [argument.kind for argument in found.arguments] == [
        ArgumentKind.INPUT,
        ArgumentKind.INPUT,
        ArgumentKind.OUTPUT,
        ArgumentKind.AXIS,
        ArgumentKind.BAD,
    ]
    assert found.constraints == (MultipleOf("n", 4), MinSize("n", 8), MaxSize("n", 99))
    assert found.capability == (8, 0)
    assert found.geometry is not None
    assert found.geometry.values({"n": 257}) == ((2, 1, 1), (256, 1, 1), 128)


def test_ten_lines_are_enough_for_everything() -> None:
    assert len(LAUNCHED.splitlines()) <= 10
    assert len(Manifest.model_fields) <= 15


def test_scratch_memory_is_an_expression_over_the_axes() -> None:
    assert read(QUANTIZE).workspace.value({"n": 10}) == 0
    assert read(QUANTIZE + 'workspace = "4 * n"').workspace.value({"n": 10}) == 40
    with pytest.raises(UsageError, match="is given no scratch memory"):
        read(LAUNCHED + "workspace = 64", launched=True)


def test_an_int_bounds_its_axis() -> None:
    assert read(QUANTIZE.replace('"n"', '"n:int32"')).constraints == (MaxSize("n", 2**31 - 1),)


def test_without_its_stride_an_array_is_in_one_piece() -> None:
    text = """\
op = "activation_quantize"
dtype = "int8"
function = "f"
arguments = ["x", "q", "scale", "sum", "M", "K"]
"""
    assert read(text).dense == {"x"}
    assert read(text).alignment == 1
    assert not read(text.replace('"M"', '"x.stride", "M"')).dense


def test_what_is_packed_in_has_its_outputs_by_their_names() -> None:
    text = """\
op = "unpack_codes"
format = "row16"
dtype = "int8"
function = "f"
arguments = ["packed", "codes", "scales", "N", "K"]
"""
    assert [argument.kind for argument in read(text).arguments][:3] == [
        ArgumentKind.INPUT,
        ArgumentKind.OUTPUT,
        ArgumentKind.OUTPUT,
    ]


def test_any_weight_format_is_taken_where_one_is() -> None:
    """bitnet.cpp's I2_S has no built-in matmul, but is a legal format."""
    text = """\
op = "ternary_matmul"
format = "i2_s_x86"
dtype = "int32"
function = "f"
arguments = ["activations", "weights", "out", "M", "N", "K"]
"""
    assert read(text).format == "i2_s_x86"


@pytest.mark.parametrize(
    ("text", "at", "told"),
    [
        ("op = ", "1:6", "not TOML"),
        ('op = "i2s_quantize"\ndtype: "int8"', "2:6", "not TOML"),
        ('op = "i2s_quantize', "1:19", "not TOML"),
        (
            QUANTIZE.replace('function = "f"\n', ""),
            "1:1",
            "key 'function' is missing; required: op, dtype, function, arguments",
        ),
        (QUANTIZE + 'fromat = "none"', "5:1", "unknown key 'fromat'; did you mean 'format'?"),
        (
            QUANTIZE.replace("i2s_quantize", "i2s_quantise"),
            "1:7",
            "unknown op 'i2s_quantise'; did you mean 'i2s_quantize'?",
        ),
        (QUANTIZE + 'format = "nome"', "5:11", "no format 'nome'; did you mean 'none'?"),
        (QUANTIZE.replace("int8", "int9"), "2:10", "no output dtype 'int9'; did you mean 'int8'?"),
        (QUANTIZE.replace('"f"', '"f()"'), "3:13", "function is 'f()'"),
        (QUANTIZE.replace('"scale"', '"scales"'), "4:20", "unknown argument 'scales'; did you mean 'scale'?"),
        (QUANTIZE.replace('"n"', '"n:int16"'), "4:34", "'n:int16': did you mean 'int"),
        (QUANTIZE.replace('"q", ', ""), "4:1", "the output 'q' is missing"),
        (QUANTIZE.replace('"n"', '"q"'), "4:1", "the output 'q' is named twice"),
        (QUANTIZE.replace('["x", "scale", "q", "n", "bad"]', "[]"), "4:13", "arguments is []"),
        (QUANTIZE + "multiple_of = { N = 4 }", "5:17", "no axis 'N'; "),
        (QUANTIZE + "min = { n = 0 }", "5:13", "min is 0"),
        (QUANTIZE + "alignment = 48", "5:1", "a power of two"),
        (QUANTIZE + 'workspace = "4 * m"', "5:18", "unknown name 'm'"),
        (QUANTIZE + "grid = 4", "5:1", "grid is for kernels in a .cu only"),
    ],
)
def test_an_error_has_line_and_column(text: str, at: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(text)
    assert str(caught.value).startswith(f"my.toml:{at}: "), caught.value
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "at", "told"),
    [
        (QUANTIZE, "1:1", "key 'grid' is missing"),
        (LAUNCHED.replace("block = 256\n", ""), "1:1", "key 'block' is missing"),
        (LAUNCHED.replace("ceil_div(n, 256)", "ceil_div(N, 256)"), "5:18", "grid: unknown name 'N'; "),
        (LAUNCHED.replace("ceil_div(n, 256)", "n / 256"), "5:9", "grid: the division / gives fractions"),
        (LAUNCHED.replace('"ceil_div(n, 256)"', '["n", "n +"]'), "5:1", "grid: 'n +' is not an expression"),
        (LAUNCHED + 'shared = "4 * m"', "7:15", "shared: unknown name 'm'"),
        (LAUNCHED.replace("256\n", "0\n"), "6:9", "block is 0"),
        (LAUNCHED.replace("256\n", "true\n"), "6:1", "block is True"),
        (LAUNCHED + 'capability = "nine"', "7:15", "capability is 'nine'"),
    ],
)
def test_an_error_of_a_launch_has_line_and_column(text: str, at: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(text, launched=True)
    assert str(caught.value).startswith(f"my.toml:{at}"), caught.value
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("grid", "told"),
    [
        ("n - 5", "legal: at least 1, 1 and 0"),
        ("8 // (n - 5)", "divides by zero"),
        ("n * 999999999999", "legal: at most"),
    ],
)
def test_a_launch_that_cannot_be_is_an_error_when_it_is_known(grid: str, told: str) -> None:
    geometry = read(LAUNCHED.replace("ceil_div(n, 256)", grid), launched=True).geometry
    assert geometry is not None
    with pytest.raises(UsageError, match=told):
        geometry.values({"n": 5})


VALUES = st.recursive(
    st.one_of(
        st.integers(-3, 1 << 40),
        st.booleans(),
        st.floats(allow_nan=False),
        st.sampled_from(["x", "n", "none", "i2s_quantize", "int8", ""]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["n", "K"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + "}"
    return repr(value).replace("e+", "e")


@given(st.dictionaries(st.sampled_from([*Manifest.model_fields, "other"]), VALUES), st.booleans())
def test_any_table_is_read_or_refused_in_its_place(table: dict[str, object], launched: bool) -> None:
    lines = dict.fromkeys(row.split(" ")[0] for row in LAUNCHED.splitlines())
    text = "\n".join([row for row in LAUNCHED.splitlines() if row.split(" ")[0] in set(lines) - set(table)])
    text += "\n" + "\n".join(f"{key} = {_toml(value)}" for key, value in table.items())
    told = ""
    try:
        read(text, launched=launched)
    except UsageError as error:
        told = str(error)
    assert not told or told.startswith("my.toml:")


def test_a_variant_is_named_in_characters_that_nothing_takes_for_something_else() -> None:
    assert variant_name(Path("/a/my [kernel]*.c"), "f") == "my__kernel__.f"
