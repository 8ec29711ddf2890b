"""Times and peak memory of ops over a vector or rows: quantize, dequantize, and on a GPU convert and pack.

Times drift with the machine and are for orientation; regressions are judged on the ratios to the anchor (see
anchor.py).
"""

from __future__ import annotations

from . import shapes
from .cases import ONCE, Bound, on_gpu


class Cpu:
    """On the host, with a thread for each core; buffers are made beforehand. `n`: values."""

    params = (shapes.VECTOR_OPS, shapes.CPU, shapes.SIZES)
    param_names = ("op", "variant", "n")
    rounds, repeat, warmup_time = ONCE

    def setup(self, op: str, variant: str, n: int) -> None:
        self.bound = Bound(op, variant, shapes.vector_shape(op, n))
        self.bound.launch.run()

    def time_call(self, op: str, variant: str, n: int) -> None:
        self.bound.launch.run()


class Memory:
    """The most that the process held, Python and NumPy included, at one shape."""

    params = (shapes.VECTOR_OPS, shapes.CPU, shapes.SIZES[-1:])
    param_names = ("op", "variant", "n")

    def setup(self, op: str, variant: str, n: int) -> None:
        self.bound = Bound(op, variant, shapes.vector_shape(op, n))

    def peakmem_call(self, op: str, variant: str, n: int) -> None:
        self.bound.launch.run()


class Cuda:
    """On a GPU, the launch included; skipped where there is none."""

    params = (shapes.CUDA_VECTOR_OPS, shapes.CUDA_VECTOR, shapes.CUDA_SIZES)
    param_names = ("op", "variant", "n")
    rounds, repeat, warmup_time = ONCE

    def setup(self, op: str, variant: str, n: int) -> None:
        self.bound = Bound(op, variant, shapes.vector_shape(op, n))
        self.bound.launch.run()

    @on_gpu
    def time_call(self, op: str, variant: str, n: int) -> None:
        self.bound.launch.run()
