"""Runs the steps of a composite action as GitHub's runner does: expressions, files of GITHUB_*, and bash's options.

Steps with `uses` are left out. Of expressions it knows names, texts, == and !=, which are all that the action has.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
_NAME = re.compile(r"[a-z_]+(?:\.[\w-]+)+")


@dataclass
class Ended:
    """How a run of an action ended."""

    passed: bool = True
    log: str = ""
    summary: str = ""
    steps: dict[str, dict[str, str]] = field(default_factory=dict)
    """The outputs of each step."""
    outputs: dict[str, str] = field(default_factory=dict)
    """The outputs of the action."""


def run_action(
    action: Path, repository: Path, given: Mapping[str, str], github: Mapping[str, Any], programs: Path
) -> Ended:
    """Run the action in `repository`. `programs` comes first in PATH; `github` is the context of that name."""
    described = yaml.safe_load((action / "action.yml").read_text(encoding="utf-8"))
    temporary = repository.parent / "runner"
    temporary.mkdir(exist_ok=True)
    ended = Ended()
    context: dict[str, Any] = {"github": github, "runner": {"temp": str(temporary), "os": "Linux", "arch": "X64"}}
    unknown = set(given) - set(described["inputs"])
    assert not unknown, f"the action has no input {unknown}"
    context["inputs"] = {
        name: given.get(name, filled(str(each.get("default", "")), context))
        for name, each in described["inputs"].items()
    }
    context["steps"] = {}
    for step in described["runs"]["steps"]:
        if "uses" in step or not ended.passed or not holds(str(step.get("if", "true")), context):
            continue
        assert step["shell"] == "bash", "composite actions must name it"
        files = {name: temporary / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_ENV")}
        for file in files.values():
            file.write_text("")
        environment = {
            **os.environ,
            **{name: str(file) for name, file in files.items()},
            **{name: filled(str(value), context) for name, value in step.get("env", {}).items()},
            "GITHUB_ACTION_PATH": str(action),
            "GITHUB_BASE_REF": github.get("base_ref", ""),
            "GITHUB_JOB": "kernels",
            "GITHUB_REPOSITORY": github["repository"],
            "GITHUB_WORKFLOW": "CI",
            "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
        }
        script = temporary / "script.sh"
        assert "${{" not in step["run"], "text of a pull request could become part of the script"
        script.write_text(step["run"])
        done = subprocess.run(
            [*BASH, str(script)], cwd=repository, env=environment, capture_output=True, text=True, check=False
        )
        ended.log += done.stdout + done.stderr
        ended.summary += files["GITHUB_STEP_SUMMARY"].read_text()
        lines = files["GITHUB_OUTPUT"].read_text().splitlines()
        ended.steps[step.get("id", "")] = dict(line.split("=", 1) for line in lines)
        context["steps"] = {name: {"outputs": outputs} for name, outputs in ended.steps.items()}
        ended.passed = done.returncode == 0
    ended.outputs = {name: filled(each["value"], context) for name, each in described["outputs"].items()}
    return ended


def filled(text: str, context: Mapping[str, Any]) -> str:
    """A text with its expressions replaced; a missing name is empty, as on GitHub."""
    return re.sub(r"\$\{\{\s*([^}]*?)\s*\}\}", lambda match: looked_up(match[1], context), text)


def looked_up(name: str, context: Mapping[str, Any]) -> str:
    assert _NAME.fullmatch(name), f"{name} is no name"
    found: Any = context
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return "" if found is None else str(found)


def holds(condition: str, context: Mapping[str, Any]) -> bool:
    """Whether `NAME == 'text'` or `NAME != 'text'` holds."""
    if condition == "true":
        return True
    match = re.fullmatch(r"(\S+) (==|!=) '([^']*)'", condition)
    assert match, f"{condition} is not understood"
    return (looked_up(match[1], context) == match[3]) == (match[2] == "==")
