"""Loading kernels from a revision, a wheel or a folder into this process."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gate_requests
import gate_sites
import pytest
from gate_requests import Silent

import tritmark.harness
from tritmark.harness.caches import CACHE
from tritmark.harness.errors import UsageError
from tritmark.harness.gate import build
from tritmark.harness.gate.benchmarks import BenchmarkFilter
from tritmark.harness.gate.build import BuildProgress, built
from tritmark.harness.gate.build_host import LocalBuildHost
from tritmark.harness.gate.identity import sections_hash, site_digest
from tritmark.harness.gate.opened import BuildError, OpenedBuild
from tritmark.harness.gate.part import MARK
from tritmark.harness.gate.result import Outcome
from tritmark.harness.gate.run import GateRequest, run
from tritmark.harness.record import Status

pytestmark = pytest.mark.long

TASK = gate_requests.TASK.model_copy(
    update={"device": "cpu", "op": "i2s_quantize", "dtype": "int8", "variant": "scalar", "axes": {"n": 50_000}}
)


def unwanted(site: Path) -> None:
    pytest.fail(f"{site} is built anew")


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True)


def ours() -> dict[str, object]:
    return {name: module for name, module in sys.modules.items() if name.startswith("tritmark")}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "gated.py").write_text(gate_sites.source(one="lambda y: None"))
    (folder / "backend.py").write_text(gate_sites.BACKEND)
    (folder / "pyproject.toml").write_text(gate_sites.PROJECT)
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "Begin")
    return folder


@pytest.mark.parametrize("damage", ["changed", "cut", "removed", "added", "digest"])
def test_a_damaged_build_is_made_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """Its code would count against a commit."""
    monkeypatch.setenv(CACHE, str(tmp_path))

    def make(site: Path) -> None:
        (site / "package").mkdir(parents=True)
        (site / "package" / "__init__.py").write_text("ANSWER = 42\n")

    site = build._cached("key", make)
    (site / "package" / "__pycache__").mkdir()
    (site / "package" / "__pycache__" / "x.pyc").write_bytes(b"later")  # Python's own, no damage
    (site / "package" / f"left_out{MARK}").touch()  # a stand-in's mark
    assert build._cached("key", unwanted) == site
    source = site / "package" / "__init__.py"
    if damage == "removed":
        source.unlink()
    elif damage == "digest":
        (tmp_path / "gate" / "key.sha256").write_bytes(b"\xff\x00")
    else:
        text = {"changed": "ANSWER = 43\n", "cut": "", "added": "ANSWER = 42\n"}[damage]
        source.with_name("other.py" if damage == "added" else source.name).write_text(text)
    assert build._cached("key", make) == site
    assert source.read_text() == "ANSWER = 42\n"
    assert not source.with_name("other.py").exists()
    assert f"{site} is damaged, so it is built anew" in caplog.text
    assert build._cached("key", unwanted) == site


def test_a_revision_is_built_once_and_a_broken_one_says_how(repository: Path) -> None:
    said: list[BuildProgress] = []
    first = built("HEAD", said.append, repository)
    assert (first.subject, len(first.commit), len(said)) == ("Begin", 40, 1)
    assert (first.site / "gated.py").read_text() == (repository / "gated.py").read_text()
    assert built(first.commit[:8], said.append, repository).site == first.site
    assert len(said) == 1
    (repository / "broken").touch()
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "Break")
    with pytest.raises(BuildError, match="the compiler says no"):
        built("HEAD", said.append, repository)
    assert not [path for path in first.site.parent.iterdir() if path.name.startswith("tmp")]


def test_pip_runs_apart_and_no_import_hook_hears_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process that searches for pip, setuptools' hook leaves distutils to the standard library."""
    asked: list[str] = []

    class Hook:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            asked.append(name)

    monkeypatch.setattr(sys, "meta_path", [Hook(), *sys.meta_path])
    with pytest.raises(BuildError, match="it fails"):
        build._run(["install", "--no-index", str(tmp_path / "missing")], tmp_path, "it fails")
    assert "pip" not in asked


