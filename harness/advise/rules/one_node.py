"""The memory is on few of the NUMA nodes whose cores read it."""

from __future__ import annotations

from tritmark.harness.advise import shared_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact
from tritmark.harness.text import units


def _judge(evidence: Evidence) -> Finding | None:
    run, machine, use = evidence.run, evidence.machine, evidence.run.node_use
    rates = {(each.cores, each.memory): each for each in machine.node_bandwidths}
    hot = run.performance.hot
    assert hot is not None
    if evidence.on_device or use is None or not use.nbytes or not evidence.memory_side:
        return None
    if hot.footprint <= max(machine.caches.values(), default=0):
        return None  # the data is in the caches
    local = {cores: each for (cores, memory), each in rates.items() if cores == memory}
    most = {memory: max(each.rate for each in rates.values() if each.memory == memory) for _, memory in rates}
    threads = sum(each.threads for each in local.values())
    if len(local) < 2 or run.threads < threads or not use.nbytes.keys() <= most.keys():
        return None
    there = sum(use.nbytes.values())
    # Seconds per byte of the slowest node: with the current placement, and with each part on the node of its threads.
    now = max(nbytes / there / most[node] for node, nbytes in use.nbytes.items())
    placed = max(each.threads / threads / each.rate for each in local.values())
    found = gain(1.0, now / placed) if now > placed else None
    if found is None:
        return None
    lies = ", ".join(f"{units.percent(nbytes / there)} on node {node}" for node, nbytes in sorted(use.nbytes.items()))
    read = ", ".join(
        f"node {cores} from {memory}: {units.rate(each.rate, 'bytes/s')}"
        for (cores, memory), each in sorted(rates.items())
    )
    return Finding(
        evidence=(
            shared_facts.warm(evidence),
            Fact(name="placement of the memory", value=lies, source="node_use.nbytes"),
            Fact(name="read rates", value=read, source="machine.node_bandwidths"),
        ),
        gain=found,
        edit="place the weights on the nodes of the threads that read them: PackedWeights.placed('first-touch'), or "
        "'interleave' if calls have threads on some nodes only; or `numactl --interleave=all`",
    )


RULE = Rule(
    name="one-node",
    number=41,
    title="The memory is on few of the NUMA nodes that read it",
    needs="the placement of the arrays (Run.node_use) and the read rates between NUMA nodes, for a Run on all cores of "
    "a host with several nodes",
    explanation="""\
Condition: a Run that memory limits, larger than the caches, with threads on the cores of each NUMA node.
Formula: 1 to now / placed. now: the longest time of a node for its part of the bytes, at the rate of its fastest
reader. placed: the longest time in which the cores of a node read their part from their own memory. It begins at 1,
because the rate at which several nodes together read one memory is not measured. Threshold: the noise.""",
    judge=_judge,
)
