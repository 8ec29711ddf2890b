"""Truncated, lying and hostile weight files: a WeightFileError at once, before memory is taken, and never anything else.

Every file of the corpus is a small change to a good one. It is named after what is wrong with it, and stands beside
words that the error has to begin with, so that it is not refused for another reason.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import gguf
import gguf.quants  # imported here, so that no test below is charged for it
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from tritmark.harness.errors import WeightFileError
from tritmark.harness.weights import open_weights

SECONDS = 1.0
PEAK_BYTES = 5_000_000
LONGEST_MESSAGE = 1000
UINT32, STRING, ARRAY = 4, 8, 9
F32, F16 = 0, 1

Bad = Callable[[], bytes]
Header = dict[str, Any]


# ---- .safetensors ------------------------------------------------------------------------------------------------------------


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
    import io

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"w": 1}))
    return buffer.getvalue()


GOOD_SAFETENSORS = safetensors_bytes(good_header(), DATA)
TEXT = json.dumps(good_header())

BAD_SAFETENSORS: dict[str, tuple[str, Bad]] = {
    "empty file": ("0 bytes", lambda: b""),
    "shorter than its length field": ("5 bytes", lambda: GOOD_SAFETENSORS[:5]),
    "length field only": ("8 bytes", lambda: GOOD_SAFETENSORS[:8]),
    "cut inside the header": ("a header of 166 bytes in a file of 60", lambda: GOOD_SAFETENSORS[:60]),
    "cut inside the data": ("tensor 'b' has data_offsets [24, 40]", lambda: GOOD_SAFETENSORS[:-1]),
    "data longer than the header says": ("41 bytes of data", lambda: GOOD_SAFETENSORS + b"\0"),
    "header length past the file": (
        "a header of 207 bytes in a file of 214",
        lambda: safetensors_bytes(TEXT, DATA, length=len(TEXT) + len(DATA) + 1),
    ),
    "header length 2**63": ("a header of 9223372036854775808 bytes in a", lambda: safetensors_bytes(TEXT, DATA, length=1 << 63)),
    "header length 2**64 - 1": ("a header of 18446744073709551615 bytes in a", lambda: safetensors_bytes(TEXT, DATA, length=(1 << 64) - 1)),
    "header length 0": ("a header that begins with b'\\x00'", lambda: safetensors_bytes("", DATA)),
    "header length 1": ("'' at character 1 of the header", lambda: safetensors_bytes("{", DATA)),
    "header length one short": ("'' at character 165 of the header", lambda: safetensors_bytes(TEXT, DATA, length=len(TEXT) - 1)),
    "header of 17 MB": ("a header of 17825958 bytes in a file of", lambda: safetensors_bytes(TEXT + " " * (17 << 20), DATA)),
    "header of zeros": ("a header that begins with b'\\x00'", lambda: safetensors_bytes(bytes(100), DATA)),
    "header not UTF-8": (
        "a header that is not UTF-8 at byte 101",
        lambda: safetensors_bytes(TEXT.encode().replace(b'"b"', b'"\xff"'), DATA),
    ),
    "header with a byte order mark": ("a header that begins with b'\\xef'", lambda: safetensors_bytes("\ufeff" + TEXT, DATA)),
    "header in UTF-16": (
        "'\\x00\"\\x00_\\x00_\\x00m\\x00e\\x00t\\x00a\\x00d\\x00a",
        lambda: safetensors_bytes(TEXT.encode("utf-16-le"), DATA),
    ),
    "header begins with a blank": ("a header that begins with b' '", lambda: safetensors_bytes(" " + TEXT, DATA)),
    "header is a list": ("a header that begins with b'['", lambda: safetensors_bytes("[]", b"")),
    "header is no JSON": ("'a: 1}' at character 1 of the header", lambda: safetensors_bytes("{a: 1}", b"")),
    "text after the header's end": ("'{}' at character 166 of the header", lambda: safetensors_bytes(TEXT + "{}", DATA)),
    "no comma between tensors": ('\'"a": {"dtype": "F32"\' at character 34 of the', lambda: text_header("}, ", "} ")),
    "comma before the end": ("'}' at character 166 of the header", lambda: safetensors_bytes(TEXT[:-1] + ",}", DATA)),
    "single quotes": ("\"'__metadata__': {'fo\" at character 1 of the", lambda: safetensors_bytes(TEXT.replace('"', "'"), DATA)),
    "raw newline in a name": ('\'"a\\n": {"dtype": "F32\' at character 35 of', lambda: text_header('"a"', '"a\n"')),
    "half a surrogate in a name": ('\'"\\\\ud800": {"dtype": \' at character 35 of', lambda: text_header('"a"', '"\\ud800"')),
    "bad escape in a name": ('\'"\\\\x1b": {"dtype": "F\' at character 35 of', lambda: text_header('"a"', '"\\x1b"')),
    "duplicate tensor": ("the key 'a' twice in the header", lambda: text_header('"b"', '"a"')),
    "duplicate tensor, one spelt with escapes": ("the key 'a' twice in the header", lambda: text_header('"b"', '"\\u0061"')),
    "duplicate member": ("the key 'dtype' twice in the header", lambda: text_header('"dtype": "F32"', '"dtype": "F32", "dtype": "F32"')),
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
    "metadata is a list": ('\'[], "a": {"dtype": "\' at character 17 of the', lambda: text_header('{"format": "np"}', "[]")),
    "metadata of numbers": ('\'1}, "a": {"dtype": "\' at character 28 of the', lambda: text_header('"np"', "1")),
    "tensor is a string": ('\'"F32", "b": {"dtype"\' at character 40 of the', lambda: text_header(json.dumps(good_header()["a"]), '"F32"')),
    "tensor is null": ('\'null, "b": {"dtype":\' at character 40 of the', lambda: text_header(json.dumps(good_header()["a"]), "null")),
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
    "shape with an exponent": ("'2e0, 3], \"data_offse' at character 67 of the", lambda: text_header("[2, 3]", "[2e0, 3]")),
    "shape with true": ("'true, 6], \"data_offs' at character 67 of the", lambda: changed(shape=[True, 6])),
    "shape with null": ("'null, 6], \"data_offs' at character 67 of the", lambda: changed(shape=[None, 6])),
    "shape with NaN": ("'NaN, 6], \"data_offse' at character 67 of the", lambda: changed(shape=[float("nan"), 6])),
    "shape with a leading zero": ("'02, 3], \"data_offset' at character 67 of the", lambda: text_header("[2, 3]", "[02, 3]")),
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
    "shape of 10**5000": ("'10000000000000000000' at character 67 of the", lambda: text_header("[2, 3]", "[1" + "0" * 5000 + "]")),
    "shape of 33 dimensions": ("'1], \"data_offsets\": ' at character 163 of", lambda: changed(shape=[2, 3] + [1] * 31)),
    "shape of 100,000 dimensions": ("'1, 1, 1, 1, 1, 1, 1,' at character 163 of", lambda: changed(shape=[1] * 100_000)),
    "shape larger than the data": ("tensor 'a' has 24 bytes for F32 of shape [2,", lambda: changed(shape=[2, 4])),
    "shape smaller than the data": ("tensor 'a' has 24 bytes for F32 of shape [2,", lambda: changed(shape=[2, 2])),
    "offsets past the end": ("tensor 'b' has data_offsets [24, 41]", lambda: changed("b", data_offsets=[24, 41], shape=[17], dtype="U8")),
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
    "hole between tensors": ("tensor 'b' leaves a hole before it", lambda: changed("a", shape=[5], data_offsets=[0, 20])),
    "hole before the first tensor": ("tensor 'a' leaves a hole before it", lambda: changed("a", shape=[5], data_offsets=[4, 24])),
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
    "name of 100,000 characters": ("tensor", lambda: text_header('"a": {"dtype": "F32"', '"' + "n" * 100_000 + '": {"dtype": "F31"')),
    "dtype of 100,000 characters": ("tensor 'a' has dtype", lambda: changed(dtype="\x1b" * 100_000)),
}


# ---- .gguf -------------------------------------------------------------------------------------------------------------------


def text(value: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(value) if length is None else length) + value


def pair(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def array(kind: int, count: int, values: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + values


def tensor(name: bytes = b"a", dims: tuple[int, ...] = (4, 2), kind: int = F32, offset: int = 0, count: int | None = None) -> bytes:
    ndim = len(dims) if count is None else count
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", ndim, *dims, kind, offset)


GOOD_PAIRS = (pair(b"general.architecture", STRING, text(b"test")), pair(b"tokens", ARRAY, array(STRING, 2, text(b"x") + text(b""))))
GOOD_TENSORS = (tensor(b"a"), tensor(b"b", dims=(3, 5), kind=F16, offset=32))


def gguf_bytes(
    pairs: tuple[bytes, ...] = GOOD_PAIRS,
    tensors: tuple[bytes, ...] = GOOD_TENSORS,
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    tensor_count: int | None = None,
    pair_count: int | None = None,
    data: int = 62,
) -> bytes:
    """A GGUF file by hand, since the library's writer refuses to lie; `data` is the number of bytes after the padded header."""
    counts = len(tensors) if tensor_count is None else tensor_count, len(pairs) if pair_count is None else pair_count
    head = magic + struct.pack("<IQQ", version, *counts) + b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % 32 + data)


