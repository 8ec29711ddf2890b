"""tritmark in PyTorch: the ops `torch.ops.tritmark.*`, which torch.compile traces, and the module BitLinear.

CPU tensors are computed by the native kernels in their own memory, over PyTorch's own threads while these spin, and
CUDA tensors by the CUDA kernels on torch's current stream of their device: nothing waits, and all memory is torch's, so
that CUDA graphs can hold the calls.
"""

from tritmark.kernels import threads
from tritmark.kernels.cpu import native
from tritmark.torch import ops as ops
from tritmark.torch.bit_linear import BitLinear as BitLinear

__all__ = ["BitLinear"]

threads.join_pytorch(native("pool"))
