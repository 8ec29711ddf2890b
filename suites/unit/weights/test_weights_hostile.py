"""Truncated, inconsistent and hostile weight files raise WeightFileError before memory is allocated, and nothing else.

The files come from the corpus of the fuzzers, suites/fuzz. Each is named after its fault and paired with the begin of
the error message, so that it is not refused for another reason.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from tritmark.harness.errors import InvalidArgumentError, WeightFileError
from tritmark.harness.weights import open_weights
from tritmark.kernels.formats import FORMATS

sys.path.append(str(Path(__file__).parents[2] / "fuzz"))
corpus, corpus_gguf, corpus_packed, corpus_safetensors, weights = map(
    import_module, ("corpus", "corpus_gguf", "corpus_packed", "corpus_safetensors", "weights")
)

SECONDS = 1.0
PEAK_BYTES = 5_000_000
LONGEST_MESSAGE = 1000


# ---- paths
# -------------------------------------------------------------------------------------------------------------------


def shards(folder: Path, *names: str) -> Path:
    """Valid files in a folder, each with a tensor of its own name."""
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
        lambda folder: (
            made(folder / "pytorch_model.bin", lambda path: path.write_bytes(corpus_safetensors.zipped())).parent
        ),
    ),
    "folder with a GGUF file only": (
        "a folder without .safetensors files",
        lambda folder: made(folder / "m.gguf", lambda path: path.write_bytes(corpus_gguf.GOOD)).parent,
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
                shards(folder, "a.safetensors") / "b.safetensors",
                lambda path: path.write_bytes((folder / "a.safetensors").read_bytes()),
            ).parent
        ),
    ),
    "truncated shard": (
        "1 bytes",
        lambda folder: (
            made(shards(folder, "a.safetensors") / "b.safetensors", lambda path: path.write_bytes(b"1")).parent
        ),
    ),
    "fifo": ("a fifo", lambda folder: made(folder / "m.safetensors", os.mkfifo)),
    "fifo in a folder": ("a fifo", lambda folder: made(folder / "m.safetensors", os.mkfifo).parent),
    "fifo named .gguf": ("a fifo", lambda folder: made(folder / "m.gguf", os.mkfifo)),
    "socket": ("a socket", lambda folder: made(folder / "m.safetensors", bound_socket)),
    "link to an endless device": (
        "a device",
        lambda folder: made(folder / "m.safetensors", lambda path: path.symlink_to("/dev/zero")),
    ),
    "link to itself": (
        "Too many levels of symbolic links",
        lambda folder: made(folder / "m.safetensors", lambda path: path.symlink_to(path)),
    ),
    "link to nothing": (
        "No such file or directory",
        lambda folder: made(folder / "m.gguf", lambda path: path.symlink_to("nowhere")),
    ),
    "another kind of file": (
        "a file named 'pytorch_model.bin'",
        lambda folder: made(folder / "pytorch_model.bin", lambda path: path.write_bytes(corpus_safetensors.zipped())),
    ),
    "NUL in the path": ("a NUL in the path", lambda _: "m\0.safetensors"),
    "ANSI in the path": (
        "0 bytes",
        lambda folder: made(folder / "\x1b[2J\u202e.safetensors", lambda path: path.write_bytes(b"")),
    ),
    "path too long": ("File name too long", lambda _: "x" * 5000 + ".safetensors"),
    "empty path": ("No such file or directory", lambda _: ""),
}


# ---- the checks
# --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def alarm() -> Iterator[None]:
    """Interrupt a call that takes longer than SECONDS with a TimeoutError, so that a hang does not block the tests."""

    def ring(signal_number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not refused within {SECONDS} s")

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def refused(path: str | Path, found: str) -> None:
    """`path` raises a WeightFileError of one printable line about `found`, quickly and without a large allocation."""
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
@pytest.mark.parametrize("name", corpus.BAD)
def test_bad_file_is_refused(tmp_path: Path, name: str) -> None:
    bad = corpus.BAD[name]
    path = tmp_path / f"m{bad.suffix}"
    path.write_bytes(bad.content())
    refused(path, bad.found)


@pytest.mark.parametrize("name", corpus.ODD)
def test_odd_file_is_read_as_the_library_reads_it(tmp_path: Path, name: str) -> None:
    odd = corpus.ODD[name]
    path = tmp_path / f"m{odd.suffix}"
    path.write_bytes(odd.content())
    assert weights.check(path)


def test_the_corpus_has_every_format() -> None:
    assert set(corpus_packed.SHAPES) == set(FORMATS)


@pytest.mark.parametrize("name", corpus_packed.BAD)
def test_bad_packed_weights_are_refused(name: str) -> None:
    bad = corpus_packed.BAD[name]
    with pytest.raises(InvalidArgumentError) as caught:
        FORMATS[bad.format].unpack(bad.packed, bad.shape)
    assert (caught.value.argument, caught.value.found[: len(bad.found)]) == (bad.argument, bad.found)
    assert caught.value.legal


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("name", BAD_PATHS)
def test_bad_path_is_refused(tmp_path: Path, name: str) -> None:
    found, bad = BAD_PATHS[name]
    refused(bad(tmp_path), found)


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("name", corpus_gguf.SPARSE)
def test_counts_that_a_huge_sparse_file_seems_to_cover_are_refused(tmp_path: Path, name: str) -> None:
    found, head = corpus_gguf.SPARSE[name]
    path = tmp_path / "m.gguf"
    with path.open("wb") as file:
        file.write(head())
        file.truncate(1 << 40)
    refused(path, found)


@pytest.mark.usefixtures("alarm")
def test_a_fifo_put_in_place_of_a_file_just_checked_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo = made(tmp_path / "m.gguf", os.mkfifo)
    regular = made(tmp_path / "regular", Path.touch)
    real = os.stat
    monkeypatch.setattr(
        os, "stat", lambda path, **options: real(regular if str(path) == str(fifo) else path, **options)
    )
    refused(fifo, "a fifo")


def test_the_good_files_that_the_bad_ones_are_made_of_are_read(tmp_path: Path) -> None:
    for suffix, content, shapes in (
        (".safetensors", corpus_safetensors.GOOD, [(2, 3), (4, 2)]),
        (".gguf", corpus_gguf.GOOD, [(2, 4), (5, 3)]),
    ):
        path = tmp_path / f"m{suffix}"
        path.write_bytes(content)
        with open_weights(path) as source:
            assert [tensor.shape for tensor in source.matrices()] == shapes
        assert weights.check(path)


# ---- mutations
# ---------------------------------------------------------------------------------------------------------------


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300), suffix=st.sampled_from([".safetensors", ".gguf"]))
def test_random_bytes_never_raise_anything_else(tmp_path: Path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"m{suffix}"
    path.write_bytes((b"GGUF\x03\0\0\0" if suffix == ".gguf" else b"") + content)
    weights.read_all(path)


@pytest.mark.parametrize("suffix", [".safetensors", ".gguf"])
def test_every_truncation_of_a_good_file_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"m{suffix}"
    # The library pads the last tensor of a GGUF file, and padding may be missing.
    content = corpus.written(suffix).rstrip(b"\0")
    path.write_bytes(content)
    for size in range(len(content) - 1, -1, -7):
        os.truncate(path, size)
        with pytest.raises(WeightFileError):
            open_weights(path)
