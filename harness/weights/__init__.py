"""Read matrices of floats and of ternary codes from untrusted weight files.

`open_weights` takes a .safetensors file, a folder of them, a .gguf or .onnx file, or `hf:OWNER/NAME`. A file is checked
in full before any tensor is read; every fault raises WeightFileError. `TernaryWeights` lists the matrices that hold
codes, `convert` writes them in another format, and `compare` reports whether two files hold the same weights.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tritmark.harness.weights.source import WeightSource as WeightSource
    from tritmark.harness.weights.source import open_weights as open_weights
    from tritmark.harness.weights.tensor import TensorInfo as TensorInfo
    from tritmark.harness.weights.ternary import Conventions as Conventions
    from tritmark.harness.weights.ternary import Holders as Holders
    from tritmark.harness.weights.ternary import TernaryInfo as TernaryInfo
    from tritmark.harness.weights.ternary import TernaryWeights as TernaryWeights
    from tritmark.harness.weights.ternary import holders_of as holders_of

# Formats import `format_names` of this package, and readers of files are costly to import.
_MODULES = {
    "source": ("WeightSource", "open_weights"),
    "tensor": ("TensorInfo",),
    "ternary": ("Conventions", "Holders", "TernaryInfo", "TernaryWeights", "holders_of"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
