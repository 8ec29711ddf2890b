"""Read the header of a .safetensors file and check it in full.

Format: https://github.com/huggingface/safetensors (8 bytes of header length, little-endian; a JSON object; the data,
without holes). The safetensors library does not report offsets, and its row slices come from a mapping whose pages stay
resident, so this module reads the offsets itself. Two parsers may read a hostile header differently, so this one is
strict enough to be the only one. Tests check that the library accepts every file that this parser accepts, and reads
the same values.

The JSON is parsed member by member instead of by `json.loads`: nested lists in a hostile header then cost neither stack
nor memory.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator

from tritmark.harness.errors import WeightFileError
from tritmark.harness.weights.names import inert
from tritmark.harness.weights.plain_file import PlainFile
from tritmark.harness.weights.tensor import FileHeader, TensorInfo

MAX_HEADER = 16 << 20
"""bytes; enough for about 100,000 tensors. The format allows 100 MB, which needs over 1 GB once parsed."""
MAX_DIMS = 32
MAX_ELEMENTS = 1 << 48

_LENGTH_BYTES = 8
METADATA = "__metadata__"
_MEMBERS = frozenset({"dtype", "shape", "data_offsets"})
DTYPES = {
    "BOOL": ("bool", 8),
    "F4": ("float4_e2m1fn", 4),
    "F6_E2M3": ("float6_e2m3fn", 6),
    "F6_E3M2": ("float6_e3m2fn", 6),
    "F8_E4M3": ("float8_e4m3fn", 8),
    "F8_E5M2": ("float8_e5m2", 8),
    "F8_E8M0": ("float8_e8m0fnu", 8),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 8),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 8),
    "F16": ("float16", 16),
    "BF16": ("bfloat16", 16),
    "F32": ("float32", 32),
    "F64": ("float64", 64),
    "C64": ("complex64", 64),
    **{
        f"{letter}{bits}": (f"{kind}{bits}", bits)
        for letter, kind in (("I", "int"), ("U", "uint"))
        for bits in (8, 16, 32, 64)
    },
}
"""Name in the header -> dtype name, bits per element."""

_FOREIGN = {
    b"PK\x03\x04": "a zip archive, as PyTorch's .pt and .bin are",
    b"GGUF": "a GGUF file",
    b"\x89HDF": "an HDF5 file",
    b"version ": "a git-lfs pointer in place of the file",
    **{bytes((0x80, protocol)): "a pickle" for protocol in (2, 3, 4, 5)},
}
"""First bytes of files that users rename to .safetensors."""


class _Header:
    """A reader of the header's text that accepts only objects of strings and lists of integers."""

    _SPACE = re.compile(r"[ \t\n\r]*")
    _INTEGER = re.compile(r"(?:0|[1-9][0-9]{0,19})(?![0-9.eE])")
    _DECODER = json.JSONDecoder()

    def __init__(self, file: PlainFile, text: str) -> None:
        self._file = file
        self._text = text
        self._at = 0

    def _peek(self) -> str:
        space = self._SPACE.match(self._text, self._at)
        assert space is not None
        self._at = space.end()
        return self._text[self._at : self._at + 1]

    def _expected(self, legal: str) -> WeightFileError:
        rest = self._text[self._at : self._at + 20]
        return self._file.error(f"{inert(rest)} at character {self._at} of the header", legal)

    def _take(self, legal: str) -> str:
        mark = self._peek()
        if not mark or mark not in legal:
            raise self._expected(" or ".join(repr(character) for character in legal))
        self._at += 1
        return mark

    def string(self) -> str:
        """A JSON string that is valid UTF-8."""
        if self._peek() != '"':
            raise self._expected("a string")
        try:
            text, end = self._DECODER.raw_decode(self._text, self._at)
            text.encode()  # "\ud800" is legal JSON, but a lone surrogate
        except ValueError as error:
            raise self._expected("a JSON string of whole characters") from error
        self._at = end
        assert isinstance(text, str)
        return text

    def integers(self, most: int) -> list[int]:
        """A list of at most `most` integers >= 0."""
        self._take("[")
        found: list[int] = []
        if self._peek() == "]":
            self._at += 1
            return found
        while True:
            self._peek()
            number = self._INTEGER.match(self._text, self._at)
            if number is None or len(found) == most:
                raise self._expected(f"at most {most} integers >= 0 of at most 20 digits")
            found.append(int(number[0]))
            self._at = number.end()
            if self._take(",]") == "]":
                return found

    def members(self) -> Iterator[str]:
        """The keys of an object, each once; the caller reads the value of each key before the next."""
        self._take("{")
        seen: set[str] = set()
        if self._peek() == "}":
            self._at += 1
            return
        while True:
            key = self.string()
            if key in seen:
                raise self._file.error(f"the key {inert(key)} twice in the header", "names used once")
            seen.add(key)
            self._take(":")
            yield key
            if self._take(",}") == "}":
                return

    def end(self) -> None:
        """Raise WeightFileError unless only whitespace is left."""
        if self._peek():
            raise self._expected("only whitespace up to the end of the header")


