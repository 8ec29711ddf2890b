"""The corpus: every bad weight file by name, and good files as seeds. `python suites/fuzz/corpus.py FOLDER` writes them
all.

The bytes are the same on every machine.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import corpus_gguf
import corpus_safetensors
import gguf
import gguf.quants  # imported here, so that no measurement of memory is charged for it
import numpy as np
from gguf.constants import GGMLQuantizationType
from safetensors.numpy import save


class File(NamedTuple):
    """`found`: the beginning of the expected error; "" if the file is legal."""

    suffix: str
    found: str
    content: Callable[[], bytes]


_PARTS = ((".safetensors", corpus_safetensors.BAD, corpus_safetensors.ODD), (".gguf", corpus_gguf.BAD, corpus_gguf.ODD))

BAD: dict[str, File] = {
    f"{suffix}: {name}": File(suffix, *file) for suffix, bad, _ in _PARTS for name, file in bad.items()
}
ODD: dict[str, File] = {
    f"{suffix}: {name}": File(suffix, "", make) for suffix, _, odd in _PARTS for name, make in odd.items()
}


@cache
def written(suffix: str) -> bytes:
    """A file written by the format's own library, with a tensor of each readable kind."""
    return _safetensors() if suffix == ".safetensors" else _gguf()


def _safetensors() -> bytes:
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


def _gguf() -> bytes:
    random = np.random.default_rng(3)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        writer = gguf.GGUFWriter(path, "test")
        writer.add_custom_alignment(64)
        writer.add_array("tokens", ["a", "bc"])
        writer.add_array("scores", [1.0, -2.0])
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


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in (BAD | ODD).items():
        stem = re.sub(r"[^A-Za-z0-9]+", "-", name.partition(": ")[2]).strip("-")
        (folder / f"{stem}{file.suffix}").write_bytes(file.content())
    for suffix in (".safetensors", ".gguf"):
        (folder / f"written-by-the-library{suffix}").write_bytes(written(suffix))
    print(f"{folder}: {len(BAD)} bad files, {len(ODD)} odd ones and 2 good ones")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
