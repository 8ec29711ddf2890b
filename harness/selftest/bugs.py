"""Judges kernels with publicly reported faults, as `tritmark check` does.

A provider's package of bugs holds corpus.toml and, for each entry, a source with its manifest. Each kernel is judged
twice. The faulty kernel must get the verdict of its entry, by a guard of its entry. The fixed twin, compiled with the
macro FIXED, must pass: a harness that fails every kernel detects nothing.

Kernels whose fault is their time are measured on the suite in speed.toml of the same folder. They are correct, so no
verdict fails. The faulty kernel must get a proposal (see harness.advise) of a rule of its entry, with a gain whose
lower end is above 1. The fixed twin must not.
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tritmark.harness.candidate.native import NativeFile
from tritmark.harness.candidate.opening import manifest_of, open_candidate
from tritmark.harness.errors import UsageError
from tritmark.harness.judge.request import Observer, Request
from tritmark.harness.judge.runner import execute as run
from tritmark.harness.providers import Candidate, Installed, load
from tritmark.harness.record import Guarded, Record, Run, Status
from tritmark.harness.store import Store
from tritmark.harness.suite import Suite, read_suite
from tritmark.harness.validate.guard_names import Guard

CORPUS = "corpus.toml"
SPEED = "speed.toml"
"""The suite for kernels whose fault is their time."""
TIMEOUT_S = 30.0
TRIES = 3
"""Maximum measurements of a kernel with an unexpected result: load on the machine may hide a slow path, or create one.
A harness that accuses every kernel, or none, does so each time."""

Names = Annotated[tuple[str, ...], Field(min_length=1)]


class Bug(BaseModel):
    """One entry of a corpus: a kernel, the reports of its fault, and the expected verdict."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    kind: str
    """The class of the fault."""
    reported: Names
    """Public threads, OWNER/REPOSITORY#NUMBER."""
    dimension: Literal["accuracy", "performance"]
    verdicts: Annotated[tuple[Literal["fail", "error", "pass", "ambiguous"], ...], Field(min_length=1)]
    """The expected verdicts in that dimension; one is enough."""
    guards: tuple[Guard, ...] = ()
    """Guards of which at least one must detect the fault; () if none does."""
    rules: tuple[str, ...] = ()
    """Advice rules of which at least one must make a proposal with a gain above 1."""


@dataclass(frozen=True, slots=True)
class BugVerdict:
    """The verdict on one kernel."""

    status: Status
    """The status in the dimension of the entry."""
    guards: tuple[str, ...]
    rules: tuple[str, ...]
    reason: str
    """The case that failed, or the proposed edits."""


@dataclass(frozen=True, slots=True)
class BugResult:
    """The verdicts on a kernel and on its fixed twin, or why they were not judged on this machine."""

    bug: Bug
    faulty: BugVerdict | None
    fixed: BugVerdict | None
    left_out: str = ""

    @property
    def caught(self) -> bool:
        """Whether the faulty kernel got the expected verdict, guard and rule."""
        found, bug = self.faulty, self.bug
        return (
            found is not None
            and found.status.value in bug.verdicts
            and (not bug.guards or not set(bug.guards).isdisjoint(found.guards))
            and (not bug.rules or not set(bug.rules).isdisjoint(found.rules))
        )

    @property
    def cleared(self) -> bool:
        """Whether the fixed twin passes without a guard or a rule of the entry."""
        found = self.fixed
        right = (Status.PASS, Status.AMBIGUOUS) if self.bug.rules else (Status.PASS,)
        return (
            found is not None
            and found.status in right
            and not found.guards
            and set(self.bug.rules).isdisjoint(found.rules)
        )


def corpus(installed: Installed) -> dict[Path, list[Bug]]:
    """The entries of each provider's folder of bugs. Raises UsageError for a corpus that cannot be read."""
    found: dict[Path, list[Bug]] = {}
    for provider in installed.providers.values():
        if not provider.bugs:
            continue
        path = Path(import_module(provider.bugs).__path__[0]) / CORPUS
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
            found[path.parent] = [Bug.model_validate(each) for each in table["bugs"]]
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, ValidationError) as error:
            raise UsageError(f"{path}: {error}; legal: a table [[bugs]] for each kernel") from None
    return found


def execute(
    installed: Installed,
    *,
    seed: int,
    observer: Observer,
    suite: str = "quick",
    dimensions: Iterable[str] = ("accuracy", "performance"),
) -> list[BugResult]:
    """Judge the kernels of all corpora whose entry names one of these dimensions, on the cases that the suite draws.

    Raises UsageError if no provider has a corpus, or a corpus cannot be read.
    """
    found = corpus(installed)
    if not found:
        raise UsageError("no installed package has a corpus of bugs; legal: a provider with `bugs`")
    results = []
    for folder, bugs in found.items():
        for dimension in dimensions:
            chosen = [bug for bug in bugs if bug.dimension == dimension]
            if not chosen:
                continue
            if dimension == "accuracy":
                results += _judged(folder, chosen, _unmeasured(installed.suite(suite)), dimension, seed, observer)
            else:
                results += _measured(folder, chosen, _speed(installed, folder), dimension, seed, observer)
    return results


