"""Bit-exactness: every fitting kernel of the device on every input family and some sizes, against the reference; on an
accelerator also against the baseline's kernel."""

from __future__ import annotations

import numpy as np

from tritmark.harness.criteria import tasks
from tritmark.harness.criteria.bench import CriteriaBench, CriterionFinding, difference
from tritmark.harness.criteria.model import MeasuredFigure, Unit
from tritmark.harness.criteria.plan import ExactCriterion
from tritmark.harness.record import Status
from tritmark.harness.text.units import count, counted
from tritmark.harness.validate.compare import expectations

SHOWN = 20
"""Failures that a report lists."""

_FAMILY = 10_000_019
"""Distinguishes the seeds of families from those of other draws."""


def judge_exact(bench: CriteriaBench, criterion: ExactCriterion) -> CriterionFinding:
    """Count the elements that differ."""
    threads = bench.threads
    judged: set[str] = set()
    wrong = elements = 0
    failures: list[str] = []
    with_baseline = bench.accelerated
    for size in criterion.sizes:
        axes = bench.kernel.at(size)
        fitting = [
            variant
            for variant, refusal in bench.installed.registry.candidates(bench.key, axes)
            if refusal is None and not variant.tier.named_only
        ]
        cases = []
        for number, family in enumerate(bench.op.input_families):
            rng = np.random.default_rng([bench.seed, _FAMILY, number, size])
            logical = bench.op.generate(axes, family, rng)
            expected = expectations(bench.op, axes, bench.key, bench.op.reference(logical, axes, bench.key))
            cases.append((family, logical, expected))
        taken = [*fitting, bench.best(size, bench.baseline)] if with_baseline else fitting
        for variant in taken:
            calls = [
                tasks.CallInputs(bench.op.encode(logical, axes, variant.key.format), axes, threads, 0)
                for _, logical, _ in cases
            ]
            replies = bench.workers.of(variant).call(f"running {variant.id}", tasks.run_calls, calls)
            judged.add(variant.id)
            for (family, _, expected), reply in zip(cases, replies, strict=True):
                differing, first = difference(expected, reply.outputs)
                elements += sum(each.values.size for each in expected)
                wrong += differing
                what = first or refused(reply)
                if what:
                    wrong += not differing
                    failures.append(f"{variant.id}, {count(size)} elements, {family}: {what}")
    figures = (
        MeasuredFigure(name="incorrect elements", value=wrong, unit=Unit.COUNT),
        MeasuredFigure(name="elements", value=elements, unit=Unit.COUNT),
    )
    notes = [f"{counted(len(judged), 'kernel')}, {len(bench.op.input_families)} input families"]
    if with_baseline:
        notes.append("the baseline's kernel gives the same bits as the reference, which both are compared with")
    if wrong > criterion.threshold:
        return CriterionFinding(
            Status.FAIL,
            f"{counted(wrong, 'element')} of {count(elements)} differ: {failures[0]}",
            figures,
            ", ".join(sorted(judged)),
            failures=tuple(failures[:SHOWN]),
            notes=tuple(notes[:1]),
        )
    return CriterionFinding(Status.PASS, "", figures, ", ".join(sorted(judged)), notes=tuple(notes))


def refused(reply: tasks.CallReply) -> str:
    """What else is incorrect in a call with correct outputs."""
    if reply.bad >= 0:
        return f"it rejects element {reply.bad} of inputs that the contract admits"
    if reply.outside:
        return f"it writes outside {', '.join(reply.outside)}"
    return ""
