"""A made-up model at published shapes, with random ternary weights, for `tritmark model`. No network.

    python suites/large/published_models.py bitnet-b1.58-2B-4T OUT          # OUT/: a folder of transformers
    python suites/large/published_models.py bitnet-b1.58-2B-4T OUT.gguf --type i2_s
    python suites/large/published_models.py ternary-bonsai-8B OUT.gguf --type pq2_0

Codes follow from names: the folder and the files of one model have the same weights. A model is written tensor by
tensor; the largest one needs memory. The 2B-4T takes about a minute and 1.2 GB of disk. Matrices with scales of groups
are float16 in a folder (16 GB for Bonsai 8B), so prefer a file.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from importlib import import_module
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "unit" / "helpers"))
models = import_module("whole_models")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=models.PUBLISHED)
    parser.add_argument("out", type=Path, help="a folder, or a file that ends in .gguf")
    parser.add_argument("--type", default="", help="of the matrices in a GGUF file, such as i2_s, iq2_bn or pq2_0")
    given = parser.parse_args()
    if (given.out.suffix == ".gguf") != bool(given.type):
        parser.error("--type belongs to a file that ends in .gguf, and only to one")
    began = time.monotonic()
    made = models.PUBLISHED[given.model]
    if given.type:
        models.write_gguf(given.out, made, given.type)
        nbytes = given.out.stat().st_size
    else:
        models.write_folder(given.out, made)
        nbytes = sum(each.stat().st_size for each in given.out.iterdir())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{given.out}: {nbytes / 1e9:.2f} GB in {time.monotonic() - began:.0f} s, peak {peak / 1e9:.1f} GB")


if __name__ == "__main__":
    main()
