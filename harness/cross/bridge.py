"""Makes peers from the functions of a user's library. `Peer.missing` and `Peer.bind` load the library, and nothing else
does. Call them in a process that may crash."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.cross.description import LOGICAL, LibraryArgument, LibraryFunction, read_description
from tritmark.harness.errors import InvalidArgumentError, TritmarkError
from tritmark.harness.spec import Arrays, Axes, Launch, Op, Peer
from tritmark.harness.validate.compare import expectations, is_float

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed


@dataclass(frozen=True, slots=True)
class CppLibrary:
    """A shared library and the TOML file that describes its functions ("": the library's path with suffix .toml)."""

    path: str
    description: str = ""
    parts: tuple[str, ...] = ()
    """Files with further functions of the same library."""

    def peers(self, installed: Installed) -> tuple[Peer, ...]:
        """A peer for each function, format and dtype. Raises UsageError for an invalid description.

        A library that is missing or cannot be loaded still has its peers, and `missing` reports why. A library without
        file and description has a peer for each op.
        """
        path = Path(self.path).absolute()
        described = Path(self.description) if self.description else path.with_suffix(".toml")
        if not described.exists() and not path.exists():
            return tuple(_nowhere(path, op, installed) for op in installed.ops.values())
        functions = read_description(described, installed, tuple(map(Path, self.parts)))
        return tuple(_peer(path, function) for function in functions)


def bridge(library: Path, description: Path | None, installed: Installed) -> tuple[Peer, ...]:
    """The peers of a library, see CppLibrary."""
    return CppLibrary(str(library), str(description or "")).peers(installed)


_BLOCK = 1 << 18
"""Elements whose neighbours are computed at a time."""

_NOTHING = "labs"
"""A C library function that takes one register. The calling conventions let it ignore further arguments."""


class BridgeError(TritmarkError, RuntimeError):
    """A function of the library could not be called, or reported a failure."""


class _Call:
    """A function bound to its arguments. `owners` keep the arrays of pointer arguments alive."""

    threads_used = 1
    """Unknown; 1 by convention."""
    bad = -1
    pointer = None

    def __init__(
        self, function: Any, symbol: str, arguments: tuple[Any, ...], owners: tuple[Any, ...] = (), status: bool = False
    ) -> None:
        self._function, self._symbol, self._arguments, self._owners, self._status = (
            function,
            symbol,
            arguments,
            owners,
            status,
        )
        self.ran = ""
        self.runs = 0

    @property
    def idle(self) -> Launch:
        """A call of an empty function with the same arguments, to measure the cost of the call itself."""
        nothing = ctypes.CDLL(None)[_NOTHING]
        nothing.restype, nothing.argtypes = self._function.restype, self._function.argtypes
        return _Call(nothing, _NOTHING, self._arguments)

    def run(self) -> None:
        """Call the function once, without the GIL. Raises BridgeError for a nonzero status."""
        returned = self._function(*self._arguments)
        self.ran = self._symbol
        self.runs += 1
        if self._status and returned:
            raise BridgeError(f"{self._symbol} returned status {returned}; legal: 0 (success)")


def _peer(path: Path, function: LibraryFunction) -> Peer:
    key = function.key
    return Peer(
        name=function.name or f"{path.name}:{function.symbol}",
        op=key.op,
        formats=frozenset({key.format}),
        dtypes=frozenset({key.dtype}),
        source=f"{function.source or path}, {function.symbol}",
        version=partial(_version, path),
        missing=partial(_missing, path, function.symbol),
        encode=partial(_encode, function),
        bind=partial(_bind, path, function),
        outputs=function.outputs,
        reference=function.reference,
        error_bound={"exact": None, "rounded": partial(_one_ulp, function), "op": partial(_own_bound, function)}[
            function.bound
        ],
    )


def _nowhere(path: Path, op: Op, installed: Installed) -> Peer:
    """The peer of a library that has neither a file nor a description."""
    keys = installed.keys(op.name)

    def unusable(*_: Any) -> Any:
        raise BridgeError(f"{path} was not found, and it has no description")

    return Peer(
        name=path.name,
        op=op.name,
        formats=frozenset(key.format for key in keys),
        dtypes=frozenset(key.dtype for key in keys),
        source=str(path),
        version=lambda: "",
        missing=lambda: f"not found: {path}",
        encode=unusable,
        bind=unusable,
        outputs=tuple(tensor.name for tensor in op.outputs),
    )


@cache
def _opened(path: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(path))


def _load(path: Path) -> ctypes.CDLL | str:
    """The library, or why it cannot be used."""
    if not path.is_file():
        return f"not found: {path}"
    try:
        return _opened(path)
    except OSError as error:
        return f"cannot be loaded: {error}"


def _missing(path: Path, symbol: str) -> str | None:
    library = _load(path)
    if isinstance(library, str):
        return library
    return None if hasattr(library, symbol) else f"not built: symbol {symbol} is not in {path}"


def _version(path: Path) -> str:
    from hashlib import sha256

    return f"sha256:{sha256(path.read_bytes()).hexdigest()}"


def _encode(function: LibraryFunction, inputs: Arrays, axes: Axes) -> Arrays:
    return inputs if function.encode == LOGICAL else function.op.encode(inputs, axes, function.encode)


def _bind(path: Path, function: LibraryFunction, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    why = _missing(path, function.symbol)
    library = _load(path)
    if why is not None or isinstance(library, str):
        raise BridgeError(why or str(library))
    symbol = library[function.symbol]  # a new object, so that two descriptions of a symbol do not share types
    symbol.restype = ctypes.c_int if function.status else None
    symbol.argtypes = [argument.ctype for argument in function.arguments]
    owners: list[npt.NDArray[Any]] = []
    passed: list[Any] = []
    for argument in function.arguments:
        if argument.kind in {"input", "output"}:
            array = _array(function, argument, inputs if argument.kind == "input" else outputs)
            owners.append(array)
            passed.append(ctypes.c_void_p(array.ctypes.data))
        else:
            values: Mapping[str, Any] = {"axis": axes, "scalar": inputs, "threads": {argument.name: threads}}[
                argument.kind
            ]
            passed.append(argument.ctype(np.asarray(values[argument.name]).item()))
    return _Call(symbol, function.symbol, tuple(passed), tuple(owners), function.status)


def _array(function: LibraryFunction, argument: LibraryArgument, arrays: Arrays) -> npt.NDArray[Any]:
    def refuse(found: str, legal: str) -> InvalidArgumentError:
        return InvalidArgumentError(op=function.symbol, argument=argument.name, found=found, legal=legal)

    if argument.name not in arrays:
        raise refuse(f"not among the arrays of encoding {function.encode}", ", ".join(arrays))
    array = np.asarray(arrays[argument.name])
    wrong = argument.refusal(array.dtype)
    if wrong is not None:
        raise refuse(f"{array.dtype}", f"an array of {argument.type}, as in the declaration")
    if not array.flags.c_contiguous:
        raise refuse(f"strided {array.strides}", "C-contiguous")
    return array


def _one_ulp(function: LibraryFunction, inputs: Arrays, axes: Axes) -> dict[str, Any]:
    """An error bound of 1 ulp: the distance from the exact value to the neighbours of the rounded one; 0 at
    infinity."""
    found = {}
    for expected in expectations(function.op, axes, function.key, function.op.reference(inputs, axes, function.key)):
        if not is_float(expected.values.dtype):
            found[expected.name] = np.zeros(expected.values.shape)
            continue
        values, exact = expected.values.reshape(-1), expected.exact.reshape(-1)
        bound = np.empty(values.size)
        for start in range(0, values.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            bound[part] = _neighbours(values[part], exact[part].astype(np.float64))
        found[expected.name] = bound.reshape(expected.values.shape)
    return {name: bound for name, bound in found.items() if name in function.outputs}


def _neighbours(values: npt.NDArray[Any], exact: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    infinity = values.dtype.type(np.inf)
    with np.errstate(all="ignore"):
        apart = [np.abs(np.nextafter(values, towards).astype(np.float64) - exact) for towards in (-infinity, infinity)]
    near = [np.where(np.isfinite(each), each, 0.0) for each in apart]
    found: npt.NDArray[np.float64] = np.where(np.isfinite(exact), np.maximum(*near), 0.0)
    return found


def _own_bound(function: LibraryFunction, inputs: Arrays, axes: Axes) -> dict[str, Any]:
    """The bound that the op's reference computes."""
    reference = function.op.reference(inputs, axes, function.key)
    return {name: reference[f"{name}.bound"] for name in function.outputs}
