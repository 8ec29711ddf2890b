"""Read the header of a .gguf file and check it in full.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian. GGUFReader of the
gguf package maps the file and trusts every count in it, so this module parses the header itself, with limits.
gguf_types.py has the table of types; decode.py reads block types with the gguf package.

Like ggml, this module refuses tensors that are not contiguous in header order. A tensor of a type with unknown size
extends to the next tensor, the last one to the end of the file.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import NamedTuple

from tritmark.harness.weights import type_42
from tritmark.harness.weights.gguf_types import TL2, GgufType, gguf_types, unread_type
from tritmark.harness.weights.names import inert
from tritmark.harness.weights.plain_file import PlainFile
from tritmark.harness.weights.tensor import FileHeader, KeyValue, TensorInfo

MAX_HEADER = 64 << 20
"""bytes; the largest tokenizers (262,144 tokens and their merges) need about 16 MB."""
MAX_ENTRIES = 1 << 16
"""Limit for tensors and for key-value pairs."""
MAX_DIMS = 4
MAX_TEXT = 1 << 16
"""Bytes of a key or a name. The format allows 65535 for keys and 64 for names; ggml can be built for longer names."""
MAX_ELEMENTS = 1 << 48

ALIGNMENT_KEY = "general.alignment"
DEFAULT_ALIGNMENT = 32
FILE_TYPE_KEY = "general.file_type"
LAYOUT_KEY = "tritmark.layout"
"""The layout of tensors whose type has several; `tritmark convert` writes it if it is not the usual one."""
SPLIT_KEYS = ("split.no", "split.count", "split.tensors.count")
"""Number of this part from 0; number of parts; tensors in all parts."""
UINT32, STRING = 4, 8
_UINT16, _INT32, _ARRAY = 2, 5, 9
_VALUE_TYPES = {_UINT16: "uint16", UINT32: "uint32", _INT32: "int32", STRING: "a string"}
FACTS = {
    "split.no": _UINT16,
    "split.count": _UINT16,
    "split.tensors.count": _INT32,
    LAYOUT_KEY: STRING,
    ALIGNMENT_KEY: UINT32,
}
"""Keys whose values are read, with the required value type."""
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, UINT32: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Value type -> bytes, for types of fixed size."""
_LENGTH = struct.Struct("<Q")
_LEAST_PAIR_BYTES = 8 + 4 + 1
_LEAST_TENSOR_BYTES = 8 + 4 + 4 + 8


class _TensorEntry(NamedTuple):
    """The header's entry of a tensor."""

    name: str
    shape: tuple[int, ...]
    code: int
    offset: int
    """From the start of the data."""


class _Cursor:
    """Reads the header sequentially through a small window, never past the file or MAX_HEADER."""

    _WINDOW = 1 << 16

    def __init__(self, file: PlainFile) -> None:
        self.file = file
        self.at = 0
        self._end = min(file.size, MAX_HEADER)
        self._window = b""
        self._window_at = 0

    def need(self, count: int, what: str) -> None:
        """Raise WeightFileError if fewer than `count` bytes are left."""
        if count > self._end - self.at:
            raise self.file.error(
                f"{what}, {count} bytes or more, at byte {self.at} of {self.file.size}",
                f"a header inside the file, of at most {MAX_HEADER} bytes",
            )

    def skip(self, count: int, what: str) -> None:
        """Step over `count` bytes."""
        self.need(count, what)
        self.at += count

    def take(self, count: int, what: str) -> bytes:
        """The next `count` bytes, for a small `count`."""
        begin = self.at - self._window_at
        if begin > len(self._window) - count:
            self.need(count, what)
            self._window = self.file.read(self.at, min(max(count, self._WINDOW), self._end - self.at))
            self._window_at, begin = self.at, 0
        self.at += count
        return self._window[begin : begin + count]

    def skip_texts(self, count: int, what: str) -> None:
        """Step over `count` texts. Optimized, because a tokenizer has a million of them."""
        self.need(_LENGTH.size * count, f"{what}, {count} strings")
        window, begin, at = b"", 0, self.at
        for _ in range(count):
            if at + _LENGTH.size > begin + len(window):
                self.at = at
                self.need(_LENGTH.size, what)
                window, begin = self.file.read(at, min(self._WINDOW, self._end - at)), at
            at += _LENGTH.size + _LENGTH.unpack_from(window, at - begin)[0]
        self.skip(at - self.at, what)

    def u32(self, what: str) -> int:
        """The next 4 bytes as an unsigned integer."""
        return int.from_bytes(self.take(4, what), "little")

    def u64(self, what: str) -> int:
        """The next 8 bytes as an unsigned integer."""
        return int.from_bytes(self.take(8, what), "little")

    def text(self, what: str) -> str:
        """A text: its length in 8 bytes, then UTF-8."""
        length = self.u64(f"the length of {what}")
        if length > MAX_TEXT:
            raise self.file.error(f"{what} of {length} bytes", f"at most {MAX_TEXT}")
        raw = self.take(length, what)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.file.error(f"{what} is {inert(raw)}, not UTF-8", "UTF-8") from error


