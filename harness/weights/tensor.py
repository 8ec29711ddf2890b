"""Facts about a stored tensor that are known before it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FLOATS = ("float32", "float16", "bfloat16", "float64")
"""dtypes with one float per element."""

DEQUANTIZED = ("q8_0", "tq1_0", "tq2_0")
"""GGUF block types that are read as `scale * code`: q8_0 is within 1/254 of a block's absmax, and the tq types hold
ternary weights exactly. Other block types (q4_0, the k-quants, ...) are refused: their quantization error would be
mistaken for an error of tritmark."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a checked weight file."""

    name: str
    """As stored, so untrusted: escape it before it is shown."""
    shape: tuple[int, ...]
    """NumPy order, (rows, columns); GGUF stores the reverse."""
    dtype: str
    """The name in NumPy or ml_dtypes ("float32", "bfloat16", "float8_e4m3fn"), or the GGUF block type in lower case
    ("q8_0")."""
    nbytes: int
    """Size in the file."""
    file: Path
    """The file that holds it, for instance a shard."""
    offset: int
    """First byte, counted from the start of `file`."""

    @property
    def readable(self) -> bool:
        """Whether `WeightSource.read` returns float32 for it."""
        return self.dtype in FLOATS or self.dtype in DEQUANTIZED


@dataclass(frozen=True, slots=True)
class KeyValue:
    """The position of a key-value pair in a GGUF header. Values are copied, never interpreted."""

    key: str
    kind: int
    """GGUF's number of the value type."""
    offset: int
    """First byte of the pair: the length of its key."""
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockProduct:
    """A node com.microsoft.MatMulNBits of an .onnx file, by the names of its inputs; "" for a missing one."""

    N: int
    K: int
    bits: int
    block_size: int
    scales: str
    zero_points: str
    group_index: str
    """The input g_idx."""
    prepacked: int
    """The attribute weight_prepacked: 0 for the plain layout, 1 for that of SM80, 2 for that of SM90."""

    @property
    def blocks(self) -> int:
        """Blocks of a row."""
        return -(-self.K // self.block_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertProduct:
    """The weights of one layer of a node com.microsoft.QMoE of an .onnx file, by the names of the node's inputs."""

    kind: str
    """The attribute quant_type."""
    bits: int
    block_size: int
    """0 for one scale for each row."""
    scales: str
    zero_points: str
    """"" if it has none."""
    prepacked: int
    """The attribute weights_prepacked: 0 for the plain layout; -1 and 1 depend on the execution provider."""
    point_offset: bool
    """Whether an attribute moves the zero points."""
    used: int
    """The attribute k: experts that a token uses."""


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The content of the header of a checked weight file."""

    tensors: tuple[TensorInfo, ...]
    pairs: tuple[KeyValue, ...] = ()
    """Only for GGUF files."""
    facts: Mapping[str, str | int] = field(default_factory=dict)
    """Metadata that decides how tensors are read: all of a .safetensors file, and the keys in gguf_file.FACTS of a GGUF
    file."""
    products: Mapping[str, BlockProduct] = field(default_factory=dict)
    """Of an .onnx file: how the initializers with fields of blocks are used, by name."""
    experts: Mapping[str, ExpertProduct] = field(default_factory=dict)
    """Of an .onnx file: how the initializers with fields of experts are used, by name."""
    other_words: Mapping[str, str] = field(default_factory=dict)
    """Of an .onnx file: initializers with fields in other layouts, and the operator that reads them."""
