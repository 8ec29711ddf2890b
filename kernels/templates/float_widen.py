"""A kernel of float_widen: float16 to float32, exactly."""

from typing import Any

from tritmark.harness.candidate import kernel


@kernel(op="float_widen", format="float16", dtype="float32")
def widen(h: Any, x: Any) -> None:
    """h is float16 (n,), x float32 (n,)."""
    x[...] = h  # converts some elements at a time: a whole array of them would be memory too
