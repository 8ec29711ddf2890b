"""All rules, in the order of the numbers that they give themselves."""

from __future__ import annotations

from tritmark.harness.advise.rule import Rule
from tritmark.harness.advise.rules import (
    atomics,
    better_isa,
    cold,
    conversions,
    denser_packing,
    few_blocks,
    floor,
    graph,
    last_wave,
    latency_bound,
    launch_share,
    local_array,
    loop_chain,
    low_occupancy,
    narrow_loads,
    narrow_simd,
    ncu_banks,
    ncu_fusion,
    ncu_imbalance,
    ncu_issue,
    ncu_l2,
    ncu_latency,
    ncu_local,
    ncu_misses,
    ncu_occupancy,
    ncu_registers,
    ncu_sectors,
    ncu_stall,
    no_dp4a,
    no_tensor_cores,
    noise,
    page_faults,
    python_call,
    shape_cliff,
    smt,
    spills,
    thread_scaling,
    transfer,
    unpacking,
    whole_warps,
)
from tritmark.harness.errors import UsageError

_MODULES = (
    atomics,
    better_isa,
    cold,
    conversions,
    denser_packing,
    few_blocks,
    floor,
    graph,
    last_wave,
    latency_bound,
    launch_share,
    local_array,
    loop_chain,
    low_occupancy,
    narrow_loads,
    narrow_simd,
    ncu_banks,
    ncu_fusion,
    ncu_imbalance,
    ncu_issue,
    ncu_l2,
    ncu_latency,
    ncu_local,
    ncu_misses,
    ncu_occupancy,
    ncu_registers,
    ncu_sectors,
    ncu_stall,
    no_dp4a,
    no_tensor_cores,
    noise,
    page_faults,
    python_call,
    shape_cliff,
    smt,
    spills,
    thread_scaling,
    transfer,
    unpacking,
    whole_warps,
)
RULES: tuple[Rule, ...] = tuple(sorted((module.RULE for module in _MODULES), key=lambda rule: rule.number))


def named(name: str, option: str) -> Rule:
    """The rule of that name or number. Raises UsageError, with the nearest, where there is none; `option` is where it was asked for."""
    from difflib import get_close_matches

    found = next((rule for rule in RULES if name in {rule.name, str(rule.number)}), None)
    if found is None:
        near = get_close_matches(name, [rule.name for rule in RULES], 1)
        nearest = f"; nearest: {near[0]}" if near else ""
        raise UsageError(f"{option} {name}: no such rule{nearest}; `tritmark advise --list` has all of them")
    return found
