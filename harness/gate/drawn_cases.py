"""Compares the outputs of HEAD's and BASE's kernel on the drawn cases of the accuracy verdict.

The timed workload rarely shows a difference: most need a certain shape, layout, thread count, value or repeated call.
"""

from __future__ import annotations

from tritmark.harness.gate.build_host import BuildHost
from tritmark.harness.gate.json_rpc import Stage, StageTeller
from tritmark.harness.gate.result import Outcome
from tritmark.harness.gate.task import GateTask
from tritmark.harness.machine.cpu import physical_cores
from tritmark.harness.record import Divergence, Model


class DrawnComparison(Model):
    """The result of comparing a kernel of both builds on drawn cases."""

    cases: int = 0
    """Cases in which both builds returned outputs."""
    refused: int = 0
    """Cases that BASE admits and HEAD refuses: its constraints became narrower."""
    identical: bool = False
    """The machine code of both builds is the same, so no case was run."""
    outcome: Outcome | None = None
    """DIFFERS or ERROR; None if no difference was found."""
    reason: str = ""
    """The reason of the outcome; without an outcome, why no case could be compared."""
    first: Divergence | None = None


def compare_drawn(
    base: BuildHost, head: BuildHost, task: GateTask, count: int, stage: StageTeller, *, trust_code: bool = True
) -> DrawnComparison:
    """Run the kernel of both builds on up to `count` cases, until one shows a difference. Cases that BASE fails are
    left out.

    `trust_code`: equal machine code is not run.
    """
    stage(Stage.RUNNING_BASE)
    if trust_code and _same_code(base, head, task):
        return DrawnComparison(identical=True)
    compared, refused, failed = 0, 0, ""
    for case in base.draw(task, count, physical_cores()):
        again = f"{case}; repeat with --seed {task.seed}"
        stage(Stage.RUNNING_BASE, again)
        try:
            own = base.answers(task, case)
        except Exception as error:
            failed = failed or f"BASE fails on {case}: {error}"
            continue
        if own is None:
            continue
        stage(Stage.RUNNING_HEAD, again)
        try:
            other = head.answers(task, case, own)
        except Exception as error:
            reason = f"HEAD fails and BASE does not, on {again}: {error}"
            return DrawnComparison(cases=compared, outcome=Outcome.ERROR, reason=reason)
        if other is None:
            refused += 1
            continue
        stage(Stage.COMPARING, again)
        why, first = base.judge_answers(task, case, own, other)
        compared += 1
        if why:
            return DrawnComparison(
                cases=compared, outcome=Outcome.DIFFERS, reason=f"HEAD: {why}, on {again}", first=first
            )
    reason = "" if compared else failed or "both builds admit none of the drawn cases"
    return DrawnComparison(cases=compared, refused=refused, reason=reason)


def _same_code(base: BuildHost, head: BuildHost, task: GateTask) -> bool:
    """Whether both builds have the same machine code. False if a kernel cannot be bound, which measuring reports."""
    try:
        first = base.bind(task)
        return bool(first.code) and first.code == head.bind(task, first).code
    except Exception:
        return False
