"""What is known of a stored tensor before any of it is read."""

from __future__ import annotations

from dataclasses import dataclass
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
