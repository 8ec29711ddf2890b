"""Products of other projects on CUDA as variants of ternary_matmul, of tier PEER: judged like tritmark's, and never
selected.

Their keys have the format of tritmark's fastest kernels and the dtype that they write: bfloat16, or int32 sums. Bind
packs weights and activations into the peer's layout, as its users do beforehand, so its launches do not see later
writes to the inputs.
"""

from __future__ import annotations

from functools import partial

from tritmark.harness.spec import MinSize, MultipleOf, Variant
from tritmark.kernels.formats.row16_grouped import FORMATS as GROUPED
from tritmark.kernels.peers import humming, torch_cuda
from tritmark.kernels.peers.launch_cuda import FASTEST, variant

_INT8 = (MinSize("M", 17), MultipleOf("N", 8), MultipleOf("K", 8))
"""Shapes that torch._int_mm takes on CUDA."""
_FP8 = (MultipleOf("N", 16), MultipleOf("K", 16))
"""Shapes that torch._scaled_mm takes."""


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


def _fp8(name: str, fast: bool) -> Variant:
    how = "accumulated fast" if fast else "sums in float32"
    return variant(
        name,
        "bfloat16",
        f"PyTorch, torch._scaled_mm of dense float8 (e4m3) weights, activations rounded to float8, {how}",
        partial(torch_cuda.bind_fp8, name, FASTEST, fast),
        torch_cuda.missing_float8,
        torch_cuda.load,
        constraints=_FP8,
        error_bound=partial(torch_cuda.float8_bound, fast),
    )


def _grouped(format: str) -> tuple[Variant, ...]:
    """The peers of products with a scale for each group."""
    of_humming = [
        variant(
            name,
            "bfloat16",
            f"humming-kernels, int2 weights with scales of groups and {kind} activations, tuned for the shape",
            partial(humming.bind, name, kind, format),
            humming.missing,
            humming.load,
            format=format,
            constraints=humming.CONSTRAINTS,
            error_bound=partial(humming.grouped_bound, kind, format),
        )
        for name, kind in (("humming-w2a8", humming.INT8), ("humming-w2a16", humming.BF16))
    ]
    dense = variant(
        "torch-bfloat16",
        "bfloat16",
        "PyTorch, torch.matmul of dense bfloat16 weights that contain the scales, sums in float32",
        partial(torch_cuda.bind_dequantized, "torch-bfloat16", format),
        torch_cuda.missing,
        torch_cuda.load,
        format=format,
        error_bound=partial(torch_cuda.dequantized_bound, format),
    )
    return *of_humming, dense


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
    _fp8("torch-fp8", False),
    _fp8("torch-fp8-fast", True),
    *(each for form in GROUPED for each in _grouped(form.name)),
)
"""The variants of packages on PyPI; they register through the entry-point group `tritmark.variants`."""