@pytest.mark.nightly
def test_builds_that_nobody_asks_for_any_more_go(repository: Path) -> None:
    old, kept = built("HEAD", folder=repository).site, []
    for number in range(2):
        git(repository, "commit", "--quiet", "--allow-empty", "-m", f"Further {number}")
        kept.append(built("HEAD", folder=repository).site)
        assert old.is_dir()
    os.utime(old, (0, 0))
    os.utime(kept[0], (0, 0))
    assert built("HEAD~1", folder=repository).site == kept[0]
    assert old.is_dir()
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "The last")
    kept.append(built("HEAD", folder=repository).site)
    assert not old.exists()
    assert all(site.is_dir() for site in kept)


@pytest.mark.parametrize("given", ["nonesuch", "--all", "HEAD~5"])
def test_what_is_no_revision_is_refused_with_what_is_legal(repository: Path, given: str) -> None:
    with pytest.raises(UsageError, match=f"{given}.*is not a revision.*legal"):
        built(given, folder=repository)


def test_outside_of_a_repository_and_for_a_missing_wheel_the_next_step_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a git repository; next: run this command in a checkout"):
        built("HEAD", folder=tmp_path)
    with pytest.raises(UsageError, match="no such file"):
        built("a.whl", folder=tmp_path)


OLDER = """
from dataclasses import replace
from types import SimpleNamespace

SINCE = {"missing", "load", "packs", "bound", "instances", "rank", "code", "dense", "reports_nonfinite"}


def before(variant):
    there = set(Variant.__dataclass_fields__) - SINCE
    return SimpleNamespace(id=variant.id, precedence=None, **{name: getattr(variant, name) for name in there})


PROVIDER = replace(PROVIDER, variants=tuple(map(before, PROVIDER.variants)))
"""
"""A build whose variants have the fields of the history's anchor only."""


def test_variants_of_an_older_build_lack_what_came_later(tmp_path: Path) -> None:
    build = OpenedBuild(gate_sites.site(tmp_path / "older", gate_sites.source(one="lambda y: None") + OLDER))
    (variant,) = build.installed.registry.variants
    ((found, refusal),) = build.installed.registry.candidates(variant.key, {"n": 100})
    assert (found.name, refusal) == ("one", None)
    found.load()


