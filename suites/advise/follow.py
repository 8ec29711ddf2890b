"""What came of advice that was followed: commits that made a kernel faster (followed.toml), each measured with the
commit before it.

    python suites/advise/follow.py [COMMIT ...] [--device cpu|cuda] [--out FOLDER] [--list] [--write]

For each kernel of a change: `tritmark run` of the commit before, then `tritmark run --addresses RULE` of the commit
itself for each rule of the change that predicts a gain. Both commits run their own harness and kernels, in builds that
`tritmark gate` would make and keep. Today's rules judge the Records, with today's ceilings of the instruction sets,
which older Records lack. An interrupted call continues where it was; a
commit with all its Records is not measured again. `--list` only shows what there is to do. `--write` puts the outcomes
into results/ledger.json. Exit status 1 where a goal is not reached.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

from pydantic import TypeAdapter

from tritmark.harness.advise.advise import advise
from tritmark.harness.advise.ledger import NAME, Ledger, LedgerEntry, add
from tritmark.harness.advise.outcome import ADDRESSED, follow_up, inside
from tritmark.harness.advise.rules import named
from tritmark.harness.errors import BadEnvironmentError, TritmarkError, UsageError
from tritmark.harness.gate.build import built
from tritmark.harness.gate.part import lacks, part_of
from tritmark.harness.machine.repository import git
from tritmark.harness.measure.ceilings import measure_ceilings
from tritmark.harness.providers import installed
from tritmark.harness.record import HOST, CeilingFacts, Record
from tritmark.harness.store import read, write_atomically

ROOT = Path(__file__).resolve().parents[2]
FEWEST, INSIDE, WIDEST = 30, 0.8, 3.0
"""Goals: number of outcomes, share of them inside the predicted interval, median of high / low of the intervals."""
_START = "import sys; from tritmark.harness.cli import main; sys.argv[0] = 'tritmark'; main()"
_LOG_LINES = 15


@dataclass(frozen=True, slots=True)
class Followed:
    """A commit that followed a proposal."""

    commit: str
    change: str
    """A part of its subject."""
    kernels: tuple[str, ...]
    rows: tuple[int, ...]
    shapes: tuple[Mapping[str, int], ...]
    rules: tuple[str, ...]
    """The rules that propose such a change."""

    @property
    def device(self) -> str:
        return self.kernels[0].partition("/")[0]

    def missing(self, root: Path = ROOT) -> str:
        """Why this is no change of the repository; "" if it is one."""
        try:
            subject = git(root, "log", "-1", "--format=%s", self.commit)
        except subprocess.CalledProcessError as error:
            return f"{self.commit}: {error.stderr.strip()}"
        return "" if self.change in subject else f"{self.commit}: its subject lacks {self.change!r}"


def followed() -> tuple[Followed, ...]:
    """What followed.toml says. Raises UsageError for a rule that does not exist."""
    held = tomllib.loads(Path(__file__).with_name("followed.toml").read_text(encoding="utf-8"))
    return tuple(
        Followed(
            commit=row["commit"],
            change=row["change"],
            kernels=tuple(row["kernels"]),
            rows=tuple(row["rows"]),
            shapes=tuple(held["shapes"][row["shapes"]]),
            rules=tuple(named(rule, f"followed.toml, {row['commit']}").name for rule in row["rules"]),
        )
        for row in held["followed"]
    )


def suite(change: Followed, kernel: str) -> str:
    """The workloads of a kernel, as TOML that the harness of every commit reads."""
    _, op, form, dtype, _ = kernel.split("/")
    shapes = ", ".join(
        "{ " + ", ".join(f"{axis} = {size}" for axis, size in each.items()) + " }" for each in change.shapes
    )
    return (
        f'title = "before and after {change.commit}"\n\n[[workloads]]\nop = "{op}"\nshapes = [{shapes}]\n'
        f'axes = {{ M = {list(change.rows)} }}\nfamilies = ["uniform"]\nformats = ["{form}"]\ndtypes = ["{dtype}"]\n'
        "measure = true\n"
    )


@dataclass(frozen=True, slots=True)
class Progress:
    """Ids of the Records of one kernel and change, in `folder`/done.json."""

    folder: Path
    before: str = ""
    after: Mapping[str, str] | None = None
    """By rule."""

    @classmethod
    def of(cls, folder: Path) -> Progress:
        path = folder / "done.json"
        held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return cls(folder, held.get("before", ""), held.get("after", {}))

    def with_(self, **found: Any) -> Progress:
        """This with more, on disk."""
        made = replace(self, **found)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(made.folder / "done.json", json.dumps({"before": made.before, "after": made.after}) + "\n")
        return made

    def record(self, id: str) -> Record:
        """A Record, with the ceilings of instruction sets that it lacks."""
        found = read(self.folder / "runs" / f"{id}.json")
        names = {each.name for each in found.machine.ceilings}
        more = tuple(each for each in own_ceilings(self.folder.parent.parent) if each.name not in names)
        return found.model_copy(
            update={"machine": found.machine.model_copy(update={"ceilings": (*found.machine.ceilings, *more)})}
        )

    def rules(self, change: Followed) -> tuple[str, ...]:
        """The rules of the change that predict a gain for the commit before."""
        predicted = {each.rule for each in advise(self.record(self.before))}
        return tuple(rule for rule in change.rules if rule in predicted)

    def outcomes(self, change: Followed) -> Iterator[LedgerEntry]:
        """What came of the predictions."""
        for rule, id in (self.after or {}).items():
            after = self.record(id).model_copy(update={"addresses": rule})
            for each in follow_up(self.record(self.before), after):
                yield each.model_copy(update={"change": f"{ADDRESSED}: {change.commit}, {change.change}"})


@cache
def own_ceilings(out: Path) -> tuple[CeilingFacts, ...]:
    """The compute ceilings of the instruction sets of this host, measured once for a folder of Records."""
    path, kept = out / "ceilings.json", TypeAdapter(tuple[CeilingFacts, ...])
    if not path.exists():
        host = installed().registry.devices[HOST]
        probes = {name: each for name, each in host.ceilings().items() if each.name.startswith("compute ")}
        out.mkdir(parents=True, exist_ok=True)
        found = tuple(measure_ceilings(replace(host, ceilings=lambda: probes)))
        write_atomically(path, kept.dump_json(found, indent=1).decode())
    return kept.validate_json(path.read_text(encoding="utf-8"))


def measured(change: Followed, kernel: str, out: Path, dependencies: Path) -> Progress:
    """Measure what is not measured yet. Raises TritmarkError."""
    progress = Progress.of(out / change.commit / kernel.replace("/", "."))
    if not progress.before:
        progress = progress.with_(before=_run(change, kernel, f"{change.commit}^", progress.folder, dependencies))
    for rule in progress.rules(change):
        if rule not in (progress.after or {}):
            id = _run(change, kernel, change.commit, progress.folder, dependencies, "--addresses", rule)
            progress = progress.with_(after={**(progress.after or {}), rule: id})
    return progress


def _run(change: Followed, kernel: str, commit: str, folder: Path, dependencies: Path, *options: str) -> str:
    """`tritmark run` of a commit. Returns the id of its Record."""
    device, op, *_ = kernel.split("/")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "suite.toml"
    path.write_text(suite(change, kernel), encoding="utf-8")
    arguments = ["run", "--suite", str(path), "--device", device, "--op", op, "--variant", kernel, "--threads", "1"]
    runs = folder / "runs"
    for _ in range(2):
        build = built(commit, folder=ROOT, part=part_of(installed(), op))
        known = set(runs.glob("*.json"))
        done = subprocess.run(
            [sys.executable, "-S", "-P", "-c", _START, *arguments, "--out", str(folder), *options],
            env={**os.environ, "PYTHONPATH": f"{build.site}{os.pathsep}{dependencies}"},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if not lacks(build.site):
            break  # otherwise a module that was left out of the build is needed, and all of it is built
    found = set(runs.glob("*.json")) - known
    # A commit whose own rules predicted nothing ends with status 2, after its Record is written.
    if len(found) != 1:
        end = "\n".join(done.stdout.strip().splitlines()[-_LOG_LINES:])
        raise UsageError(
            f"{commit}: `tritmark {' '.join(arguments)}` wrote no Record (status {done.returncode}):\n{end}"
        )
    return found.pop().stem


def dependencies_of(out: Path) -> Path:
    """A folder with all installed packages except tritmark: each commit's own must be found."""
    folder = out / "dependencies"
    folder.mkdir(parents=True, exist_ok=True)
    for name in dict.fromkeys(sysconfig.get_path(each) for each in ("purelib", "platlib")):
        for each in Path(name).iterdir():
            link = folder / each.name
            if "tritmark" not in each.name and each.suffix != ".pth" and not link.is_symlink():
                link.symlink_to(each)
    return folder


