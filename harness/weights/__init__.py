"""Real weights: read float matrices, row block by row block, and ternary ones, from files that nobody vouches for.

`open_weights` takes a .safetensors file, a folder of them, a .gguf file or `hf:OWNER/NAME`. A file is checked in
full before a byte of its tensors is read, and whatever is wrong with it is a WeightFileError. `TernaryWeights` are
the matrices that hold codes; `convert` writes them in another format, `compare` says whether two files hold the same.
"""

from __future__ import annotations

from tritmark.harness.weights.source import WeightSource, open_weights
from tritmark.harness.weights.tensor import TensorInfo
from tritmark.harness.weights.ternary import Conventions, Holders, TernaryInfo, TernaryWeights, holders_of

__all__ = [
    "Conventions",
    "Holders",
    "TensorInfo",
    "TernaryInfo",
    "TernaryWeights",
    "WeightSource",
    "holders_of",
    "open_weights",
]
