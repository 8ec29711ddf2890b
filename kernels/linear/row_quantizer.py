"""How a layer quantizes its rows: activation_quantize, or hadamard_quantize for weights stored as W * S * H."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import Arrays, Axes, KernelKey, Launch, Op, Pipelined
from tritmark.kernels.activation_quantize.api import ActivationQuantized, activation_quantize
from tritmark.kernels.activation_quantize.spec import OP as ACTIVATION_QUANTIZE
from tritmark.kernels.activation_quantize.spec import key_for
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.hadamard_quantize.api import all_ones, hadamard_quantize, refuse_rows
from tritmark.kernels.hadamard_quantize.layer_argument import ARGUMENT, check_block
from tritmark.kernels.hadamard_quantize.spec import OPS, QUANTIZE
from tritmark.kernels.hadamard_quantize.spec import key_for as hadamard_key_for
from tritmark.kernels.public.foreign import AdoptedArguments

Signs = npt.NDArray[np.int8]
Hadamard = tuple[int, Signs | None]
"""The size of a block, and the signs (K,), -1 and 1, or None for none."""


class RowQuantizer:
    """activation_quantize of rows (M, K)."""

    op: Op = ACTIVATION_QUANTIZE
    function = "QuantizedLinear"
    """The layer's calls, where a device is chosen for them."""
    hadamard: Hadamard | None = None
    rotates = False
    constants: Arrays = MappingProxyType({})
    """The op's inputs other than the rows."""
    note = ""
    """What receipts report of it."""

    def noted(self, note: str) -> str:
        """The note of a receipt with this one's."""
        return "; ".join(filter(None, (note, self.note)))

    def key(self, dtype: str, device: str) -> KernelKey:
        """The key of the kernels that quantize rows of that dtype on a device."""
        return key_for(dtype, device)

    def axes(self, M: int, K: int) -> Axes:
        """The op's axes for rows (M, K)."""
        return {"M": M, "K": K}

    def inputs(self, x: Any) -> dict[str, Any]:
        """The op's inputs for rows (M, K)."""
        return {"x": x, **self.constants}

    def quantized(self, x: npt.NDArray[Any], threads: int | None, device: str) -> ActivationQuantized:
        """The op's outputs, by its public function. Raises that function's errors."""
        return activation_quantize(x, threads=threads, device=device)

    def floats(self, x: npt.NDArray[Any], threads: int | None) -> npt.NDArray[np.float32]:
        """The rows as the product takes them, not quantized, on the CPU."""
        return x.astype(np.float32, copy=False)

    def checked(self, M: int) -> dict[str, npt.NDArray[Any]]:
        """New arrays for the outputs in which rows that are not finite show on the host."""
        return {}

    def refuse(self, x: Any, done: Launch | Pipelined, checked: Arrays, *, flat: bool = False) -> None:
        """Raise InvalidArgumentError if a launch on rows x (M, K), whose outputs include `checked`, found one that is
        not finite. The message has the index in the flat array if `flat`."""
        dispatch.raise_for_bad(ACTIVATION_QUANTIZE, {"x": x}, done, flat=flat)

    def equals(self, other: RowQuantizer) -> bool:
        """Whether both give the same outputs for the same rows."""
        return not other.rotates


class RotatingQuantizer(RowQuantizer):
    """hadamard_quantize of rows (M, K) to int8."""

    op = OPS[QUANTIZE.dtype]
    rotates = True
    function = "QuantizedLinear with hadamard"

    def __init__(self, block: int, signs: Signs | None, K: int) -> None:
        self.hadamard = block, signs
        self._block, self._signs = block, all_ones(K) if signs is None else signs
        self.constants = {"signs": self._signs}
        self.note = f"activations rotated in blocks of {block}" + ("" if signs is None else ", with signs")

    def key(self, dtype: str, device: str) -> KernelKey:
        """See RowQuantizer."""
        return hadamard_key_for(dtype, QUANTIZE.dtype, device)

    def axes(self, M: int, K: int) -> Axes:
        """See RowQuantizer."""
        return {"M": M, "K": K, "block": self._block}

    def quantized(self, x: npt.NDArray[Any], threads: int | None, device: str) -> ActivationQuantized:
        """See RowQuantizer."""
        return hadamard_quantize(x, self._signs, block_size=self._block, threads=threads, device=device)

    def floats(self, x: npt.NDArray[Any], threads: int | None) -> npt.NDArray[np.float32]:
        """See RowQuantizer."""
        return hadamard_quantize(x, self._signs, block_size=self._block, dtype="float32", threads=threads)

    def checked(self, M: int) -> dict[str, npt.NDArray[Any]]:
        """See RowQuantizer."""
        return {"scale": np.empty(M, np.float32)}

    def refuse(self, x: Any, done: Launch | Pipelined, checked: Arrays, *, flat: bool = False) -> None:
        """See RowQuantizer. Kernels report such a row by a scale of NaN alone."""
        refuse_rows(x, checked["scale"])

    def equals(self, other: RowQuantizer) -> bool:
        """See RowQuantizer."""
        if not isinstance(other, RotatingQuantizer) or other._block != self._block:
            return False
        return other._signs is self._signs or np.array_equal(other._signs, self._signs)


PLAIN = RowQuantizer()


def row_quantizer(op: str, hadamard: Any, K: int) -> RowQuantizer:
    """The quantizer of a layer with K columns and this argument `hadamard`. Raises InvalidArgumentError unless that is
    None or a pair of a block and signs that fit."""
    if hadamard is None:
        return PLAIN
    if not isinstance(hadamard, tuple) or len(hadamard) != 2:
        legal = "(block_size, signs) or None"
        raise InvalidArgumentError(op=op, argument=ARGUMENT, found=f"{hadamard!r:.80}", legal=legal)
    block = check_block(op, hadamard[0], K)
    signs = AdoptedArguments(op).take(hadamard[1])
    if signs is None:
        return RotatingQuantizer(block, None, K)
    found = ""
    if not isinstance(signs, np.ndarray) or signs.shape != (K,):
        found = f"signs of shape {signs.shape}" if isinstance(signs, np.ndarray) else f"signs as {type(signs).__name__}"
    elif (other := np.flatnonzero((signs != 1) & (signs != -1))).size:
        found = f"the sign {signs[other[0]]} at index {other[0]}"
    if found:
        legal = f"an array of -1 and 1 in host memory, of shape ({K},), or None"
        raise InvalidArgumentError(op=op, argument=ARGUMENT, found=found, legal=legal)
    kept = signs.astype(np.int8)
    kept.setflags(write=False)
    return RotatingQuantizer(block, kept, K)
