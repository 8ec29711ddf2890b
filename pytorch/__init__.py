"""tritmark in PyTorch: the ops `torch.ops.tritmark.*`, which torch.compile traces, and the modules BitLinear and
BitExperts.

Native kernels compute CPU tensors in their own memory, on PyTorch's own threads while these spin. CUDA kernels compute
CUDA tensors on torch's current stream of their device. Calls do not synchronize and all memory belongs to torch, so
CUDA graphs can capture them.
"""

from tritmark.harness.errors import MissingPackageError
from tritmark.harness.extras import install

try:
    import torch as torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise MissingPackageError(
        "tritmark.torch needs PyTorch, which is not installed", name="torch", next_step=install("torch")
    ) from None
from tritmark.kernels.native import threads
from tritmark.kernels.native.cpu import native
from tritmark.torch import ops as ops
from tritmark.torch.bit_experts import BitExperts as BitExperts
from tritmark.torch.bit_linear import BitLinear as BitLinear
from tritmark.torch.conversion import convert as convert

__all__ = ["BitExperts", "BitLinear", "convert"]

threads.join_pytorch(native("pool"))
