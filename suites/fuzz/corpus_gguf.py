"""Bad .gguf files, each a small change to a good one; named as in corpus_safetensors.py."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import corpus_safetensors

Bad = Callable[[], bytes]
UINT32, STRING, ARRAY = 4, 8, 9
F32, F16 = 0, 1


def text(value: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(value) if length is None else length) + value


def pair(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def array(kind: int, count: int, values: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + values


def tensor(
    name: bytes = b"a", dims: tuple[int, ...] = (4, 2), kind: int = F32, offset: int = 0, count: int | None = None
) -> bytes:
    ndim = len(dims) if count is None else count
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", ndim, *dims, kind, offset)


GOOD_PAIRS = (
    pair(b"general.architecture", STRING, text(b"test")),
    pair(b"tokens", ARRAY, array(STRING, 2, text(b"x") + text(b""))),
)
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
    """A GGUF file written by hand, since the library's writer refuses invalid files; `data` is the number of bytes
    after the padded header."""
    counts = len(tensors) if tensor_count is None else tensor_count, len(pairs) if pair_count is None else pair_count
    head = magic + struct.pack("<IQQ", version, *counts) + b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % 32 + data)


def with_pair(key: bytes, kind: int, value: bytes) -> bytes:
    return gguf_bytes(pairs=(*GOOD_PAIRS, pair(key, kind, value)))


def with_b(**change: Any) -> bytes:
    """The second tensor changed."""
    members: dict[str, Any] = {"name": b"b", "dims": (3, 5), "kind": F16, "offset": 32} | change
    return gguf_bytes(tensors=(GOOD_TENSORS[0], tensor(**members)))


GOOD = gguf_bytes()

BAD: dict[str, tuple[str, Bad]] = {
    "empty file": ("the magic number, 4 bytes or more, at byte 0", lambda: b""),
    "magic only": ("the version, 4 bytes or more, at byte 4 of 4", lambda: GOOD[:4]),
    "cut in the counts": ("the number of key-value pairs, 8 bytes or", lambda: GOOD[:20]),
    "cut in the pairs": ("2 tensors, 48 bytes or more, at byte 24 of 50", lambda: GOOD[:50]),
    "cut in the tensors": (
        "tensor 'a', 8 bytes or more, at byte 128 of",
        lambda: GOOD[: GOOD.index(tensor(b"a")) + 20],
    ),
    "cut in the data": ("tensor 'b' ends at byte 286 of a file of 285", lambda: GOOD[:-1]),
    "no data": ("tensor 'a' ends at byte 256 of a file of 224", lambda: gguf_bytes(data=0)),
    "magic of ggml": ("a file that begins with b'ggml'", lambda: gguf_bytes(magic=b"ggml")),
    "magic reversed": ("a file that begins with b'FUGG'", lambda: gguf_bytes(magic=b"FUGG")),
    "safetensors by another name": ("a file that begins with b'\\xa6\\x00\\x00\\x00'", lambda: corpus_safetensors.GOOD),
    "version 0": ("GGUF version 0", lambda: gguf_bytes(version=0)),
    "version 1": ("GGUF version 1", lambda: gguf_bytes(version=1)),
    "version 4": ("GGUF version 4", lambda: gguf_bytes(version=4)),
    "big-endian": ("GGUF version 50331648 (a big-endian file)", lambda: gguf_bytes(version=3 << 24)),
    "tensor count one too many": ("the data of tensor '' begins at byte 0 of the", lambda: gguf_bytes(tensor_count=3)),
    "tensor count of 65,536": (
        "65536 tensors, 1572864 bytes or more, at byte",
        lambda: gguf_bytes(tensor_count=1 << 16),
    ),
    "tensor count of 2**63": ("9223372036854775808 tensors", lambda: gguf_bytes(tensor_count=1 << 63)),
    "tensor count of 2**64 - 1": ("18446744073709551615 tensors", lambda: gguf_bytes(tensor_count=(1 << 64) - 1)),
    "70,000 tensors": (
        "70000 tensors",
        lambda: gguf_bytes(tensors=tuple(tensor(b"%d" % index, dims=(0,)) for index in range(70_000))),
    ),
    "pair count one too many": ("a tensor's name of 562949953421312 bytes", lambda: gguf_bytes(pair_count=3)),
    "pair count one too few": ("tensor 'tokens' has 9 dimensions", lambda: gguf_bytes(pair_count=1)),
    "pair count of 2**63": ("9223372036854775808 key-value pairs", lambda: gguf_bytes(pair_count=1 << 63)),
    "key of 70,000 bytes": ("a key of 70000 bytes", lambda: with_pair(b"k" * 70_000, UINT32, bytes(4))),
    "key longer than the file": (
        "a key, 60000 bytes or more, at byte 32 of 190",
        lambda: gguf_bytes(pairs=(text(b"key", 60_000) + struct.pack("<I", UINT32),)),
    ),
    "key of 2**64 - 1 bytes": (
        "a key of 18446744073709551615 bytes",
        lambda: gguf_bytes(pairs=(text(b"key", (1 << 64) - 1),)),
    ),
    "key not UTF-8": ("a key is b'\\xff\\xfe', not UTF-8", lambda: with_pair(b"\xff\xfe", UINT32, bytes(4))),
    "key twice": ("the key 'general.architecture' twice", lambda: gguf_bytes(pairs=(GOOD_PAIRS[0], GOOD_PAIRS[0]))),
    "value type 13": ("the value of 'k' has type 13", lambda: with_pair(b"k", 13, bytes(8))),
    "value type 2**32 - 1": ("the value of 'k' has type 4294967295", lambda: with_pair(b"k", (1 << 32) - 1, bytes(8))),
    "string longer than the file": (
        "the value of 'k', 100000 bytes or more, at",
        lambda: with_pair(b"k", STRING, text(b"x", 100_000)),
    ),
    "string of 2**63 bytes": (
        "the value of 'k', 9223372036854775808 bytes",
        lambda: with_pair(b"k", STRING, text(b"x", 1 << 63)),
    ),
    "array in an array": (
        "the value of 'k' has type 9",
        lambda: with_pair(b"k", ARRAY, array(ARRAY, 1, array(UINT32, 1, bytes(4)))),
    ),
    "array in an array, 10,000 deep": (
        "the value of 'k' has type 9",
        lambda: with_pair(b"k", ARRAY, array(ARRAY, 1) * 10_000),
    ),
    "array of unknown type": ("the value of 'k' has type 77", lambda: with_pair(b"k", ARRAY, array(77, 1, bytes(4)))),
    "array longer than the file": (
        "the value of 'k', 400000 bytes or more, at",
        lambda: with_pair(b"k", ARRAY, array(UINT32, 100_000)),
    ),
    "array of 2**62 integers": (
        "the value of 'k', 18446744073709551616 bytes",
        lambda: with_pair(b"k", ARRAY, array(UINT32, 1 << 62)),
    ),
    "array of 2**64 - 1 strings": (
        "the value of 'k', 18446744073709551615",
        lambda: with_pair(b"k", ARRAY, array(STRING, (1 << 64) - 1)),
    ),
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
        lambda: gguf_bytes(
            pairs=(pair(b"general.alignment", UINT32, struct.pack("<I", 24)),), tensors=GOOD_TENSORS[:1], data=100
        ),
    ),
    "alignment 2**31": (
        "the data of tensor 'b' begins at byte 32 of",
        lambda: with_pair(b"general.alignment", UINT32, struct.pack("<I", 1 << 31)),
    ),
    "alignment of 8 bytes": (
        "general.alignment of value type 10",
        lambda: with_pair(b"general.alignment", 10, struct.pack("<Q", 32)),
    ),
    "alignment a string": (
        "general.alignment of value type 8",
        lambda: with_pair(b"general.alignment", STRING, text(b"32")),
    ),
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
    "unknown type past the end": (
        "the data of tensor 'b' begins at byte 33 of",
        lambda: gguf_bytes(tensors=(tensor(b"a", kind=77), tensor(b"b", (3, 5), F16, 33))),
    ),
    "unknown type over another": (
        "tensor 'a' of type 77 in 0 bytes",
        lambda: gguf_bytes(tensors=(tensor(b"a", kind=77), tensor(b"b", (3, 5), F16, 0))),
    ),
    "unknown type of no bytes": (
        "tensor 'b' of type 77 in 0 bytes",
        lambda: gguf_bytes(tensors=(GOOD_TENSORS[0], tensor(b"b", (3, 5), 77, 32)), data=32),
    ),
    "tensor after an unknown type, cut": (
        "tensor 'b' ends at byte 286 of a file of 285",
        lambda: gguf_bytes(tensors=(tensor(b"a", kind=77), GOOD_TENSORS[1]), data=61),
    ),
    "type 42 whose extents fit nothing": (
        "tensor 'a' of type 42, 320 bytes for 1024 weights",
        lambda: gguf_bytes(tensors=(tensor(b"a", (256, 4), 42), tensor(b"b", (3, 5), F16, 320)), data=350),
    ),
    "type 42 of two layouts": (
        "tensor 'a' of type 42, 320 bytes for 1024 weights",
        lambda: gguf_bytes(tensors=(tensor(b"a", (256, 4), 42), tensor(b"b", (256, 4), 42, 320)), data=320 + 288),
    ),
    "block type with part of a block": ("tensor 'b' is q4_0 with 31 columns", lambda: with_b(kind=2, dims=(31, 1))),
    "ternary type with part of a block": (
        "tensor 'b' is tq2_0 with 128 columns",
        lambda: with_b(kind=35, dims=(128, 2)),
    ),
    "q2_0 with part of a block": (
        "tensor 'b' of type 42, 30 bytes for 32 weights",
        lambda: with_b(kind=42, dims=(32, 1)),
    ),
    "iq1_bn cut in a row's scale": (
        "tensor 'b' ends at byte 286 of a file of 285",
        lambda: gguf_bytes(tensors=(GOOD_TENSORS[0], tensor(b"b", (64, 2), 134, 32)), data=61),
    ),
    "i2_s cut in the trailer": (
        "tensor 'b' ends at byte 304 of a file of 303",
        lambda: gguf_bytes(tensors=(GOOD_TENSORS[0], tensor(b"b", (64, 1), 36, 32)), data=79),
    ),
    "iq2_bn, its rows past the file": (
        "tensor 'b' ends at byte 87960930222336 of a file of",
        lambda: gguf_bytes(tensors=(GOOD_TENSORS[0], tensor(b"b", (64, 1 << 42), 135, 32))),
    ),
    "layout a number": ("tritmark.layout of value type 4", lambda: with_pair(b"tritmark.layout", UINT32, bytes(4))),
    "split.no a string": ("split.no of value type 8", lambda: with_pair(b"split.no", STRING, text(b"0"))),
    "one part of 65,535": (
        "part 1 of 65535 according to its header",
        lambda: with_pair(b"split.count", 2, struct.pack("<H", 65535)),
    ),
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
        "tensor '\\x1b[2J\\u202e<b>' is tq2_0 with 3 columns",
        lambda: with_b(name="\x1b[2J\u202e<b>".encode(), kind=35),
    ),
    "name of 60,000 characters": ("tensor", lambda: with_b(name=b"n" * 60_000, kind=35)),
}


SPARSE: dict[str, tuple[str, Bad]] = {
    "65,536 tensors": ("two tensors named ''", lambda: gguf_bytes(tensors=(), tensor_count=1 << 16, data=0)),
    "65,536 pairs": ("the key '' twice", lambda: gguf_bytes(pairs=(), tensors=(), pair_count=1 << 16, data=0)),
    "2**30 strings": (
        "the value of 'k', 1073741824 strings",
        lambda: gguf_bytes(pairs=(pair(b"k", ARRAY, array(STRING, 1 << 30)),), data=0),
    ),
    "2**37 integers": (
        "the value of 'k', 549755813888 bytes",
        lambda: gguf_bytes(pairs=(pair(b"k", ARRAY, array(UINT32, 1 << 37)),), data=0),
    ),
    "a string of 2**39 bytes": (
        "the value of 'k', 549755813888 bytes",
        lambda: gguf_bytes(pairs=(pair(b"k", STRING, text(b"", 1 << 39)),), data=0),
    ),
}
"""Beginnings of files of 2**40 bytes, followed by zeros: so large that their counts would fit."""


def blocks(kind: int, columns: int, data: bytes) -> bytes:
    """One tensor of one row in a block type."""
    return gguf_bytes(tensors=(tensor(b"a", (columns, 1), kind),), data=0) + data


def tq2_0(scale: int, codes: int = 0b01010101) -> bytes:
    return blocks(35, 256, bytes([codes] * 64) + struct.pack("<H", scale))


def q8_0(scale: int) -> bytes:
    return blocks(8, 32, struct.pack("<H", scale) + bytes(range(112, 144)))


ODD: dict[str, Bad] = {
    "good": lambda: GOOD,
    "version 2": lambda: gguf_bytes(version=2),
    "tensor type 4, long gone": lambda: with_b(kind=4),
    "tensor type 2**32 - 1": lambda: with_b(kind=(1 << 32) - 1),
    "unknown type first": lambda: gguf_bytes(tensors=(tensor(b"a", kind=77), GOOD_TENSORS[1])),
    "pq2_0": lambda: blocks(142, 128, bytes(34)),
    "ptq1_0": lambda: blocks(143, 128, bytes(28)),
    "stq1_0": lambda: blocks(43, 256, bytes(42)),
    "stq1_0 as type 42": lambda: blocks(42, 256, bytes(42)),
    "type 42 that may be two layouts": lambda: blocks(42, 128, bytes(64)),
    "no tensors": lambda: gguf_bytes(tensors=(), data=0),
    "no pairs": lambda: gguf_bytes(pairs=()),
    "a tensor of no rows": lambda: gguf_bytes(tensors=(tensor(b"a", (4, 0)),), data=0),
    "a scalar": lambda: gguf_bytes(tensors=(tensor(b"a", ()),), data=4),
    "an empty name": lambda: gguf_bytes(tensors=(tensor(b""),), data=32),
    "alignment 1": lambda: gguf_bytes(
        pairs=(pair(b"general.alignment", UINT32, struct.pack("<I", 1)),), tensors=GOOD_TENSORS[:1], data=64
    ),
    "tq2_0": lambda: tq2_0(0x3C00),
    "tq2_0 with the reserved field 3": lambda: tq2_0(0x3C00, 0xFF),
    "tq2_0 with a NaN scale": lambda: tq2_0(0x7E00),
    "tq2_0 with an infinite scale": lambda: tq2_0(0x7C00),
    "tq2_0 with a negative scale": lambda: tq2_0(0xBC00),
    "tq2_0 with a subnormal scale": lambda: tq2_0(0x0001),
    "tq1_0 with bytes that no five codes give": lambda: blocks(34, 256, bytes([0xFF] * 52) + struct.pack("<H", 0x3C00)),
    "tq1_0 with a NaN scale": lambda: blocks(34, 256, bytes(52) + struct.pack("<H", 0x7E00)),
    "q8_0 with a NaN scale": lambda: q8_0(0x7E00),
    "q8_0 with an infinite scale": lambda: q8_0(0xFC00),
    "i2_s, which the library does not know": lambda: blocks(36, 128, bytes(64)),
    "q2_0, which the library does not know": lambda: blocks(42, 64, bytes(18)),
    "iq1_bn, which the library does not know": lambda: blocks(134, 64, bytes(15)),
    "iq2_bn, which the library does not know": lambda: blocks(135, 64, bytes(20)),
}
"""Unusual but legal files, which must be read like the gguf library reads them."""