def _measured(
    folder: Path, bugs: Sequence[Bug], suite: Suite, dimension: str, seed: int, observer: Observer
) -> list[BugResult]:
    """The last result of each, after up to TRIES measurements in fresh processes."""
    found = {each.bug: each for each in _judged(folder, bugs, suite, dimension, seed, observer)}
    for _ in range(TRIES - 1):
        doubted = [bug for bug, each in found.items() if not (each.left_out or (each.caught and each.cleared))]
        if not doubted:
            break
        found |= {each.bug: each for each in _judged(folder, doubted, suite, dimension, seed, observer)}
    return list(found.values())


def _unmeasured(suite: Suite) -> Suite:
    return Suite(suite.name, suite.title, suite.digest, tuple(s for s in suite.selected if not s.workload.measure))


def _speed(installed: Installed, folder: Path) -> Suite:
    return read_suite(folder / SPEED, str(folder / SPEED), installed.known)


def _judged(
    folder: Path, bugs: Sequence[Bug], suite: Suite, dimension: str, seed: int, observer: Observer
) -> list[BugResult]:
    with TemporaryDirectory(prefix="tritmark-bugs-") as name:
        here = Path(name)
        plain = load()
        candidates: dict[tuple[Bug, bool], Candidate] = {
            (bug, fixed): _opened(plain, folder / bug.file, here, fixed=fixed)
            for bug in bugs
            for fixed in (False, True)
        }
        ids: dict[tuple[Bug, bool], str] = {}
        for which, candidate in candidates.items():
            (variant,) = candidate.variants(plain)
            ids[which] = variant.id
        together = tuple(candidates.values())
        installed = load(together)
        request = Request(
            suite=suite,
            seed=seed,
            candidates=together,
            only=frozenset(ids.values()),
            timeout_s=TIMEOUT_S,
            dimensions=frozenset({"accuracy", dimension}),
        )
        record, _ = run(installed, request, Store(here / "results"), observer)
        absent = {lane.device: lane.reason for lane in record.lanes if not lane.ran}
        return [_result(bug, record, ids, absent, installed) for bug in bugs]


def _opened(installed: Installed, source: Path, into: Path, *, fixed: bool) -> Candidate:
    """The kernel in a copy of that file, with the macro FIXED for the fixed twin."""
    to = into / (f"{source.stem}_fixed{source.suffix}" if fixed else source.name)
    text = source.read_text(encoding="utf-8")
    to.write_text(f"#define FIXED\n#line 1\n{text}" if fixed else text, encoding="utf-8")
    shutil.copyfile(manifest_of(source), manifest_of(to))
    candidate = open_candidate(to)
    return candidate.compiled(installed) if isinstance(candidate, NativeFile) else candidate


def _result(
    bug: Bug, record: Record, ids: Mapping[tuple[Bug, bool], str], absent: Mapping[str, str], installed: Installed
) -> BugResult:
    both = [_judgement(bug, record, ids[bug, fixed]) for fixed in (False, True)]
    device = next(each.key.device for each in installed.registry.variants if each.id == ids[bug, False])
    left_out = absent.get(device, "") if both == [None, None] else ""
    return BugResult(bug, both[0], both[1], left_out)


def _judgement(bug: Bug, record: Record, kernel: str) -> BugVerdict | None:
    """The worst verdict of the kernel's Runs in the entry's dimension; None if it did not run."""
    verdicts = [_verdict(bug, each) for each in record.runs if each.kernel == kernel]
    order = (Status.ERROR, Status.FAIL, Status.AMBIGUOUS, Status.PASS)
    judged = [each for each in verdicts if each.status in order]
    if not judged:
        return None
    worst = min(judged, key=lambda each: order.index(each.status))
    # A gain whose interval includes 1 is no accusation.
    proposals = [each for each in record.proposals if each.kernel == kernel and each.gain.low > 1]
    proposals = [each for each in proposals if each.rule in bug.rules]
    return BugVerdict(
        worst.status,
        tuple(dict.fromkeys(name for each in judged for name in each.caught_by)),
        tuple(dict.fromkeys(each.rule for each in proposals)),
        "; ".join(dict.fromkeys(each.edit for each in proposals)) or getattr(worst, "failed_case", "") or worst.reason,
    )


def _verdict(bug: Bug, run: Run) -> Guarded:
    """The verdict in the entry's dimension. An incorrect kernel is not measured: its accuracy counts."""
    return run.performance if bug.dimension == "performance" and not run.accuracy.failed else run.accuracy
