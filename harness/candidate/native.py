"""A C function: from a .c or .cpp file that is compiled here, or from a .so.

The receipt proves three facts: the dynamic linker (dladdr) finds the called address under the function's name, the
address lies in the file with the receipt's hash, and the number of calls. It does not prove which code the function
calls. The device binds the function, so the native clock calls it like the device's own kernels.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritmark.harness.caches import runs_code
from tritmark.harness.candidate import compiling
from tritmark.harness.candidate.elf import NotALibraryError, exported
from tritmark.harness.candidate.located import digest_of
from tritmark.harness.candidate.manifest import Argument, ArgumentKind, Described, WithManifest
from tritmark.harness.candidate.nonfinite import first_nonfinite
from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import BadEnvironmentError, InvalidArgumentError, UsageError
from tritmark.harness.nearest import nearest
from tritmark.harness.record import HOST
from tritmark.harness.spec import (
    Arrays,
    Axes,
    CArgument,
    CodeFile,
    FunctionBinder,
    KernelKey,
    Tier,
    Variant,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tritmark.harness.providers import Installed

SUFFIXES = (*compiling.SUFFIXES, ".so")
_WORD = 8
"""Bytes of a register."""
_MOST_ARGUMENTS = 64
"""More than any op has. A device's call has this capacity."""


@dataclass(frozen=True, slots=True)
class NativeFile(WithManifest):
    """A .c, .cpp or .so file."""

    library: str = ""
    """Path of the compiled library; "" before compilation."""

    def compiled(self, installed: Installed) -> NativeFile:
        """This candidate with its compiled library, so that no other process compiles it. Raises UsageError and
        CompileError."""
        return replace(self, library=str(_library(self.described(installed, launched=False))))

    def variants(self, installed: Installed) -> Sequence[Variant]:
        """Compile the file if needed, without loading it. Raises UsageError and CompileError."""
        kernel = self.described(installed, launched=False)
        call = installed.registry.devices[HOST].function
        if call is None:
            raise UsageError(f"device {HOST!r} cannot call C functions; legal: a Device with `function`")
        library = Path(self.library) if Path(self.library).is_file() else _library(kernel)
        if not runs_code(library):
            raise BadEnvironmentError(
                f"{library} is on a file system mounted noexec", next_step="copy it to a folder on another file system"
            )
        if len(kernel.arguments) > _MOST_ARGUMENTS:
            raise kernel.located.error(
                kernel.located.find("arguments"),
                f"{len(kernel.arguments)} arguments; legal: at most {_MOST_ARGUMENTS} (name each once)",
            )
        data = library.read_bytes()
        _has(kernel, data)
        code = digest_of(data)
        variant = Variant(
            key=KernelKey(HOST, kernel.op.name, kernel.format, kernel.dtype),
            name=kernel.name,
            tier=Tier.CANDIDATE,
            summary=f"{kernel.function} of {kernel.path.name}",
            bind=partial(NativeLaunch, kernel, str(library.resolve()), code, call),
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
        """The compiler's warnings for the library; "" if there are none."""
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
    reported = kernel.located
    at = reported.find("function", kernel.function)
    mangled = [name for name in names if name.startswith(f"_Z{len(kernel.function)}{kernel.function}")]
    if mangled:
        raise reported.error(
            at, f'{kernel.path.name} has {kernel.function!r} as a C++ function ({mangled[0]}); legal: extern "C"'
        )
    plain = [name for name in names if not name.startswith("_")]
    raise reported.error(
        at, f"{kernel.path.name} has no function {kernel.function!r}; {nearest(kernel.function, plain)}"
    )


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
    if digest_of(Path(library).read_bytes()) != code:
        raise UsageError(f"{library}: changed while it was checked; next: run again on an unchanged file")
    try:
        return ctypes.CDLL(library)
    except OSError as error:
        raise UsageError(f"{library}: cannot be loaded: {error}") from None


def _symbol(function: Any, name: str, library: str) -> str:
    """The linker's name of the called address; "" if it lies in another file. An address from a resolver may have no
    name; it gets the name of the indirect function."""
    found = _Found()
    address = ctypes.cast(function, ctypes.c_void_p)
    if not ctypes.CDLL(None).dladdr(address, ctypes.byref(found)) or Path(found.file.decode()).resolve() != Path(
        library
    ):
        return ""
    if name in exported(Path(library).read_bytes(), indirect=True):
        return name
    return str(found.symbol.decode()) if found.address == address.value and found.symbol else ""


class NativeLaunch:
    """A C function bound to its arguments. The device calls it like its own kernels."""

    def __init__(
        self,
        kernel: Described,
        library: str,
        code: str,
        call: FunctionBinder,
        inputs: Arrays,
        outputs: Arrays,
        axes: Axes,
        threads: int,
    ) -> None:
        function = getattr(_loaded(library, code), kernel.function)
        self._op = kernel.op
        self._reports_bad = kernel.reports_bad
        self._inputs = inputs
        self._name = f"{kernel.name.removesuffix(kernel.function)}{_symbol(function, kernel.function, library)}"
        given = _Given(kernel, {**inputs, **outputs}, axes, threads)
        self._call = call(
            self._name,
            ctypes.cast(function, ctypes.c_void_p).value or 0,
            [given.value(argument) for argument in kernel.arguments],
            threads if any(argument.kind is ArgumentKind.THREADS for argument in kernel.arguments) else 1,
            (*inputs.values(), *outputs.values()),
        )
        self.run = self._call.run  # a call runs no Python of this class
        self.pointer = self._call.pointer

    @property
    def ran(self) -> str:
        """See Launch."""
        return self._call.ran

    @property
    def runs(self) -> int:
        """See Launch."""
        return self._call.runs

    @property
    def threads_used(self) -> int:
        """See Launch: the number that the function was given."""
        return self._call.threads_used

    @property
    def bad(self) -> int:
        """The index that the function stored in `bad`; without this argument, the index that the harness finds."""
        return self._call.bad if self._reports_bad else first_nonfinite(self._op, self._inputs)


@dataclass(frozen=True, slots=True)
class _Given:
    """The source of a function's arguments."""

    kernel: Described
    values: Mapping[str, Any]
    axes: Axes
    threads: int

    def value(self, argument: Argument) -> CArgument:
        """The argument as a register holds it."""
        match argument.kind:
            case ArgumentKind.AXIS:
                return _integer(self.axes[argument.name])
            case ArgumentKind.THREADS:
                return _integer(self.threads)
            case ArgumentKind.BAD:
                return None
            case ArgumentKind.STRIDE:
                array = self._array(argument.name)
                return _integer(array.strides[0] // array.itemsize)
        if argument.kind is ArgumentKind.INPUT and not self.kernel.tensor(argument.name).axes:
            return _number(self.kernel.tensor(argument.name).dtype, self._array(argument.name))
        return _integer(self._array(argument.name).ctypes.data)

    def _array(self, name: str) -> Any:
        if name not in self.values:
            raise InvalidArgumentError(
                op=self.kernel.op.name,
                argument=name,
                found=f"missing in {self.kernel.format}",
                legal=", ".join(self.values),
            )
        return self.values[name]


def _integer(value: int) -> CArgument:
    return False, value.to_bytes(_WORD, "little", signed=value < 0)


def _number(dtype: str, value: Any) -> CArgument:
    number = named_dtype(dtype).type(value)
    if number.dtype.kind in "iub":
        return _integer(int(number))
    return True, bytes(number.tobytes()).ljust(_WORD, b"\0")
