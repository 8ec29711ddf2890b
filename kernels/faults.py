"""Every op's own faults, for `tritmark selftest`."""

from __future__ import annotations

from tritmark.harness.spec import Decoding, Fault, Harmless
from tritmark.kernels.decodings import DECODINGS
from tritmark.kernels.ops import modules

FAULTS: tuple[Fault | Harmless | Decoding, ...] = (*(fault for module in modules("faults") for fault in module.FAULTS), *DECODINGS)
