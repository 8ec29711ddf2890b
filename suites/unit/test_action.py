"""The action for GitHub: its steps in a scratch repository, with a `gh` that keeps comments in a file."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import gate_sites
import pytest

composite_action = pytest.importorskip(
    "composite_action", reason="PyYAML is not installed; tox -e py runs this", exc_type=ModuleNotFoundError
)

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
ACTION = ROOT / ".github" / "actions" / "tritmark"
CORRECT = (ROOT / "suites/examples/numpy_dequantize.py").read_text()
WRONG = CORRECT.replace("np.float32(scale)", "np.float32(scale * 2)")
GITHUB = {
    "base_ref": "main",
    "event": {"pull_request": {"number": 7}},
    "repository": "owner/name",
    "run_id": "12",
    "server_url": "https://github.example",
    "token": "secret",
}
COMMENTS = "repos/owner/name/issues/7/comments"
CHECKS = {"kernels": "kernels/*.py", "check-options": "--suite smoke --dimension accuracy"}

GH = f'''#!{sys.executable}
"""GitHub's program, as far as the action calls it."""
import json, os, sys
from pathlib import Path

here = Path(__file__).parent
words = sys.argv[1:]
with open(here / "calls", "a") as calls:
    calls.write(json.dumps(words) + "\\n")
assert words[0] == "api" and os.environ["GH_TOKEN"] == "secret"
if (here / "refuse").exists():
    sys.exit("gh: Resource not accessible by integration (HTTP 403)")
kept = here / "comments.json"
comments = json.loads(kept.read_text()) if kept.exists() else []
if "--method" not in words:
    print(json.dumps([comments[:1], comments[1:]]))
    sys.exit()
body = json.load(sys.stdin)["body"]
if words[words.index("--method") + 1] == "POST":
    comments.append({{"id": 100 + len(comments), "body": body, "user": {{"type": "Bot"}}}})
else:
    (found,) = [each for each in comments if words[3].endswith(f"/issues/comments/{{each['id']}}")]
    found["body"] = body
