"""A program of many calls, a few of which meet a fault: each ends with a correct result or is refused.

python suites/unit/helpers/recovering_program.py 10000
"""

from __future__ import annotations

import os
import sys
import warnings
from collections import Counter
from dataclasses import dataclass, field, replace
from time import perf_counter

import failing_kernels as planted
import numpy as np

from tritmark.harness.recovery import UnrecoveredError
from tritmark.harness.spec import Tier
from tritmark.kernels import i2s_quantize, register
from tritmark.kernels.recovering import last_recoveries

SHARE = 0.01
"""Of calls that meet a fault."""
REFUSED_SHARE = 0.2
"""Of those, the share for which there is no other kernel."""


@dataclass
class Outcome:
    right: int = 0
    wrong: int = 0
    planted: int = 0
    recovered: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    unreported: int = 0
    """Calls that met a fault and report none, or the reverse."""
    seconds: float = 0.0
    lost: list[float] = field(default_factory=list)


def kernels() -> None:
    """Register the best kernel of all, and the last one; both fail at marked data."""
    first = replace(planted.failing("marked", tier=Tier.EXTREMELY_OPTIMIZED, rank=999), name="marked_first")
    last = replace(planted.failing("marked", tier=Tier.REFERENCE, rank=9), name="marked_last")
    register(first, last)


def run(calls: int, seed: int, share: float = SHARE) -> Outcome:
    """Make the calls; kernels fail in every way that FAULTS has."""
    kernels()
    rng, found = np.random.default_rng(seed), Outcome()
    kinds = list(planted.FAULTS)
    begun = perf_counter()
    for _ in range(calls):
        x = rng.standard_normal(int(rng.integers(1, 2000)), np.float32)
        fails = bool(rng.random() < share)
        variant = None
        if fails:
            x[0] = planted.MARKED + int(rng.integers(len(kinds)))
            found.planted += 1
            variant = "marked_last" if rng.random() < REFUSED_SHARE else None
        try:
            q = i2s_quantize(x, 0.5, variant=variant, on_error="recover")
        except UnrecoveredError as error:
            found.refused[error.recovery.diagnosis.kind] += 1
            found.unreported += not fails
            continue
        good = bool((q == planted.reference(x, 0.5)).all())
        found.right += good
        found.wrong += not good
        found.unreported += bool(last_recoveries()) != fails
        for each in last_recoveries():
            found.recovered[f"{each.diagnosis.kind} -> {each.strategy}"] += 1
            found.lost.append(each.seconds_lost)
    found.seconds = perf_counter() - begun
    return found


if __name__ == "__main__":
    # A worker imports this file as a module, not as the script.
    os.environ.setdefault("TRITMARK_RECOVER_SECONDS", "2")
    warnings.simplefilter("ignore")
    made = run(int(sys.argv[1]) if len(sys.argv) > 1 else 1000, 54)
    for name, value in vars(made).items():
        if name != "lost":
            print(f"{name}: {dict(value) if isinstance(value, Counter) else value}")
    if made.lost:
        print(f"seconds lost of a recovered call: median {np.median(made.lost):.3f}, most {max(made.lost):.3f}")
    sys.exit(bool(made.wrong or made.unreported))
