"""`tritmark tune` and the former names of its commands: the same output and status from either."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Outcome
from known_commands import HIDDEN

from tritmark.harness import caches
from tritmark.harness.autotune import prefetch as prefetching
from tritmark.harness.autotune import tune as tuning
from tritmark.harness.autotune.tune import Job, Tuned
from tritmark.harness.cli.exit_status import FAILED, PASSED, USAGE
from tritmark.harness.record import PrefetchFigure, Ratio, TunedPrefetch
from tritmark.harness.selection import measure as measuring
from tritmark.harness.selection.measure import MeasuredChoice
from tritmark.kernels.native import cpu

Tritmark = Callable[..., Outcome]

VARIANTS = ("ternary_matmul", "--shape", "M=1,N=64,K=64", "--threads", "1")


@pytest.fixture(autouse=True)
def _nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be found is made up of what was asked for."""

    def chosen(_: Any, question: Any, **asked: Any) -> MeasuredChoice:
        return MeasuredChoice(question=question, note=f"seed {asked['seed']}", failed={question.builtin.id})

    def jobs(installed: Any, shapes: Any, **_: Any) -> Iterator[Job]:
        return (Job(variant=installed.registry.variants[0], axes=axes) for each in shapes.values() for axes, _ in each)

    def instance(_: Any, found: list[Any], **asked: Any) -> list[Tuned]:
        return [Tuned(job=each, names=("a", "b"), note=f"seed {asked['seed']}") for each in found]

    def strategy(_: Any, device: Any, found: Any, **asked: Any) -> TunedPrefetch:
        ratio = Ratio(median=1, low=1, high=1, pairs=9)
        return TunedPrefetch(
            device=device.type,
            op=found.key.op,
            identity={},
            builtin="none",
            chosen="",
            confirmed=None,
            note=f"seed {asked['seed']}, {asked['seconds']} s",
            shapes=("M=1",),
            threads=asked["threads"],
            created="2026-11-24T00:00:00Z",
            figures=(PrefetchFigure(strategy="none", cold=ratio, hot=ratio),),
        )

    monkeypatch.setenv(caches.CACHE, str(tmp_path))
    monkeypatch.setattr(measuring, "measure", chosen)
    monkeypatch.setattr(tuning, "jobs", jobs)
    monkeypatch.setattr(tuning, "tune", instance)
    monkeypatch.setattr(prefetching, "tune_prefetch", strategy)


@pytest.mark.parametrize(
    ("former", "new", "status", "said"),
    [
        ("select", "tune variants", FAILED, "seed 3"),
        ("autotune", "tune instances", PASSED, "seed 3"),
        ("tune cpu", "tune prefetch", PASSED, "seed 3, 9.0 s"),
    ],
)
def test_a_former_name_gives_the_same_output_and_status(
    tritmark: Tritmark, former: str, new: str, status: int, said: str
) -> None:
    if former == "tune cpu" and not cpu.DEVICE.prefetching():
        pytest.skip("no kernel here fetches ahead")
    arguments = {
        "select": (*VARIANTS, "--seed", "3", "--why"),
        "autotune": ("--shape", "16,64,128", "--seed", "3"),
        "tune cpu": ("--threads", "1", "--seed", "3", "--seconds", "9"),
    }[former]
    now, before = (tritmark(*name.split(), *arguments) for name in (new, former))
    assert (now.status, before.status) == (status, status), now.err
    assert said in " ".join(now.out.split())
    assert before.out == now.out
    assert before.err == f"tritmark {former} is deprecated: use tritmark {new}\n{now.err}"


@pytest.mark.parametrize("former", ["tune cpu --json", "tune --json cpu", "tune --json --threads 1 cpu"])
def test_former_json_is_the_same(tritmark: Tritmark, former: str) -> None:
    if not cpu.DEVICE.prefetching():
        pytest.skip("no kernel here fetches ahead")
    more = ("--seed", "3", *(() if "--threads" in former else ("--threads", "1")))
    now = tritmark("tune", "prefetch", "--json", "--threads", "1", "--seed", "3")
    before = tritmark(*former.split(), *more)
    assert (before.status, before.out) == (now.status, now.out)
    assert [each["note"] for each in json.loads(before.out)] == ["seed 3, 30.0 s"]
    assert before.err == "tritmark tune cpu is deprecated: use tritmark tune prefetch\n"


@pytest.mark.parametrize(
    ("former", "new"),
    [
        ("select ternary_matmull --shape M=1", "tune variants ternary_matmull --shape M=1"),
        ("autotune --shape 1,2,3 --suite smoke", "tune instances --shape 1,2,3 --suite smoke"),
        ("tune cuda", "tune prefetch --device cuda"),
    ],
)
def test_what_is_refused_is_refused_alike(tritmark: Tritmark, former: str, new: str) -> None:
    now, before = tritmark(*new.split()), tritmark(*former.split())
    assert (now.status, now.out) == (before.status, before.out) == (USAGE, "")
    note, error = before.err.split("\n", 1)
    assert "is deprecated: use tritmark tune " in note
    assert error == now.err


def test_former_names_are_hidden(tritmark: Tritmark) -> None:
    assert set(HIDDEN) == {"select", "autotune", "tune cpu"}
    root, group = tritmark("--help"), tritmark("tune", "--help")
    assert (root.status, group.status) == (0, 0)
    listed = [line.split()[1] for line in root.out.splitlines() if line.startswith("│ ") and line[2:3].islower()]
    assert listed[listed.index("history") :][:3] == ["history", "tune", "sweep"]
    assert not {"select", "autotune"} & set(listed)
    assert [name for name in ("variants", "instances", "prefetch", "cpu") if f"│ {name} " in group.out] == [
        "variants",
        "instances",
        "prefetch",
    ]


@pytest.mark.parametrize("former", sorted(HIDDEN))
def test_the_help_of_a_former_name_gives_the_new_one(tritmark: Tritmark, former: str) -> None:
    done = tritmark(*former.split(), "--help")
    assert (done.status, done.err) == (0, "")
    assert "Deprecated: use `tritmark tune " in done.out


def test_a_misspelt_command_of_the_group_is_refused(tritmark: Tritmark) -> None:
    done = tritmark("tune", "variant", "ternary_matmul")
    assert (done.status, done.out) == (USAGE, "")
    assert "No such command 'variant'" in done.err
