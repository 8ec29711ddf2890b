"""Sets of pretended machines. The figures are those of made_up_records, at speeds that a test chooses."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import made_up_records
import pytest
from made_up_records import one_run, record_of

from tritmark.harness.fleet.code import CodeFacts
from tritmark.harness.fleet.model import FleetJob, FleetSet
from tritmark.harness.fleet.sets import SetFolder
from tritmark.harness.record import Record, Run, with_digest

CODE = CodeFacts(tritmark="0.1.0", sources="a" * 64, native="b" * 64, platform="cpython-312-x86_64-linux-gnu")
OP = ("i2s_quantize", "none", "int8")
PRODUCT = ("ternary_matmul", "tile64", "float32")
SIZES = (1 << 22, 1 << 24)
CREATED = "2026-12-01T00:00:00+00:00"


def id_of(number: int) -> str:
    return f"20261201T000000Z-{number:08x}"


def runs(speeds: Mapping[str, float], monkeypatch: pytest.MonkeyPatch, op: tuple[str, str, str] = OP) -> list[Run]:
    """A Run of each variant at each size; `speeds` are shares of the ceiling."""
    rng = random.Random(7)
    made = []
    for variant, speed in speeds.items():
        monkeypatch.setitem(made_up_records.SPEEDS, variant, speed)
        for size in SIZES:
            axes = {"M": 1, "N": size >> 12, "K": 4096} if op == PRODUCT else {"n": size}
            made.append(one_run(rng, (*op, variant), axes=axes, family="normal", measured=True))
    return made


def record(number: int, machine: str, of: Sequence[Run], created: str = CREATED) -> Record:
    """A Record of that machine."""
    made = record_of(list(of))
    here = made.machine.model_copy(update={"id": machine, "cpu": f"CPU of {machine}", "hostname": f"{machine}-1"})
    return made.model_copy(update={"id": id_of(number), "machine": here, "created": created})


def jobs(*kinds: str, ops: Sequence[str] = (OP[0],)) -> tuple[FleetJob, ...]:
    return tuple(FleetJob(kind=kind, op=op) for kind in kinds for op in ops)


def begun(out: Path, number: int, of: Sequence[FleetJob]) -> SetFolder:
    """A set with these jobs, and no Record yet."""
    return SetFolder(
        out,
        FleetSet(
            id=id_of(number),
            created=CREATED,
            suite="quick",
            suite_digest="d" * 64,
            seed=1,
            command=("tritmark", "fleet", "run"),
            code=CODE,
            commit=None,
            jobs=tuple(of),
        ),
    )


def filled(out: Path, number: int, of: Mapping[str, Record], lost: Mapping[str, str] | None = None) -> Path:
    """The folder of a set that has ended: a Record for each kind, and kinds whose job is lost, with the reason."""
    made = begun(out, number, jobs(*of, *(lost or {})))
    for job in made.found.jobs:
        if job.kind in of:
            made.add(job, "worker", with_digest(of[job.kind]).encode())
        else:
            made.lose(job, (lost or {})[job.kind])
    made.end(CREATED)
    return made.folder
