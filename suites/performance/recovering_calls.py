"""What `on_error="recover"` costs: the 5 % and 50 % quantiles of calls with and without it, and of a new worker process
with its first call.

    python suites/performance/recovering_calls.py
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np

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


def new_worker(x: np.ndarray) -> None:
    close_workers()
    i2s_quantize(x, 0.5, on_error="recover")


def main() -> None:
    print(ROW.format("ms", "raise", "recover"))
    for count, n in ((400, 1 << 8), (100, 1 << 16), (30, 1 << 22)):
        x = RNG.standard_normal(n, np.float32)
        each = [times(lambda x=x, how=how: i2s_quantize(x, 0.5, on_error=how), count) for how in ("raise", "recover")]
        print(ROW.format(f"i2s_quantize of {n} float32", *each))
    w, y = RNG.standard_normal((2560, 2560), np.float32), RNG.standard_normal((1, 2560), np.float32)
    layers = [QuantizedLinear(w, on_error=how) for how in ("raise", "recover")]
    print(ROW.format("QuantizedLinear 2560 x 2560, one row", *(times(lambda at=at: at(y), 400) for at in layers)))
    small = RNG.standard_normal(256, np.float32)
    print(ROW.format("a new worker process and its first call", "", times(lambda: new_worker(small), 10)))


if __name__ == "__main__":
    main()
