"""Finds the best candidate of a question within a time: judges each, screens the correct ones, measures the best
again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import numpy as np

from tritmark.harness.autotune import ties
from tritmark.harness.autotune.keep import keep
from tritmark.harness.autotune.tune import CONFIRMING_S, SCREENING_S, untimed
from tritmark.harness.dtypes import named_dtype
from tritmark.harness.league.turns import by_turns_task
from tritmark.harness.numbered import unnumbered
from tritmark.harness.record import Ratio
from tritmark.harness.registry import Question, coded, fewest
from tritmark.harness.selection.tasks import FirstRun, trial_task
from tritmark.harness.spec import Axes, KernelKey, Requirement, Variant, Workload
from tritmark.harness.tuned import Choice
from tritmark.harness.validate.cases import Case, Material
from tritmark.harness.validate.ceiling import LAYOUT_NOISE
from tritmark.harness.validate.compare import compare
from tritmark.harness.worker import Workers

SLOWER = 2.0
"""A candidate whose hot call takes more than this factor of the fastest one's is not timed interleaved: cold arrays
cost every candidate the same."""
_BUILT_IN = "the built-in choice"


class _BrokeError(Exception):
    """A candidate could not be run; `why` has the reason."""


@dataclass(slots=True, kw_only=True)
class MeasuredChoice:
    """The result for a question. `why` states the outcome of each candidate."""

    question: Question
    why: dict[str, str] = field(default_factory=dict)
    """By candidate id, including candidates that were refused beforehand."""
    trials: dict[str, float] = field(default_factory=dict)
    """Approximate hot time of a call of each correct candidate, ns."""
    screened: dict[str, Ratio] = field(default_factory=dict)
    """Interleaved time over that of `rival`, for each candidate that was timed."""
    rival: str = ""
    """Id of the variant that a choice must beat: the built-in choice, or, if that is not admitted, the best of the
    table among the admitted ones."""
    chosen: str = ""
    """Id of the variant that is kept; "" if none is."""
    ratio: Ratio | None = None
    """Its time over the built-in choice's, from the second measurement; None if it is the built-in choice."""
    tie: tuple[str, str] = ("", "")
    """The variant that is kept and the one with the fastest median, if the measurement could not separate them."""
    tie_ratio: Ratio | None = None
    """Interleaved time of the first over the second, measured to separate them."""
    failed: set[str] = field(default_factory=set)
    """Ids of candidates that are incorrect or broke."""
    note: str = ""
    """Why nothing is kept."""


def measure(workers: Workers, question: Question, *, seconds: float, seed: int) -> MeasuredChoice:
    """Find the best variant and store it for the selection. It replaces the earlier result of the question, except if
    there was no time or no clock."""
    found = _Measuring(workers, question, seed, monotonic() + seconds).run()
    if found.chosen:
        ratio = found.ratio
        choice = Choice(
            variant=question.place,
            axes=dict(question.axes),
            identity=question.identity(),
            instance=unnumbered(found.chosen),
            builtin=unnumbered(question.builtin.id),
            ratio=(1.0, 1.0, 1.0) if ratio is None else (ratio.median, ratio.low, ratio.high),
            created=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        )
        keep(question.place, question.axes, choice.identity, choice)
    return found