def test_a_folder_without_kernels_or_with_broken_ones_is_no_build(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="no distribution there has kernels"):
        OpenedBuild(tmp_path)
    before = ours()
    with pytest.raises(BuildError, match=r"gated:PROVIDER.*ZeroDivisionError"):
        OpenedBuild(gate_sites.site(tmp_path / "broken", "1 / 0"))
    assert ours() == before
    assert "gated" not in sys.modules


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Two copies of the installed packages. In the second, every i2s_quantize kernel of the CPU runs plain C."""
    installed = Path(next(iter(tritmark.harness.__path__))).parents[1]
    folder = tmp_path_factory.mktemp("copies")
    sites = [folder / name for name in ("base", "head")]
    for site in sites:
        shutil.copytree(installed / "tritmark", site / "tritmark", ignore=shutil.ignore_patterns("__pycache__"))
        for info in installed.glob("tritmark-*.dist-info"):
            shutil.copytree(info, site / info.name)
    bound = sites[1] / "tritmark/kernels/i2s_quantize/cpu.py"
    text = bound.read_text()
    forced = re.sub(r"I2SQuantize\(\s*isa,", 'I2SQuantize("scalar",', text)
    assert forced != text
    bound.write_text(forced)
    yield sites
    shutil.rmtree(folder)


def test_the_native_modules_of_two_builds_are_two_in_one_process(copies: list[Path]) -> None:
    ours = sys.modules["tritmark.harness.spec"]
    base, head = (LocalBuildHost(site) for site in copies)
    first = base.bind(TASK)
    second = head.bind(TASK, first)
    module = "tritmark.cython_ext.i2s_quantize"
    files = [host.build.file(module) for host in (base, head)]
    assert all(file is not None and file.is_relative_to(site) for file, site in zip(files, copies, strict=True))
    maps = Path("/proc/self/maps").read_text()
    assert all(f"{file}\n" in maps for file in files)
    assert base.judge(TASK, first, first.outputs(), second.outputs()) == ("", None)
    # The hash of the code is the same during and after loading of the module.
    assert base.bind(TASK).code == first.code
    # Both use the same arrays. Equal machine code that is bound differently has another hash.
    assert second._sets is first._sets
    assert first.code != second.code
    assert sections_hash(files[0]) == sections_hash(files[1]) != ""  # type: ignore[arg-type]
    assert sys.modules["tritmark.harness.spec"] is ours
    other = TASK.model_copy(update={"op": "i2s_dequantize", "format": "none", "family": "uniform"})
    found = [
        each for each in base.build.installed.registry.variants if each.key.op == other.op and each.key.device == "cpu"
    ]
    other = other.model_copy(
        update={"format": found[0].key.format, "dtype": found[0].key.dtype, "variant": found[0].name}
    )
    assert base.bind(other).code == head.bind(other).code


def test_suites_are_read_by_this_harness_and_not_by_the_builds(copies: list[Path], tmp_path: Path) -> None:
    site = tmp_path / "older"
    shutil.copytree(copies[0], site)
    suite = site / "tritmark/harness/suite.py"
    text = suite.read_text()
    for name in ("read_suite", "part_suites"):
        assert f"def {name}(" in text
        text = text.replace(f"def {name}(", f"def {name}_as_it_was(")
    suite.write_text(text)
    wanted = BenchmarkFilter(suite="smoke", device="cpu")
    assert LocalBuildHost(site).tasks(wanted) == LocalBuildHost(copies[0]).tasks(wanted) != []


def test_a_build_takes_no_part_of_another_installation(tmp_path: Path) -> None:
    nothing = "from types import SimpleNamespace\nPROVIDER = SimpleNamespace(ops=(), devices=(), variants=())"
    site = gate_sites.site(tmp_path / "site", nothing)
    (site / "tritmark/kernels").mkdir(parents=True)
    assert tritmark.__file__ is not None
    shutil.copy(tritmark.__file__, site / "tritmark")
    (site / "tritmark/kernels/__init__.py").write_text("OF_THE_BUILD = True")
    build = OpenedBuild(site)
    with build.inside():
        assert importlib.import_module("tritmark.kernels").OF_THE_BUILD
        with pytest.raises(ModuleNotFoundError, match=rf"No module named 'tritmark.harness' in {re.escape(str(site))}"):
            importlib.import_module("tritmark.harness")


def test_a_digest_is_of_what_is_installed_and_not_of_how(tmp_path: Path) -> None:
    one = gate_sites.site(tmp_path / "one", "a = 1")
    two = gate_sites.site(tmp_path / "two", "a = 1")
    (two / "gated-1.0.dist-info" / "INSTALLER").write_text("pip")
    three = gate_sites.site(tmp_path / "three", "a = 2")
    assert site_digest(one) == site_digest(two) != site_digest(three)


@pytest.mark.timing
def test_this_package_with_another_kernel_under_the_name_fails_and_what_was_not_touched_is_the_same(
    copies: list[Path],
) -> None:
    base = LocalBuildHost(copies[0])
    with base.build.inside():
        features = base.build.installed.registry.devices["cpu"].features()
    if "avx2" not in features:
        pytest.skip("plain C in place of AVX2 is the slow-down, and this processor has no AVX2")
    request = GateRequest(
        base=str(copies[0]),
        head=str(copies[1]),
        wanted=BenchmarkFilter(op="i2s_*quantize", variant="avx2", device="cpu"),
    )
    result = run(request, Silent())
    outcomes = {each.op: each.outcome for each in result.benchmarks}
    assert outcomes == {"i2s_quantize": Outcome.DIFFERS, "i2s_dequantize": Outcome.SAME}
    reasons = [each.reason for each in result.benchmarks if each.op == "i2s_quantize"]
    assert reasons
    assert all("scalar ran in place of avx2" in reason for reason in reasons), reasons
    assert all(each.identical for each in result.benchmarks if each.op == "i2s_dequantize")
    assert result.status is Status.FAIL
