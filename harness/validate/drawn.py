"""A variant judged on drawn cases. See draw for the cases, and trial for the checks.

In each case the launch runs on one set of data, then on another in the same memory, then many times. If inputs must be
finite, some runs have non-finite values. The end of the arrays that lies at a guard page alternates between cases.

Guarantee: a fault that shows in a share p of calls, independent of the case, passes n calls with probability (1 - p)^n.
So the rarest fault that is detected with probability 95 % shows in a share of 1 - 0.05^(1/n).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from time import perf_counter

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.record import Status
from tritmark.harness.spec import Axes, Device, KernelKey, Op, Variant, Workload
from tritmark.harness.validate.accuracy import NONFINITE_ROUNDS, Judged, ended, trapped
from tritmark.harness.validate.cases import Case, Cases, Material, admitted
from tritmark.harness.validate.draw import Drawer, Drawn, edge_of
from tritmark.harness.validate.evidence import added
from tritmark.harness.validate.guard_names import Complaint, Guard, in_order
from tritmark.harness.validate.state import StateWatch
from tritmark.harness.validate.trial import GUARDS, ISOLATED, BrokenCandidateError, Setting, Tally, Trial
from tritmark.harness.worker.remote import SharedMemory

CONFIDENCE = 0.95
"""Probability with which the rarest fault is detected."""

_REPEATED_BYTES = 1 << 16
_REPEATED_WORK = 1 << 22
_MOST_REPEATS = 40
"""A case is repeated as often as its outputs fit into _REPEATED_BYTES and the product of its axes into _REPEATED_WORK,
at most _MOST_REPEATS times. All cases together then make thousands of calls, and repeats take no longer than the rest,
also for plain loops."""

DEVICE_SHARE = 4
"""On a device with its own memory, where the outputs of each run are copied back, only this part of the repeats is
made: one in DEVICE_SHARE."""

_KEPT = 16
"""Cases whose data is kept for the next variant of the same key."""

ENOUGH_FAILED = 32
"""No more cases are judged after this many failures: their common classes are known by then."""

LEAST_FAILED = 4
"""Fewer failures share a class by chance: with 6 % probability, four random cases are all in a given class that holds
half of the cases."""

_TELLING = 0.5
"""A class that holds more than this share of all cases does not explain failures."""


@dataclass(slots=True)
class Data:
    """Inputs and expected outputs of cases, made on request and kept for the other variants of a key."""

    op: Op
    key: KernelKey
    _known: OrderedDict[tuple[object, ...], Cases | None] = field(default_factory=OrderedDict)

    def of(self, case: Drawn) -> Cases | None:
        """Two sets of data; None if the key's format cannot hold them. Raises BrokenReferenceError."""
        mark = (tuple(case.axes.items()), case.family, case.seed)
        if mark not in self._known:
            while len(self._known) >= _KEPT:
                self._known.popitem(last=False)
            self._known[mark] = self._made(case)
        return self._known[mark]

    def _made(self, case: Drawn) -> Cases | None:
        workload = Workload(op=self.op.name, axes=case.axes, family=case.family)
        if case.alone:
            self._known.clear()  # the case is large
        # A format may refuse values that the contract admits, such as scales below its least one.
        for salts in (case.salts, (None, None)):
            with suppress(InvalidArgumentError):
                material = Material(self.op, workload, case.seed, salts=salts, near=case.near)
                if case.alone:
                    material.forget_second()
                return material.cases(self.key)
        return None


@dataclass(frozen=True, slots=True)
class Part:
    """Judgement of a part of a variant's cases. Can be pickled."""

    judged: Judged
    missing: tuple[str, ...]
    """Classes that the contract and the constraints admit, without a case."""
    covered: tuple[str, ...]
    cases: Counter[str]
    """Number of cases in each class; "": all."""
    failed: Counter[str]
    """Number of failed cases in each class; "": all."""


