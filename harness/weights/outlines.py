"""Lay out a .gguf or .safetensors file in full before any byte is written."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.weights import gguf_file, safetensors_file, type_42
from tritmark.harness.weights.gguf_types import Q2_0, gguf_types, is_unread, number_of
from tritmark.harness.weights.names import inert
from tritmark.harness.weights.source import WeightSource

_MAGIC = b"GGUF"
_VERSION = 3
ARCHITECTURE = "bitnet"
"""general.architecture of a GGUF file that is made from .safetensors files."""


@dataclass(frozen=True, slots=True)
class OutlinedTensor:
    """One tensor of a file to be written."""

    name: str
    shape: tuple[int, ...]
    """NumPy order; for packed rows the shape of the bytes."""
    dtype: str
    """As in TensorInfo."""
    nbytes: int


@dataclass(frozen=True, slots=True)
class Outline:
    """A file: the bytes of its header in parts, the offset of each tensor's data in the given order, and its size."""

    header: Iterator[bytes | memoryview]
    offsets: tuple[int, ...]
    size: int


def gguf_outline(source: WeightSource, tensors: Sequence[OutlinedTensor], dtype: str, layout: str) -> Outline:
    """Lay out a .gguf file. Keeps all key-value pairs of a GGUF `source` except those of a split. An existing
    general.file_type becomes that of `dtype`, the type of most weights. Writes `layout` unless it is "".

    Raises InvalidArgumentError for tensors that GGUF cannot hold.
    """
    facts = source.header.facts if source.suffix == ".gguf" else {}
    alignment = int(facts.get(gguf_file.ALIGNMENT_KEY, gguf_file.DEFAULT_ALIGNMENT))
    infos, offsets, at, end_of_data = [], [], 0, 0
    for each in tensors:
        number = number_of(each.dtype)
        if number is None:
            legal = ", ".join(sorted({type.dtype for type in gguf_types().values()}))
            raise _unfit(each.name, f"of dtype {each.dtype}", f"a dtype of GGUF: {legal}")
        if len(each.shape) > gguf_file.MAX_DIMS:
            raise _unfit(each.name, f"of {len(each.shape)} dimensions", f"at most {gguf_file.MAX_DIMS} in GGUF")
        if each.dtype in {type_42.OPEN, type_42.QUADS} and dtype == Q2_0.dtype:
            legal = "a --format except q2_0, because a type has one layout per file"
            raise _unfit(each.name, f"in another layout than {dtype} under type {type_42.NUMBER}", legal)
        dims = each.shape[::-1]
        place = struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, number, at)
        infos.append(_text(each.name) + place)
        offsets.append(at)
        # A tensor that extends to the end of the file must not grow by padding.
        end_of_data = at + each.nbytes
        at = gguf_file.round_up(end_of_data, alignment)
        end_of_data = end_of_data if is_unread(each.dtype) else at
    file_type = next(type.file_type for type in gguf_types().values() if type.dtype == dtype)
    # Type 42 has several layouts, and the offsets of small tensors may fit more than one.
    kept, made = _pairs(source, file_type, layout or ("g64" if dtype == Q2_0.dtype else ""))
    pairs_bytes = sum(nbytes for _, nbytes in kept) + len(made.data)
    head = _MAGIC + struct.pack("<IQQ", _VERSION, len(tensors), len(kept) + made.count)
    described = b"".join(infos)
    end = len(head) + pairs_bytes + len(described)
    data = gguf_file.round_up(end, alignment)

    def header() -> Iterator[bytes | memoryview]:
        yield head
        for offset, nbytes in kept:
            yield from source.pair_bytes(offset, nbytes)
        yield made.data
        yield described + bytes(data - end)

    return Outline(header(), tuple(data + offset for offset in offsets), data + end_of_data)


@dataclass(frozen=True, slots=True)
class _Made:
    data: bytes
    count: int


def _pairs(source: WeightSource, file_type: int | None, layout: str) -> tuple[list[tuple[int, int]], _Made]:
    """The ranges of the pairs that are kept, and the new pairs."""
    made = []
    left_out = {*gguf_file.SPLIT_KEYS, gguf_file.LAYOUT_KEY}
    pairs = source.header.pairs
    if not pairs:
        made.append(_pair("general.architecture", gguf_file.STRING, _text(ARCHITECTURE)))
    if not pairs or any(each.key == gguf_file.FILE_TYPE_KEY for each in pairs):
        left_out.add(gguf_file.FILE_TYPE_KEY)
        if file_type is not None:
            made.append(_pair(gguf_file.FILE_TYPE_KEY, gguf_file.UINT32, struct.pack("<I", file_type)))
    if layout:
        made.append(_pair(gguf_file.LAYOUT_KEY, gguf_file.STRING, _text(layout)))
    kept = [(each.offset, each.nbytes) for each in pairs if each.key not in left_out]
    return kept, _Made(b"".join(made), len(made))


def _pair(key: str, kind: int, value: bytes) -> bytes:
    return _text(key) + struct.pack("<I", kind) + value


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def safetensors_outline(tensors: Sequence[OutlinedTensor], metadata: Mapping[str, str]) -> Outline:
    """Lay out a .safetensors file. Data is sorted by descending element size, as the safetensors library writes it, so
    every tensor is aligned.

    Raises InvalidArgumentError for tensors that safetensors cannot hold.
    """
    codes = {name: (code, bits) for code, (name, bits) in safetensors_file.DTYPES.items()}
    for each in tensors:
        if each.dtype not in codes:
            raise _unfit(each.name, f"of dtype {each.dtype}", f"a dtype of safetensors: {', '.join(sorted(codes))}")
    order = sorted(range(len(tensors)), key=lambda index: -codes[tensors[index].dtype][1])
    offsets, at = [0] * len(tensors), 0
    table: dict[str, object] = {safetensors_file.METADATA: dict(metadata)}
    for index in order:
        each = tensors[index]
        span = [at, at + each.nbytes]
        table[each.name] = {"dtype": codes[each.dtype][0], "shape": list(each.shape), "data_offsets": span}
        offsets[index], at = span
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > safetensors_file.MAX_HEADER:
        raise InvalidArgumentError(
            op="convert", argument="header", found=f"{len(text)} bytes", legal=f"at most {safetensors_file.MAX_HEADER}"
        )
    data = 8 + len(text)
    return Outline(iter([struct.pack("<Q", len(text)) + text]), tuple(data + offset for offset in offsets), data + at)


def _unfit(name: str, found: str, legal: str) -> InvalidArgumentError:
    return InvalidArgumentError(op="convert", argument=f"tensor {inert(name)}", found=found, legal=legal)
