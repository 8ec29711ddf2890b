"""Times and peak memory of products at layer shapes of bitnet-b1.58-2B-4T. For the use of times see quantize.py."""

from __future__ import annotations

from . import shapes
from .cases import ONCE, Bound, on_gpu


class Cpu:
    """Ternary weights on the host, with a thread for each core."""

    params = (shapes.PRODUCT_OPS, shapes.CPU, shapes.LAYERS)
    param_names = shapes.PARAMETERS
    rounds, repeat, warmup_time = ONCE

    def setup(self, op: str, variant: str, shape: str) -> None:
        self.bound = Bound(op, variant, shape)
        self.bound.launch.run()

    def time_call(self, op: str, variant: str, shape: str) -> None:
        self.bound.launch.run()


class Memory:
    """The most that the process held, Python and NumPy included, at one shape."""

    params = (shapes.PRODUCT_OPS, shapes.CPU, shapes.LAYERS[:1])
    param_names = shapes.PARAMETERS

    def setup(self, op: str, variant: str, shape: str) -> None:
        self.bound = Bound(op, variant, shape)

    def peakmem_call(self, op: str, variant: str, shape: str) -> None:
        self.bound.launch.run()


class Cuda:
    """On a GPU, the launch included, mixed precision too; skipped where there is none."""

    params = (shapes.CUDA_PRODUCT_OPS, shapes.CUDA_PRODUCT, shapes.LAYERS)
    param_names = shapes.PARAMETERS
    rounds, repeat, warmup_time = ONCE

    def setup(self, op: str, variant: str, shape: str) -> None:
        self.bound = Bound(op, variant, shape)
        self.bound.launch.run()

    @on_gpu
    def time_call(self, op: str, variant: str, shape: str) -> None:
        self.bound.launch.run()
