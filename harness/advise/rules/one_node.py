"""All of its memory lies on few of the NUMA nodes whose cores read it."""

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
        return None  # it reads caches
    local = {cores: each for (cores, memory), each in rates.items() if cores == memory}
    most = {memory: max(each.rate for each in rates.values() if each.memory == memory) for _, memory in rates}
    threads = sum(each.threads for each in local.values())
    if len(local) < 2 or run.threads < threads or not use.nbytes.keys() <= most.keys():
        return None
    there = sum(use.nbytes.values())
    # Seconds a byte that the slowest memory takes for its part: as it lies, and where each node's threads have theirs.
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
            Fact(name="where its memory lies", value=lies, source="node_use.nbytes"),
            Fact(name="reading", value=read, source="machine.node_bandwidths"),
        ),
        gain=found,
        edit="put the weights where the threads are that read them: PackedWeights.placed('first-touch'), or "
        "'interleave' where calls have threads on some of the nodes only; or `numactl --interleave=all`",
    )


RULE = Rule(
    name="one-node",
    number=41,
    title="Its memory lies on few of the nodes that read it",
    needs="where its arrays lay (Run.node_use) and how fast each NUMA node is read, of a Run on all cores of a host of "
    "several",
    explanation="""\
Looks at the bytes that the Run's arrays have on each NUMA node, and at the measured rate of reading between nodes, for
a Run that is limited by memory, larger than the caches, and has threads on every node's cores.
Formula: now / placed. now: of the nodes, the longest time for its part of the bytes at the rate of its fastest reader,
since no memory gives more than that to one node's cores; placed: the longest time for a node's cores to read their part
from their own memory. That several nodes together may draw more from one memory is not measured, hence 1 to the ratio.
No threshold but the noise.""",
    judge=_judge,
)
