"""Access patterns of all CUDA variants in device memory, from traces of the simulator: `python -m
tritmark.kernels.cuda.access [GLOB]`.

The shapes are small and have no tails; the patterns hold for any size, except in tails.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase

import numpy as np

from tritmark.harness.providers import installed
from tritmark.harness.spec import Variant
from tritmark.kernels.cuda.coalescing import AccessSite, analyse

AXES = {"n": 8192, "block": 64, "M": 64, "N": 128, "K": 256}
INSTEAD: tuple[dict[str, int], ...] = ({}, {"M": 1}, {"block": 256}, {"n": 65536, "block": 32768})
"""Other sizes, for variants whose constraints refuse AXES."""


def sites(variant: Variant) -> tuple[AccessSite, ...]:
    """All loads and stores of a variant's launches in one call. Raises DeviceError outside the simulator."""
    from tritmark.kernels import offload
    from tritmark.kernels.cuda.context import cuda_context
    from tritmark.kernels.cuda.device import DEVICE
    from tritmark.kernels.cuda.simulator import SimulatorBackend

    op = installed().ops[variant.key.op]
    sizes = ({axis: (AXES | other)[axis] for axis in op.axes} for other in INSTEAD)
    axes = next(each for each in sizes if all(limit.refusal(each) is None for limit in variant.constraints))
    logical = op.generate(axes, op.input_families[0], np.random.default_rng(1))
    launch, _ = offload.launch(DEVICE, op, variant, op.encode(logical, axes, variant.key.format), axes)
    backend = cuda_context().backend
    assert isinstance(backend, SimulatorBackend)
    with backend.trace() as trace:
        launch.run()
    return analyse(trace)


def percent(found: tuple[AccessSite, ...]) -> float:
    """Coalescing of all sites together, in percent."""
    return 100 * sum(site.least for site in found) / sum(site.sectors for site in found)


def cuda_variants(glob: str = "*") -> Iterator[Variant]:
    """The CUDA variants of all packages whose id matches."""
    yield from (
        each for each in installed().registry.variants if each.key.device == "cuda" and fnmatchcase(each.id, glob)
    )


def main() -> None:
    """Print one line per variant, and one per site that is not fully coalesced."""
    os.environ["TRITMARK_CUDA"] = "simulator"
    for variant in cuda_variants(*sys.argv[1:2]):
        found = sites(variant)
        print(f"{percent(found):5.1f} %  {variant.id}")
        for site in found:
            if site.percent < 100:
                print(f"         {site}")


if __name__ == "__main__":
    main()