kept.write_text(json.dumps(comments))
'''


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *identity, "-C", str(folder), *words], check=True, capture_output=True)


def commit(folder: Path, **files: str) -> None:
    """Write files, whose names have `__` for a slash and `_` before the suffix, and commit them."""
    for name, text in files.items():
        path = folder / re.sub(r"_(?=[a-z]+$)", ".", name.replace("__", "/"))
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "Change")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "gh").write_text(GH)
    (folder / "gh").chmod(0o755)
    return folder


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone whose branch `origin/main` has two kernels."""
    monkeypatch.setenv("TRITMARK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    origin, folder = tmp_path / "origin", tmp_path / "repository"
    origin.mkdir()
    git(origin, "init", "-q", "-b", "main")
    commit(origin, kernels__mine_py=CORRECT, kernels__other_py=CORRECT, README_md="Kernels")
    subprocess.run(["git", "clone", "-q", str(origin), str(folder)], check=True)
    git(folder, "switch", "-q", "-c", "work")
    return folder


def run(repository: Path, programs: Path, github: dict[str, Any] = GITHUB, **given: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in given.items()}
    return composite_action.run_action(ACTION, repository, named, github, programs)


def comments(programs: Path) -> list[dict[str, Any]]:
    kept = programs / "comments.json"
    found: list[dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else []
    return found


def calls(programs: Path) -> list[list[str]]:
    return [json.loads(line) for line in (programs / "calls").read_text().splitlines()]


def test_an_honest_change_is_green_and_a_fault_turns_it_red_in_the_same_comment(
    repository: Path, programs: Path
) -> None:
    user = {"id": 1, "body": "<!-- tritmark CI_kernels -->\nmine", "user": {"type": "User"}}
    (programs / "comments.json").write_text(json.dumps([user]))
    commit(repository, kernels__mine_py=CORRECT.replace('"""x =', '"""Here x ='))
    ended = run(repository, programs, kernels="kernels/*.py", check_options=CHECKS["check-options"])
    assert ended.passed, ended.log
    assert ended.outputs["passed"] == "true"
    first, second = comments(programs)
    assert first == user, "a comment of a person is left alone"
    assert second["body"].startswith("<!-- tritmark CI_kernels -->\n### tritmark: passed\n")
    assert "Check: 1 of 1 kernels passed" in second["body"]
    assert "1 unchanged kernels were not checked" in second["body"]
    assert "https://github.example/owner/name/actions/runs/12" in second["body"]
    assert "kernels/mine.py" in ended.summary

    commit(repository, kernels__mine_py=WRONG)
    ended = run(repository, programs, kernels="kernels/*.py", check_options=CHECKS["check-options"])
    assert not ended.passed
    assert ended.outputs["passed"] == "false"
    first, second = comments(programs)
    assert (first, second["id"]) == (user, 101)
    assert "### tritmark: failed" in second["body"]
    assert "accuracy.values" in second["body"]
    assert "fails at n=" in second["body"]
    written = [words[2] for words in calls(programs) if "--method" in words]
    assert written == ["POST", "PATCH"]
    results = Path(ended.outputs["results"])
    assert [*(results / "failing").glob("*.npz")], "the failing input is among the results"


def test_nothing_that_changed_is_said_and_a_token_that_may_not_write_is_a_warning(
    repository: Path, programs: Path
) -> None:
    commit(repository, README_md="Other kernels")
    (programs / "refuse").touch()
    ended = run(repository, programs, kernels="kernels/*.py")
    assert ended.passed, ended.log
    assert "No kernel changed. 2 unchanged kernels were not checked." in ended.summary
    assert "::warning title=tritmark::no comment was written (gh: Resource not accessible" in ended.log


@pytest.mark.nightly
def test_without_a_pull_request_there_is_no_comment(repository: Path, programs: Path) -> None:
    commit(repository, README_md="Other kernels")
    ended = run(repository, programs, {**GITHUB, "base_ref": "", "event": {}}, kernels="*/*.py", base="HEAD~1")
    assert ended.passed, ended.log
    assert not (programs / "calls").exists()
    ended = run(repository, programs, kernels="*/*.py", comment="false")
    assert ended.passed
    assert not (programs / "calls").exists()


@pytest.mark.parametrize(
    ("github", "given", "said"),
    [
        ({}, {}, "nothing to do; next: name kernels, or set gate to true"),
        ({}, {"kernels": " \n", "gate": "false"}, "nothing to do"),
        ({"base_ref": ""}, {"kernels": "*"}, "there is no base outside of a pull request; next: set base"),
        ({"base_ref": "apart"}, {"kernels": "*"}, "no common commit here; next: fetch-depth: 0"),
        ({}, {"kernels": "no/such/*.c"}, "no tracked file matches no/such/*.c"),
        ({}, {"kernels": "*/*.py", "check_options": "--op 'a"}, "the input check-options is"),
        ({}, {"gate": "true", "gate_options": "--op 'a"}, "No closing quotation"),
    ],
)
def test_what_cannot_be_done_is_red_and_says_why(
    repository: Path, programs: Path, github: dict[str, Any], given: dict[str, str], said: str
) -> None:
    commit(repository, kernels__mine_py=CORRECT + "\n")
    ended = run(repository, programs, {**GITHUB, **github}, **given)
    assert not ended.passed
    assert said in ended.log
    assert comments(programs) == []


@pytest.mark.nightly
def test_a_kernel_that_cannot_be_judged_is_red(repository: Path, programs: Path) -> None:
    commit(repository, kernels__mine_py="raise RuntimeError('no <b>luck</b>')")
    ended = run(repository, programs, kernels="kernels/*.py", check_options=CHECKS["check-options"])
    assert not ended.passed
    (only,) = comments(programs)
    assert "1 of 1 kernels did not pass" in only["body"]
    assert "not judged (status 2)" in only["body"]
    assert "<b>" not in only["body"]


@pytest.mark.parametrize(
    ("touched", "expected"),
    [
        ("a/one.c", ["a/one.c"]),
        ("a/one.toml", ["a/one.c"]),
        ("a/shared.h", ["a/one.c", "a/two words.c"]),
        ("b/three.cu", ["b/three.cu"]),
        ("b/deep/four.cu", ["b/deep/four.cu"]),
        ("notes.txt", []),
    ],
)
def test_a_kernel_changes_with_its_manifest_and_its_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, touched: str, expected: list[str]
) -> None:
    names = ("a/one.c", "a/two words.c", "a/one.toml", "a/shared.h", "b/three.cu", "b/deep/four.cu", "notes.txt")
    git(tmp_path, "init", "-q")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "First")
    (tmp_path / touched).write_text("2")
    git(tmp_path, "commit", "-qam", "Second")
    monkeypatch.chdir(tmp_path / "a")
    new, old = runpy.run_path(str(ACTION / "check_changed.py"))["changed"]("HEAD~1", ["a/*.c", "b/**/*.cu"])
    assert new == expected
    assert sorted(new + old) == ["a/one.c", "a/two words.c", "b/deep/four.cu", "b/three.cu"]


def test_a_comment_that_is_too_long_ends_at_a_line() -> None:
    report = runpy.run_path(str(ACTION / "report.py"))
    text = report["shortened"]("| a row |\n" * 10_000, "https://github.example")
    assert len(text) < 65_536
    rows, _, rest = text.partition("\n\n")
    assert set(rows.splitlines()) == {"| a row |"}
    assert "does not fit" in rest


def test_the_guide_names_each_input_and_no_other() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed; tox -e py runs this")
    described = yaml.safe_load((ACTION / "action.yml").read_text())
    guide = (ROOT / "docs/guides/github-action.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \|", guide, re.MULTILINE)
    assert rows == [*described["inputs"], *described["outputs"]]
    uses = []
    for block in re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL):
        found = yaml.safe_load(block)
        steps = found if isinstance(found, list) else found.get("jobs", {}).get("kernels", {}).get("steps", [])
        uses += [step["with"] for step in steps if "actions/tritmark@" in step["uses"]]
    assert len(uses) == 2
    assert set().union(*uses) <= set(described["inputs"])
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert f"id: {hook['id']}" in guide
    assert (ROOT / hook["entry"]).stat().st_mode & 0o111


@pytest.mark.timing
@pytest.mark.nightly
def test_a_planted_slow_down_turns_the_gate_red_and_an_honest_change_does_not(repository: Path, programs: Path) -> None:
    one = "lambda y: spin({})"
    commit(repository, gated_py=gate_sites.source(one=one.format(300_000)), backend_py=gate_sites.BACKEND)
    commit(repository, pyproject_toml=gate_sites.PROJECT, suite_toml=gate_sites.SUITE)
    git(repository, "push", "-q", "origin", "HEAD:start")
    git(repository, "fetch", "-q")
    options = "--strict --suite suite.toml --budget 0.5"
    # Another text, and the same work.
    commit(repository, gated_py=gate_sites.source(one=one.format("100_000 * 3")))
    ended = run(repository, programs, {**GITHUB, "base_ref": "start"}, gate="true", gate_options=options)
    assert ended.passed, ended.log
    (only,) = comments(programs)
    assert "### tritmark: passed" in only["body"]
    assert "SAME" in only["body"]

    commit(repository, gated_py=gate_sites.source(one=one.format(360_000)))
    ended = run(repository, programs, {**GITHUB, "base_ref": "start"}, gate="true", gate_options=options)
    assert not ended.passed
    (again,) = comments(programs)
    assert again["id"] == only["id"]
    assert "### tritmark: failed" in again["body"]
    assert "SLOWER" in again["body"]
    assert "::error title=SLOWER" in ended.log
