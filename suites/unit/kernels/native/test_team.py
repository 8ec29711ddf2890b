"""The pool beside another library's OpenMP threads: it has them work while they spin, and leaves them alone otherwise.

team_stress.c does both, beside GNU's OpenMP; pools with planted faults show that it sees them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tritmark.harness.machine import cpu as machine

HERE = Path(__file__).parent
POOL = HERE.parents[3] / "cython_ext" / "src" / "pool"
CC = shutil.which("cc")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CC is None, reason="there is no C compiler"),
    pytest.mark.skipif(machine.usable_cores() < 2, reason="with one core nothing is shared"),
]


def build(folder: Path, *flags: str) -> Path:
    """The program, beside the sources in `folder`/pool; skips where the compiler lacks a library."""
    program = folder / "stress"
    files = [str(HERE / "team_stress.c"), *map(str, sorted((folder / "pool").glob("*.c")))]
    command = [str(CC), "-std=gnu11", "-O2", "-g", "-w", "-fopenmp", *flags, f"-I{folder}", *files, "-pthread"]
    done = subprocess.run([*command, "-o", str(program)], capture_output=True, text=True, check=False)
    if done.returncode and "cannot find" in done.stderr:
        pytest.skip(f"the compiler has no library for {' or '.join(('-fopenmp', *flags))}")
    assert not done.returncode, done.stderr
    return program


def stress(program: Path) -> subprocess.CompletedProcess[str]:
    # OpenMP's threads spin unless they are told otherwise.
    told = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    return subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=120, env=told)


@pytest.mark.parametrize("flags", [(), ("-fsanitize=address,undefined",)])
def test_threads_work_while_they_spin_and_are_left_alone_otherwise(tmp_path: Path, flags: tuple[str, ...]) -> None:
    shutil.copytree(POOL, tmp_path / "pool")
    done = stress(build(tmp_path, *flags))
    assert done.returncode == 0, done.stderr


FAULTS = {
    "they are never asked": ("pool.c", "        team = tm_team_runs();", ""),
    "nothing is learnt of them": ("team.c", "    mine.known = atomic_load(&r.known);", ""),
    "it is not seen that they run": ("team.c", "    return mine.ran_ns > ran;", "    return 0;"),
    "they are asked though they sleep": ("team.c", "    return mine.ran_ns > ran;", "    return 1;"),
    "more of them work than are allowed": ("team.c", "    if (n < r->threads)", "    if (1)"),
    "they round as they did": ("pool.c", "    control_as(j->control);\n    work", "    work"),
    "they round on as the caller did": ("pool.c", "    control_as(control);", ""),
    "a call within one is shared": ("pool.c", "    inside = 1;\n    control_as", "    inside = 0;\n    control_as"),
    "a child asks for its parent's": ("pool.c", "    tm_pool_team(NULL, NULL, NULL);", ""),
    "they are never left": (
        "team.c",
        "    atomic_store(&fork_, fork);",
        "    if (fork)\n        atomic_store(&fork_, fork);",
    ),
    "it is not seen": ("pool.c", "            atomic_fetch_add(&seen_team, team > 1);", ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(tmp_path: Path, fault: str) -> None:
    name, found, planted = FAULTS[fault]
    shutil.copytree(POOL, tmp_path / "pool")
    text = (tmp_path / "pool" / name).read_text()
    assert text.count(found) == 1
    (tmp_path / "pool" / name).write_text(text.replace(found, planted))
    done = stress(build(tmp_path))
    assert done.returncode != 0, done.stdout
