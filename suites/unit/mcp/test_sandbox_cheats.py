"""Kernels that attack the sandbox of `check`, and what an honest kernel finds there."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from tritmark.harness.check import check
from tritmark.harness.errors import UsageError
from tritmark.harness.mcp.tools import AgentTools

pytestmark = pytest.mark.long
EXPLOITS = Path(__file__).parents[2] / "exploits"
SUITE = """\
title = "one"
[[workloads]]
op = "i2s_dequantize"
shapes = [{ n = 300 }]
families = ["uniform"]
"""
MANIFEST = """\
op = "i2s_dequantize"
dtype = "float32"
function = "dequantize"
arguments = ["q", "x", "scale", "n"]
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "one.toml"
    path.write_text(SUITE, encoding="utf-8")
    return path


@pytest.fixture
def escaping(tmp_path: Path) -> Path:
    """The kernel that is correct only if it leaves the sandbox."""
    source = tmp_path / "kernels" / "in_sandbox.c"
    source.parent.mkdir()
    shutil.copy(EXPLOITS / source.name, source)
    options = ["-O2", f'-DKERNELS="{source.parent}"']
    source.with_suffix(".toml").write_text(f"{MANIFEST}options = {options}\n", encoding="utf-8")
    return source


def judged(file: Path, suite: Path, out: Path) -> dict[str, Any]:
    found: dict[str, Any] = asyncio.run(
        AgentTools(out, 300.0).check(str(file), dimensions=["accuracy"], suite=str(suite))
    )
    if found["not_available"]:
        pytest.skip(f"this system lacks: {found['not_available']}")
    return found


def test_a_kernel_that_leaves_the_sandbox_would_pass(escaping: Path, suite: Path, tmp_path: Path) -> None:
    found = check(escaping, suite=str(suite), dimension="accuracy", out=tmp_path / "results")
    assert found.passed, "outside of the sandbox it may write its own source"


def test_and_cannot_leave_it(escaping: Path, suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("TRITMARK_CACHE", str(cache))
    assert judged(escaping, suite, tmp_path / "results")["code"] == "accuracy.values"
    assert [*cache.rglob("*")] == [cache / "sandbox"], "it had a cache of its own, which is gone"


def test_a_file_that_forges_the_verdict_is_refused(suite: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"VARIANTS runs in the process that judges.*legal: a function with"):
        judged(EXPLOITS / "in_sandbox.py", suite, tmp_path / "results")