def with_pair(key: bytes, kind: int, value: bytes) -> bytes:
    return gguf_bytes(pairs=(*GOOD_PAIRS, pair(key, kind, value)))


def with_b(**change: Any) -> bytes:
    """The second tensor changed."""
    members: dict[str, Any] = {"name": b"b", "dims": (3, 5), "kind": F16, "offset": 32} | change
    return gguf_bytes(tensors=(GOOD_TENSORS[0], tensor(**members)))


GOOD_GGUF = gguf_bytes()

BAD_GGUF: dict[str, tuple[str, Bad]] = {
    "empty file": ("the magic number, 4 bytes or more, at byte 0", lambda: b""),
    "magic only": ("the version, 4 bytes or more, at byte 4 of 4", lambda: GOOD_GGUF[:4]),
    "cut in the counts": ("the number of key-value pairs, 8 bytes or", lambda: GOOD_GGUF[:20]),
    "cut in the pairs": ("2 tensors, 48 bytes or more, at byte 24 of 50", lambda: GOOD_GGUF[:50]),
    "cut in the tensors": ("tensor 'a', 8 bytes or more, at byte 128 of", lambda: GOOD_GGUF[: GOOD_GGUF.index(tensor(b"a")) + 20]),
    "cut in the data": ("tensor 'b' ends at byte 286 of a file of 285", lambda: GOOD_GGUF[:-1]),
    "no data": ("tensor 'a' ends at byte 256 of a file of 224", lambda: gguf_bytes(data=0)),
    "magic of ggml": ("a file that begins with b'ggml'", lambda: gguf_bytes(magic=b"ggml")),
    "magic reversed": ("a file that begins with b'FUGG'", lambda: gguf_bytes(magic=b"FUGG")),
    "safetensors by another name": ("a file that begins with b'\\xa6\\x00\\x00\\x00'", lambda: GOOD_SAFETENSORS),
    "version 0": ("GGUF version 0", lambda: gguf_bytes(version=0)),
    "version 1": ("GGUF version 1", lambda: gguf_bytes(version=1)),
    "version 4": ("GGUF version 4", lambda: gguf_bytes(version=4)),
    "big-endian": ("GGUF version 50331648 (a big-endian file)", lambda: gguf_bytes(version=3 << 24)),
    "tensor count one too many": ("the data of tensor '' begins at byte 0 of the", lambda: gguf_bytes(tensor_count=3)),
    "tensor count of 65,536": ("65536 tensors, 1572864 bytes or more, at byte", lambda: gguf_bytes(tensor_count=1 << 16)),
    "tensor count of 2**63": ("9223372036854775808 tensors", lambda: gguf_bytes(tensor_count=1 << 63)),
    "tensor count of 2**64 - 1": ("18446744073709551615 tensors", lambda: gguf_bytes(tensor_count=(1 << 64) - 1)),
    "70,000 tensors": ("70000 tensors", lambda: gguf_bytes(tensors=tuple(tensor(b"%d" % index, dims=(0,)) for index in range(70_000)))),
    "pair count one too many": ("a tensor's name of 562949953421312 bytes", lambda: gguf_bytes(pair_count=3)),
    "pair count one too few": ("tensor 'tokens' has 9 dimensions", lambda: gguf_bytes(pair_count=1)),
    "pair count of 2**63": ("9223372036854775808 key-value pairs", lambda: gguf_bytes(pair_count=1 << 63)),
    "key of 70,000 bytes": ("a key of 70000 bytes", lambda: with_pair(b"k" * 70_000, UINT32, bytes(4))),
    "key longer than the file": (
        "a key, 60000 bytes or more, at byte 32 of 190",
        lambda: gguf_bytes(pairs=(text(b"key", 60_000) + struct.pack("<I", UINT32),)),
    ),
    "key of 2**64 - 1 bytes": ("a key of 18446744073709551615 bytes", lambda: gguf_bytes(pairs=(text(b"key", (1 << 64) - 1),))),
    "key not UTF-8": ("a key is b'\\xff\\xfe', not UTF-8", lambda: with_pair(b"\xff\xfe", UINT32, bytes(4))),
    "key twice": ("the key 'general.architecture' twice", lambda: gguf_bytes(pairs=(GOOD_PAIRS[0], GOOD_PAIRS[0]))),
    "value type 13": ("the value of 'k' has type 13", lambda: with_pair(b"k", 13, bytes(8))),
    "value type 2**32 - 1": ("the value of 'k' has type 4294967295", lambda: with_pair(b"k", (1 << 32) - 1, bytes(8))),
    "string longer than the file": ("the value of 'k', 100000 bytes or more, at", lambda: with_pair(b"k", STRING, text(b"x", 100_000))),
    "string of 2**63 bytes": ("the value of 'k', 9223372036854775808 bytes", lambda: with_pair(b"k", STRING, text(b"x", 1 << 63))),
    "array in an array": ("the value of 'k' has type 9", lambda: with_pair(b"k", ARRAY, array(ARRAY, 1, array(UINT32, 1, bytes(4))))),
    "array in an array, 10,000 deep": ("the value of 'k' has type 9", lambda: with_pair(b"k", ARRAY, array(ARRAY, 1) * 10_000)),
    "array of unknown type": ("the value of 'k' has type 77", lambda: with_pair(b"k", ARRAY, array(77, 1, bytes(4)))),
    "array longer than the file": ("the value of 'k', 400000 bytes or more, at", lambda: with_pair(b"k", ARRAY, array(UINT32, 100_000))),
    "array of 2**62 integers": ("the value of 'k', 18446744073709551616 bytes", lambda: with_pair(b"k", ARRAY, array(UINT32, 1 << 62))),
    "array of 2**64 - 1 strings": ("the value of 'k', 18446744073709551615", lambda: with_pair(b"k", ARRAY, array(STRING, (1 << 64) - 1))),
    "array of strings, one too long": (
        "the value of 'k', 1099511627793 bytes or",
        lambda: with_pair(b"k", ARRAY, array(STRING, 2, text(b"x") + text(b"x", 1 << 40))),
    ),
    "array of strings, more than there are": (
        "the value of 'k', 8 bytes or more, at byte",
        lambda: with_pair(b"k", ARRAY, array(STRING, 12, text(b"x"))),
    ),
    "alignment 0": ("general.alignment 0", lambda: with_pair(b"general.alignment", UINT32, struct.pack("<I", 0))),
    "alignment 24": (
        "general.alignment 24",
        lambda: gguf_bytes(pairs=(pair(b"general.alignment", UINT32, struct.pack("<I", 24)),), tensors=GOOD_TENSORS[:1], data=100),
    ),
    "alignment 2**31": (
        "the data of tensor 'b' begins at byte 32 of",
        lambda: with_pair(b"general.alignment", UINT32, struct.pack("<I", 1 << 31)),
    ),
    "alignment of 8 bytes": ("general.alignment of value type 10", lambda: with_pair(b"general.alignment", 10, struct.pack("<Q", 32))),
    "alignment a string": ("general.alignment of value type 8", lambda: with_pair(b"general.alignment", STRING, text(b"32"))),
    "alignment an array": (
        "general.alignment of value type 9",
        lambda: with_pair(b"general.alignment", ARRAY, array(UINT32, 1, struct.pack("<I", 32))),
    ),
    "alignment twice": (
        "the key 'general.alignment' twice",
        lambda: gguf_bytes(pairs=(pair(b"general.alignment", UINT32, struct.pack("<I", 32)),) * 2),
    ),
    "tensor name longer than the file": (
        "a tensor's name, 60000 bytes or more, at byte",
        lambda: gguf_bytes(tensors=(text(b"a", 60_000) + bytes(60),)),
    ),
    "tensor name of 2**63 bytes": (
        "a tensor's name of 9223372036854775808 bytes",
        lambda: gguf_bytes(tensors=(text(b"a", 1 << 63) + bytes(60),)),
    ),
    "tensor name not UTF-8": ("a tensor's name is b'\\xc0\\x80', not UTF-8", lambda: with_b(name=b"\xc0\x80")),
    "tensor name twice": ("two tensors named 'a'", lambda: with_b(name=b"a")),
    "5 dimensions": ("tensor 'b' has 5 dimensions", lambda: with_b(dims=(3, 5, 1, 1, 1))),
    "2**32 - 1 dimensions": ("tensor 'b' has 4294967295 dimensions", lambda: with_b(count=(1 << 32) - 1)),
    "dimension of 2**63": ("tensor 'b' has shape (9223372036854775808, 3)", lambda: with_b(dims=(3, 1 << 63))),
    "dimensions whose product wraps round 64 bits to 15": (
        "tensor 'b' has shape (3, 9223372036854775813)",
        lambda: with_b(dims=((1 << 63) + 5, 3)),
    ),
    "dimensions of huge and zero": ("tensor 'b' has shape (4611686018427387904, 0)", lambda: with_b(dims=(0, 1 << 62))),
    "dimension larger than the data": ("tensor 'b' ends at byte 292 of a file of 286", lambda: with_b(dims=(3, 6))),
    "tensor type 4, long gone": ("tensor 'b' has type 4", lambda: with_b(kind=4)),
    "tensor type 2**32 - 1": ("tensor 'b' has type 4294967295", lambda: with_b(kind=(1 << 32) - 1)),
    "block type with part of a block": ("tensor 'b' is q4_0 with 31 columns", lambda: with_b(kind=2, dims=(31, 1))),
    "ternary type with part of a block": ("tensor 'b' is tq2_0 with 128 columns", lambda: with_b(kind=35, dims=(128, 2))),
    "offset not aligned": ("the data of tensor 'b' begins at byte 33 of", lambda: with_b(offset=33)),
    "offset leaves a hole": (
        "the data of tensor 'b' begins at byte 64 of",
        lambda: gguf_bytes(tensors=(GOOD_TENSORS[0], tensor(b"b", (3, 5), F16, 64)), data=94),
    ),
    "offset past the end": ("the data of tensor 'b' begins at byte", lambda: with_b(offset=1 << 40)),
    "offset of 2**64 - 32": ("the data of tensor 'b' begins at byte", lambda: with_b(offset=(1 << 64) - 32)),
    "tensors overlap": ("the data of tensor 'b' begins at byte 0 of", lambda: with_b(offset=0)),
    "first tensor not at 0": (
        "the data of tensor 'a' begins at byte 32 of",
        lambda: gguf_bytes(tensors=(tensor(b"a", offset=32), tensor(b"b", (3, 5), F16, 64)), data=94),
    ),
    "tensors in another order than their data": (
        "the data of tensor 'b' begins at byte 32 of",
        lambda: gguf_bytes(tensors=GOOD_TENSORS[::-1]),
    ),
    "name with ANSI and right-to-left marks": (
        "tensor '\\x1b[2J\\u202e<b>' has type 77",
        lambda: with_b(name="\x1b[2J\u202e<b>".encode(), kind=77),
    ),
    "name of 60,000 characters": ("tensor", lambda: with_b(name=b"n" * 60_000, kind=77)),
}


