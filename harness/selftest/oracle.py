"""How drawn faults are judged: as `tritmark run` and `tritmark check` judge, in this process, until the first case that fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tritmark.harness.record import Status
from tritmark.harness.selftest.right import Right
from tritmark.harness.spec import Variant, Workload
from tritmark.harness.validate.accuracy import judge
from tritmark.harness.validate.cases import Material


@dataclass(frozen=True, slots=True)
class Judgement:
    """Of one kernel. `reason` is "" where it passed; `calls`: how often it was run."""

    reason: str
    calls: int


@dataclass(frozen=True, slots=True)
class Oracle:
    """Judges kernels of one key on the same cases. `corners` are the suite's own, `seed` fixes what is drawn, `cores` is "all" threads."""

    right: Right
    corners: tuple[Workload, ...]
    seed: int
    cores: int

    def judged(self, candidates: Sequence[Variant]) -> list[Judgement]:
        """Each candidate's judgement."""
        reasons, calls = [""] * len(candidates), [0] * len(candidates)
        for workload in self.corners:
            cases = Material(self.right.op, workload, self.seed).cases(self.right.key)
            for nth, candidate in enumerate(candidates):
                if reasons[nth]:
                    continue
                found = judge(
                    self.right.op, candidate, cases, workload.axes, layout=workload.layout, threads=1 + self.seed % 2, seed=self.seed
                )
                calls[nth] += found.receipt.runs if found.receipt is not None else 0
                if found.accuracy.status in {Status.FAIL, Status.ERROR}:
                    reasons[nth] = found.accuracy.reason
        return [Judgement(reason, count) for reason, count in zip(reasons, calls, strict=True)]
