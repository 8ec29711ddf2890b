"""Judges drawn mutants as `tritmark run` and `tritmark check` do, but in this process, until the first case that
fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tritmark.harness.selftest.right import CorrectKernel
from tritmark.harness.spec import Variant, Workload
from tritmark.harness.validate.cases import Cases
from tritmark.harness.validate.draw import Drawer, Drawn
from tritmark.harness.validate.drawn import Data, DrawnJudgement

_KEPT_BYTES = 256 << 20
"""Maximum bytes of inputs and expected outputs that a process keeps for the next kernels."""


@dataclass(slots=True)
class Oracle:
    """Judges kernels with the same key and constraints on the same cases: `count` cases drawn from `seed`, and the
    suite's `corners`.

    `cores` is the thread count called "all".
    """

    right: CorrectKernel
    count: int
    corners: tuple[Workload, ...]
    seed: int
    cores: int
    _drawer: Drawer | None = None
    _cases: list[Drawn] = field(default_factory=list)
    _data: list[Cases | None] = field(default_factory=list)
    """The data of the first cases, as many as fit into _KEPT_BYTES."""
    _nbytes: int = 0

    def judged(self, candidates: Sequence[Variant]) -> list[str]:
        """Why each candidate fails, in its first failing case; "" for a candidate that passes."""
        op, data = self.right.op, Data(self.right.op, self.right.key)
        if self._drawer is None:
            self._drawer = Drawer(op, candidates[0], cores=self.cores, threaded=True, seed=self.seed)
            self._cases = self._drawer.draw(self.count, self.corners)
        drawer = self._drawer
        judgements = [DrawnJudgement(op, candidate, device=None) for candidate in candidates]
        for nth, case in enumerate(self._cases):
            left = [judgement for judgement in judgements if not judgement.failed]
            if not left:
                break
            cases = self._data[nth] if nth < len(self._data) else self._keep(nth, data.of(case))
            if cases is None:
                continue
            classes = drawer.classes(case)
            for judgement in left:
                judgement.judge(case, cases, classes)
        found = [judgement.part(drawer, self.seed).judged.accuracy for judgement in judgements]
        return [each.reason if each.failed else "" for each in found]

    def _keep(self, nth: int, cases: Cases | None) -> Cases | None:
        if nth == len(self._data) and self._nbytes < _KEPT_BYTES:
            self._data.append(cases)
            for each in (cases.first, cases.second) if cases is not None else ():
                arrays = (
                    ()
                    if each is None
                    else (*each.inputs.values(), *(array for e in each.expected for array in (e.values, e.error_bound)))
                )
                self._nbytes += sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
        return cases
