"""Kernels that are timed together: their figures, their ratios to the best, and those that fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from tritmark.harness.judge.request import Request, SilentObserver
from tritmark.harness.judge.runner import execute
from tritmark.harness.judge.together import TOGETHER
from tritmark.harness.league import together
from tritmark.harness.league.contenders import TEMPERATURES, by_work, tables
from tritmark.harness.league.model import Basis
from tritmark.harness.league.together import Together, together_task
from tritmark.harness.league.turns import Session, complete
from tritmark.harness.measure.buffers import Rotation
from tritmark.harness.providers import Installed, load
from tritmark.harness.record import Status
from tritmark.harness.spec import Arrays, Launch, Variant
from tritmark.harness.store import Store
from tritmark.harness.verify import refuted
from tritmark.harness.worker.site import Site
from tritmark.kernels import PROVIDER
from tritmark.kernels.peers import products

AXES = {"M": 1, "N": 128, "K": 512}
OP = "ternary_matmul"
SUITE = """
title = "three kernels of two works"
[[workloads]]
op = "ternary_matmul"
shapes = [{ N = 128, K = 512 }]
axes = { M = 1 }
families = ["uniform"]
dtypes = ["float32"]
formats = ["tile64", "i2_s_x86", "q2_0"]
measure = true
"""


@pytest.fixture(autouse=True)
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rotation that is quickly filled."""
    monkeypatch.setattr(together, "rotation", lambda memory: Rotation(nbytes=1 << 22, wanted=1 << 22))


def kernels(*formats: str) -> list[Variant]:
    return [
        next(each for each in PROVIDER.variants if each.id == f"cpu/{OP}/{format}/float32/scalar") for format in formats
    ]


def timed(variants: list[Variant], axes: Mapping[str, int] = AXES) -> Together:
    installed = Installed({"builtin": replace(PROVIDER, variants=tuple(variants))})
    op = installed.ops[OP]
    logical = op.generate(axes, "uniform", np.random.default_rng(0))
    sides = {each.id: op.encode(logical, axes, each.key.format) for each in variants}
    return together_task(Site(installed, variants[0]), OP, sides, axes, 1, 0, {}, seconds=0.005)


def slow(variant: Variant) -> Variant:
    """That kernel, which does its work twenty times in a call."""

    class Slow:
        pointer = None
        bad = -1

        def __init__(self, launch: Launch) -> None:
            self._launch, self.runs = launch, 0

        @property
        def ran(self) -> str:
            return self._launch.ran

        @property
        def threads_used(self) -> int:
            return self._launch.threads_used

        def run(self) -> None:
            for _ in range(20):
                self._launch.run()
            self.runs += 1

    return replace(variant, name="slow", bind=lambda *arguments: Slow(variant.bind(*arguments)), rank=-1)


def test_every_kernel_has_figures_and_a_ratio_to_the_best() -> None:
    tile, other = kernels("tile64", "i2_s_x86")
    found = timed([slow(tile), tile, other])
    assert set(found.kernels) == {slow(tile).id, tile.id, other.id}
    for temperature in TEMPERATURES:
        best = found.best[temperature]
        assert best in {tile.id, other.id}
        for id, each in found.kernels.items():
            figure = getattr(each, temperature)
            assert len(figure.timing.samples_ns) == len(figure.against.probe_ns) >= 6
            assert (temperature in each.ratios) == (id != best)
        assert found.kernels[slow(tile).id].ratios[temperature].low > 3
    assert found.kernels[slow(tile).id].by_python
    assert not found.kernels[tile.id].by_python
    assert found.kernels[tile.id].evidence.runs > 12
    assert not any(each.faults or each.error for each in found.kernels.values())


def test_arrays_that_are_too_small_to_be_cold_have_a_hot_figure_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "rotation", lambda memory: Rotation(nbytes=1 << 30, wanted=1 << 30))
    found = timed(kernels("tile64", "i2_s_x86"), {"M": 1, "N": 64, "K": 128})
    assert set(found.best) == {"hot"}
    assert all(each.cold is None and each.hot is not None for each in found.kernels.values())


def test_a_kernel_that_raises_is_left_out() -> None:
    (tile,) = kernels("tile64")

    def broken(*arguments: Any) -> NoReturn:
        raise RuntimeError("no product for these types")

    found = timed([tile, replace(tile, name="broken", bind=broken, rank=-1)])
    assert found.kernels[f"cpu/{OP}/tile64/float32/broken"].error == "RuntimeError: no product for these types"
    assert found.kernels[tile.id].hot is not None
    assert found.best["hot"] == tile.id


