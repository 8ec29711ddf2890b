"""The C kernel as variants on tritmark's device "cpu", through ctypes."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Sequence
from functools import cache, partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tritmark.harness.spec import Arrays, Axes, CodeFile, KernelKey, Launch, MaxSize, Tier, Variant
from tritmark_base3.format import BASE3

KINDS = {"int32": 0, "float32": 1, "bfloat16": 2}
"""The numbers of output dtypes in matmul.c."""
MAX_K = (1 << 24) - 1
"""The largest K for which 128 * K fits the int32 sums."""
FUNCTION = "base3_matmul"


def _library() -> Path:
    found = find_spec("tritmark_base3._matmul")
    if found is None or found.origin is None:
        raise ImportError("tritmark_base3 was installed without its C kernel")
    return Path(found.origin)


LIBRARY = _library()
CODE_HASH = sha256(LIBRARY.read_bytes()).hexdigest()


@cache
def _function() -> Any:
    """Loaded at the first bind, in the process that runs it. ctypes releases the GIL during calls."""
    function = ctypes.CDLL(str(LIBRARY))[FUNCTION]
    function.argtypes = [ctypes.c_void_p]
    return function


class Arguments(ctypes.Structure):
    """The struct of matmul.c."""

    _fields_ = (
        ("ran", ctypes.c_char_p),
        ("runs", ctypes.c_int64),
        ("activations", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("act_scale", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("stride", ctypes.c_int64),
        ("M", ctypes.c_int64),
        ("N", ctypes.c_int64),
        ("K", ctypes.c_int64),
        ("weight_scale", ctypes.c_float),
        ("kind", ctypes.c_int32),
    )


class NativeCall(ctypes.Structure):
    """The call for the clock of the device "cpu", see tritmark.harness.spec.Launch.pointer."""

    _fields_ = (("function", ctypes.c_void_p), ("arguments", ctypes.c_void_p))


class Base3Launch:
    """The kernel bound to its arguments. The C code reports which kernel ran, and how often."""

    threads_used = 1
    bad = -1

    def __init__(self, kind: int, inputs: Arrays, outputs: Arrays, axes: Axes) -> None:
        arrays = [inputs["activations"], inputs["weights"], inputs["act_scale"], outputs["out"]]
        self._arrays = arrays  # keeps them alive
        self._arguments = Arguments(
            None,
            0,
            *(array.ctypes.data for array in arrays),
            arrays[0].strides[0],
            axes["M"],
            axes["N"],
            axes["K"],
            float(inputs["weight_scale"]),
            kind,
        )
        self._function = _function()
        self._address = ctypes.addressof(self._arguments)
        self._call = NativeCall(ctypes.cast(self._function, ctypes.c_void_p), self._address)

    def run(self) -> None:
        """Run once."""
        self._function(self._address)

    @property
    def ran(self) -> str:
        """The variant's name, after it has run."""
        return (self._arguments.ran or b"").decode()

    @property
    def runs(self) -> int:
        """The number of runs."""
        return int(self._arguments.runs)

    @property
    def pointer(self) -> int:
        """Address of the native call."""
        return ctypes.addressof(self._call)


def _bind(kind: int, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    return Base3Launch(kind, inputs, outputs, axes)


def _code(target: str, binaries: frozenset[str] = frozenset()) -> Sequence[CodeFile]:
    machine = platform.machine().replace("_", "-")
    return (CodeFile(kind="native", name=LIBRARY.name, entries=(FUNCTION,), target=machine, path=str(LIBRARY)),)


VARIANTS = tuple(
    Variant(
        key=KernelKey("cpu", "ternary_matmul", BASE3.name, dtype),
        name="scalar",  # a step of the device's ladder, so that TRITMARK_FORCE_ISA finds it
        tier=Tier.BASELINE,
        summary="plain C, a row of weights unpacked for 8 rows of activations",
        bind=partial(_bind, kind),
        constraints=(MaxSize("K", MAX_K),),
        code_hash=CODE_HASH,
        code=_code,
    )
    for dtype, kind in KINDS.items()
)
