"""The ratios to the anchor that asv has just measured, `python .ci/anchor_ratios.py RESULTS`; status 1 where there is
none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from math import isfinite
from pathlib import Path

from asv.results import Results


def ratios(folder: Path) -> Iterator[tuple[str, float]]:
    """What was compared, and time over the anchor's; 1 stands for the same machine code, which is not measured."""
    for path in sorted(folder.glob("*/*-*.json")):
        results = Results.load(str(path), machine_name=path.parent.name)
        for key in results.get_all_result_keys():
            parameters = results.get_result_params(key)
            values = results.get_result_value(key, parameters)
            for names, value in zip(product(*parameters), values, strict=True):
                if value is not None and isfinite(value):  # None: it failed; NaN: it was skipped
                    yield " ".join(str(name).strip("'") for name in names), value


def main(folder: Path) -> int:
    """Print them."""
    found = list(ratios(folder))
    for what, ratio in found:
        print(f"{ratio:7.3f}  {what}")
    measured = sum(ratio != 1 for _, ratio in found)
    print(f"{measured} ratios to the anchor were measured, {len(found) - measured} kernels have its machine code")
    return 0 if measured else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
