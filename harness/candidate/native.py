"""A function in C: from a .c or .cpp that is compiled here, or a .so.

How much is known of what ran: the address that is called lies in the file whose hash the receipt has, under the
function's name, as the dynamic linker tells (dladdr), and it was called so often. What the function itself calls, it
alone knows.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tritmark.harness.candidate import compiling
from tritmark.harness.candidate.elf import NotALibraryError, exported
from tritmark.harness.candidate.manifest import Argument, ArgumentKind, Described, WithManifest
from tritmark.harness.candidate.nonfinite import first_nonfinite
from tritmark.harness.errors import InvalidArgumentError, UsageError
from tritmark.harness.nearest import nearest
from tritmark.harness.record import HOST
from tritmark.harness.spec import Arrays, Axes, CodeFile, KernelKey, Launch, Tier, Variant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tritmark.harness.providers import Installed

SUFFIXES = (*compiling.SUFFIXES, ".so")


@dataclass(frozen=True, slots=True)
class NativeFile(WithManifest):
    """A .c, .cpp or .so."""

    library: str = ""
    """What it was compiled into, once it was."""

    def compiled(self, installed: Installed) -> NativeFile:
        """The same with its library, so that no further process asks the compiler for it. Raises UsageError and
        CompileError."""
        return replace(self, library=str(_library(self.described(installed, launched=False))))

    def variants(self, installed: Installed) -> Sequence[Variant]:
        """Compile it where that is needed. Raises UsageError and CompileError; loads nothing."""
        kernel = self.described(installed, launched=False)
        library = Path(self.library) if Path(self.library).is_file() else _library(kernel)
        data = library.read_bytes()
        _has(kernel, data)
        code = sha256(data).hexdigest()
        variant = Variant(
            key=KernelKey(HOST, kernel.op.name, kernel.format, kernel.dtype),
            name=kernel.name,
            tier=Tier.CANDIDATE,
            summary=f"{kernel.function} of {kernel.path.name}",
            bind=partial(_bind, kernel, str(library.resolve()), code),
            constraints=kernel.constraints,
            alignment=kernel.alignment,
            dense=kernel.dense,
            reports_nonfinite=kernel.reports_bad,
            workspace=kernel.workspace.value,
            code_hash=code,
            code=partial(_code, str(library.resolve()), kernel.function),
        )
        return (variant,)

    @property
    def warnings(self) -> str:
        """What the compiler said when the library was made; "" where it had nothing to say."""
        return compiling.warnings(Path(self.library))


def _library(kernel: Described) -> Path:
    return kernel.path if kernel.path.suffix == ".so" else compiling.compiled(kernel.path, kernel.options)


def _code(library: str, function: str, target: str, binaries: frozenset[str] = frozenset()) -> tuple[CodeFile, ...]:
    machine = platform.machine().replace("_", "-")
    return (CodeFile(kind="native", name=Path(library).name, entries=(function,), target=machine, path=library),)


def _has(kernel: Described, data: bytes) -> None:
    try:
        names = exported(data)
    except NotALibraryError as error:
        raise UsageError(f"{kernel.path}: {error}; legal: a shared library of this machine") from None
    if kernel.function in names:
        return
    told = kernel.located
    at = told.find("function", kernel.function)
    mangled = [name for name in names if name.startswith(f"_Z{len(kernel.function)}{kernel.function}")]
    if mangled:
        raise told.error(
            at, f'{kernel.path.name} has {kernel.function!r} as a C++ function ({mangled[0]}); legal: extern "C"'
        )
    plain = [name for name in names if not name.startswith("_")]
    raise told.error(at, f"{kernel.path.name} has no function {kernel.function!r}; {nearest(kernel.function, plain)}")


class _Found(ctypes.Structure):
    """Dl_info of dlfcn.h."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


@cache
def _loaded(library: str, code: str) -> ctypes.CDLL:
    if sha256(Path(library).read_bytes()).hexdigest() != code:
        raise UsageError(f"{library}: changed while it was checked; legal: a file that stays as it is")
    try:
        return ctypes.CDLL(library)
    except OSError as error:
        raise UsageError(f"{library}: cannot be loaded: {error}") from None


def _symbol(function: Any, library: str) -> str:
    """The name under which the linker knows the address that is called; "" where it lies in another file."""
    found = _Found()
    address = ctypes.cast(function, ctypes.c_void_p)
    if not ctypes.CDLL(None).dladdr(address, ctypes.byref(found)) or found.address != address.value or not found.symbol:
        return ""
    same = Path(found.file.decode()).resolve() == Path(library)
    return str(found.symbol.decode()) if same else ""


def _bind(
    kernel: Described, library: str, code: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int
) -> Launch:
    return NativeLaunch(kernel, library, code, inputs, outputs, axes, threads)


class NativeLaunch:
    """A C function bound to its arguments."""

    pointer = None
    """Its signature is not the native clock's, so Python's times it."""

    def __init__(
        self, kernel: Described, library: str, code: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int
    ) -> None:
        function = getattr(_loaded(library, code), kernel.function)
        function.restype = None
        self._kernel = kernel
        self._inputs = inputs
        self._arrays = (*inputs.values(), *outputs.values())  # keeps them alive
        self._bad = ctypes.c_int64(-1)
        self._function = function
        self._symbol = _symbol(function, library)
        given = _Given(kernel, {**inputs, **outputs}, axes, threads, self._bad)
        self._arguments = tuple(given.value(argument) for argument in kernel.arguments)
        self.ran = ""
        self.runs = 0
        takes_threads = any(argument.kind is ArgumentKind.THREADS for argument in kernel.arguments)
        self.threads_used = threads if takes_threads else 1

    def run(self) -> None:
        """Call it once."""
        self._bad.value = -1
        self._function(*self._arguments)
        self.runs += 1
        self.ran = f"{self._kernel.name.removesuffix(self._kernel.function)}{self._symbol}"

    @property
    def bad(self) -> int:
        """What the function left in `bad`; of one that has no such argument, what the harness finds in the inputs."""
        if self._kernel.reports_bad:
            return self._bad.value
        return first_nonfinite(self._kernel.op, self._inputs)


@dataclass(frozen=True, slots=True)
class _Given:
    """What a function's arguments are taken from."""

    kernel: Described
    values: Mapping[str, Any]
    axes: Axes
    threads: int
    bad: ctypes.c_int64

    def value(self, argument: Argument) -> Any:
        """The argument as ctypes passes it."""
        match argument.kind:
            case ArgumentKind.AXIS:
                return (ctypes.c_int32 if argument.int32 else ctypes.c_int64)(self.axes[argument.name])
            case ArgumentKind.THREADS:
                return ctypes.c_int(self.threads)
            case ArgumentKind.BAD:
                return ctypes.byref(self.bad)
            case ArgumentKind.STRIDE:
                array = self._array(argument.name)
                return ctypes.c_int64(array.strides[0] // array.itemsize)
        if argument.kind is ArgumentKind.INPUT and not self.kernel.tensor(argument.name).axes:
            return _number(self.kernel.tensor(argument.name).dtype, self._array(argument.name))
        return ctypes.c_void_p(self._array(argument.name).ctypes.data)

    def _array(self, name: str) -> Any:
        if name not in self.values:
            raise InvalidArgumentError(
                op=self.kernel.op.name,
                argument=name,
                found=f"not there in {self.kernel.format}",
                legal=", ".join(self.values),
            )
        return self.values[name]


def _number(dtype: str, value: Any) -> Any:
    kind = np.ctypeslib.as_ctypes_type(np.dtype(dtype))
    return kind(np.dtype(dtype).type(value).item())
