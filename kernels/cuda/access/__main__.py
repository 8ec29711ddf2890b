"""`python -m tritmark.kernels.cuda.access [GLOB]`: access patterns of all CUDA variants."""

from __future__ import annotations

import os
import sys

from tritmark.harness.providers import installed
from tritmark.kernels.cuda.access.traced import cuda_variants, percent, traced


def main() -> None:
    """Print one line per variant, and one per site that is not fully coalesced or has bank conflicts."""
    os.environ["TRITMARK_CUDA"] = "simulator"
    here = installed()
    for variant in cuda_variants(*sys.argv[1:2]):
        found = traced(here.registry.devices[variant.key.device], here.ops[variant.key.op], variant)
        print(f"{percent(found.device):5.1f} %  {variant.id}")
        for site in found.device:
            if site.percent < 100:
                print(f"         {site}")
        for shared in found.shared:
            if shared.passes > shared.least:
                print(f"         {shared}")


if __name__ == "__main__":
    main()
