"""A sentence about the time of all linear layers of a model."""

from __future__ import annotations

from tritmark.harness.record import TOO_NOISY, LinearLayers, half_width
from tritmark.harness.text import units


def sentence(found: LinearLayers) -> str:
    """The sum and the tokens per second that it allows, or why there is no sum."""
    what = "one token" if found.tokens == 1 else f"a prompt of {found.tokens}"
    if found.total_ns is None or found.tokens_per_second is None:
        of = f"{found.unmeasured} of {found.layers + found.unmeasured}"
        return f"{found.device}: no sum for {what}: {of} linear layers without a figure"
    cold = (
        "weights cold"
        if not found.hot
        else f"weights cold, except {units.counted(found.hot, 'layer')} too small for that"
    )
    between = ""
    if found.low_ns is not None and found.high_ns is not None:
        noisy = half_width(found.total_ns, found.low_ns, found.high_ns) > TOO_NOISY
        ends = f" ({units.time(found.low_ns)} to {units.time(found.high_ns)})"
        between = f" ({units.NOISY})" if noisy else ends
    uncertain = f"; includes AMBIGUOUS figures of {units.counted(found.uncertain, 'layer')}" if found.uncertain else ""
    return (
        f"{found.device}: {what} takes {units.time(found.total_ns)}{between} in "
        f"{units.counted(found.layers, 'linear layer')}, which "
        f"allows at most {found.tokens_per_second:,.1f} tokens per second ({cold}; clock: {found.clock}; "
        f"threads: {found.threads}{uncertain})"
    )
