"""Models with changed bytes: read, or refused with a WeightFileError, never another error."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tritmark.harness.errors import WeightFileError
from tritmark.harness.providers import installed
from tritmark.harness.weights import TernaryWeights, holders_of, open_weights
from tritmark.harness.weights.left_out import judged, left_out

sys.path.append(str(Path(__file__).parents[1] / "helpers"))
families = import_module("model_families")
HOLDERS = holders_of(installed())
FILES = {
    "bonsai, mlx": "config.json",
    "maple, mlx": "config.json",
    "compressed-tensors": "config.json",
    "compressed-tensors, experts": "config.json",
    "maple, gguf": "",
    "bonsai, onnx": "",
}
"""The file of each family that is changed; "" for the model itself."""


@pytest.fixture(scope="module", params=FILES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if "onnx" in request.param:
        pytest.importorskip("onnx", reason="onnx is not installed; tox -e peers has it")
    folder = tmp_path_factory.mktemp("family")
    return request.param, families.FAMILIES[request.param](folder)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_changed_bytes_are_read_or_refused(made: Any, data: st.DataObject) -> None:
    name, family = made
    path = family.path / FILES[name] if FILES[name] else family.path
    good = path.read_bytes()
    # The header of a GGUF file and the graph of an ONNX model are far from the end.
    most = len(good) if FILES[name] else min(len(good), 4096)
    changed = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, most - 1))] = data.draw(st.sampled_from(b'\x00\x01\x7f\x80\xff0129-"{}[]:,tn'))
    told: list[str] = []
    cut = data.draw(st.sampled_from([0, 0, 0, 1, most // 2]))
    try:
        path.write_bytes(changed[: len(changed) - cut])
        with open_weights(family.path) as source:
            weights = TernaryWeights(source, HOLDERS)
            weights.require_finite()
            names = {each.name for each in judged(weights)}
            list(left_out(weights, names))
            for info in weights.matrices:
                codes, _ = weights.read(info)
                assert codes.shape == info.shape
    except WeightFileError as error:
        told.append(str(error))
    finally:
        path.write_bytes(good)
    assert all(each.isprintable() for each in told)
