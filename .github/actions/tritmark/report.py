"""Write what the check and the gate found to the job's summary and to one comment of the pull request, which later
runs update. Ends with 1 if a kernel did not pass or the gate is red.

Reads the environment variables RESULTS, GATE_STATUS, COMMENT, NUMBER (of the pull request), RUN_URL, GH_TOKEN, and
those of GitHub.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tritmark.harness.cli.exit_status import MEANINGS, PASSED, UNTRIED
from tritmark.harness.gate.render_github import markdown

LONGEST = 60_000
"""Characters: GitHub refuses a comment with more than 65,536."""


def checks_text(found: dict[str, Any]) -> list[str]:
    """A table of the kernels that were checked."""
    unchanged = f"{found['unchanged']} unchanged kernels were not checked."
    if not found["checks"]:
        return [f"No kernel changed. {unchanged}", ""]
    lines = ["| kernel | verdict | where | score | percent of the ceiling |", "|---|---|---|---:|---:|"]
    for each in found["checks"]:
        verdict, name = each["verdict"], f"<code>{markdown(each['file'])}</code>"
        if verdict is None:
            said = each["said"].splitlines()
            lines.append(
                f"| {name} | not judged (status {each['status']}) | {markdown(said[-1] if said else '')} | | |"
            )
            continue
        for kernel in verdict["kernels"]:
            label = name if len(verdict["kernels"]) == 1 else f"{name} {markdown(kernel['kernel'])}"
            cells = (kernel["code"], where(kernel), figure(kernel["score"]), figure(kernel["ceiling_percent"]))
            lines.append(f"| {label} | {' | '.join(map(markdown, cells))} |")
    return [*lines, "", unchanged, ""]


def where(kernel: dict[str, Any]) -> str:
    """The reason of the dimension that decides, and the smallest failing input."""
    dimension = kernel["dimensions"].get(kernel["code"].partition(".")[0])
    reason = dimension["reason"] if dimension else ""
    failing = kernel.get("failing")
    size = ", ".join(f"{axis}={value}" for axis, value in failing["axes"].items()) if failing else ""
    return "; ".join(filter(None, (reason, f"fails at {size}" if size else "")))


def figure(value: float | None) -> str:
    """A number with two decimals, or nothing."""
    return "" if value is None else f"{value:.2f}"


def marker(workflow: str, job: str) -> str:
    """The first line of the comment, by which the next run of that job finds it."""
    return f"<!-- tritmark {re.sub(r'[^A-Za-z0-9]', '_', f'{workflow}/{job}')} -->"


def body(results: Path, gate_status: str) -> tuple[str, bool]:
    """The Markdown of the report, and whether everything passed."""
    lines, passed = [], True
    checks = results / "checks.json"
    if checks.is_file():
        found = json.loads(checks.read_text(encoding="utf-8"))
        bad = [each for each in found["checks"] if each["status"] != PASSED]
        passed = not bad
        word = "did not pass" if bad else "passed"
        lines += [f"#### Check: {len(bad) or len(found['checks'])} of {len(found['checks'])} kernels {word}", ""]
        lines += checks_text(found)
    if gate_status:
        status = int(gate_status)
        passed = passed and status in (PASSED, UNTRIED)
        lines += [f"#### Gate: status {status}, {MEANINGS.get(status, 'unknown')}", ""] if status else []
        summary = results / "gate.md"
        if summary.is_file():
            lines.append(summary.read_text(encoding="utf-8"))
    head = f"### tritmark: {'passed' if passed else 'failed'}"
    return "\n".join([head, "", *lines]), passed


def shortened(text: str, url: str) -> str:
    """A text that GitHub takes as a comment. A line that does not fit is left out whole, with those after it."""
    if len(text) > LONGEST:
        text = f"{text[:LONGEST].rpartition(chr(10))[0]}\n\nThe rest does not fit here; the summary of the run has it."
    return f"{text}\n\n[Run]({url})\n"


def comment(mark: str, text: str, repository: str, number: str) -> None:
    """Create the comment, or update the one that an earlier run made. Raises RuntimeError if GitHub refuses."""
    path = f"repos/{repository}/issues/{number}/comments"
    pages = json.loads(gh("--paginate", "--slurp", f"{path}?per_page=100"))
    # A person may quote the marker; only a bot's own comment is replaced.
    own = [each for page in pages for each in page if each["user"]["type"] == "Bot" and each["body"].startswith(mark)]
    given = json.dumps({"body": f"{mark}\n{text}"})
    if own:
        gh("--method", "PATCH", f"repos/{repository}/issues/comments/{own[0]['id']}", "--input", "-", given=given)
    else:
        gh("--method", "POST", path, "--input", "-", given=given)


def gh(*words: str, given: str | None = None) -> str:
    """What `gh api` prints."""
    done = subprocess.run(["gh", "api", *words], input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def main() -> int:
    """Write the report. Returns the exit status."""
    results = Path(os.environ["RESULTS"])
    text, passed = body(results, os.environ.get("GATE_STATUS", ""))
    (results / "comment.md").write_text(text, encoding="utf-8")
    for variable, line in (("GITHUB_STEP_SUMMARY", text), ("GITHUB_OUTPUT", f"passed={str(passed).lower()}\n")):
        with open(os.environ[variable], "a", encoding="utf-8") as file:
            file.write(line)
    number = os.environ.get("NUMBER", "")
    if os.environ["COMMENT"] == "true" and number:
        try:
            mark = marker(os.environ["GITHUB_WORKFLOW"], os.environ["GITHUB_JOB"])
            comment(mark, shortened(text, os.environ["RUN_URL"]), os.environ["GITHUB_REPOSITORY"], number)
        except (OSError, RuntimeError) as why:  # a pull request from a fork has a token that cannot write
            said = str(why).replace("%", "%25").replace("\n", "%0A")
            print(
                f"::warning title=tritmark::no comment was written ({said}); the summary of the run has the same text"
            )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