class DrawnJudgement:
    """One variant on one case after another. `device` None: the kernel works in this process, on the host's memory.
    `briefly`: each case once on either set of data, without repeats."""

    def __init__(self, op: Op, variant: Variant, *, device: Device | None, briefly: bool = False) -> None:
        self._op, self.variant, self._device, self._briefly = op, variant, device, briefly
        memory = self._memory = device.memory() if device is not None and device.memory is not None else None
        self._tally = Tally(op, guards=(*GUARDS, *ISOLATED) if isinstance(memory, SharedMemory) else GUARDS)
        self._watch: StateWatch | None = None
        self._worker = getattr(memory, "worker", None)
        self._first_failed = ""
        self._broken: Complaint | None = None
        self._seconds = 0.0
        self._cases: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()

    @property
    def ended(self) -> bool:
        """Whether further cases teach nothing: the kernel broke, or failed often enough to show what its failures have
        in common."""
        return self._broken is not None or self._failed[""] >= ENOUGH_FAILED

    @property
    def failed(self) -> bool:
        """Whether it broke or failed in some case."""
        return self._failed[""] > 0

    def judge(self, case: Drawn, cases: Cases, classes: Mapping[str, str]) -> None:
        """Run the variant on a case of these classes."""
        tally, setting = (
            self._tally,
            Setting(self._op, self.variant, case.axes, case.placement, case.threads, self._device),
        )
        before, tally.where, begun = tally.complaints, str(case), perf_counter()
        edge = edge_of(case.number)
        trial: Trial | None = None
        try:
            if self._watch is None:
                self._watch = StateWatch(self._worker)
            trial = Trial(setting, cases.first, case.seed, edge)
            trial.run(tally, cases.first)
            # Not the number it used: threads of a pool that were too late took no part, but stay.
            self._watch.threads = max(self._watch.threads, case.threads)
            self._watch.begin()
            trial.run_nonfinite(tally, cases.first, 1 if case.alone or self._briefly else NONFINITE_ROUNDS)
            last = cases.first
            if cases.second is not None:
                last = cases.second
                if cases.in_place:
                    trial.refill(last)
                else:
                    trial = trial.successor(tally, last, case.seed + 1, edge)
                trial.run(tally, last)
            if not self._briefly:
                self._repeat(trial, last, case)
        except BrokenCandidateError as error:
            self._broken = ended(tally, error, trapped(setting, cases.first, case.seed, edge, error), f"; in {case}")
        if trial is not None:
            trial.testify(tally)
        failed = self._broken is not None or tally.complaints > before
        if failed:
            self._first_failed = self._first_failed or str(case)
        self._seconds += perf_counter() - begun
        for each in (*classes.values(), ""):
            self._cases[each] += 1
            self._failed[each] += failed

    def _repeat(self, trial: Trial, last: Case, case: Drawn) -> None:
        own_memory = not (self._memory is None or isinstance(self._memory, SharedMemory))
        nbytes = sum(each.values.nbytes for each in last.expected)
        trial.repeat(self._tally, last, repeats(nbytes, case.axes) // (DEVICE_SHARE if own_memory else 1))

    def part(self, drawer: Drawer, seed: int) -> Part:
        """The judgement of all cases so far. `seed` is the invocation's."""
        tally = self._tally
        try:
            for fault in self._watch.end() if self._watch is not None and self._broken is None else ():
                tally.complain(Guard.STATE, fault)
        except BrokenCandidateError as error:
            self._broken = ended(tally, error, None)
        verdict = tally.verdict(self._broken).model_copy(
            update={"calls": tally.calls, "seed": seed, "failed_case": self._first_failed}
        )
        code = self._watch.code if self._watch is not None else frozenset[str]()
        judged = Judged(verdict, tally.evidence.receipt(self.variant), self._seconds, code)
        return Part(judged, tuple(drawer.missing), tuple(sorted(drawer.tally.singles)), self._cases, self._failed)


def repeats(nbytes: int, axes: Axes) -> int:
    """Number of repeats of a case with so many bytes of outputs."""
    return min(_MOST_REPEATS, _REPEATED_BYTES // max(1, nbytes), _REPEATED_WORK // prod(axes.values()))


@dataclass(frozen=True, slots=True)
class Draw:
    """The cases for the variants of a key. Can be pickled."""

    key: KernelKey
    count: int
    corners: tuple[Workload, ...]
    seed: int
    cores: int
    """The thread count called "all"."""
    part: int = 0
    """Number of this part. Each of `parts` parts takes every `parts`-th case."""
    parts: int = 1
    far: bool = False
    """Also cases in which one axis is far larger than the others."""


def judge_parts(
    op: Op,
    variants: Sequence[tuple[Variant, Device | None]],
    draw: Draw,
    briefly: Sequence[tuple[Variant, Device | None]] = (),
) -> list[Part]:
    """Judge variants of one key side by side on the same data, and then those of `briefly` (see DrawnJudgement). Raises
    BrokenReferenceError if the reference cannot be used."""
    data = Data(op, draw.key)
    drawn: dict[tuple[object, ...], tuple[Drawer, list[Drawn]]] = {}
    at_work = []
    for nth, (variant, device) in enumerate((*variants, *briefly)):
        # A variant that packs its inputs may keep its first thread count.
        here = device is None or isinstance(device.memory and device.memory(), SharedMemory)
        threaded = here and not variant.packs
        same = (variant.constraints, variant.dense, variant.alignment, threaded)
        if same not in drawn:
            drawer = Drawer(op, variant, cores=draw.cores, threaded=threaded, seed=draw.seed)
            drawn[same] = drawer, [*drawer.draw(draw.count, draw.corners), *(drawer.far() if draw.far else ())]
        judgement = DrawnJudgement(op, variant, device=device, briefly=nth >= len(variants))
        at_work.append((judgement, *drawn[same]))
    for number in range(max((len(cases) for _, _, cases in at_work), default=0)):
        for judgement, drawer, cases in at_work:
            if number % draw.parts == draw.part and number < len(cases) and not judgement.ended:
                case = cases[number]
                there = data.of(case)
                if there is not None:
                    with suppress(InvalidArgumentError):  # values that the contract admits and a peer cannot hold
                        judgement.judge(case, admitted(there, judgement.variant, case.axes), drawer.classes(case))
    return [judgement.part(drawer, draw.seed) for judgement, drawer, _ in at_work]


def judge_drawn(
    op: Op,
    variant: Variant,
    key: KernelKey,
    *,
    corners: Sequence[Workload],
    count: int,
    seed: int,
    cores: int,
    device: Device | None,
    far: bool = False,
) -> Judged:
    """Judge one variant in this process, on `count` cases beside the corners, and if `far` on those of Drawer.far.
    `device` None: the kernel works on the host's memory."""
    return merged(judge_parts(op, [(variant, device)], Draw(key, count, tuple(corners), seed, cores, far=far)))


def merged(parts: Sequence[Part]) -> Judged:
    """The verdict over all parts of one variant's cases."""
    found = [part.judged.accuracy for part in parts]
    worst = next((each for status in (Status.ERROR, Status.FAIL) for each in found if each.status is status), found[0])
    calls, cases, failed = sum(each.calls for each in found), Counter[str](), Counter[str]()
    for part in parts:
        cases += part.cases
        failed += part.failed
    missing = tuple(each for each in parts[0].missing if not cases[each])
    covered = tuple(each for each in parts[0].covered if cases[each])
    # A kernel that broke or failed did not run all cases.
    skipped = () if worst.failed else tuple(each for each in parts[0].covered if not cases[each])
    status, reason = worst.status, worst.reason
    if worst.failed:
        reason = f"{reason}; {_pattern(cases, failed)}repeat with --seed {worst.seed}"
    elif not calls:
        status, reason = (
            Status.NOT_RUN,
            "no case fits both its constraints and its format; relax the constraints",
        )
    elif missing or skipped:
        status, reason = Status.AMBIGUOUS, f"no case reached: {', '.join((*missing, *skipped))}"
    return Judged(
        worst.model_copy(
            update={
                "status": status,
                "reason": reason,
                "caught_by": in_order(guard for each in found for guard in each.caught_by),
                "cases": sum(each.cases for each in found),
                "calls": calls,
                "elements": sum(each.elements for each in found),
                "mismatches": sum(each.mismatches for each in found),
                "largest_error": max((each.largest_error or 0.0 for each in found), default=None),
                "largest_ulp": max((each.largest_ulp or 0.0 for each in found), default=None),
                "covered": covered,
                "uncovered": (*missing, *skipped),
                "rarest": rarest(calls) if calls else None,
                "held_to": tuple(each for each in found[0].held_to if all(each in other.held_to for other in found)),
                "limits": tuple(dict.fromkeys(limit for each in found for limit in each.limits)),
            }
        ),
        added([part.judged.receipt for part in parts]),
        sum(part.judged.seconds for part in parts),
        frozenset[str]().union(*(part.judged.code for part in parts)),
    )


def rarest(calls: int) -> float:
    """The least share of calls in which a fault must show to be detected in so many calls with probability
    CONFIDENCE."""
    return float(1.0 - (1.0 - CONFIDENCE) ** (1.0 / calls))


def _pattern(cases: Counter[str], failed: Counter[str]) -> str:
    """The classes that all failed cases and few others have in common, as text; "" if there were too few failures."""
    if failed[""] < LEAST_FAILED or failed[""] == cases[""]:
        return f"it fails in {failed['']} of {cases['']} cases; " if failed[""] else ""
    common = [each for each in cases if each and failed[each] == failed[""] and cases[each] < _TELLING * cases[""]]
    text = f", all of them with {' and '.join(common)}" if common else ""
    return f"it fails in {failed['']} of {cases['']} cases{text}; "
