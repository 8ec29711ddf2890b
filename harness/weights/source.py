"""Open weight files and read their tensors in blocks of rows."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError, WeightFileError
from tritmark.harness.weights import gguf_file, hub, onnx_file, safetensors_file, shards
from tritmark.harness.weights.decode import read_float32
from tritmark.harness.weights.index import ALONE, Index, index_of
from tritmark.harness.weights.names import inert, inert_path
from tritmark.harness.weights.onnx_file import InlineData
from tritmark.harness.weights.plain_file import PlainFile, reason
from tritmark.harness.weights.tensor import DEQUANTIZED, FLOATS, FileHeader, TensorInfo

_READERS = {".safetensors": safetensors_file.read_header, ".gguf": gguf_file.read_header}
SUFFIXES = (*_READERS, ".onnx")
_LEGAL = (
    "a .safetensors file, a folder of them, a .gguf file or a part of a split one, an .onnx file, or "
    "hf:OWNER/NAME[/FILE][@REVISION]"
)
CHUNK = 1 << 22
"""Bytes that `WeightSource.chunks` yields at a time."""


class WeightSource:
    """Checked weight files, open for reading; use it in a `with` block, or call `close`."""

    def __init__(self, path: str | Path, files: list[Path], index: Index | None = None) -> None:
        """Open and check `files` (found by `open_weights`). Where several files have the same tensor, `index` states
        which file's tensor belongs to the model."""
        self.path = str(path)
        """The path as the caller gave it."""
        self.folder = files[0].parent
        """The folder of the files."""
        self.suffix = files[0].suffix
        """.safetensors, .gguf or .onnx."""
        self.aside: tuple[str, ...] = ()
        """In a folder, the names of .safetensors files that do not belong to the model and are not read."""
        self._placed: dict[str, tuple[TensorInfo, PlainFile | InlineData]] = {}
        headers: list[FileHeader] = []
        with ExitStack() as opened:
            for each in files:
                file = PlainFile(each)
                opened.callback(file.close)
                places: Mapping[str, PlainFile | InlineData] = {}
                if each.suffix == ".onnx":
                    header, places = onnx_file.read_model(file, lambda beside: opened.callback(beside.close))
                else:
                    header = _READERS[each.suffix](file)
                headers.append(header)
                if len(headers) == 1:
                    self._first = file
                if each.suffix == ".gguf":
                    shards.check_part(file, headers[-1].facts, len(headers) - 1, len(files))
                for tensor in headers[-1].tensors:
                    if index is not None and not index.keeps(tensor.name, each.name):
                        continue
                    if tensor.name in self._placed:
                        other = inert_path(self._placed[tensor.name][0].file.name)
                        raise file.error(f"tensor {inert(tensor.name)}, which {other} has too", "names used once")
                    self._placed[tensor.name] = tensor, places.get(tensor.name, file)
            if index is not None:
                index.require(self._placed)
            if self.suffix == ".gguf":
                shards.check_total(self._first, headers[0].facts, len(self._placed))
            self._opened = opened.pop_all()
        self._facts = [header.facts for header in headers]
        self.header = headers[0]
        """Header of the first file; in a split model it has all metadata."""
        self.tensors: tuple[TensorInfo, ...] = tuple(tensor for tensor, _ in self._placed.values())
        """All tensors in file order, including those that cannot be read."""

    def matrices(self) -> Iterator[TensorInfo]:
        """Every non-empty 2-D tensor that `read` converts to floats, in file order; none of an .onnx file, which does
        not state which of them are weights."""
        return (
            tensor
            for tensor in self.tensors
            if len(tensor.shape) == 2 and 0 not in tensor.shape and tensor.readable and self.suffix != ".onnx"
        )

    def read(self, name: str, rows: slice | None = None) -> NDArray[np.float32]:
        """Read the tensor `name` as a new float32 array; with `rows` only these rows of its first axis.

        `rows` needs a tensor of 2 or more dimensions and step 1. Only the bytes of these rows are read, and only the
        result stays in memory. Values are exact, except that float64 is rounded once.

        Raises InvalidArgumentError for an unknown name or invalid rows. Raises WeightFileError for a file that shrank
        after it was opened and for a dtype that is not converted to floats: integers, float8, and GGUF block types
        except q8_0, tq1_0 and tq2_0.
        """
        if name not in self._placed:
            raise _bad_argument("name", inert(name), f"one of the {len(self.tensors)} names in .tensors")
        tensor, file = self._placed[name]
        if not tensor.readable:
            raise file.error(f"tensor {inert(name)} is {tensor.dtype}", f"one of {', '.join(FLOATS + DEQUANTIZED)}")
        if rows is None:
            return read_float32(file, tensor.dtype, tensor.shape, tensor.offset, tensor.nbytes)
        first, count = _row_range(tensor, rows)
        row_bytes = tensor.nbytes // max(tensor.shape[0], 1)
        shape = (count, *tensor.shape[1:])
        return read_float32(file, tensor.dtype, shape, tensor.offset + first * row_bytes, count * row_bytes)

    def fact(self, key: str) -> str | int | None:
        """The value of `key` in the metadata of all .safetensors files, or None. Raises WeightFileError where the
        files have different values or only some have one."""
        said = {facts.get(key) for facts in self._facts}
        if len(said) > 1:
            found = f"{inert(key)}: {' and '.join(sorted(map(inert, said)))} in the metadata"
            raise WeightFileError(path=inert_path(self.path), found=found, legal="the same value in all files")
        return said.pop()

    def tensor(self, name: str) -> TensorInfo | None:
        """The tensor with this name, or None."""
        return self._placed[name][0] if name in self._placed else None

    def read_bytes(self, name: str, part: int = 0, parts: int = 1) -> NDArray[np.uint8]:
        """The stored bytes of the existing tensor `name` as a new flat array, or one of `parts` equal parts of them."""
        tensor, file = self._placed[name]
        stored = np.empty(tensor.nbytes // parts, np.uint8)
        file.read_into(tensor.offset + part * stored.size, stored.data)
        return stored

    def chunks(self, name: str) -> Iterator[memoryview]:
        """The stored bytes in parts of CHUNK bytes; each part overwrites the previous one."""
        tensor, file = self._placed[name]
        return _chunks(file, tensor.offset, tensor.nbytes)

    def pair_bytes(self, offset: int, nbytes: int) -> Iterator[memoryview]:
        """A range of the first file's header in parts of CHUNK bytes."""
        return _chunks(self._first, offset, nbytes)

    def error(self, name: str, found: str, legal: str) -> WeightFileError:
        """Build the error about the tensor `name`."""
        return self._placed[name][1].error(f"tensor {inert(name)}: {found}", legal)

    def file_error(self, found: str, legal: str) -> WeightFileError:
        """Build the error about the first file, which has the metadata."""
        return self._first.error(found, legal)

    def close(self) -> None:
        """Close the files; closing twice is harmless."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _chunks(file: PlainFile | InlineData, offset: int, nbytes: int) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(min(nbytes, CHUNK)))
    for done in range(0, nbytes, CHUNK):
        part = buffer[: min(CHUNK, nbytes - done)]
        file.read_into(offset + done, part)
        yield part


def open_weights(path: str | Path) -> WeightSource:
    """Open and check the weights at `path`: a .safetensors file, a folder of them, a .gguf file, an .onnx file, or
    `hf:OWNER/NAME[/FILE][@REVISION]`.

    - Folder with an index.json: reads the files that the index names. All must exist with the listed tensors.
    - Folder without one: reads model.safetensors if it exists, as transformers does; otherwise every *.safetensors
      file. Names must be unique, and no file numbered -00001-of-00003 may be missing. Subfolders are not searched.
    - Split GGUF model (numbered names, and a split in the header): `path` may be any part; all parts are required.
    - `hf:`: downloads the same files from the top folder of the repository into the cache of huggingface_hub.

    Raises WeightFileError for any other path, and for a truncated, inconsistent or hostile file before memory is
    allocated for it.
    """
    text = str(path)
    if "\0" in text:
        raise WeightFileError(path=inert_path(text), found="a NUL in the path", legal=_LEGAL)
    place = str(hub.download(text)) if text.startswith(hub.PREFIX) else text
    try:
        is_folder = stat.S_ISDIR(os.stat(place).st_mode)
        index = index_of(Path(place)) if is_folder else None
        files = _of_folder(Path(place), index) if is_folder else [Path(place)]
    except (OSError, ValueError) as error:
        if isinstance(error, WeightFileError):
            raise
        raise WeightFileError(path=inert_path(text), found=reason(error), legal=_LEGAL) from error
    if not files or files[0].suffix not in SUFFIXES:
        found = f"a file named {inert(files[0].name)}" if files else "a folder without .safetensors files"
        raise WeightFileError(path=inert_path(text), found=found, legal=_LEGAL)
    if is_folder and index is None:
        shards.require_all(place, {file.name for file in files})
    elif files[0].suffix == ".gguf":
        files = shards.parts(files[0])
    source = WeightSource(path, files, index)
    if is_folder:
        source.aside = tuple(sorted({file.name for file in _all_of(Path(place))} - {file.name for file in files}))
    return source


def _of_folder(folder: Path, index: Index | None) -> list[Path]:
    if index is not None:
        return index.files
    files = _all_of(folder)
    alone = [file for file in files if file.name == ALONE]
    return alone or files


def _all_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("[!.]*.safetensors"))


def _row_range(tensor: TensorInfo, rows: slice) -> tuple[int, int]:
    if len(tensor.shape) < 2:
        raise _bad_argument("rows", f"{rows} of a tensor of shape {tensor.shape}", "None for fewer than 2 dimensions")
    try:
        first, end, step = rows.indices(tensor.shape[0])
    except (TypeError, ValueError, AttributeError) as error:
        raise _bad_argument("rows", repr(rows), "a slice of integers") from error
    if step != 1:
        raise _bad_argument("rows", repr(rows), "a slice of step 1")
    return first, max(end - first, 0)


def _bad_argument(argument: str, found: str, legal: str) -> InvalidArgumentError:
    return InvalidArgumentError(op="weights.read", argument=argument, found=found, legal=legal)
