"""Weight formats in NumPy: pack to the exact bytes of the original packers, and unpack.

`FORMATS[name]` has `pack`, `unpack` and `quantize`, see `base.Format`. To add a format, add one file here and one line
below, or bring it with the provider of another package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from tritmark.kernels.formats.base import Format, NonFiniteWarning, TailDroppedWarning
from tritmark.kernels.formats.bitnet_rs import BITNET_RS_32, BITNET_RS_32_SIGNED, QK256
from tritmark.kernels.formats.gpu_int2 import GPU_INT2
from tritmark.kernels.formats.hf_pack import HF_PACK
from tritmark.kernels.formats.i2_s import I2_S_ARM, I2_S_X86, I2_S_X86_R4, QK256_I2_S
from tritmark.kernels.formats.iq2_bn_r4 import IQ2_BN_R4
from tritmark.kernels.formats.iq_bn import IQ1_BN, IQ2_BN
from tritmark.kernels.formats.ort_q2 import ORT_Q2
from tritmark.kernels.formats.ptq1_0 import PTQ1_0
from tritmark.kernels.formats.q2_0 import PQ2_0, Q2_0
from tritmark.kernels.formats.row16 import ROW16
from tritmark.kernels.formats.tile64 import TILE64
from tritmark.kernels.formats.tile80 import TILE80
from tritmark.kernels.formats.tl1 import TL1_FORMAT
from tritmark.kernels.formats.tl2 import TL2_FORMAT
from tritmark.kernels.formats.tq1_0 import TQ1_0
from tritmark.kernels.formats.tq2_0 import TQ2_0

__all__ = ["BUILT_IN", "FORMATS", "Format", "NonFiniteWarning", "TailDroppedWarning"]

BUILT_IN: Mapping[str, Format] = MappingProxyType(
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
            HF_PACK,
            GPU_INT2,
            ORT_Q2,
            BITNET_RS_32,
            BITNET_RS_32_SIGNED,
            QK256,
            QK256_I2_S,
            IQ1_BN,
            IQ2_BN,
            TL1_FORMAT,
            TL2_FORMAT,
            IQ2_BN_R4,
            Q2_0,
            PQ2_0,
            PTQ1_0,
            TILE80,
        )
    }
)
"""The formats of this package in the order of lists."""


class _InstalledFormats(Mapping[str, Format]):
    """The formats of all providers. Other packages are imported only for a name that is not in BUILT_IN, and for a
    list of all names."""

    def __getitem__(self, name: str) -> Format:
        return BUILT_IN[name] if name in BUILT_IN else self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    @staticmethod
    def _all() -> Mapping[str, Format]:
        from tritmark.harness.providers import installed

        return installed().formats


FORMATS: Mapping[str, Format] = _InstalledFormats()
"""All formats by name; those of other packages come last."""
