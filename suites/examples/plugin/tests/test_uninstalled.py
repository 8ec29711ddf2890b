"""tritmark after the removal of the package: `tox -e plugin`, which keeps the Records that were made with it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.providers import load
from tritmark.kernels import FORMATS, pack_weights, ternary_matmul

RESULTS = Path(os.environ["TRITMARK_PLUGIN_RESULTS"])


def test_it_is_gone() -> None:
    assert find_spec("tritmark_base3") is None
    assert list(load().providers) == ["builtin"]
    assert not load().problems


@pytest.mark.parametrize("what", ["formats", "variants"])
def test_lists_go_on_without_it(tritmark: Callable[..., str], what: str) -> None:
    told = tritmark("list", what)
    assert "base3" not in told
    assert "tile64" in told


def test_functions_say_what_there_is() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        pack_weights(np.ones((2, 10), np.int8), 1.0, format="base3")
    assert caught.value.argument == "format"
    assert caught.value.found.startswith("'base3'")
    assert caught.value.legal.split(", ") == list(FORMATS)
    np.testing.assert_array_equal(
        ternary_matmul(np.ones((1, 10), np.int8), pack_weights(np.ones((2, 10), np.int8), 1.0)), [[10, 10]]
    )


def test_runs_go_on_without_it(tritmark: Callable[..., str], tmp_path: Path) -> None:
    assert "unknown suite 'base3'" in tritmark("run", "--suite", "base3", status=2)
    told = tritmark("run", "--suite", "smoke", "--variant", "cpu/ternary_matmul/*/int32/scalar", "--out", tmp_path)
    assert "PASS" in told
    assert "base3" not in told


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_its_records_can_still_be_read(tritmark: Callable[..., str], device: str) -> None:
    folder = RESULTS / device
    (file,) = folder.glob("runs/*.json")
    assert "base3" in tritmark("report", file.stem, "--out", folder, "--format", "md")
    tritmark("advise", file.stem, "--out", folder)


def test_functions_of_devices_that_nobody_brings_are_doubted(tritmark: Callable[..., str]) -> None:
    (cpu,), (cuda,) = ((RESULTS / device).glob("runs/*.json") for device in ("cpu", "cuda"))
    assert json.loads(tritmark("verify", cpu, "--json"))["passed"]
    told = tritmark("verify", cuda, "--allow-simulated", status=1)
    assert "it launched base3_gpu_matmul; functions of cuda begin with i2s_gpu_" in told
