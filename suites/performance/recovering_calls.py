"""What `on_error="recover"` costs: the 5 % and 50 % quantiles of calls with and without it, and of a new worker process
with its first call.

    python suites/performance/recovering_calls.py
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.kernels import QuantizedLinear, i2s_quantize
from tritmark.kernels.recovering import close_workers

RNG = np.random.default_rng(54)
ROW = "{:44} {:>12} {:>12}"


def times(call: Callable[[], object], count: int) -> str:
    """Milliseconds of a call."""
    found = []
    for _ in range(count):
        begun = perf_counter()
        call()
        found.append(perf_counter() - begun)
    low, middle = np.percentile(found, (5, 50)) * 1e3
    return f"{low:.3g} {middle:.3g}"


def new_worker(x: npt.NDArray[np.float32]) -> None:
    close_workers()
    i2s_quantize(x, 0.5, on_error="recover")


def main() -> None:
    print(ROW.format("ms", "raise", "recover"))
    for count, n in ((400, 1 << 8), (100, 1 << 16), (30, 1 << 22)):
        x = RNG.standard_normal(n, np.float32)
        each = [times(partial(i2s_quantize, x, 0.5, on_error=how), count) for how in ("raise", "recover")]
        print(ROW.format(f"i2s_quantize of {n} float32", *each))
    w, y = RNG.standard_normal((2560, 2560), np.float32), RNG.standard_normal((1, 2560), np.float32)
    layers: list[Any] = [QuantizedLinear(w, on_error=how) for how in ("raise", "recover")]
    print(ROW.format("QuantizedLinear 2560 x 2560, one row", *(times(partial(each, y), 400) for each in layers)))
    small = RNG.standard_normal(256, np.float32)
    print(ROW.format("a new worker process and its first call", "", times(lambda: new_worker(small), 10)))


if __name__ == "__main__":
    main()
