"""Linear layers as they are stored: which Runs time which, with whose codes, and what they take together."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from importlib import import_module
from math import fsum
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tritmark.harness.judge import stored
from tritmark.harness.judge.request import Request
from tritmark.harness.providers import installed
from tritmark.harness.record import Run, Status
from tritmark.harness.text import linear
from tritmark.harness.validate.cases import Material
from tritmark.harness.weights import TernaryWeights, holders_of, open_weights
from tritmark.harness.weights.scales import fitted

sys.path.append(str(Path(__file__).parents[1] / "helpers"))
models, records = map(import_module, ("made_up_models", "made_up_records"))
SMALL = models.SMALL


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    written: Path = models.write_gguf(tmp_path_factory.mktemp("model") / "m.gguf", SMALL)
    return written


@pytest.fixture(scope="module")
def plan(path: Path) -> Iterator[stored.Plan]:
    here = installed()
    with open_weights(path) as source:
        weights = TernaryWeights(source, holders_of(here))
        request = Request(suite=None, weights=str(path))
        yield stored.planned(here, request, weights, [here.registry.devices["cpu"]])


def test_layers_of_one_shape_share_their_runs(plan: stored.Plan) -> None:
    shapes = dict(SMALL.matrices())
    assert len(plan) == 14
    assert len(stored.groups(plan)) == 2 * len(set(shapes.values()))
    by_shape: dict[tuple[int, int], set[tuple[str, ...]]] = {}
    for name, chosen in plan.items():
        assert [each.tokens for each in chosen] == list(stored.TOKENS)
        shape = shapes[name.removesuffix(".weight")]
        by_shape.setdefault(shape, set()).add(tuple(each.run_id for each in chosen))
        for each in chosen:
            assert dict(each.group.workload.axes) == {"M": each.tokens, "N": shape[0], "K": shape[1]}
    assert {len(ids) for ids in by_shape.values()} == {1}


def test_runs_have_the_codes_and_the_scale_of_the_file(plan: stored.Plan) -> None:
    for group in stored.groups(plan):
        matrix = group.workload.stored
        assert matrix is not None
        name = matrix.name.removesuffix(".weight")
        codes = SMALL.codes(name, dict(SMALL.matrices())[name])
        first, second = Material(group.op, group.workload, 1).logical
        np.testing.assert_array_equal(first["weights"], codes)
        np.testing.assert_array_equal(second["weights"], np.roll(codes, len(codes) // 2, axis=0))
        assert first["weight_scale"] == second["weight_scale"] == SMALL.scale(name)


def made(plan: stored.Plan) -> dict[str, Run]:
    """A Run for each that is planned, with figures of its own."""
    runs = [run for run in records.clean_runs(random.Random(1), edges=0) if run.performance.cold is not None]
    ids = [group.run_id(group.variants[0]) for group in stored.groups(plan)]
    return {id: run.model_copy(update={"id": id}) for id, run in zip(ids, runs, strict=False)}


def test_the_sum_counts_every_layer(plan: stored.Plan) -> None:
    runs = made(plan)
    one, prompt = stored.sums(plan, list(runs.values()))
    for found, tokens, at in ((one, 1, 0), (prompt, 512, 1)):
        cold = [runs[chosen[at].run_id].performance.cold for chosen in plan.values()]
        expected = fsum(each.timing.median_ns for each in cold if each is not None)
        assert (found.device, found.tokens, found.layers, found.unmeasured) == ("cpu", tokens, 14, 0)
        assert found.total_ns == expected
        assert found.tokens_per_second == tokens * 1e9 / expected
        assert "14 linear layers, which allows" in linear.sentence(found)
        lows, highs = ([getattr(each.timing, end) for each in cold if each] for end in ("low_ns", "high_ns"))
        assert (found.uncertain, found.low_ns, found.high_ns) == (0, fsum(lows), fsum(highs))
        assert "AMBIGUOUS" not in linear.sentence(found)


def test_experts_count_as_a_token_reads_them(plan: stored.Plan) -> None:
    runs = made(plan)
    reads = {"blk.0.ffn_up.weight": 2.0, "blk.1.attn_q.weight": 0.25}
    one, _ = stored.sums(plan, list(runs.values()), reads)
    cold = {name: runs[chosen[0].run_id].performance.cold for name, chosen in plan.items()}
    expected = fsum(each.timing.median_ns * reads.get(name, 1) for name, each in cold.items() if each is not None)
    assert (one.layers, one.total_ns) == (14, expected)
    assert one.tokens_per_second == 1e9 / expected


@pytest.mark.parametrize("doubted", [False, True])
def test_what_is_ambiguous_is_added_and_said(plan: stored.Plan, doubted: bool) -> None:
    runs = made(plan)
    shared = plan["blk.0.attn_k.weight"][0].run_id
    update = {"status": Status.AMBIGUOUS, "reason": "others kept the machine busy", "doubted": doubted}
    performance = runs[shared].performance.model_copy(update=update)
    runs[shared] = runs[shared].model_copy(update={"performance": performance})
    one, prompt = stored.sums(plan, list(runs.values()))
    assert (one.layers, one.unmeasured, one.uncertain, prompt.uncertain) == (14, 0, 4, 0)
    assert "includes AMBIGUOUS figures of 4 layers" in linear.sentence(one)


@pytest.mark.parametrize("change", ["missing", "doubted", "failed"])
def test_without_a_figure_for_one_there_is_no_sum(plan: stored.Plan, change: str) -> None:
    runs = made(plan)
    shared = plan["blk.0.attn_k.weight"][0].run_id
    run = runs.pop(shared)
    changes: dict[str, dict[str, object]] = {
        "doubted": {"doubted": True},
        "failed": {"status": Status.FAIL, "reason": "slow"},
    }
    update = changes.get(change)
    if update is not None:
        performance = run.performance.model_copy(update=update)
        runs[shared] = run.model_copy(update={"performance": performance})
    one, prompt = stored.sums(plan, list(runs.values()))
    assert (one.layers, one.unmeasured, one.total_ns, one.tokens_per_second) == (10, 4, None, None)
    assert "no sum for one token: 4 of 14" in linear.sentence(one)
    assert prompt.total_ns is not None


def test_what_is_too_small_to_get_cold_is_added_hot_and_said(plan: stored.Plan) -> None:
    runs = made(plan)
    shared = plan["blk.0.attn_k.weight"][0].run_id
    performance = runs[shared].performance.model_copy(update={"cold": None})
    runs[shared] = runs[shared].model_copy(update={"performance": performance})
    one, _ = stored.sums(plan, list(runs.values()))
    assert (one.layers, one.hot) == (14, 4)
    assert "except 4 layers too small" in linear.sentence(one)


@pytest.fixture(scope="module")
def masters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    written: Path = models.write_masters(tmp_path_factory.mktemp("masters") / "m.safetensors", SMALL)
    return written


def test_masters_are_timed_with_the_codes_that_their_model_makes(masters: Path) -> None:
    here = installed()
    cpu = here.registry.devices["cpu"]
    with open_weights(masters) as source:
        weights = TernaryWeights(source, holders_of(here))
        assert {(info.dtype, info.format) for info in weights.matrices} == {("bfloat16", "")}
        plan = stored.planned(here, Request(suite=None, weights=str(masters)), weights, [cpu])
        assert len(plan) == 14
        kinds = len({info.shape for info in weights.matrices})
        assert len(stored.groups(plan)) == kinds * len(stored.TOKENS)
        for group in stored.groups(plan):
            assert here.formats[group.key.format].scale_per == "tensor", "what holds the one scale that absmean makes"
            matrix = group.workload.stored
            assert matrix is not None
            codes, scale = weights.read(next(info for info in weights.matrices if info.name == matrix.name))
            first, _ = Material(group.op, group.workload, 1).logical
            np.testing.assert_array_equal(first["weights"], codes)
            assert first["weight_scale"] == scale
    runs = made(plan)
    one, prompt = stored.sums(plan, list(runs.values()))
    assert (one.layers, prompt.layers, one.unmeasured, prompt.unmeasured) == (14, 14, 0, 0)
    for found, at in ((one, 0), (prompt, 1)):
        cold = [runs[chosen[at].run_id].performance.cold for chosen in plan.values()]
        assert found.total_ns == fsum(each.timing.median_ns for each in cold if each is not None)


@pytest.mark.parametrize("columns", [512, 256, 128, 64, 32])
@pytest.mark.parametrize("step", [2.0**-8, 0.1])
def test_ternary_floats_are_timed_in_formats_that_hold_their_scales(tmp_path: Path, columns: int, step: float) -> None:
    here = installed()
    codes = np.random.default_rng(0).integers(-1, 2, (16, 512 // columns, columns)).astype(np.float32)
    scales = np.arange(1, 1 + 16 * 512 // columns, dtype=np.float32) * np.float32(step)
    floats = (codes * scales.reshape(16, -1, 1)).reshape(16, 512)
    save_file({"model.layers.0.mlp.up_proj.weight": floats}, tmp_path / "m.safetensors")
    with open_weights(tmp_path / "m.safetensors") as source:
        weights = TernaryWeights(source, holders_of(here))
        request = Request(suite=None, weights=str(tmp_path / "m.safetensors"))
        plan = stored.planned(here, request, weights, [here.registry.devices["cpu"]])
        (info,) = weights.matrices
        codes_of, scale = weights.read(info)
        np.testing.assert_array_equal(codes_of, codes.reshape(16, 512))
        for group in stored.groups(plan):
            fitted(info.name, scale, info.shape, here.formats[group.key.format])  # refuses what does not hold them
        # Scales that float16 lacks are held for a row alone.
        expected = step == 2.0**-8 or columns == 512
        assert bool(stored.groups(plan)) is expected
        layer = stored.evaluated(here, request, weights, info, plan[info.name])
        assert layer.status is (Status.PASS if expected else Status.NOT_RUN), layer.reason
