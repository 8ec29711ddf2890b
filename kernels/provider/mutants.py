"""The mutants of every op, and the inverses of `Op.encode`, for `tritmark selftest`."""

from __future__ import annotations

from tritmark.harness.spec import Decoding, EquivalentMutants, Mutant
from tritmark.kernels.ops import modules

MUTANTS: tuple[Mutant | EquivalentMutants | Decoding, ...] = (
    *(mutant for module in modules("mutants") for mutant in module.MUTANTS),
    *(decoding for module in modules("decoding") for decoding in module.DECODINGS),
)
