"""Partial builds with the extension modules of one op, and whole builds if a module is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gate_sites
import pytest
from gate_requests import Silent

from tritmark.harness.gate import run as room
from tritmark.harness.gate.benchmarks import BenchmarkFilter
from tritmark.harness.gate.both_built import both_built
from tritmark.harness.gate.build import BuildProgress, built
from tritmark.harness.gate.opened import BuildError
from tritmark.harness.gate.part import WHOLE, BuildPart, lacks, part_of
from tritmark.harness.gate.result import Outcome
from tritmark.harness.gate.run import GateRequest, run
from tritmark.harness.gate.verdict import GateLimits
from tritmark.harness.providers import load

pytestmark = pytest.mark.long

ONE = BuildPart(frozenset({"one"}), frozenset({"two"}))
# Each .pyx "compiles" to a module in Python and a library that nothing loads.
BACKEND = gate_sites.BACKEND.replace(
    'wheel.write("gated.py")',
    """wheel.write("gated.py")
        if not Path("native/src/two/two.pyx").exists() and Path("lists-its-modules").exists():
            raise SystemExit("native/src/two/two.pyx: no such file")
        for each in Path("native").rglob("*.pyx"):
            wheel.write(each, f"native/{each.stem}.py")
            wheel.write(each, f"native/{each.stem}.made-up.so")""",
)


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two commits of a project with the modules one and two, in folders of their own, and all."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TRITMARK_CACHE", raising=False)
    folder = tmp_path / "repository"
    for name in ("src/one", "src/two"):
        (folder / "native" / name).mkdir(parents=True)
    git(folder, "init", "--quiet")
    (folder / "gated.py").write_text(gate_sites.source(one="lambda y: None"))
    (folder / "backend.py").write_text(BACKEND)
    (folder / "pyproject.toml").write_text(gate_sites.PROJECT)
    for name in ("src/one/one", "src/two/two", "all"):
        (folder / f"native/{name}.pyx").write_text(f"NAME = {Path(name).name!r}\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "Begin")
    (folder / "gated.py").write_text(gate_sites.source(one="lambda y: spin(1)"))
    git(folder, "commit", "--quiet", "-am", "Go on")
    return folder


def imported(site: Path, module: str) -> str:
    program = f"import sys; sys.path.insert(0, {str(site)!r}); from native import {module}; print({module}.NAME)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return done.stdout.strip() or done.stderr.splitlines()[-1]


def test_an_op_needs_its_own_modules_and_those_of_no_op() -> None:
    installed = load()
    found = part_of(installed, "i2s_*")
    assert found.needed == {"i2s_quantize", "i2s_dequantize"}
    assert "ternary_matmul" in found.others
    assert not found.others & {"cpu", "pool", "clock", "function", *found.needed}
    assert part_of(installed, "ternary_matmul").others >= found.needed
    for every in ("*", "nonesuch", "float_narrow"):  # the last has no module
        assert part_of(installed, every) == WHOLE


def test_modules_of_other_ops_are_not_built(repository: Path) -> None:
    said: list[BuildProgress] = []
    part = built("HEAD", said.append, repository, ONE)
    assert sorted(path.name for path in (part.site / "native").glob("*.so")) == ["all.made-up.so", "one.made-up.so"]
    assert [imported(part.site, name) for name in ("one", "all")] == ["one", "all"]
    assert not lacks(part.site)
    assert [making.sources for making in said] == [4], "each of two is made into C and compiled"
    assert built("HEAD", said.append, repository, ONE).site == part.site
    assert len(said) == 1


@pytest.mark.nightly
def test_who_asks_for_one_gets_a_whole_build(repository: Path) -> None:
    part = built("HEAD", folder=repository, part=ONE)
    assert "native.two was left out of this build" in imported(part.site, "two")
    assert lacks(part.site)
    whole = built("HEAD", folder=repository, part=ONE)
    assert imported(whole.site, "two") == "two"
    assert whole.site == built("HEAD", folder=repository).site != part.site


@pytest.mark.nightly
def test_a_whole_build_that_is_there_is_taken(repository: Path) -> None:
    whole = built("HEAD", folder=repository)
    assert built("HEAD", folder=repository, part=ONE).site == whole.site


@pytest.mark.nightly
def test_a_project_that_lists_its_modules_is_built_whole(repository: Path) -> None:
    (repository / "lists-its-modules").touch()
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "List")
    found = built("HEAD", folder=repository, part=ONE)
    assert imported(found.site, "two") == "two"
    (repository / "broken").touch()
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "Break")
    with pytest.raises(BuildError, match="the compiler says no"):
        built("HEAD", folder=repository, part=ONE)


@pytest.mark.nightly
@pytest.mark.parametrize("where", ["import", "call", "nowhere"])
def test_a_gate_of_an_op_that_needs_more_goes_on_with_whole_builds(
    repository: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    text = gate_sites.source(one="work").replace(
        "CALLS = []", "def work(y):\n    from native import two\n    spin(1)\n"
    )
    if where == "import":
        text = f"from native import two\n{text}"
    if where == "nowhere":
        text = text.replace("from native import two", "pass")
    (repository / "gated.py").write_text(text)
    git(repository, "commit", "--quiet", "-am", "Need the other")
    monkeypatch.setattr(room, "part_of", lambda installed, op: ONE)
    monkeypatch.setattr(room, "check_op", lambda *given: None)  # the op of this repository is in no folder
    built: list[BuildPart] = []

    def counted(base, head, folder, observer, part=WHOLE):  # type: ignore[no-untyped-def]
        built.append(part)
        return both_built(base, head, folder, observer, part)

    monkeypatch.setattr(room, "both_built", counted)
    wanted = BenchmarkFilter(suite=gate_sites.suite(repository.parent), op="double", device="plain")
    request = GateRequest(
        base="HEAD~1", head="HEAD", folder=repository, wanted=wanted, limits=GateLimits(seconds=0.1), trust_code=False
    )
    result = run(request, Silent())
    assert built == ([ONE] if where == "nowhere" else [ONE, WHOLE])
    (found,) = result.benchmarks
    assert found.outcome not in {Outcome.ERROR, Outcome.NOT_RUN, Outcome.DIFFERS}, found.reason
    assert found.cases