def read_header(file: PlainFile) -> FileHeader:
    """The header of a .gguf file: tensors in file order, shapes in NumPy order. For a split model, that of one part.

    Raises WeightFileError for a header that violates the format or extends past the file. Also for tensors with the
    same name, and for tensors that are misaligned, overlap, leave holes, or extend past the end of the file.
    """
    cursor = _Cursor(file)
    tensor_count, pair_count = _counts(cursor)
    pairs, facts = _pairs(cursor, pair_count)
    alignment = _alignment(file, facts)
    names: set[str] = set()
    entries = []
    for _ in range(tensor_count):
        entry = _entry(cursor)
        if entry.name in names:
            raise file.error(f"two tensors named {inert(entry.name)}", "names used once")
        names.add(entry.name)
        entries.append(entry)
    data = round_up(cursor.at, alignment)
    return FileHeader(_placed(file, entries, data, alignment, facts), pairs, facts)


def _placed(
    file: PlainFile, entries: Sequence[_TensorEntry], data: int, alignment: int, facts: dict[str, str | int]
) -> tuple[TensorInfo, ...]:
    """The tensors with their ranges in the file, whose data begins at byte `data`."""
    types: dict[int, GgufType | None] = dict(gguf_types())
    if not entries:
        return ()
    following = [*(entry.offset for entry in entries), max(file.size - data, 0)][1:]
    extents = [
        type_42.Extent(entry.name, entry.shape, data + entry.offset, data + end, entry is entries[-1])
        for entry, end in zip(entries, following, strict=True)
        if entry.code == type_42.NUMBER
    ]
    if extents:
        types[type_42.NUMBER] = type_42.layout_of(file, extents, alignment, facts.get(LAYOUT_KEY))
    if not _are(types.get(TL2), entries, following, TL2):
        types[TL2] = None  # of bitnet.cpp: its size is that of the extent
    placed = []
    least: int | None = 0
    for entry, end in zip(entries, following, strict=True):
        what = f"tensor {inert(entry.name)}"
        if entry.offset != least and (least is not None or entry.offset % alignment):
            after = least if least is not None else f"a multiple of {alignment}"
            raise file.error(
                f"the data of {what} begins at byte {entry.offset} of the data",
                f"{after}, the next multiple of {alignment} after the tensor before it",
            )
        kind = types.get(entry.code)
        if kind is None:
            dtype, nbytes, least = unread_type(entry.code), end - entry.offset, None
            if nbytes < (math.prod(entry.shape) > 0):
                raise file.error(f"{what} of type {entry.code} in {nbytes} bytes", "tensors that do not overlap")
        else:
            columns = entry.shape[-1] if entry.shape else 1
            if columns % kind.block_elements:
                raise file.error(
                    f"{what} is {kind.dtype} with {columns} columns", f"a multiple of {kind.block_elements}"
                )
            dtype, nbytes = kind.dtype, kind.nbytes(entry.shape)
            least = round_up(entry.offset + nbytes, alignment)
        placed.append(TensorInfo(entry.name, entry.shape, dtype, nbytes, file.path, data + entry.offset))
    for each in placed:
        end = each.offset + each.nbytes
        if end > file.size:
            found = f"tensor {inert(each.name)} ends at byte {end} of a file of {file.size}"
            raise file.error(found, "tensors inside the file")
    return tuple(placed)


def _are(kind: GgufType | None, entries: Sequence[_TensorEntry], ends: Sequence[int], code: int) -> bool:
    """Whether every tensor of the type number fits into its extent as `kind`."""
    return kind is not None and all(
        (entry.shape[-1] if entry.shape else 1) % kind.block_elements == 0
        and entry.offset + kind.nbytes(entry.shape) <= end
        for entry, end in zip(entries, ends, strict=True)
        if entry.code == code
    )


