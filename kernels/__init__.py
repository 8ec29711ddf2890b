"""tritmark.kernels: the ops, their kernels, and the functions that run them.

The functions pick the best kernel that this machine and the shapes admit; `variant=` forces one. Arrays are NumPy's.
"""

from __future__ import annotations

from typing import Any

from tritmark.harness.spec import Op, Provider
from tritmark.kernels import cpu
from tritmark.kernels.absmean_quantize import cpu as _absmean_quantize
from tritmark.kernels.absmean_quantize.api import absmean_quantize
from tritmark.kernels.absmean_quantize.spec import OP as ABSMEAN_QUANTIZE
from tritmark.kernels.activation_quantize import cpu as _activation_quantize
from tritmark.kernels.activation_quantize.api import activation_quantize
from tritmark.kernels.activation_quantize.spec import OP as ACTIVATION_QUANTIZE
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.i2s_dequantize import cpu as _i2s_dequantize
from tritmark.kernels.i2s_dequantize.api import i2s_dequantize
from tritmark.kernels.i2s_dequantize.spec import OP as I2S_DEQUANTIZE
from tritmark.kernels.i2s_quantize import cpu as _i2s_quantize
from tritmark.kernels.i2s_quantize.api import i2s_quantize
from tritmark.kernels.i2s_quantize.spec import OP as I2S_QUANTIZE
from tritmark.kernels.linear import QuantizedLinear
from tritmark.kernels.packed import PackedWeights, pack_weights
from tritmark.kernels.ternary_matmul import cpu as _ternary_matmul
from tritmark.kernels.ternary_matmul.api import ternary_matmul
from tritmark.kernels.ternary_matmul.spec import OP as TERNARY_MATMUL
from tritmark.kernels.ternary_quantize import cpu as _ternary_quantize
from tritmark.kernels.ternary_quantize.api import ternary_quantize
from tritmark.kernels.ternary_quantize.spec import OP as TERNARY_QUANTIZE

OPS: tuple[Op, ...] = (
    I2S_QUANTIZE,
    I2S_DEQUANTIZE,
    TERNARY_QUANTIZE,
    ABSMEAN_QUANTIZE,
    ACTIVATION_QUANTIZE,
    TERNARY_MATMUL,
)
"""Every op, in the order in which reports show them."""


def _study(*args: Any, **kwargs: Any) -> Any:
    from tritmark.kernels.study import study

    return study(*args, **kwargs)


PROVIDER = Provider(
    ops=OPS,
    variants=(
        *_i2s_quantize.VARIANTS,
        *_i2s_dequantize.VARIANTS,
        *_ternary_quantize.VARIANTS,
        *_absmean_quantize.VARIANTS,
        *_activation_quantize.VARIANTS,
        *_ternary_matmul.VARIANTS,
    ),
    devices=(cpu.DEVICE,),
    formats=FORMATS,
    workloads="tritmark.workloads",
    study=_study,
)
"""What tritmark's own kernels bring to the harness."""

__all__ = [
    "FORMATS",
    "OPS",
    "PROVIDER",
    "PackedWeights",
    "QuantizedLinear",
    "absmean_quantize",
    "activation_quantize",
    "i2s_dequantize",
    "i2s_quantize",
    "pack_weights",
    "ternary_matmul",
    "ternary_quantize",
]