# ---- paths -------------------------------------------------------------------------------------------------------------------


def shards(folder: Path, *names: str) -> Path:
    """Good files in a folder, each with a tensor of its own name."""
    for name in names:
        (folder / name).write_bytes(save({name: np.zeros((2, 2), np.float32)}))
    return folder


def made(path: Path, make: Callable[[Path], object]) -> Path:
    make(path)
    return path


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


BAD_PATHS: dict[str, tuple[str, Callable[[Path], str | Path]]] = {
    "missing file": ("No such file or directory", lambda folder: folder / "m.safetensors"),
    "missing folder": ("No such file or directory", lambda folder: folder / "none"),
    "empty folder": ("a folder without .safetensors files", lambda folder: folder),
    "folder with pickles only": (
        "a folder without .safetensors files",
        lambda folder: made(folder / "pytorch_model.bin", lambda path: path.write_bytes(zipped())).parent,
    ),
    "folder with a GGUF file only": (
        "a folder without .safetensors files",
        lambda folder: made(folder / "m.gguf", lambda path: path.write_bytes(GOOD_GGUF)).parent,
    ),
    "folder in place of a shard": ("a folder", lambda folder: made(folder / "m.safetensors", Path.mkdir).parent),
    "first shard missing": (
        "no shard 'm-00001-of-00003.safetensors'",
        lambda folder: shards(folder, "m-00002-of-00003.safetensors", "m-00003-of-00003.safetensors"),
    ),
    "middle shard missing": (
        "no shard 'm-00002-of-00003.safetensors'",
        lambda folder: shards(folder, "m-00001-of-00003.safetensors", "m-00003-of-00003.safetensors"),
    ),
    "last shard missing": (
        "no shard 'm-00003-of-00003.safetensors'",
        lambda folder: shards(folder, "m-00001-of-00003.safetensors", "m-00002-of-00003.safetensors"),
    ),
    "a name in two shards": (
        "tensor 'a.safetensors', which a.safetensors",
        lambda folder: (
            made(
                shards(folder, "a.safetensors") / "b.safetensors", lambda path: path.write_bytes((folder / "a.safetensors").read_bytes())
            ).parent
        ),
    ),
    "truncated shard": (
        "1 bytes",
        lambda folder: made(shards(folder, "a.safetensors") / "b.safetensors", lambda path: path.write_bytes(b"1")).parent,
    ),
    "fifo": ("a fifo", lambda folder: made(folder / "m.safetensors", os.mkfifo)),
    "fifo in a folder": ("a fifo", lambda folder: made(folder / "m.safetensors", os.mkfifo).parent),
    "fifo named .gguf": ("a fifo", lambda folder: made(folder / "m.gguf", os.mkfifo)),
    "socket": ("a socket", lambda folder: made(folder / "m.safetensors", bound_socket)),
    "link to an endless device": ("a device", lambda folder: made(folder / "m.safetensors", lambda path: path.symlink_to("/dev/zero"))),
    "link to itself": (
        "Too many levels of symbolic links",
        lambda folder: made(folder / "m.safetensors", lambda path: path.symlink_to(path)),
    ),
    "link to nothing": ("No such file or directory", lambda folder: made(folder / "m.gguf", lambda path: path.symlink_to("nowhere"))),
    "another kind of file": (
        "a file named 'pytorch_model.bin'",
        lambda folder: made(folder / "pytorch_model.bin", lambda path: path.write_bytes(zipped())),
    ),
    "NUL in the path": ("a NUL in the path", lambda _: "m\0.safetensors"),
    "ANSI in the path": ("0 bytes", lambda folder: made(folder / "\x1b[2J\u202e.safetensors", lambda path: path.write_bytes(b""))),
    "path too long": ("File name too long", lambda _: "x" * 5000 + ".safetensors"),
    "empty path": ("No such file or directory", lambda _: ""),
}


