"""The public functions of the ops: those in `__all__` of an op's `api.py` and `batch.py`.

stubs.py writes functions.pyi, from which type checkers and editors know them. All are imported here: an op's function
often has the name of its package, so a lazy import of one would find the other.
"""

from __future__ import annotations

from tritmark.kernels.ops import modules

_FOUND = dict(sorted((name, getattr(module, name)) for module in modules("api", "batch") for name in module.__all__))
__all__ = list(_FOUND)
globals().update(_FOUND)
