"""Open weights wherever they lie, and read them in blocks of rows."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError, WeightFileError
from tritmark.harness.weights import gguf_file, hub, safetensors_file, shards
from tritmark.harness.weights.decode import read_float32
from tritmark.harness.weights.index import ALONE, Index, index_of
from tritmark.harness.weights.names import inert, inert_path
from tritmark.harness.weights.plain_file import PlainFile, reason
from tritmark.harness.weights.tensor import DEQUANTIZED, FLOATS, FileHeader, TensorInfo

_READERS = {".safetensors": safetensors_file.read_header, ".gguf": gguf_file.read_header}
_LEGAL = "a .safetensors file, a folder of them, a .gguf file or a part of a split one, or hf:OWNER/NAME[@REVISION]"
CHUNK = 1 << 22
"""Bytes that `WeightSource.chunks` gives at a time."""


class WeightSource:
    """Checked weight files, open for reading; use it in a `with` block, or call `close`."""

    def __init__(self, path: str | Path, files: list[Path], index: Index | None = None) -> None:
        """Open and check `files`; see `open_weights`, which finds them. Of a tensor that several have, `index` says
        which is the model's."""
        self.path = str(path)
        """As the caller named it."""
        self.folder = files[0].parent
        """Where the files lie."""
        self.suffix = files[0].suffix
        """Which kind of files they are: .safetensors or .gguf."""
        self.aside: tuple[str, ...] = ()
        """Of a folder the names of the .safetensors files that are no part of the model, and are not read."""
        self._placed: dict[str, tuple[TensorInfo, PlainFile]] = {}
        headers: list[FileHeader] = []
        with ExitStack() as opened:
            for each in files:
                file = PlainFile(each)
                opened.callback(file.close)
                headers.append(_READERS[each.suffix](file))
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
                    self._placed[tensor.name] = tensor, file
            if index is not None:
                index.require(self._placed)
            if self.suffix == ".gguf":
                shards.check_total(self._first, headers[0].facts, len(self._placed))
            self._opened = opened.pop_all()
        self._facts = [header.facts for header in headers]
        self.header = headers[0]
        """That of the first file; of a split model it has all metadata."""
        self.tensors: tuple[TensorInfo, ...] = tuple(tensor for tensor, _ in self._placed.values())
        """All tensors, also those that cannot be read, in file order."""

    def matrices(self) -> Iterator[TensorInfo]:
        """Every 2-D tensor with elements that `read` gives as floats, in file order."""
        return (
            tensor for tensor in self.tensors if len(tensor.shape) == 2 and 0 not in tensor.shape and tensor.readable
        )

    def read(self, name: str, rows: slice | None = None) -> NDArray[np.float32]:
        """The tensor called `name` as a new float32 array; with `rows` only those of its first axis, as `[rows]` would
        give.

        `rows` needs a tensor of 2 dimensions or more, and step 1. Only the bytes of these rows are read, and nothing
        stays in memory but the result. Values are exact, except that float64 is rounded to float32 once.

        Raises InvalidArgumentError for an unknown name or unfit rows, WeightFileError for a dtype that has no floats to
        give (integers, float8, GGUF's block types but q8_0, tq1_0 and tq2_0) and for a file that shrank since it was
        opened.
        """
        if name not in self._placed:
            raise _bad_argument("name", inert(name), f"one of the {len(self.tensors)} names in .tensors")
        tensor, file = self._placed[name]
        if not tensor.readable:
            raise file.error(f"tensor {inert(name)} is {tensor.dtype}", f"to read: {', '.join(FLOATS + DEQUANTIZED)}")
        if rows is None:
            return read_float32(file, tensor.dtype, tensor.shape, tensor.offset, tensor.nbytes)
        first, count = _row_range(tensor, rows)
        row_bytes = tensor.nbytes // max(tensor.shape[0], 1)
        shape = (count, *tensor.shape[1:])
        return read_float32(file, tensor.dtype, shape, tensor.offset + first * row_bytes, count * row_bytes)

    def fact(self, key: str) -> str | int | None:
        """What all .safetensors files say of `key` in their metadata, or None. Raises WeightFileError where they
        contradict each other, or only some say it."""
        said = {facts.get(key) for facts in self._facts}
        if len(said) > 1:
            found = f"{inert(key)}: {' and '.join(sorted(map(inert, said)))}, by the metadata of its files"
            raise WeightFileError(path=inert_path(self.path), found=found, legal="files of one model, which agree")
        return said.pop()

    def tensor(self, name: str) -> TensorInfo | None:
        """The tensor of that name, or None."""
        return self._placed[name][0] if name in self._placed else None

    def read_bytes(self, name: str) -> NDArray[np.uint8]:
        """The stored bytes of the tensor called `name`, which is there, as a new flat array."""
        tensor, file = self._placed[name]
        stored = np.empty(tensor.nbytes, np.uint8)
        file.read_into(tensor.offset, stored.data)
        return stored

    def chunks(self, name: str) -> Iterator[memoryview]:
        """The same in pieces of CHUNK bytes; each is overwritten by the next."""
        tensor, file = self._placed[name]
        return _chunks(file, tensor.offset, tensor.nbytes)

    def pair_bytes(self, offset: int, nbytes: int) -> Iterator[memoryview]:
        """A part of the first file's header in such pieces."""
        return _chunks(self._first, offset, nbytes)

    def error(self, name: str, found: str, legal: str) -> WeightFileError:
        """The error to raise about the tensor called `name`."""
        return self._placed[name][1].error(f"tensor {inert(name)}: {found}", legal)

    def file_error(self, found: str, legal: str) -> WeightFileError:
        """The error to raise about the first file, which has the metadata."""
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


def _chunks(file: PlainFile, offset: int, nbytes: int) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(min(nbytes, CHUNK)))
    for done in range(0, nbytes, CHUNK):
        part = buffer[: min(CHUNK, nbytes - done)]
        file.read_into(offset + done, part)
        yield part


def open_weights(path: str | Path) -> WeightSource:
    """Open and check the weights at `path`: a .safetensors file, a folder of them, a .gguf file, or
    `hf:OWNER/NAME[@REVISION]`.

    Of a folder the files that its index.json names are read, all of which must be there with the tensors that it says
    they have. Without one that is model.safetensors, where it is there, as transformers loads it; else every
    *.safetensors file, where no name may come twice, and of files numbered -00001-of-00003 none may be missing.
    Subfolders are not looked at. Of a split GGUF model (numbered like shards, and its header says so) any part may be
    named; all of them are needed. `hf:` needs huggingface_hub and gets the same files of the repository's top folder
    into that library's cache.

    Raises WeightFileError for anything else and for a file that is truncated, lying or hostile, before memory is taken
    for it.
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
    if not files or files[0].suffix not in _READERS:
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
        raise _bad_argument("rows", f"{rows} of a tensor of shape {tensor.shape}", "None for a tensor that has no rows")
    try:
        first, end, step = rows.indices(tensor.shape[0])
    except (TypeError, ValueError, AttributeError) as error:
        raise _bad_argument("rows", repr(rows), "a slice of integers") from error
    if step != 1:
        raise _bad_argument("rows", repr(rows), "a slice of step 1")
    return first, max(end - first, 0)


def _bad_argument(argument: str, found: str, legal: str) -> InvalidArgumentError:
    return InvalidArgumentError(op="weights.read", argument=argument, found=found, legal=legal)
