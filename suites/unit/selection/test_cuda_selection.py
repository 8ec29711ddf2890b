"""Measured choices between CUDA variants, in the simulator: used for the GPU, driver and code that they were measured
on, and never stored from a simulator's times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tritmark.harness import caches, tuned
from tritmark.harness.autotune.keep import keep
from tritmark.harness.cli import app
from tritmark.harness.errors import DeviceUnavailableError
from tritmark.harness.providers import load
from tritmark.harness.registry import coded
from tritmark.harness.selection.measure import measure
from tritmark.harness.spec import KernelKey, Requirement, Tier
from tritmark.harness.tuned import Choice
from tritmark.harness.worker import Workers
from tritmark.kernels import FORMATS, QuantizedLinear, i2s_dequantize, pack_weights
from tritmark.kernels.cuda import context as contexts
from tritmark.kernels.cuda.context import CudaContext, cuda_context
from tritmark.kernels.cuda.device import DEVICE, FORCE
from tritmark.kernels.cuda.launch import tuning
from tritmark.kernels.cuda.plans.choice import chosen
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.weights.packed import preferred_format, product_with

KEY = KernelKey("cuda", "i2s_dequantize", "none", "float32")
AXES = {"n": 256}
SLOW, BEST = "v1", "vector"
Q = np.random.default_rng(7).integers(-2, 2, 256, dtype=np.int8)


@pytest.fixture(autouse=True)
def place(simulator: CudaContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file of choices of its own."""
    monkeypatch.setenv(caches.CACHE, str(tmp_path))
    monkeypatch.delenv(tuned.SELECT, raising=False)
    monkeypatch.delenv(FORCE, raising=False)
    tuned.forget()
    yield tuned.path()
    tuned.forget()


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two new simulated GPUs of one model."""
    monkeypatch.setenv("TRITMARK_SIMULATOR_GPUS", "2")
    contexts._CONTEXTS.clear()
    yield
    contexts._CONTEXTS.clear()


def choose(
    name: str = SLOW, *keys: KernelKey, axes: Mapping[str, int] = AXES, other: Mapping[str, str] | None = None
) -> Choice:
    """Keep the variant of that name, of the last of the keys, as if it had been measured to be the best on this GPU, or
    on one that differs in `other`."""
    asked = dispatch.registry().question(keys or (KEY,), axes, Requirement.LATENCY, None)
    made = Choice(
        variant=asked.place,
        axes=dict(asked.axes),
        identity=asked.identity() | dict(other or {}),
        instance=f"{(keys or (KEY,))[-1]}/{name}",
        builtin=asked.builtin.id,
        ratio=(0.5, 0.4, 0.6),
        created="2026-01-01T00:00:00Z",
    )
    keep(made.variant, made.axes, made.identity, made)
    return made


def selected(device: str = "cuda", threads: int | None = None) -> str:
    return dispatch.select(replace(KEY, device=device), AXES, None, threads).name


def test_a_choice_is_used_and_its_receipt_names_it() -> None:
    assert selected() == BEST
    made = choose()
    assert made.identity.keys() == {"device", "driver", "code"}
    assert selected() == SLOW
    ran = dispatch.select(KEY, AXES, None)
    assert ran.tuned == f"{KEY}/{SLOW} for latency"
    assert np.array_equal(i2s_dequantize(Q, 0.5, device="cuda"), i2s_dequantize(Q, 0.5))


def test_threads_mean_nothing_on_a_gpu() -> None:
    choose()
    assert [selected(threads=count) for count in (None, 1, 7)] == [SLOW] * 3


@pytest.mark.parametrize("stale", [{"driver": "another"}, {"device": "another GPU"}, {"code": "of another build"}])
def test_a_choice_of_another_gpu_driver_or_code_is_not_used(stale: dict[str, str]) -> None:
    choose(other=stale)
    assert selected() == BEST


@pytest.mark.parametrize("changed", ["a source", "the compiler", "a launch"])
def test_changed_code_makes_a_choice_stale(changed: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    choose()
    assert selected() == SLOW
    if changed == "a source":
        from tritmark.kernels.cuda.driver.compile import local_sources

        def edited(path: Path) -> dict[Any, str]:
            return {name: f"{text}\n" for name, text in local_sources(path).items()}

        monkeypatch.setattr(tuning, "local_sources", edited)
    elif changed == "the compiler":
        from tritmark.kernels.cuda.simulator import toolchain

        monkeypatch.setattr(toolchain, "compiler", lambda: ("g++", "another version"))
    else:
        monkeypatch.setattr(tuning, "ROOM", tmp_path)  # its folder "cuda" has no file
    tuning._code.cache_clear()
    tuned.forget()  # cached selections are of the code before
    try:
        assert selected() == BEST
    finally:
        monkeypatch.undo()
        tuning._code.cache_clear()


def test_a_forced_variant_and_the_switch_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    choose()
    monkeypatch.setenv(FORCE, BEST)
    assert selected() == BEST
    monkeypatch.delenv(FORCE)
    monkeypatch.setenv(tuned.SELECT, "off")
    assert selected() == BEST


def test_a_choice_holds_for_every_gpu_of_the_model(two: None) -> None:
    choose()
    assert [selected(device) for device in ("cuda", "cuda:0", "cuda:1")] == [SLOW] * 3
    asked = dispatch.registry().question((replace(KEY, device="cuda:1"),), AXES, Requirement.LATENCY, None)
    assert asked.place == f"{KEY} latency"
    assert asked.identity() == tuned.read(tuned.path())[0].identity


def test_gpus_of_different_models_have_choices_of_their_own(two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = cuda_context(1).backend
    monkeypatch.setattr(backend, "info", replace(backend.info, name="another model"))
    choose()
    assert [selected(device) for device in ("cuda:0", "cuda:1")] == [SLOW, BEST]


def test_no_kernel_is_compiled_to_compare_a_choice(two: None) -> None:
    choose()
    assert selected() == SLOW
    assert cuda_context().stats.compiled == 0
    i2s_dequantize(Q, 0.5, device="cuda")
    assert cuda_context().stats.compiled == 1


def test_every_variant_has_a_hash_without_compilation() -> None:
    hashes = {
        each.id: coded(DEVICE, each)
        for each in load().registry.variants
        if each.key.device == "cuda" and each.tier is not Tier.PEER
    }
    assert len(hashes) > 50
    assert all(len(each) == 64 for each in hashes.values()), [id for id, each in hashes.items() if len(each) != 64]
    assert hashes[f"{KEY}/{SLOW}"] != hashes[f"{KEY}/{BEST}"]


def test_layers_and_their_format_use_choices() -> None:
    axes = {"M": 1, "N": 32, "K": 256}
    codes = np.random.default_rng(1).integers(-1, 2, (32, 256), dtype=np.int8)
    floats = np.random.default_rng(0).standard_normal((32, 256), dtype=np.float32)
    row16, gpu_int2 = (KernelKey("cuda", "ternary_matmul", each, "float32") for each in ("row16", "gpu_int2"))
    weights = pack_weights(codes, 0.5, format="row16")
    before = product_with(weights, "cuda", "float32", axes, None)
    expected = QuantizedLinear(weights, device="cuda")(floats[:1])
    others = [
        each.name
        for each, why in dispatch.registry().candidates(row16, axes)
        if why is None and not each.tier.named_only and each.name != before.name
    ]
    choose(others[0], row16, axes=axes)
    layer = QuantizedLinear(weights, device="cuda")
    assert np.array_equal(layer(floats[:1]), expected)
    assert layer.receipt is not None
    assert layer.receipt.kernel == f"{row16}/{others[0]}"
    assert layer.receipt.tuned == f"{row16}/{others[0]} for latency"
    assert preferred_format("cuda", (32, 256)) == "row16"
    best = dispatch.select(gpu_int2, axes, None).name
    keys = [each for each in dict.fromkeys(v.key for v in load().registry.variants) if _alike(each, axes)]
    choose(best, *(each for each in keys if each != gpu_int2), gpu_int2, axes=axes)
    assert preferred_format("cuda", (32, 256)) == "gpu_int2"


def _alike(key: KernelKey, axes: Mapping[str, int]) -> bool:
    there = (key.device, key.op, key.dtype) == ("cuda", "ternary_matmul", "float32")
    return there and key.format in FORMATS and FORMATS[key.format].interchangeable((axes["N"], axes["K"]))


def test_prepared_launches_use_choices(simulator: CudaContext) -> None:
    info = simulator.backend.info
    assert chosen(KEY, AXES, info).name == BEST
    choose()
    assert chosen(KEY, AXES, info).name == SLOW
    assert chosen(KEY, AXES, replace(info, driver="another")).name == BEST


def test_a_simulator_measures_no_choice(place: Path) -> None:
    found = CliRunner().invoke(
        app, ["tune", "variants", "i2s_dequantize", "--shape", "n=256", "--device", "cuda", "--seconds", "1"]
    )
    assert isinstance(found.exception, DeviceUnavailableError)
    assert "a simulated device has no speed" in str(found.exception)
    installed = load()
    asked = installed.registry.question((KEY,), AXES, Requirement.LATENCY, None)
    with Workers(installed, isolated=False) as workers:
        made = measure(workers, asked, seconds=60, seed=0)
    assert (made.chosen, made.note) == ("", "a simulated device has no speed")
    assert not place.exists()
