"""Products of other projects on CUDA as variants of ternary_matmul, of tier PEER: judged like tritmark's, and never
selected.

Their keys have the format of tritmark's fastest kernels and the dtype that they write: bfloat16, or int32 sums. Bind
packs weights and activations into the peer's layout, as its users do beforehand, so its launches do not see later
writes to the inputs.
"""

from __future__ import annotations

from functools import partial

from tritmark.harness.spec import MinSize, MultipleOf, Variant
from tritmark.kernels.peers import humming, torch_cuda
from tritmark.kernels.peers.launch_cuda import FASTEST, variant

_INT8 = (MinSize("M", 17), MultipleOf("N", 8), MultipleOf("K", 8))
"""Shapes that torch._int_mm takes on CUDA."""


def _humming(name: str, kind: str, activations: str) -> Variant:
    return variant(
        name,
        "bfloat16",
        f"humming-kernels, int2 weights and {activations} activations, compiled and tuned for the shape; from PyPI",
        partial(humming.bind, name, kind, FASTEST),
        humming.missing,
        humming.load,
        constraints=humming.CONSTRAINTS,
        error_bound=partial(humming.bound, kind),
    )


VARIANTS: tuple[Variant, ...] = (
    _humming("humming-w2a8", humming.INT8, "int8"),
    _humming("humming-w2a16", humming.BF16, "bfloat16"),
    variant(
        "torch-int8",
        "int32",
        "PyTorch, torch._int_mm of dense int8 weights",
        partial(torch_cuda.bind_int8, "torch-int8", FASTEST, False),
        torch_cuda.missing,
        torch_cuda.load,
        constraints=_INT8,
    ),
    variant(
        "torch-int8",
        "bfloat16",
        "PyTorch, torch._int_mm of dense int8 weights, and that times the scales",
        partial(torch_cuda.bind_int8, "torch-int8", FASTEST, True),
        torch_cuda.missing,
        torch_cuda.load,
        constraints=_INT8,
        error_bound=torch_cuda.int8_bound,
    ),
    variant(
        "torch-bfloat16",
        "bfloat16",
        "PyTorch, torch.matmul of dense bfloat16 weights, sums in float32",
        partial(torch_cuda.bind_bfloat16, "torch-bfloat16", FASTEST),
        torch_cuda.missing,
        torch_cuda.load,
        error_bound=torch_cuda.bfloat16_bound,
    ),
)
"""The variants of packages on PyPI; they register through the entry-point group `tritmark.variants`."""
