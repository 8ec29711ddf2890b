"""Real weights: read float matrices, row block by row block, from files that nobody vouches for.

`open_weights` takes a .safetensors file, a folder of them, a .gguf file or `hf:OWNER/NAME`. A file is checked in
full before a byte of its tensors is read, and whatever is wrong with it is a WeightFileError.
"""

from __future__ import annotations

from tritmark.harness.weights.source import WeightSource, open_weights
from tritmark.harness.weights.tensor import TensorInfo

__all__ = ["TensorInfo", "WeightSource", "open_weights"]
