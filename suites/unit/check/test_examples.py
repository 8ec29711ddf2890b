"""The kernel that docs/guides/agents-log.md ends with is still correct."""

from __future__ import annotations

from pathlib import Path

import pytest

from tritmark.harness.check import check
from tritmark.harness.providers import load

pytestmark = pytest.mark.long
EXAMPLE = Path(__file__).parents[2] / "examples" / "activation_avx512.c"
SUITE = """\
title = "tails and ties"
[[workloads]]
op = "activation_quantize"
shapes = [{ M = 3, K = 257 }, { M = 2, K = 63 }]
families = ["normal", "ties"]
"""


def test_the_kernel_of_the_log_is_correct(tmp_path: Path) -> None:
    if not {"avx512bw", "avx512dq", "avx512vl", "avx512vnni"} <= load().registry.devices["cpu"].features():
        pytest.skip("this processor lacks AVX-512; tox -e py runs it where it is there")
    suite = tmp_path / "few.toml"
    suite.write_text(SUITE, encoding="utf-8")
    found = check(EXAMPLE, suite=str(suite), dimension="accuracy", out=tmp_path)
    assert found, found
    assert found.kernel.dimensions["accuracy"].runs == 4
