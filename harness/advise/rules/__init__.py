"""All rules, in the order of their numbers."""

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

RULES: tuple[Rule, ...] = (
    noise.RULE,
    floor.RULE,
    denser_packing.RULE,
    latency_bound.RULE,
    launch_share.RULE,
    graph.RULE,
    few_blocks.RULE,
    last_wave.RULE,
    whole_warps.RULE,
    low_occupancy.RULE,
    spills.RULE,
    local_array.RULE,
    narrow_loads.RULE,
    no_dp4a.RULE,
    no_tensor_cores.RULE,
    unpacking.RULE,
    conversions.RULE,
    atomics.RULE,
    shape_cliff.RULE,
    transfer.RULE,
    cold.RULE,
    better_isa.RULE,
    narrow_simd.RULE,
    thread_scaling.RULE,
    smt.RULE,
    loop_chain.RULE,
    python_call.RULE,
    page_faults.RULE,
    ncu_latency.RULE,
    ncu_issue.RULE,
    ncu_stall.RULE,
    ncu_registers.RULE,
    ncu_occupancy.RULE,
    ncu_sectors.RULE,
    ncu_misses.RULE,
    ncu_l2.RULE,
    ncu_banks.RULE,
    ncu_imbalance.RULE,
    ncu_fusion.RULE,
    ncu_local.RULE,
)


def named(name: str, option: str) -> Rule:
    """The rule of that name or number. Raises UsageError, with the nearest, where there is none; `option` is where it was asked for."""
    from difflib import get_close_matches

    found = next((rule for rule in RULES if name in {rule.name, str(rule.number)}), None)
    if found is None:
        near = get_close_matches(name, [rule.name for rule in RULES], 1)
        nearest = f"; nearest: {near[0]}" if near else ""
        raise UsageError(f"{option} {name}: no such rule{nearest}; `tritmark advise --list` has all of them")
    return found
