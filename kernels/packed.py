"""Packed weights as one object: bytes, format, shape and scale."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import KernelKey
from tritmark.kernels import dispatch
from tritmark.kernels.formats import FORMATS

NATIVE = {"cpu": "tile64", "cuda": "row16"}
"""The format that each device's kernels read."""


@dataclass(frozen=True, eq=False)
class PackedWeights:
    """A ternary (N, K) matrix in a format's bytes. Raises InvalidArgumentError for bytes that the format refuses."""

    data: npt.NDArray[np.uint8]
    """The bytes, as FORMATS[format].pack gives them."""
    format: str
    shape: tuple[int, int]
    """(N, K): out_features, in_features."""
    scale: Any
    """float32: what code 1 stands for; one number, or one a block where the format has block scales."""
    variant: str | None = None
    """The variant that products with these weights are forced to, unless the product names one itself."""
    _kept: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    """The weights in the layouts of devices, on them."""

    @classmethod
    def from_bytes(cls, data: npt.NDArray[np.uint8], format: str, shape: tuple[int, int]) -> PackedWeights:
        """Take bytes that were packed elsewhere: they are unpacked once, which checks every code and the scale."""
        _, scale = _format("PackedWeights", format).unpack(data, shape, tail="error")
        return cls(data, format, shape, scale)

    def unpack(self) -> tuple[npt.NDArray[np.int8], Any]:
        """Codes int8 (N, K) and the scale."""
        codes, scale = FORMATS[self.format].unpack(self.data, self.shape, tail="error")
        return codes, scale

    def dequantize(self) -> npt.NDArray[np.float32]:
        """The weights as float32 (N, K): code times scale, rounded once."""
        codes, scale = self.unpack()
        if np.ndim(scale):
            scale = np.repeat(scale, FORMATS[self.format].block, axis=1)
        return codes.astype(np.float32) * np.asarray(scale, dtype=np.float32)

    @property
    def repacks(self) -> bool:
        """Whether the kernels' own layout can hold these weights: it has one scale for the whole matrix."""
        return FORMATS[self.format].scale_per == "tensor"

    def native(self, device: str = "cpu") -> Any:
        """The same weights in the layout of that device's kernels, repacked at the first use and kept.

        uint8, a NumPy array for the CPU, an array on the device otherwise. Raises InvalidArgumentError for a format with block scales,
        DeviceError where the device cannot take them.
        """
        found = self._kept.get(device)
        if found is None:
            found = self._repacked(NATIVE[device])
            if device == "cuda":
                from tritmark.kernels.cuda.transfer import upload

                found = upload(found)
            self._kept[device] = found
        return found

    def _repacked(self, format: str) -> npt.NDArray[np.uint8]:
        if self.format == format:
            return self.data
        if not self.repacks:
            raise InvalidArgumentError(
                op="PackedWeights.native", argument="format", found=repr(self.format), legal="a format with one scale for the tensor"
            )
        return FORMATS[format].pack(*self.unpack())


def pack_weights(
    codes: npt.NDArray[np.int8], scale: Any, *, format: str = NATIVE["cpu"], variant: str | None = None, device: str = "cpu"
) -> PackedWeights:
    """Pack ternary codes int8 (N, K) and their scale.

    `scale` is one float32, or one a block (N, K/256) for formats with block scales. `variant` forces the kernel, of `device`, of the
    products with these weights. Raises InvalidArgumentError for an unknown format, a code outside {-1, 0, 1}, a scale that the format
    cannot store, and a shape whose tail the format would lose, and NoCompatibleKernelError for a variant that cannot run here or not on
    that format.
    """
    data = _format("pack_weights", format).pack(codes, scale, tail="error")
    kept = np.asarray(scale, dtype=np.float32) if np.ndim(scale) else np.float32(scale)
    N, K = codes.shape
    if variant is not None:
        key = KernelKey(
            device, "ternary_matmul", NATIVE.get(device, format) if FORMATS[format].scale_per == "tensor" else format, "float32"
        )
        dispatch.select(key, {"M": 1, "N": int(N), "K": int(K)}, variant)
    return PackedWeights(data, format, (int(N), int(K)), kept, variant)


def _format(op: str, name: str) -> Any:
    if name not in FORMATS:
        raise InvalidArgumentError(op=op, argument="format", found=repr(name), legal=", ".join(FORMATS))
    return FORMATS[name]
