"""Bad .safetensors files, each a small change to a good one.

A file is named after its fault. Beside it is the required beginning of its error, so that a refusal for another reason
is detected.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from typing import Any

Bad = Callable[[], bytes]
Header = dict[str, Any]


def safetensors_bytes(header: Header | str | bytes, data: bytes, length: int | None = None) -> bytes:
    if isinstance(header, dict):
        header = json.dumps(header)
    raw = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def good_header() -> Header:
    return {
        "__metadata__": {"format": "np"},
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "BF16", "shape": [4, 2], "data_offsets": [24, 40]},
    }


DATA = bytes(40)


def changed(tensor: str = "a", **members: object) -> bytes:
    header = good_header()
    header[tensor] |= members
    return safetensors_bytes(header, DATA)


def without(member: str) -> bytes:
    header = good_header()
    del header["a"][member]
    return safetensors_bytes(header, DATA)


def text_header(old: str, new: str) -> bytes:
    text = json.dumps(good_header())
    assert old in text
    return safetensors_bytes(text.replace(old, new, 1), DATA)


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"w": 1}))
    return buffer.getvalue()


GOOD = safetensors_bytes(good_header(), DATA)
TEXT = json.dumps(good_header())

BAD: dict[str, tuple[str, Bad]] = {
    "empty file": ("0 bytes", lambda: b""),
    "shorter than its length field": ("5 bytes", lambda: GOOD[:5]),
    "length field only": ("8 bytes", lambda: GOOD[:8]),
    "cut inside the header": ("a header of 166 bytes in a file of 60", lambda: GOOD[:60]),
    "cut inside the data": ("tensor 'b' has data_offsets [24, 40]", lambda: GOOD[:-1]),
    "data longer than the header says": ("41 bytes of data", lambda: GOOD + b"\0"),
    "header length past the file": (
        "a header of 207 bytes in a file of 214",
        lambda: safetensors_bytes(TEXT, DATA, length=len(TEXT) + len(DATA) + 1),
    ),
    "header length 2**63": (
        "a header of 9223372036854775808 bytes in a",
        lambda: safetensors_bytes(TEXT, DATA, length=1 << 63),
    ),
    "header length 2**64 - 1": (
        "a header of 18446744073709551615 bytes in a",
        lambda: safetensors_bytes(TEXT, DATA, length=(1 << 64) - 1),
    ),
    "header length 0": ("a header that begins with b'\\x00'", lambda: safetensors_bytes("", DATA)),
    "header length 1": ("'' at character 1 of the header", lambda: safetensors_bytes("{", DATA)),
    "header length one short": (
        "'' at character 165 of the header",
        lambda: safetensors_bytes(TEXT, DATA, length=len(TEXT) - 1),
    ),
    "header of 17 MB": (
        "a header of 17825958 bytes in a file of",
        lambda: safetensors_bytes(TEXT + " " * (17 << 20), DATA),
    ),
    "header of zeros": ("a header that begins with b'\\x00'", lambda: safetensors_bytes(bytes(100), DATA)),
    "header not UTF-8": (
        "a header that is not UTF-8 at byte 101",
        lambda: safetensors_bytes(TEXT.encode().replace(b'"b"', b'"\xff"'), DATA),
    ),
    "header with a byte order mark": (
        "a header that begins with b'\\xef'",
        lambda: safetensors_bytes("\ufeff" + TEXT, DATA),
    ),
    "header in UTF-16": (
        "'\\x00\"\\x00_\\x00_\\x00m\\x00e\\x00t\\x00a\\x00d\\x00a",
        lambda: safetensors_bytes(TEXT.encode("utf-16-le"), DATA),
    ),
    "header begins with a blank": ("a header that begins with b' '", lambda: safetensors_bytes(" " + TEXT, DATA)),
    "header is a list": ("a header that begins with b'['", lambda: safetensors_bytes("[]", b"")),
    "header is no JSON": ("'a: 1}' at character 1 of the header", lambda: safetensors_bytes("{a: 1}", b"")),
    "text after the header's end": (
        "'{}' at character 166 of the header",
        lambda: safetensors_bytes(TEXT + "{}", DATA),
    ),
    "no comma between tensors": ('\'"a": {"dtype": "F32"\' at character 34 of the', lambda: text_header("}, ", "} ")),
    "comma before the end": ("'}' at character 166 of the header", lambda: safetensors_bytes(TEXT[:-1] + ",}", DATA)),
    "single quotes": (
        "\"'__metadata__': {'fo\" at character 1 of the",
        lambda: safetensors_bytes(TEXT.replace('"', "'"), DATA),
    ),
    "raw newline in a name": ('\'"a\\n": {"dtype": "F32\' at character 35 of', lambda: text_header('"a"', '"a\n"')),
    "half a surrogate in a name": (
        '\'"\\\\ud800": {"dtype": \' at character 35 of',
        lambda: text_header('"a"', '"\\ud800"'),
    ),
    "bad escape in a name": ('\'"\\\\x1b": {"dtype": "F\' at character 35 of', lambda: text_header('"a"', '"\\x1b"')),
    "duplicate tensor": ("the key 'a' twice in the header", lambda: text_header('"b"', '"a"')),
    "duplicate tensor, one spelt with escapes": (
        "the key 'a' twice in the header",
        lambda: text_header('"b"', '"\\u0061"'),
    ),
    "duplicate member": (
        "the key 'dtype' twice in the header",
        lambda: text_header('"dtype": "F32"', '"dtype": "F32", "dtype": "F32"'),
    ),
    "duplicate metadata": (
        "the key '__metadata__' twice in the header",
        lambda: text_header('"__metadata__"', '"__metadata__": {}, "__metadata__"'),
    ),
    "nested lists, 100,000 deep, for a tensor": (
        "'[[[[[[[[[[[[[[[[[[[[' at character 5 of the",
        lambda: safetensors_bytes('{"a":' + "[" * 100_000, b""),
    ),
    "nested lists, 100,000 deep, for a shape": (
        "'[[[[[[[[[[[[[[[[[[[[' at character 15 of the",
        lambda: safetensors_bytes('{"a":{"shape":' + "[" * 100_000, b""),
    ),
    "nested objects, 100,000 deep": ("tensor 'a' has a member 'a'", lambda: safetensors_bytes('{"a":' * 100_000, b"")),
    "nested objects in the metadata": (
        '\'{"a": "b"}}, "a": {"\' at character 28 of the',
        lambda: text_header('"format": "np"', '"format": {"a": "b"}'),
    ),
    "metadata is a list": (
        '\'[], "a": {"dtype": "\' at character 17 of the',
        lambda: text_header('{"format": "np"}', "[]"),
    ),
    "metadata of numbers": ('\'1}, "a": {"dtype": "\' at character 28 of the', lambda: text_header('"np"', "1")),
    "tensor is a string": (
        '\'"F32", "b": {"dtype"\' at character 40 of the',
        lambda: text_header(json.dumps(good_header()["a"]), '"F32"'),
    ),
    "tensor is null": (
        '\'null, "b": {"dtype":\' at character 40 of the',
        lambda: text_header(json.dumps(good_header()["a"]), "null"),
    ),
    "unknown member": ("tensor 'a' has a member 'strides'", lambda: changed(strides=[3, 1])),
    "no dtype": ("tensor 'a' has only the members", lambda: without("dtype")),
    "no shape": ("tensor 'a' has only the members", lambda: without("shape")),
    "no data_offsets": ("tensor 'a' has only the members ['dtype',", lambda: without("data_offsets")),
    "dtype unknown": ("tensor 'a' has dtype 'F33'", lambda: changed(dtype="F33")),
    "dtype in small letters": ("tensor 'a' has dtype 'f32'", lambda: changed(dtype="f32")),
    "dtype a number": ("'32, \"shape\": [2, 3],' at character 50 of the", lambda: changed(dtype=32)),
    "dtype a list": ('\'["F32"], "shape": [2\' at character 50 of the', lambda: changed(dtype=["F32"])),
    "dtype larger than the data": ("tensor 'a' has 24 bytes for F64 of shape [2,", lambda: changed(dtype="F64")),
    "dtype smaller than the data": ("tensor 'a' has 24 bytes for F16 of shape [2,", lambda: changed(dtype="F16")),
    "half a byte": ("tensor 'a' has 24 bytes for F4 of shape [3]", lambda: changed(dtype="F4", shape=[3])),
    "shape a number": ("'6, \"data_offsets\": [' at character 66 of the", lambda: changed(shape=6)),
    "shape a string": ('\'"2,3", "data_offsets\' at character 66 of the', lambda: changed(shape="2,3")),
    "shape with a fraction": ("'2.0, 3], \"data_offse' at character 67 of the", lambda: changed(shape=[2.0, 3])),
    "shape with an exponent": (
        "'2e0, 3], \"data_offse' at character 67 of the",
        lambda: text_header("[2, 3]", "[2e0, 3]"),
    ),
    "shape with true": ("'true, 6], \"data_offs' at character 67 of the", lambda: changed(shape=[True, 6])),
    "shape with null": ("'null, 6], \"data_offs' at character 67 of the", lambda: changed(shape=[None, 6])),
    "shape with NaN": ("'NaN, 6], \"data_offse' at character 67 of the", lambda: changed(shape=[float("nan"), 6])),
    "shape with a leading zero": (
        "'02, 3], \"data_offset' at character 67 of the",
        lambda: text_header("[2, 3]", "[02, 3]"),
    ),
    "shape negative": ("'-2, -3], \"data_offse' at character 67 of the", lambda: changed(shape=[-2, -3])),
    "shape of 2**63": ("tensor 'a' has shape [9223372036854775808, 3]", lambda: changed(shape=[1 << 63, 3])),
    "shape whose product wraps round 64 bits to 6": (
        "tensor 'a' has shape [9223372036854775811, 2]",
        lambda: changed(shape=[(1 << 63) + 3, 2]),
    ),
    "shape of huge and zero": (
        "tensor 'a' has shape [0, 4611686018427387904]",
        lambda: safetensors_bytes({"a": {"dtype": "F32", "shape": [0, 1 << 62], "data_offsets": [0, 0]}}, b""),
    ),
    "shape of 10**5000": (
        "'10000000000000000000' at character 67 of the",
        lambda: text_header("[2, 3]", "[1" + "0" * 5000 + "]"),
    ),
    "shape of 33 dimensions": (
        "'1], \"data_offsets\": ' at character 163 of",
        lambda: changed(shape=[2, 3] + [1] * 31),
    ),
    "shape of 100,000 dimensions": ("'1, 1, 1, 1, 1, 1, 1,' at character 163 of", lambda: changed(shape=[1] * 100_000)),
    "shape larger than the data": ("tensor 'a' has 24 bytes for F32 of shape [2,", lambda: changed(shape=[2, 4])),
    "shape smaller than the data": ("tensor 'a' has 24 bytes for F32 of shape [2,", lambda: changed(shape=[2, 2])),
    "offsets past the end": (
        "tensor 'b' has data_offsets [24, 41]",
        lambda: changed("b", data_offsets=[24, 41], shape=[17], dtype="U8"),
    ),
    "offsets of 2**64": ("tensor 'a' has data_offsets", lambda: changed(data_offsets=[1 << 64, (1 << 64) + 24])),
    "offsets negative": ('\'-24, 0]}, "b": {"dty\' at character 91 of the', lambda: changed(data_offsets=[-24, 0])),
    "offsets back to front": ("tensor 'a' has data_offsets [24, 0]", lambda: changed(data_offsets=[24, 0])),
    "one offset": ("tensor 'a' has data_offsets [24]", lambda: changed(data_offsets=[24])),
    "three offsets": ('\'24]}, "b": {"dtype":\' at character 98 of the', lambda: changed(data_offsets=[0, 24, 24])),
    "no offsets": ("tensor 'a' has data_offsets []", lambda: changed(data_offsets=[])),
    "offsets a string": ('\'"0,24"}, "b": {"dtyp\' at character 90 of the', lambda: changed(data_offsets="0,24")),
    "tensors overlap": ("tensor 'b' overlaps the one before", lambda: changed("b", data_offsets=[20, 36])),
    "tensors share their data": (
        "tensor 'b' overlaps the one before",
        lambda: changed("b", dtype="F32", shape=[2, 3], data_offsets=[0, 24]),
    ),
    "hole between tensors": (
        "tensor 'b' leaves a hole before it",
        lambda: changed("a", shape=[5], data_offsets=[0, 20]),
    ),
    "hole before the first tensor": (
        "tensor 'a' leaves a hole before it",
        lambda: changed("a", shape=[5], data_offsets=[4, 24]),
    ),
    "hole after the last tensor": ("40 bytes of data", lambda: changed("b", shape=[7], data_offsets=[24, 38])),
    "pickle": ("a pickle", lambda: pickle.dumps({"w": list(range(100))})),
    "old pickle": ("a pickle", lambda: pickle.dumps({"w": list(range(100))}, protocol=2)),
    "zip with a pickle inside": ("a zip archive, as PyTorch's .pt and .bin are", zipped),
    "GGUF by another name": ("a GGUF file", lambda: b"GGUF" + struct.pack("<IQQ", 3, 0, 0)),
    "HDF5 by another name": ("an HDF5 file", lambda: b"\x89HDF\r\n\x1a\n" + bytes(100)),
    "git-lfs pointer": (
        "a git-lfs pointer in place of the file",
        lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    ),
    "name with ANSI and right-to-left marks": (
        "tensor '\\x1b[2J\\u202e<b>' has dtype 'F31'",
        lambda: text_header('"a": {"dtype": "F32"', '"\\u001b[2J\u202e<b>": {"dtype": "F31"'),
    ),
    "name of 100,000 characters": (
        "tensor",
        lambda: text_header('"a": {"dtype": "F32"', '"' + "n" * 100_000 + '": {"dtype": "F31"'),
    ),
    "dtype of 100,000 characters": ("tensor 'a' has dtype", lambda: changed(dtype="\x1b" * 100_000)),
}


def floats(dtype: str, bits: int, *values: int) -> bytes:
    """One tensor of the given bit patterns."""
    data = b"".join(value.to_bytes(bits // 8, "little") for value in values)
    return safetensors_bytes({"a": {"dtype": dtype, "shape": [1, len(values)], "data_offsets": [0, len(data)]}}, data)


ODD: dict[str, Bad] = {
    "good": lambda: GOOD,
    "no tensors": lambda: safetensors_bytes("{}", b""),
    "a scalar": lambda: safetensors_bytes({"a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}, bytes(4)),
    "tensors of no elements": lambda: safetensors_bytes(
        {
            name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}
            for name, shape in (("a", [0, 7]), ("b", [3, 0]))
        },
        b"",
    ),
    "an empty name": lambda: text_header('"a"', '""'),
    "float32 of NaN, infinity, -0 and subnormal": lambda: floats(
        "F32", 32, 0x7FC00000, 0x7F800000, 0xFF800000, 0x80000000, 1
    ),
    "float32, a signalling NaN": lambda: floats("F32", 32, 0x7F800001, 0xFFBFFFFF),
    "float16 of NaN, infinity and subnormal": lambda: floats("F16", 16, 0x7E00, 0x7C00, 0xFC00, 0x8001, 0x7C01),
    "bfloat16 of NaN, infinity and subnormal": lambda: floats("BF16", 16, 0x7FC0, 0x7F80, 0xFF80, 0x8001, 0x7F81),
    "float64 past float32": lambda: floats("F64", 64, 0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF, 1, 0x7FF0000000000001),
}
"""Unusual but legal files, which must be read like the safetensors library reads them."""
