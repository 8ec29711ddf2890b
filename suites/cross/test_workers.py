"""Cross-validation with the candidate in its own process: the peer is made there, and its crash is reported."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tritmark.harness.cross import CppLibrary
from tritmark.harness.providers import Installed
from tritmark.harness.record import Cross, Status
from tritmark.harness.spec import KernelKey, Peer
from tritmark.harness.validate.compare import expectations
from tritmark.harness.validate.cross import Collected, CrossTask, collect_task, known
from tritmark.harness.worker import Workers
from tritmark.kernels.peers.reference import NAME

KEY = KernelKey("cpu", "i2s_dequantize", "none", "float32")
AXES = {"n": 100}
DESCRIPTION = """
[[functions]]
op = "i2s_dequantize"
symbol = "dequantize_crash"
formats = ["none"]
dtypes = ["float32"]
arguments = ["const int8_t *q", "float scale", "float *x", "int64_t n"]
"""


def test_a_crash_of_a_peer_is_its_own(installed: Installed, compiled: Path, tmp_path: Path) -> None:
    described = tmp_path / "crash.toml"
    described.write_text(DESCRIPTION)
    libraries = (CppLibrary(str(compiled), str(described)),)
    op, variant = installed.ops[KEY.op], installed.registry.select_best(KEY, AXES)
    logical = op.generate(AXES, "uniform", np.random.default_rng(0))
    expected = expectations(op, AXES, KEY, op.reference(logical, AXES, KEY))
    crossing = CrossTask(op, KEY, known(installed, libraries), expected, logical, AXES, 1)
    with Workers(installed) as workers:

        def run(peer: Peer) -> Collected:
            found: Collected = workers.of(variant).call(
                "cross", collect_task, peer.name, libraries, logical, logical, AXES, 1, 0, False
            )
            return found

        found = crossing.judge(run)
    assert isinstance(found, Cross)
    by_name = {each.peer: each for each in found.peers}
    crashed, right = by_name[f"{compiled.name}:dequantize_crash"], by_name[NAME]
    assert crashed.status is Status.ERROR
    assert "SIGSEGV" in crashed.reason
    assert (right.status, right.match, right.reference) == (Status.PASS, True, True)
    assert right.version.startswith("sha256:")
    assert found.status is Status.ERROR
