"""tritmark.kernels: the ops, their kernels, and the functions that run them.

The functions pick the best kernel that this machine and the shapes admit; `variant=` forces one. Arrays are NumPy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tritmark.harness.spec import Decoding, Fault, Harmless, Op, Provider
from tritmark.kernels import cpu
from tritmark.kernels.absmean_quantize import cpu as _absmean_quantize
from tritmark.kernels.absmean_quantize import cuda as _absmean_quantize_cuda
from tritmark.kernels.absmean_quantize.api import absmean_quantize
from tritmark.kernels.absmean_quantize.spec import OP as ABSMEAN_QUANTIZE
from tritmark.kernels.activation_quantize import cpu as _activation_quantize
from tritmark.kernels.activation_quantize import cuda as _activation_quantize_cuda
from tritmark.kernels.activation_quantize.api import activation_quantize
from tritmark.kernels.activation_quantize.spec import OP as ACTIVATION_QUANTIZE
from tritmark.kernels.cuda.device import DEVICE as CUDA
from tritmark.kernels.dispatch import register
from tritmark.kernels.float_narrow import cuda as _float_narrow_cuda
from tritmark.kernels.float_narrow.api import float_narrow
from tritmark.kernels.float_narrow.spec import OP as FLOAT_NARROW
from tritmark.kernels.float_widen import cuda as _float_widen_cuda
from tritmark.kernels.float_widen.api import float_widen
from tritmark.kernels.float_widen.spec import OP as FLOAT_WIDEN
from tritmark.kernels.formats import BUILT_IN, FORMATS
from tritmark.kernels.i2s_dequantize import cpu as _i2s_dequantize
from tritmark.kernels.i2s_dequantize import cuda as _i2s_dequantize_cuda
from tritmark.kernels.i2s_dequantize.api import i2s_dequantize
from tritmark.kernels.i2s_dequantize.spec import OP as I2S_DEQUANTIZE
from tritmark.kernels.i2s_quantize import cpu as _i2s_quantize
from tritmark.kernels.i2s_quantize import cuda as _i2s_quantize_cuda
from tritmark.kernels.i2s_quantize.api import i2s_quantize
from tritmark.kernels.i2s_quantize.spec import OP as I2S_QUANTIZE
from tritmark.kernels.linear import QuantizedLinear
from tritmark.kernels.matmul import cuda as _matmul_cuda
from tritmark.kernels.matmul.api import matmul
from tritmark.kernels.matmul.spec import OPS as MATMULS
from tritmark.kernels.pack_codes import cuda as _pack_codes_cuda
from tritmark.kernels.pack_codes.api import pack_codes
from tritmark.kernels.pack_codes.spec import OP as PACK_CODES
from tritmark.kernels.packed import PackedWeights, pack_weights
from tritmark.kernels.peers import PEERS
from tritmark.kernels.ternary_matmul import cpu as _ternary_matmul
from tritmark.kernels.ternary_matmul import cuda as _ternary_matmul_cuda
from tritmark.kernels.ternary_matmul.api import ternary_matmul
from tritmark.kernels.ternary_matmul.spec import OP as TERNARY_MATMUL
from tritmark.kernels.ternary_quantize import cpu as _ternary_quantize
from tritmark.kernels.ternary_quantize import cuda as _ternary_quantize_cuda
from tritmark.kernels.ternary_quantize.api import ternary_quantize
from tritmark.kernels.ternary_quantize.spec import OP as TERNARY_QUANTIZE
from tritmark.kernels.unpack_codes import cuda as _unpack_codes_cuda
from tritmark.kernels.unpack_codes.api import unpack_codes
from tritmark.kernels.unpack_codes.spec import OP as UNPACK_CODES

OPS: tuple[Op, ...] = (
    I2S_QUANTIZE,
    I2S_DEQUANTIZE,
    TERNARY_QUANTIZE,
    ABSMEAN_QUANTIZE,
    ACTIVATION_QUANTIZE,
    FLOAT_NARROW,
    FLOAT_WIDEN,
    PACK_CODES,
    UNPACK_CODES,
    TERNARY_MATMUL,
    *MATMULS.values(),
)
"""Every op, in the order in which reports show them."""


def _study(*args: Any, **kwargs: Any) -> Any:
    from tritmark.kernels.study import study

    return study(*args, **kwargs)


def _faults() -> Sequence[Fault | Harmless | Decoding]:
    from tritmark.kernels.faults import FAULTS

    return FAULTS


PROVIDER = Provider(
    ops=OPS,
    variants=(
        *_i2s_quantize.VARIANTS,
        *_i2s_quantize_cuda.VARIANTS,
        *_i2s_dequantize.VARIANTS,
        *_i2s_dequantize_cuda.VARIANTS,
        *_ternary_quantize.VARIANTS,
        *_ternary_quantize_cuda.VARIANTS,
        *_absmean_quantize.VARIANTS,
        *_absmean_quantize_cuda.VARIANTS,
        *_activation_quantize.VARIANTS,
        *_activation_quantize_cuda.VARIANTS,
        *_float_narrow_cuda.VARIANTS,
        *_float_widen_cuda.VARIANTS,
        *_pack_codes_cuda.VARIANTS,
        *_unpack_codes_cuda.VARIANTS,
        *_ternary_matmul.VARIANTS,
        *_ternary_matmul_cuda.VARIANTS,
        *_matmul_cuda.VARIANTS,
    ),
    devices=(cpu.DEVICE, CUDA),
    formats=BUILT_IN,
    workloads="tritmark.workloads",
    study=_study,
    peers=PEERS,
    templates="tritmark.kernels.templates",
    faults=_faults,
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
    "float_narrow",
    "float_widen",
    "i2s_dequantize",
    "i2s_quantize",
    "matmul",
    "pack_codes",
    "pack_weights",
    "register",
    "ternary_matmul",
    "ternary_quantize",
    "unpack_codes",
]
