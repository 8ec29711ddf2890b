"""Whether HEAD's kernel gives what BASE's gives, beyond the workload that is timed: on the cases of the accuracy
verdict.

What changed rarely shows on one workload: it needs a shape, a layout, a thread count, a value or a repeated call.
"""

from __future__ import annotations

from tritmark.harness.gate.build_host import BuildHost
from tritmark.harness.gate.json_rpc import Stage, StageTeller
from tritmark.harness.gate.result import Outcome
from tritmark.harness.gate.task import GateTask
from tritmark.harness.machine.cpu import physical_cores
from tritmark.harness.record import Divergence, Model


class DrawnComparison(Model):
    """What comparing a kernel of both builds on drawn cases found."""

    cases: int = 0
    """On which both gave outputs."""
    refused: int = 0
    """Cases that BASE takes and HEAD does not: its constraints became narrower."""
    identical: bool = False
    """Their machine code is the same, so no case was run."""
    outcome: Outcome | None = None
    """DIFFERS or ERROR; None where nothing is wrong."""
    reason: str = ""
    """Of the outcome; without one, why no case could be compared."""
    first: Divergence | None = None


def compare_drawn(
    base: BuildHost, head: BuildHost, task: GateTask, count: int, stage: StageTeller, *, trust_code: bool = True
) -> DrawnComparison:
    """Run the kernel of both builds on so many cases, until one shows a difference. Cases that BASE fails are left out.

    `trust_code`: the same machine code is not run.
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
    """Whether both have the same machine code; not where one cannot be bound, which measuring reports."""
    try:
        first = base.bind(task)
        return bool(first.code) and first.code == head.bind(task, first).code
    except Exception:
        return False