def refusal(kernel: str) -> str:
    """Why the kernel does not run on this machine; "" if it does."""
    registry = installed().registry
    variant = next((each for each in registry.variants if each.id == kernel), None)
    if variant is None:
        return "no such kernel today"
    device = registry.devices[variant.key.device]
    absent = device.missing() or ("simulated: it has no speed" if device.simulated() else "")
    if absent:
        return absent
    lacking = variant.features - device.features()
    return f"this machine lacks {', '.join(sorted(lacking))}" if lacking else ""


def summary(found: Sequence[LedgerEntry]) -> tuple[str, bool]:
    """The outcomes as text, and whether all goals are reached."""
    if not found:
        return f"no outcomes (goal {FEWEST})", False
    share, width = inside(found), median(each.predicted.high / each.predicted.low for each in found)
    assert share is not None
    ledger, lines = Ledger(tuple(found)), []
    for rule in dict.fromkeys(each.rule for each in found):
        lines.append(f"{rule}: {ledger.standing(rule)}")
    for each in found:
        gain = f"{each.predicted.low:.2f} to {each.predicted.high:.2f}, measured {each.measured.median:.2f}"
        lines.append(f"{'hit ' if each.hit else 'MISS'}  {each.rule}: {each.kernel} {each.workload}: {gain}")
    lines.append(
        f"{len(found)} outcomes (goal {FEWEST}), {100 * share:.1f} % inside (goal {100 * INSIDE:.0f} %), median width "
        f"{width:.2f}x (goal {WIDEST:.0f}x)"
    )
    return "\n".join(lines), len(found) >= FEWEST and share >= INSIDE and width <= WIDEST


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commits", nargs="*", help="only these commits of followed.toml")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="only kernels of this device")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "results" / "runs" / "followed", help="folder of the Records"
    )
    parser.add_argument(
        "--list", action="store_true", help="show the changes and what is measured, and measure nothing"
    )
    parser.add_argument("--write", action="store_true", help=f"put the outcomes into results/{NAME}")
    given = parser.parse_args()

    changes = [
        each
        for each in followed()
        if given.device in {None, each.device} and (not given.commits or each.commit in given.commits)
    ]
    unknown = set(given.commits) - {each.commit for each in changes}
    wrong = [f"{each}: not in followed.toml" for each in sorted(unknown)] + [
        why for each in changes if (why := each.missing())
    ]
    if wrong:
        print("\n".join(wrong))
        return 1
    out: Path = given.out.resolve()
    found: list[LedgerEntry] = []
    failed = 0
    for change in changes:
        for kernel in change.kernels:
            why = refusal(kernel)
            progress = Progress.of(out / change.commit / kernel.replace("/", "."))
            state = "not run: " + why if why else "measured" if progress.before else "to do"
            if given.list or why:
                print(f"{change.commit}  {kernel}: {state}")
            if not why and not given.list:
                began = monotonic()
                try:
                    progress = measured(change, kernel, out, dependencies_of(out))
                except BadEnvironmentError:
                    raise
                except TritmarkError as error:
                    print(f"{change.commit}  {kernel}: FAILED: {error}")
                    failed += 1
                    continue
                rules = ", ".join(progress.after or {}) or f"none of {', '.join(change.rules)} predicts a gain"
                print(f"{change.commit}  {kernel}: {rules} ({monotonic() - began:.0f} s)", flush=True)
            if progress.before:
                found += progress.outcomes(change)
    if given.write and found:
        add(ROOT / "results" / NAME, found)
    text, reached = summary(found)
    print(text)
    return 0 if reached and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
