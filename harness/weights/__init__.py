"""Read matrices of floats and of ternary codes from untrusted weight files.

`open_weights` takes a .safetensors file, a folder of them, a .gguf or .onnx file, or `hf:OWNER/NAME`. A file is checked
in full before any tensor is read; every fault raises WeightFileError. `TernaryWeights` lists the matrices that hold
codes, `convert` writes them in another format, and `compare` reports whether two files hold the same weights.
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