def _counts(cursor: _Cursor) -> tuple[int, int]:
    file = cursor.file
    magic = cursor.take(4, "the magic number")
    if magic != b"GGUF":
        raise file.error(f"a file that begins with {inert(magic)}", "b'GGUF'")
    version = cursor.u32("the version")
    if version not in (2, 3):
        big_endian = " (a big-endian file)" if version & 0xFFFF == 0 and version else ""
        raise file.error(f"GGUF version {version}{big_endian}", "2 or 3, little-endian")
    tensor_count = cursor.u64("the number of tensors")
    pair_count = cursor.u64("the number of key-value pairs")
    for count, least, what in (
        (tensor_count, _LEAST_TENSOR_BYTES, "tensors"),
        (pair_count, _LEAST_PAIR_BYTES, "key-value pairs"),
    ):
        if count > MAX_ENTRIES:
            raise file.error(f"{count} {what}", f"at most {MAX_ENTRIES}")
        cursor.need(count * least, f"{count} {what}")
    return tensor_count, pair_count


def _pairs(cursor: _Cursor, pair_count: int) -> tuple[tuple[KeyValue, ...], dict[str, str | int]]:
    """Walk the key-value pairs: the offset of each, and the values of FACTS."""
    pairs: list[KeyValue] = []
    facts: dict[str, str | int] = {}
    keys: set[str] = set()
    for _ in range(pair_count):
        begin = cursor.at
        key = cursor.text("a key")
        if key in keys:
            raise cursor.file.error(f"the key {inert(key)} twice", "keys used once")
        keys.add(key)
        kind = cursor.u32("a value's type")
        if key not in FACTS:
            _skip_value(cursor, kind, key)
        elif kind != FACTS[key]:
            raise cursor.file.error(f"{key} of value type {kind}", f"{FACTS[key]} ({_VALUE_TYPES[FACTS[key]]})")
        elif kind == STRING:
            facts[key] = cursor.text(key)
        else:
            facts[key] = int.from_bytes(cursor.take(_SCALAR_BYTES[kind], key), "little", signed=kind == _INT32)
        pairs.append(KeyValue(key, kind, begin, cursor.at - begin))
    return tuple(pairs), facts


def _alignment(file: PlainFile, facts: dict[str, str | int]) -> int:
    """The alignment of tensors in bytes."""
    alignment = facts.get(ALIGNMENT_KEY, DEFAULT_ALIGNMENT)
    assert isinstance(alignment, int)
    if alignment == 0 or alignment & (alignment - 1):
        raise file.error(f"{ALIGNMENT_KEY} {alignment}", "a power of two")
    return alignment


def _skip_value(cursor: _Cursor, kind: int, key: str) -> None:
    what = f"the value of {inert(key)}"
    if kind == _ARRAY:
        kind = cursor.u32(what)
        count = cursor.u64(what)
        if kind == STRING:
            cursor.skip_texts(count, what)
            return
    elif kind == STRING:
        kind, count = 0, cursor.u64(what)
    else:
        count = 1
    if kind not in _SCALAR_BYTES:
        # The format allows arrays of arrays; ggml does not support them either.
        raise cursor.file.error(f"{what} has type {kind}", "0 to 12; arrays of scalars or strings")
    cursor.skip(_SCALAR_BYTES[kind] * count, what)


def _entry(cursor: _Cursor) -> _TensorEntry:
    """One tensor's entry."""
    file = cursor.file
    name = cursor.text("a tensor's name")
    what = f"tensor {inert(name)}"
    dims = cursor.u32(what)
    if dims > MAX_DIMS:
        raise file.error(f"{what} has {dims} dimensions", f"at most {MAX_DIMS}")
    shape = tuple(cursor.u64(what) for _ in range(dims))[::-1]
    # Zeros count as 1: NumPy cannot make an array of shape (0, 2**63) either.
    if math.prod(max(size, 1) for size in shape) > MAX_ELEMENTS:
        raise file.error(f"{what} has shape {shape}", f"at most {MAX_ELEMENTS} elements")
    return _TensorEntry(name, shape, cursor.u32(what), cursor.u64(what))


def round_up(count: int, alignment: int) -> int:
    """The next multiple of `alignment`, a power of two."""
    return -(-count // alignment) * alignment
