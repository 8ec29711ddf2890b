"""Maps for the bulk tensor copy engine: the arguments of the driver."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tritmark.harness.errors import DeviceUnavailableError
from tritmark.harness.machine import libcuda
from tritmark.kernels.cuda.context import cuda_context
from tritmark.kernels.cuda.driver.tensor_map import ENCODE, NBYTES, NO_MAP, TensorMap, encoded
from tritmark.kernels.ternary_matmul import cuda_gemm
from tritmark.kernels.ternary_matmul_a16 import cuda as cuda_a16


class Library:
    """The driver's library, of which one function is used."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.asked: list[tuple[Any, ...]] = []

    def cuTensorMapEncodeTiled(self, to: Any, *asked: Any) -> int:  # noqa: N802
        assert to.value % 64 == 0
        self.asked.append(asked)
        ctypes.memmove(to.value, bytes(range(NBYTES)), NBYTES)
        return self.code


def test_a_map_is_what_the_driver_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(0)
    monkeypatch.setattr(libcuda, "library", lambda: library)
    made = encoded(0x1000, (100, 7, 112, 64, 16, 2))
    assert made.tobytes() == bytes(range(NBYTES))
    ((dtype, rank, address, sizes, apart, box, steps, interleave, swizzle, promotion, fill),) = library.asked
    assert (dtype, rank, address.value, interleave, swizzle, promotion, fill) == (0, 2, 0x1000, 0, 2, 2, 0)
    assert ([*sizes], [*apart], [*box], [*steps]) == ([100, 7], [112], [64, 16], [1, 1])


def test_what_the_driver_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libcuda, "library", lambda: Library(1))
    with pytest.raises(DeviceUnavailableError, match=rf"7 rows of 100 bytes at 0x1000: {ENCODE}"):
        encoded(0x1000, (100, 7, 112, 64, 16, 2))


@pytest.mark.cuda
def test_the_products_maps_hold_their_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A box of weights is the bytes of a stage, one of activations its columns, one of outputs 64 of as many rows;
    unaligned rows have none, and outputs of 32 bits."""
    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    here, axes = cuda_context(), {"M": 20, "N": 304, "K": 400}
    weights = here.array((304 * 112,), np.uint8)
    out, wide = here.array((20, 304), np.float16), here.array((20, 304), np.float32)
    for instance in (*cuda_gemm.WGMMA, *cuda_a16.WGMMA):
        dtype = np.dtype(np.int8 if instance in cuda_gemm.WGMMA else np.float16)
        activations, apart = here.array((20, 400), dtype), 400 * dtype.itemsize
        rows, high = instance.tile
        of_a, of_w, of_out = instance.maps(activations, apart, weights, out, axes)
        assert isinstance(of_a, TensorMap)
        assert isinstance(of_w, TensorMap)
        box_rows = 32 if instance.last else rows
        assert (of_a.width, of_a.height, of_a.apart, of_a.box) == (apart, 20, apart, (128, box_rows))
        # A panel is 128 bytes of activations, and a quarter of a byte of weights for each of them.
        width = 32 // dtype.itemsize * instance.panels
        assert (of_w.width, of_w.height, of_w.apart, of_w.box) == (112, 304, 112, (width, high))
        assert of_a.numbers[-1] == 3
        assert of_w.numbers[-1] == {16: 0, 32: 1, 64: 2}[width]
        assert high <= 256
        if instance.split > 1:
            assert of_out is NO_MAP
        else:
            assert isinstance(of_out, TensorMap)
            found = of_out.width, of_out.height, of_out.apart, of_out.box
            assert found == (608, 20, 608, (128, box_rows))
        assert instance.maps(activations, apart + 1, weights, out, axes)[0] is NO_MAP
        assert instance.maps(activations, apart, weights, wide, axes)[2] is NO_MAP
        assert instance.maps(activations, apart, weights, out.view((1, 304), offset=2), axes)[2] is NO_MAP
        assert instance.maps(activations, apart, weights, out, axes | {"N": 300})[2] is NO_MAP
