"""Every op's own faults, for `tritmark selftest`."""

from __future__ import annotations

from tritmark.harness.spec import Decoding, Fault, Harmless
from tritmark.kernels.absmean_quantize import faults as absmean_quantize
from tritmark.kernels.activation_quantize import faults as activation_quantize
from tritmark.kernels.decodings import DECODINGS
from tritmark.kernels.float_narrow import faults as float_narrow
from tritmark.kernels.float_widen import faults as float_widen
from tritmark.kernels.i2s_dequantize import faults as i2s_dequantize
from tritmark.kernels.i2s_quantize import faults as i2s_quantize
from tritmark.kernels.matmul import faults as matmul
from tritmark.kernels.pack_codes import faults as pack_codes
from tritmark.kernels.ternary_matmul import faults as ternary_matmul
from tritmark.kernels.ternary_quantize import faults as ternary_quantize

FAULTS: tuple[Fault | Harmless | Decoding, ...] = (
    *i2s_quantize.FAULTS,
    *i2s_dequantize.FAULTS,
    *ternary_quantize.FAULTS,
    *absmean_quantize.FAULTS,
    *activation_quantize.FAULTS,
    *float_narrow.FAULTS,
    *float_widen.FAULTS,
    *pack_codes.FAULTS,
    *ternary_matmul.FAULTS,
    *matmul.FAULTS,
    *DECODINGS,
)
