"""The channel between parent and worker: pickled messages over a socket pair, with descriptors of shared memory.

Every request carries a random number that its reply must repeat. Replies are unpickled with a fixed set of classes, of
tritmark, NumPy and a few others: a reply can carry numbers and arrays, not function calls.
"""

from __future__ import annotations

import io
import pickle
import secrets
import socket
import weakref
from enum import Enum
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.worker.shared import SharedBlock

LARGE = 1 << 16
"""Arguments that are arrays of this many bytes or more are sent through shared memory."""

_NONCE = 8
_COUNT = 4
_AT_ONCE = 250
"""The most descriptors in one message of the socket (Linux allows 253)."""

_FUNCTIONS = {
    ("array", "_array_reconstructor"),
    ("array", "array"),
    ("copyreg", "__newobj__"),
    ("copyreg", "_reconstructor"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
}
_PACKAGES = ("tritmark", "numpy", "ml_dtypes")
_BUILTINS = frozenset({"object", "dict", "list", "tuple", "set", "frozenset", "complex", "bytearray", "range", "slice"})


class Shipped:
    """A cache of blocks of read-only arrays that were sent before, so that each is copied only once."""

    def __init__(self) -> None:
        self._blocks: dict[int, tuple[weakref.ref[npt.NDArray[Any]], SharedBlock]] = {}

    def block(self, array: npt.NDArray[Any]) -> SharedBlock:
        """A block with the array's bytes."""
        known = self._blocks.get(id(array))
        if known is not None and known[0]() is array:
            return known[1]
        self._blocks = {key: (ref, block) for key, (ref, block) in self._blocks.items() if ref() is not None}
        block = SharedBlock(array.nbytes)
        block.bytes[...] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        block.unload()  # only the worker reads it
        if not array.flags.writeable:
            self._blocks[id(array)] = weakref.ref(array), block
        return block


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, shipped: Shipped | None) -> None:
        buffers: list[memoryview] = []

        def beside(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes < LARGE:
                return True
            buffers.append(raw)
            return False

        super().__init__(file, protocol=5, buffer_callback=beside)
        self.blocks: list[SharedBlock] = []
        self.buffers = buffers
        """The bytes of large arrays, which follow the message, so that the receiver does not copy them."""
        self._shipped = shipped

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, SharedBlock):
            self.blocks.append(obj)
            return "block", len(self.blocks) - 1, obj.nbytes, obj.edge, obj.writable
        if self._shipped is not None and isinstance(obj, np.ndarray) and obj.nbytes >= LARGE:
            self.blocks.append(self._shipped.block(obj))
            return "array", len(self.blocks) - 1, obj.nbytes, obj.shape, obj.dtype
        return None

    def reducer_override(self, obj: Any) -> Any:
        # Python 3.11.0 to 3.11.3 pickles members as calls of getattr, which a reply must not contain.
        return (type(obj), (obj.value,)) if isinstance(obj, Enum) else NotImplemented


class _Unpacker(pickle.Unpickler):
    def __init__(self, data: io.BytesIO, buffers: list[bytes], descriptors: list[int], trusted: bool) -> None:
        super().__init__(data, buffers=buffers)
        self._descriptors = descriptors
        self._trusted = trusted

    def persistent_load(self, pid: Any) -> Any:
        kind, index, nbytes, *rest = pid
        if not self._trusted:
            raise pickle.UnpicklingError("a worker's reply must not contain memory blocks")
        if kind == "block":
            edge, writable = rest
            return SharedBlock(nbytes, edge, self._descriptors[index], writable=writable)
        shape, dtype = rest
        array = np.ndarray(shape, dtype, buffer=SharedBlock(nbytes, "end", self._descriptors[index]).bytes)
        array.setflags(write=False)
        return array

    def find_class(self, module: str, name: str) -> Any:
        if not self._trusted and (module, name) not in _FUNCTIONS:
            known = module.split(".", maxsplit=1)[0] in _PACKAGES or (module == "builtins" and name in _BUILTINS)
            if not known or not isinstance(super().find_class(module, name), type):
                raise pickle.UnpicklingError(f"a worker's reply may not hold {module}.{name}")
        return super().find_class(module, name)


class GarbledError(Exception):
    """A message is not a reply to the last request."""


class Channel:
    """One end of the channel. `trusted`: the other end is the parent."""

    def __init__(self, connection: Connection, *, trusted: bool) -> None:
        self.connection = connection
        self._trusted = trusted
        self._nonce = b""
        self._shipped = None if trusted else Shipped()

    def send(self, message: Any) -> None:
        """Send a request (the parent), or the reply to the last request (the worker)."""
        file = io.BytesIO()
        packer = _Packer(file, self._shipped)
        packer.dump(message)
        if not self._trusted:
            self._nonce = secrets.token_bytes(_NONCE)
        counts = (len(each).to_bytes(_COUNT, "little") for each in (packer.blocks, packer.buffers))
        self.connection.send_bytes(self._nonce + b"".join(counts) + file.getvalue())
        for buffer in packer.buffers:
            self.connection.send_bytes(buffer)
        descriptors = [block.descriptor for block in packer.blocks]
        if descriptors:
            with socket.fromfd(self.connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as end:
                for start in range(0, len(descriptors), _AT_ONCE):
                    reduction.sendfds(end, descriptors[start : start + _AT_ONCE])

    def receive(self) -> Any:
        """The next message. Raises EOFError if the other end is closed, GarbledError if the message is not a reply to
        the last request."""
        body = io.BytesIO(self.connection.recv_bytes())
        nonce = body.read(_NONCE)
        count, beside = (int.from_bytes(body.read(_COUNT), "little") for _ in range(2))
        if self._trusted:
            self._nonce = nonce
        elif nonce != self._nonce or count:
            raise GarbledError("it does not answer the request")
        buffers = [self.connection.recv_bytes() for _ in range(beside)]
        descriptors: list[int] = []
        while len(descriptors) < count:
            with socket.fromfd(self.connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as end:
                descriptors += reduction.recvfds(end, min(_AT_ONCE, count - len(descriptors)))
        try:
            return _Unpacker(body, buffers, descriptors, self._trusted).load()
        except Exception as error:
            if self._trusted:
                raise
            raise GarbledError(f"{type(error).__name__}: {error}") from error
