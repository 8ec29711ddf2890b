"""Weight formats, in NumPy: the packers' exact bytes, and the way back.

`FORMATS[name]` has `pack`, `unpack` and `quantize`, see `base.Format`. A new format is one file here and one line below.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tritmark.kernels.formats.base import Format, NonFiniteWarning, TailDroppedWarning
from tritmark.kernels.formats.i2_s import I2_S_ARM, I2_S_X86, I2_S_X86_R4
from tritmark.kernels.formats.row16 import ROW16
from tritmark.kernels.formats.tile64 import TILE64
from tritmark.kernels.formats.tq1_0 import TQ1_0
from tritmark.kernels.formats.tq2_0 import TQ2_0

__all__ = ["FORMATS", "Format", "NonFiniteWarning", "TailDroppedWarning"]

FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        format.name: format
        for format in (
            I2_S_X86,
            I2_S_ARM,
            I2_S_X86_R4,
            TQ1_0,
            TQ2_0,
            TILE64,
            ROW16,
        )
    }
)
"""Every format by name, in the order in which lists show them."""