# ---- the checks --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def alarm() -> Iterator[None]:
    """A call that takes longer than SECONDS is interrupted by a TimeoutError; a hang must not hang the tests."""

    def ring(signal_number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not refused within {SECONDS} s")

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def refused(path: str | Path, found: str) -> None:
    """`path` gives a WeightFileError of one printable line about `found`, quickly and without a large allocation."""
    tracemalloc.start()
    try:
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        with pytest.raises(WeightFileError) as caught:
            open_weights(path)
        signal.setitimer(signal.ITIMER_REAL, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < PEAK_BYTES
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < LONGEST_MESSAGE + len(str(path))
    assert caught.value.found.startswith(found)
    assert caught.value.legal


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("name", BAD_SAFETENSORS)
def test_bad_safetensors_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "m.safetensors"
    found, bad = BAD_SAFETENSORS[name]
    path.write_bytes(bad())
    refused(path, found)


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("name", BAD_GGUF)
def test_bad_gguf_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "m.gguf"
    found, bad = BAD_GGUF[name]
    path.write_bytes(bad())
    refused(path, found)


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("name", BAD_PATHS)
def test_bad_path_is_refused(tmp_path: Path, name: str) -> None:
    found, bad = BAD_PATHS[name]
    refused(bad(tmp_path), found)


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize(
    ("head", "found"),
    [
        (gguf_bytes(tensors=(), tensor_count=1 << 16, data=0), "two tensors named ''"),
        (gguf_bytes(pairs=(), tensors=(), pair_count=1 << 16, data=0), "the key '' twice"),
        (gguf_bytes(pairs=(pair(b"k", ARRAY, array(STRING, 1 << 30)),), data=0), "the value of 'k', 1073741824 strings"),
        (gguf_bytes(pairs=(pair(b"k", ARRAY, array(UINT32, 1 << 37)),), data=0), "the value of 'k', 549755813888 bytes"),
        (gguf_bytes(pairs=(pair(b"k", STRING, text(b"", 1 << 39)),), data=0), "the value of 'k', 549755813888 bytes"),
    ],
    ids=["tensors", "pairs", "strings", "integers", "string"],
)
def test_counts_that_a_huge_sparse_file_seems_to_cover_are_refused(tmp_path: Path, head: bytes, found: str) -> None:
    path = tmp_path / "m.gguf"
    with path.open("wb") as file:
        file.write(head)
        file.truncate(1 << 40)
    refused(path, found)


@pytest.mark.usefixtures("alarm")
def test_a_fifo_put_in_place_of_a_file_just_checked_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo = made(tmp_path / "m.gguf", os.mkfifo)
    regular = made(tmp_path / "regular", Path.touch)
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **options: real(regular if str(path) == str(fifo) else path, **options))
    refused(fifo, "a fifo")


def test_the_good_files_that_the_bad_ones_are_made_of_are_read(tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_bytes(GOOD_SAFETENSORS)
    (tmp_path / "m.gguf").write_bytes(GOOD_GGUF)
    for file, shapes in (("m.safetensors", [(2, 3), (4, 2)]), ("m.gguf", [(2, 4), (5, 3)])):
        with open_weights(tmp_path / file) as source:
            assert [tensor.shape for tensor in source.matrices()] == shapes
            assert [source.read(tensor.name).shape for tensor in source.matrices()] == shapes
    assert [tuple(tensor.shape) for tensor in gguf.GGUFReader(tmp_path / "m.gguf").tensors] == [(4, 2), (3, 5)]


# ---- mutations ---------------------------------------------------------------------------------------------------------------


def written_gguf(path: Path) -> bytes:
    writer = gguf.GGUFWriter(path, "test")
    writer.add_custom_alignment(64)
    writer.add_array("tokens", ["a", "bc"])
    writer.add_array("scores", [1.0, -2.0])
    random = np.random.default_rng(3)
    writer.add_tensor("f32", random.standard_normal((3, 5)).astype(np.float32))
    writer.add_tensor("f16", random.standard_normal((4, 6)).astype(np.float16))
    for kind in (GGMLQuantizationType.Q8_0, GGMLQuantizationType.TQ1_0, GGMLQuantizationType.TQ2_0):
        blocks = gguf.quants.quantize(random.standard_normal((2, 256)).astype(np.float32), kind)
        writer.add_tensor(kind.name, blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def written_safetensors() -> bytes:
    random = np.random.default_rng(3)
    return save(
        {
            "f64": random.standard_normal((3, 2)),
            "f32": random.standard_normal((3, 5)).astype(np.float32),
            "f16": random.standard_normal((4, 6)).astype(np.float16),
            "ids": np.arange(4),
        },
        metadata={"format": "np"},
    )


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("good")
    return {".safetensors": written_safetensors(), ".gguf": written_gguf(folder / "m.gguf")}


def read_all(path: Path) -> dict[str, tuple[tuple[int, ...], np.ndarray[Any, Any] | None]] | None:
    """Shapes and values of a file that is accepted, None of one that is refused."""
    try:
        with open_weights(path) as source:
            for each in source.matrices():
                rows = source.read(each.name, slice(0, 1))
                np.testing.assert_array_equal(rows, source.read(each.name)[:1])
            return {each.name: (each.shape, source.read(each.name) if each.readable else None) for each in source.tensors}
    except WeightFileError:
        return None


MUTATIONS = st.lists(
    st.tuples(
        # Most of the places in the header, where structure is.
        st.one_of(st.integers(0, 400), st.integers(0, 4000)),
        st.one_of(st.binary(min_size=1, max_size=1), st.sampled_from([b"\0" * 8, b"\xff" * 8, b'"', b"{", b"[", b"9", b"0", b","])),
        st.sampled_from(["replace", "insert", "delete"]),
    ),
    max_size=4,
)


def mutated(content: bytes, mutations: list[tuple[int, bytes, str]], keep: float) -> bytes:
    result = bytearray(content)
    for place, new, how in mutations:
        at = place % (len(result) + 1)
        result[at : at + (0 if how == "insert" else len(new))] = b"" if how == "delete" else new
    return bytes(result[: max(round(len(result) * keep), 0)])


KEEP = st.one_of(st.just(1.0), st.just(1.0), st.just(1.0), st.floats(0, 1))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutations=MUTATIONS, keep=KEEP)
def test_a_mutated_safetensors_is_refused_or_read_as_the_library_reads_it(
    tmp_path: Path, good: dict[str, bytes], mutations: list[tuple[int, bytes, str]], keep: float
) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(mutated(good[".safetensors"], mutations, keep))
    ours = read_all(path)
    if ours is None:
        return
    try:
        with safe_open(path, "numpy") as library:
            assert set(library.keys()) == set(ours)
            for name, (shape, values) in ours.items():
                stored = library.get_slice(name)
                assert tuple(stored.get_shape()) == shape
                if values is not None and stored.get_dtype() != "BF16":
                    with np.errstate(all="ignore"):
                        np.testing.assert_array_equal(values, library.get_tensor(name).astype(np.float32))
    except SafetensorError as error:
        pytest.fail(f"accepted here, refused by the library: {error}")


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutations=MUTATIONS, keep=KEEP)
def test_a_mutated_gguf_is_refused_or_read_as_the_library_reads_it(
    tmp_path: Path, good: dict[str, bytes], mutations: list[tuple[int, bytes, str]], keep: float
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(mutated(good[".gguf"], mutations, keep))
    ours = read_all(path)
    if ours is None:
        return
    library = {each.name: each for each in gguf.GGUFReader(path).tensors}
    assert set(library) == set(ours)
    for name, (shape, values) in ours.items():
        assert tuple(int(size) for size in library[name].shape)[::-1] == shape
        if values is not None and library[name].tensor_type in (F32, F16):
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(values, library[name].data.astype(np.float32))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300), suffix=st.sampled_from([".safetensors", ".gguf"]))
def test_random_bytes_never_raise_anything_else(tmp_path: Path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"m{suffix}"
    path.write_bytes((b"GGUF\x03\0\0\0" if suffix == ".gguf" else b"") + content)
    read_all(path)


def test_every_truncation_of_a_good_file_is_refused(tmp_path: Path, good: dict[str, bytes]) -> None:
    for suffix, content in good.items():
        path = tmp_path / f"m{suffix}"
        # The library pads the last tensor of a GGUF file, and padding may be missing.
        end = len(content.rstrip(b"\0"))
        path.write_bytes(content[:end])
        for size in range(end - 1, -1, -7):
            os.truncate(path, size)
            with pytest.raises(WeightFileError):
                open_weights(path)
