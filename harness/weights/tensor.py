"""What is known of a stored tensor before any of it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FLOATS = ("float32", "float16", "bfloat16", "float64")
"""dtypes that hold one float for each element."""

DEQUANTIZED = ("q8_0", "tq1_0", "tq2_0")
"""GGUF block types that are read as `scale * code`: q8_0 is within 1/254 of a block's absmax, and the tq types are
ternary weights in full. Types in between (q4_0, the k-quants, ...) are refused: their own error would be mistaken
for ours."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a checked weight file."""

    name: str
    """As stored, hence not to be trusted: escape it before it is shown."""
    shape: tuple[int, ...]
    """NumPy order, (rows, columns); GGUF stores the reverse."""
    dtype: str
    """NumPy's or ml_dtypes' name ("float32", "bfloat16", "float8_e4m3fn"), or GGUF's block type in small letters
    ("q8_0")."""
    nbytes: int
    """Size in the file."""
    file: Path
    """The file it lies in, a shard for instance."""
    offset: int
    """First byte, counted from the start of `file`."""

    @property
    def readable(self) -> bool:
        """Whether `WeightSource.read` gives float32 for it."""
        return self.dtype in FLOATS or self.dtype in DEQUANTIZED


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key-value pair of a GGUF header, by its place: values are copied, never interpreted."""

    key: str
    kind: int
    """Type of the value, as GGUF numbers it."""
    offset: int
    """First byte of the pair, its key's length."""
    nbytes: int


@dataclass(frozen=True, slots=True)
class FileHeader:
    """What the header of a checked weight file says."""

    tensors: tuple[TensorInfo, ...]
    pairs: tuple[KeyValue, ...] = ()
    """Of a GGUF file."""
    facts: Mapping[str, str | int] = field(default_factory=dict)
    """Metadata that decides how tensors are read: of a .safetensors file all of it, of a GGUF file the keys in
    gguf_file.FACTS."""