def read_header(file: PlainFile) -> FileHeader:
    """The header of a .safetensors file: tensors in the order of their data.

    Raises WeightFileError for a header that violates the format, and for data that overlaps, has holes, or differs in
    length from the file. Like the format, it accepts data that is not aligned to its dtype, which is copied to aligned
    memory anyway.
    """
    text, data = _header_text(file)
    header = _Header(file, text)
    tensors: list[TensorInfo] = []
    facts: dict[str, str] = {}
    for name in header.members():
        if name == METADATA:
            facts = {key: header.string() for key in header.members()}
        else:
            tensors.append(_tensor(file, header, name, data))
    header.end()
    tensors.sort(key=lambda tensor: (tensor.offset, tensor.nbytes))
    end = data
    for tensor in tensors:
        if tensor.offset != end:
            kind = "overlaps the one before" if tensor.offset < end else "leaves a hole before it"
            raise file.error(f"tensor {inert(tensor.name)} {kind}", f"a begin at byte {end - data} of the data")
        end += tensor.nbytes
    if end != file.size:
        raise file.error(f"{file.size - data} bytes of data", f"the {end - data} that the header lists")
    return FileHeader(tuple(tensors), facts=facts)


def _header_text(file: PlainFile) -> tuple[str, int]:
    if file.size < _LENGTH_BYTES + 2:
        raise file.error(f"{file.size} bytes", "at least 10: a length of 8 bytes and a header")
    start = file.read(0, _LENGTH_BYTES + 1)
    for magic, what in _FOREIGN.items():
        if start.startswith(magic):
            raise file.error(what, "a .safetensors file")
    length = int.from_bytes(start[:_LENGTH_BYTES], "little")
    if length > min(MAX_HEADER, file.size - _LENGTH_BYTES):
        raise file.error(
            f"a header of {length} bytes in a file of {file.size}",
            f"a header inside the file, of at most {MAX_HEADER} bytes",
        )
    if start[_LENGTH_BYTES:] != b"{":
        raise file.error(f"a header that begins with {inert(start[_LENGTH_BYTES:])}", "one that begins with b'{'")
    try:
        return file.read(_LENGTH_BYTES, length).decode("utf-8"), _LENGTH_BYTES + length
    except UnicodeDecodeError as error:
        raise file.error(f"a header that is not UTF-8 at byte {error.start}", "UTF-8") from error


def _tensor(file: PlainFile, header: _Header, name: str, data: int) -> TensorInfo:
    def wrong(found: str, legal: str) -> WeightFileError:
        return file.error(f"tensor {inert(name)} has {found}", legal)

    code = ""
    shape: list[int] = []
    span: list[int] = []
    members = set()
    for member in header.members():
        members.add(member)
        if member == "dtype":
            code = header.string()
        elif member == "shape":
            shape = header.integers(MAX_DIMS)
        elif member == "data_offsets":
            span = header.integers(2)
        else:
            raise wrong(f"a member {inert(member)}", "dtype, shape and data_offsets")
    if members != _MEMBERS:
        raise wrong(f"only the members {sorted(members)}", "dtype, shape and data_offsets")
    if code not in DTYPES:
        raise wrong(f"dtype {inert(code)}", ", ".join(DTYPES))
    dtype, bits = DTYPES[code]
    # Zeros count as 1: NumPy cannot make an array of shape (0, 2**63) either.
    if math.prod(max(size, 1) for size in shape) > MAX_ELEMENTS:
        raise wrong(f"shape {inert(shape)}", f"at most {MAX_ELEMENTS} elements")
    if len(span) != 2 or not span[0] <= span[1] <= file.size - data:
        raise wrong(f"data_offsets {inert(span)}", f"[begin, end] with begin <= end <= {file.size - data}")
    size_bits = math.prod(shape) * bits
    if size_bits != (span[1] - span[0]) * 8:
        raise wrong(f"{span[1] - span[0]} bytes for {code} of shape {inert(shape)}", f"{size_bits / 8:g} bytes")
    return TensorInfo(name, tuple(shape), dtype, span[1] - span[0], file.path, data + span[0])