def test_a_kernel_that_miscounts_its_runs_has_a_fault() -> None:
    (tile,) = kernels("tile64")

    class Doubled:
        """Counts each run twice."""

        pointer = None
        bad = -1
        ran = "doubled"
        threads_used = 1

        def __init__(self) -> None:
            self.runs = 0

        def run(self) -> None:
            self.runs += 2

    found = timed([tile, replace(tile, name="doubled", bind=lambda *arguments: Doubled(), rank=-1)])
    faults = found.kernels[f"cpu/{OP}/tile64/float32/doubled"].faults
    assert any("its code counts others" in str(each) for each in faults)


def test_a_record_has_their_figures_and_says_how_they_were_timed(tmp_path: Path) -> None:
    path = tmp_path / "suite.toml"
    path.write_text(SUITE)
    installed, session = load(), Session()
    request = Request(
        suite=installed.suite(str(path)),
        device="cpu",
        variant="scalar",
        threads=1,
        dimensions=frozenset({"accuracy", "performance"}),
        session=session,
    )
    record, _ = execute(installed, request, Store(tmp_path), SilentObserver())
    assert [run.format for run in record.runs] == ["tile64", "i2_s_x86", "q2_0"]
    assert {run.performance.status for run in record.runs} == {Status.PASS}, record.runs[0].performance.reason
    assert all(TOGETHER in run.performance.limits for run in record.runs)
    assert all(run.memory.status is run.cross.status is Status.NOT_RUN for run in record.runs)
    assert not refuted(record)
    works = by_work(record, installed.scales_of)
    assert {work for work, _ in session.best} == set(works)
    two, one = tables(record, session.ratios, None, session.best, installed.scales_of)
    assert [each.hot.basis for each in one.contenders if each.hot] == [Basis.BEST]
    assert {each.hot.basis for each in two.contenders if each.hot} == {Basis.BEST, Basis.TURNS}
    assert not session.problems


def test_work_of_other_packages_is_timed_with_all_guards(tmp_path: Path) -> None:
    """They could forge the clock of the process."""
    path = tmp_path / "suite.toml"
    path.write_text(SUITE)
    installed, session = load(), Session()
    installed.own.discard(f"cpu/{OP}/q2_0/float32/scalar")
    request = Request(
        suite=installed.suite(str(path)),
        device="cpu",
        variant="scalar",
        threads=1,
        dimensions=frozenset({"accuracy", "performance"}),
        session=session,
    )
    record, _ = execute(installed, request, Store(tmp_path), SilentObserver())
    alone = {run.format for run in record.runs if TOGETHER not in run.performance.limits}
    assert alone == {"q2_0"}
    (run,) = (run for run in record.runs if run.format == "q2_0")
    assert run.performance.proven_hot_ns is not None
    assert not [id for id in session.best.values() if id == run.id]
    complete(session, installed, record, lambda line: None)
    assert run.id in session.best.values()


def test_tritmark_s_own_kernels_and_peers_are_known() -> None:
    installed = load()
    assert {each.id for each in PROVIDER.variants} <= installed.own
    assert {each.id for each in products.VARIANTS} <= installed.own


def test_a_process_that_dies_is_an_error_of_its_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dying(*arguments: Any) -> NoReturn:
        raise SystemExit(3)

    monkeypatch.setattr("tritmark.harness.judge.together.together_task", dying)
    path = tmp_path / "suite.toml"
    path.write_text(SUITE)
    installed, session = load(), Session()
    request = Request(
        suite=installed.suite(str(path)), device="cpu", variant="scalar", threads=1, session=session, isolated=True
    )
    record, _ = execute(installed, request, Store(tmp_path), SilentObserver())
    assert {run.performance.status for run in record.runs} == {Status.ERROR}
    assert len(session.problems) == len(record.runs)


def test_inputs_are_not_changed_by_timing() -> None:
    """Outputs are written, inputs are read."""
    (tile,) = kernels("tile64")
    installed = Installed({"builtin": replace(PROVIDER, variants=(tile,))})
    op = installed.ops[OP]
    inputs: Arrays = op.encode(op.generate(AXES, "uniform", np.random.default_rng(0)), AXES, "tile64")
    before = {name: np.array(each) for name, each in inputs.items()}
    together_task(Site(installed, tile), OP, {tile.id: inputs}, AXES, 1, 0, {}, seconds=0.002)
    for name, each in before.items():
        np.testing.assert_array_equal(inputs[name], each)
