"""What `tritmark model` prints about what it judged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tritmark.harness.models import JudgedGraph, JudgedLogits, ModelResult


def verdict(found: ModelResult) -> str:
    """The headline: what is right, and what was not judged."""
    from tritmark.harness.record import Status
    from tritmark.harness.text.units import counted

    right = sum(each.status is Status.PASS for each in found.layers)
    unreached = sum(each.status is Status.NOT_RUN for each in found.layers)
    judged = found.graph is not None and not found.graph.why_not
    word = "FAIL" if found.failed else "PASS" if judged else "PASS (layers; graph not judged)"
    not_judged = f", {unreached} not judged since no token reached them" if unreached else ""
    parts = [
        f"{word}: {right} of {counted(len(found.layers), 'layer')} within the bound of their arithmetic{not_judged}; "
        f"{found.replaced} replaced, {len(found.kept)} kept"
    ]
    if found.experts:
        total = sum(each.experts for each in found.experts)
        unreached = sum(each.unreached for each in found.experts)
        wrong = sum(len(each.wrong) for each in found.experts)
        parts.append(
            f"{total - unreached - wrong} of {counted(total, 'product')} of experts within it, {unreached} not judged "
            "since no token reached them"
        )
    parts.append(_graph(found.graph))
    if found.logits is not None:
        parts.append(_logits(found.logits))
    return "; ".join(parts)


def _graph(graph: JudgedGraph | None) -> str:
    from tritmark.harness.text.units import counted

    if graph is None:
        return "graph not judged"
    if graph.why_not:
        return f"graph not judged: {graph.architecture}, {graph.why_not}"
    right = len(graph.parts) - len(graph.wrong) - len(graph.unseen)
    unseen = f", {len(graph.unseen)} not judged" if graph.unseen else ""
    return f"graph: {right} of {counted(len(graph.parts), 'part')}{unseen}"


def _logits(logits: JudgedLogits) -> str:
    from tritmark.harness.record import Status

    if logits.status is Status.NOT_RUN:
        return f"logits of {logits.file} not judged: {logits.why_not}"
    return f"logits of {logits.file}: {logits.status.name}"


def lines(found: ModelResult, shown: int) -> Iterator[str]:
    """What is wrong, by name."""
    from tritmark.harness.record import Status
    from tritmark.harness.text import units

    for expert in [each for each in found.experts if each.wrong][:shown]:
        numbers = ", ".join(map(str, expert.wrong[:shown])) + (" and more" if len(expert.wrong) > shown else "")
        yield f"FAIL {expert.name}, experts {numbers}: {expert.largest:.3g} times the bound"
    if found.graph is not None:
        for part in (*found.graph.wrong, *found.graph.unseen)[:shown]:
            word = "FAIL" if part.status is Status.FAIL else "not judged"
            ratio = "" if part.largest is None or part.largest <= 1 else f"{part.largest:.3g} times the bound"
            yield f"{word} {part.name}: {'; '.join(each for each in (ratio, part.why) if each)}"
        more = len(found.graph.wrong) + len(found.graph.unseen) - shown
        if more > 0:
            yield f"and {more} more parts of the graph"
    logits = found.logits
    if logits is not None and logits.distance is not None and logits.top1 is not None:
        yield (
            f"logits of {logits.file}, {units.counted(logits.tokens, 'token')}: {logits.distance:.3g} from the "
            f"reference, {logits.samples} other roundings at most {logits.spread:.3g}; the same next token for "
            f"{units.percent(logits.top1)}, KL divergence {logits.kl:.3g} nats"
        )
        if logits.status is Status.FAIL:
            yield f"their likely fault: {logits.fault or f'none of the {len(logits.tried)} that are known'}"