class _Measuring:
    """One question."""

    def __init__(self, workers: Workers, question: Question, seed: int, end: float) -> None:
        self._workers, self._question, self._seed, self._end = workers, question, seed, end
        self._op = workers.installed.ops[question.builtin.key.op]
        whole = {axis: size for axis, size in question.axes.items() if axis != "threads"}
        self._most, self._least = whole, fewest(whole)
        self._by_id = {each.id: each for each in question.candidates}
        self._usual = self._op.input_families[0], tuple(whole.items())
        self._cases: dict[KernelKey, Case] = {}
        """Cases of the first input family with the most rows, which are used repeatedly."""
        self._found = MeasuredChoice(question=question, why=dict(question.refused))
        self._noisy: list[Variant] = []
        """Candidates whose comparison with the rival was too noisy."""

    def run(self) -> MeasuredChoice:
        found, question = self._found, self._question
        found.note = untimed(question.device)
        if not found.note and question.device.forced() is not None:
            found.note = "the environment forces a variant"
        if not found.note and not coded(question.device, question.builtin):
            found.note = "the code of the built-in choice has no hash, so another build would look the same"
        if found.note:
            return found
        admitted = self._admitted()
        if found.note:
            return found
        if question.builtin.id in found.failed:
            found.note = f"{_BUILT_IN} is incorrect"
        elif not admitted:
            found.note = "no candidate is admitted"
        else:
            self._choose(admitted)
        return found

    def _admitted(self) -> list[Variant]:
        """The correct candidates that may be chosen, the best of the table first."""
        found, question = self._found, self._question
        right = []
        for each in question.candidates:
            if self._left() <= 0:
                found.note = "the time ended before every candidate was judged"
                break
            if not coded(question.device, each):
                found.why[each.id] = "its code has no hash, so another build would look the same"
            elif question.requirement is Requirement.EXACTNESS and self._bounded(each):
                found.why[each.id] = "its outputs have an error bound, so they are not exact"
            elif self._right(each, self._op.input_families[0], self._most, paced=True):
                right.append(each)
        if question.requirement is Requirement.MEMORY and right:
            nbytes = {each.id: self._nbytes(each) for each in right}
            least = min(nbytes.values())
            for each in right:
                text = f"{nbytes[each.id]} bytes"
                found.why[each.id] = text if nbytes[each.id] == least else f"{text}; the least is {least}"
            right = [each for each in right if nbytes[each.id] == least]
        return sorted(right, key=lambda each: each.precedence, reverse=True)

    def _bounded(self, variant: Variant) -> bool:
        """Whether its outputs are only checked against an error bound."""
        expected = self._case(variant, self._op.input_families[0], self._most).expected
        return variant.error_bound is not None or any(each.error_bound is not None for each in expected)

    def _choose(self, admitted: Sequence[Variant]) -> None:
        found = self._found
        builtin = self._question.builtin
        first = builtin if builtin in admitted else admitted[0]
        found.rival = first.id
        quickest = min(found.trials[each.id] for each in admitted)
        for each in admitted:
            if each is first:
                continue
            times = found.trials[each.id] / quickest
            if times > SLOWER:
                self._tell(each, f"a hot call takes {times:.2g}x the time of the fastest one")
            elif self._left() <= 0:
                found.note = "the time ended before every candidate was timed"
                return
            else:
                ratio = self._race(each, first, self._most, SCREENING_S)
                if ratio is not None:
                    self._tell(each, f"{_times(ratio)} of {_short(first)}'s time")
                    if self._compares(each, ratio):
                        found.screened[each.id] = ratio
        best, confirmed = self._confirmed(first)
        if best is None:
            return
        if best is first and self._noisy:
            found.note = f"too noisy to choose, twice: {', '.join(map(_short, self._noisy))}; repeat on a quiet machine"
            return
        if best is not builtin and confirmed is None:  # the table's best admitted variant
            confirmed = self._race(best, builtin, self._most, self._share())
        found.chosen, found.ratio = best.id, confirmed
        if best is not first:
            self._tell(first, "the variant to beat")
        over = "" if confirmed is None else f": {_times(confirmed)} of {_short(builtin)}'s time, measured again"
        self._tell(best, f"chosen{over}" if best is not builtin else "chosen: the built-in choice")

    def _confirmed(self, first: Variant) -> tuple[Variant | None, Ratio | None]:
        """The fastest candidate that is correct on all input families at both ends of the class and faster in the
        second measurement; otherwise `first`. With its time over the built-in choice's, if that is `first`."""
        found = self._found
        builtin = self._question.builtin
        quicker = {id: ratio for id, ratio in found.screened.items() if ratio.median < 1}
        while quicker:
            if self._left() <= 0:
                found.note = "the time ended before the fastest was judged and timed again"
                return None, None
            id, fastest, tie = ties.taken(quicker, self._order(quicker), self._race_ids)
            each = self._by_id[id]
            del quicker[id]
            if not all(
                self._right(each, family, axes)
                for axes in (self._most, self._least)
                for family in self._op.input_families
            ):
                continue
            ratio = self._race(each, first, self._most, self._share())
            if ratio is None or not self._compares(each, ratio):
                continue
            if ratio.high >= 1 - LAYOUT_NOISE:
                self._tell(each, f"{_times(ratio)} of {_short(first)}'s time, measured again: not faster beyond noise")
                if tie is None:
                    if ties.tied(ratio):
                        found.tie, found.tie_ratio = (first.id, id), _inverse(ratio)
                    break
                continue
            if self._least != self._most:
                fewer = self._race(each, first, self._least, self._share())
                if fewer is not None and not self._compares(each, fewer):
                    continue
                if fewer is None or fewer.low > 1 + LAYOUT_NOISE:
                    what = "broke" if fewer is None else f"{_times(fewer)} of {_short(first)}'s time"
                    self._tell(each, f"{what} with the fewest rows of the class")
                    continue
            if tie is not None:
                found.tie, found.tie_ratio = (id, fastest), tie
            return each, ratio if first is builtin else None
        return first, None

    def _compares(self, variant: Variant, ratio: Ratio) -> bool:
        """Whether a ratio shows which of the two is faster. A ratio that is too noisy still shows a slower one if its
        interval is above 1."""
        if ratio.too_noisy and ratio.low < 1:
            self._noisy.append(variant)
            return False
        return True

    def _order(self, ids: Iterable[str]) -> list[str]:
        """The order among ties: by the table, the highest first, then by id."""
        return sorted(ids, key=lambda id: ([-int(part) for part in self._by_id[id].precedence], id))

    def _race_ids(self, id: str, other: str) -> Ratio | None:
        return self._race(self._by_id[id], self._by_id[other], self._most, self._share())

    def _tell(self, variant: Variant, what: str) -> None:
        before = self._found.why.get(variant.id, "")
        self._found.why[variant.id] = f"{before}; {what}" if before else what

    def _left(self) -> float:
        return self._end - monotonic()

    def _share(self) -> float:
        return min(CONFIRMING_S, max(SCREENING_S, self._left()))

    def _nbytes(self, variant: Variant) -> int:
        """Bytes of its encoded inputs and of its workspace."""
        inputs = self._case(variant, self._op.input_families[0], self._most).inputs
        return sum(int(np.asarray(each).nbytes) for each in inputs.values()) + variant.workspace(self._most)

    def _case(self, variant: Variant, family: str, axes: Axes) -> Case:
        """Inputs of a family, and the expected outputs."""
        usual = (family, tuple(axes.items())) == self._usual
        if usual and variant.key in self._cases:
            return self._cases[variant.key]
        made = Material(self._op, Workload(op=self._op.name, axes=axes, family=family), self._seed)
        made.forget_second()
        case = made.cases(variant.key).first
        if usual:
            self._cases[variant.key] = case
        return case

    def _call(self, variant: Variant, what: str, task: Callable[..., Any], *arguments: Any) -> Any:
        """The result of the task. If it cannot be run, records why and raises _BrokeError."""
        try:
            return self._workers.of(variant).call(what, task, *arguments)
        except Exception as why:
            self._workers.renew(variant)
            self._found.failed.add(variant.id)
            self._tell(variant, f"{type(why).__name__}: {why}")
            raise _BrokeError from why

    def _right(self, variant: Variant, family: str, axes: Axes, *, paced: bool = False) -> bool:
        """Whether a candidate's outputs match the reference; with `paced`, also measure its time."""
        case = self._case(variant, family, axes)
        arguments = dict(case.inputs), dict(axes), self._question.threads, paced
        try:
            trial: FirstRun = self._call(variant, f"judging {variant.id}", trial_task, *arguments)
        except _BrokeError:
            return False
        like = self._op.outputs_like(axes, variant.key)
        for expected in case.expected:
            shape, dtype = like[expected.name]
            compared = compare(expected, trial.outputs[expected.name].view(named_dtype(dtype)).reshape(shape))
            if compared.first is not None:
                first = compared.first
                where = f"{first.output}{list(first.index)} is {first.found}, expected {first.expected}"
                self._tell(
                    variant, f"incorrect: {where}; {compared.wrong.size} of {expected.values.size} elements ({family})"
                )
                self._found.failed.add(variant.id)
                return False
        if paced:
            self._found.trials[variant.id] = trial.call_ns
        return True

    def _race(self, variant: Variant, other: Variant, axes: Axes, seconds: float) -> Ratio | None:
        """The interleaved time of one over the other's, repeated if it is too noisy; None if one of them broke."""
        family = self._op.input_families[0]
        own, theirs = (dict(self._case(each, family, axes).inputs) for each in (variant, other))
        arguments: tuple[Any, ...] = other.id, own, theirs, dict(axes), self._question.threads, self._seed
        cold = self._question.requirement is not Requirement.THROUGHPUT
        what = f"timing it interleaved with {other.id}"
        try:
            ratio: Ratio | None = self._call(variant, what, by_turns_task, *arguments, cold, seconds)
            if ratio is None:  # the arrays are too small to be cold
                cold = False
                ratio = self._call(variant, what, by_turns_task, *arguments, cold, seconds)
            if ratio is not None and ratio.too_noisy and self._left() > 0:
                ratio = self._call(variant, what, by_turns_task, *arguments, cold, seconds)
        except _BrokeError:
            return None
        return ratio


def _inverse(ratio: Ratio) -> Ratio:
    return Ratio(median=1 / ratio.median, low=1 / ratio.high, high=1 / ratio.low, pairs=ratio.pairs)


def _times(ratio: Ratio) -> str:
    interval = "(too noisy)" if ratio.too_noisy else f"[{ratio.low:.3f}, {ratio.high:.3f}]"
    return f"{ratio.median:.3f} {interval}"


def _short(variant: Variant) -> str:
    return f"{variant.key.format}/{variant.name}" if variant.key.format != "none" else variant.name
