"""device="auto": the measured device computes, otherwise the CPU, and the receipt has the reason and both times."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tritmark.harness import caches, tuned
from tritmark.harness.autotune.keep import keep
from tritmark.harness.cli import app
from tritmark.harness.cli.exit_status import UNAVAILABLE
from tritmark.harness.errors import DeviceUnavailableError, InvalidArgumentError, UsageError
from tritmark.harness.monitor import hook
from tritmark.harness.providers import load
from tritmark.harness.selection import placement
from tritmark.harness.selection.placement import MeasuredDevice, measure_devices
from tritmark.harness.spec import PortableCall
from tritmark.harness.tuned import Choice
from tritmark.harness.validate.ceiling import LAYOUT_NOISE
from tritmark.kernels import (
    QuantizedLinear,
    absmean_quantize,
    activation_quantize,
    i2s_dequantize,
    i2s_quantize,
    pack_weights,
    receipts,
    ternary_matmul,
    ternary_quantize,
)
from tritmark.kernels.native import cpu
from tritmark.kernels.provider.portable_calls import portable
from tritmark.kernels.public import auto_device

RNG = np.random.default_rng(3)
M, N, K = 1, 32, 256
CODES = RNG.integers(-1, 2, (N, K), dtype=np.int8)
X = RNG.standard_normal((M, K), dtype=np.float32)
Q = RNG.integers(-2, 2, 512, dtype=np.int8)
ROWS = RNG.integers(-128, 128, (M, K), dtype=np.int8)
WEIGHTS = pack_weights(CODES, 0.5)
CALLS: dict[str, tuple[str, dict[str, int], Callable[..., Any]]] = {
    "absmean_quantize": ("absmean_quantize", {"n": K}, lambda **more: absmean_quantize(X, **more)),
    "activation_quantize": ("activation_quantize", {"M": M, "K": K}, lambda **more: activation_quantize(X, **more)),
    "i2s_dequantize": ("i2s_dequantize", {"n": 512}, lambda **more: i2s_dequantize(Q, 0.5, **more)),
    "i2s_quantize": ("i2s_quantize", {"n": K}, lambda **more: i2s_quantize(X, 0.5, **more)),
    "ternary_matmul": (
        "ternary_matmul",
        {"M": M, "N": N, "K": K},
        lambda **more: ternary_matmul(ROWS, WEIGHTS, **more),
    ),
    "ternary_quantize": (
        "ternary_quantize",
        {"n": K, "block": 32},
        lambda **more: ternary_quantize(X, 32, **more),
    ),
    "QuantizedLinear": (
        "ternary_matmul",
        {"M": M, "N": N, "K": K},
        lambda **more: QuantizedLinear(WEIGHTS, **more)(X),
    ),
    "QuantizedLinear with hadamard": (
        "ternary_matmul",
        {"M": M, "N": N, "K": K},
        lambda **more: QuantizedLinear(WEIGHTS, hadamard=(64, None), **more)(X),
    ),
}
"""By function: its op and axes, and a call."""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file of choices of its own."""
    monkeypatch.setenv(caches.CACHE, str(tmp_path))
    monkeypatch.delenv(tuned.SELECT, raising=False)
    monkeypatch.delenv(cpu.FORCE, raising=False)
    monkeypatch.setattr(auto_device, "_found", {})
    tuned.forget()
    yield tuned.path()
    tuned.forget()


@pytest.fixture
def gpu(simulator: Any) -> None:
    """A GPU in the simulator."""


def choose(function: str, device: str, **other: str) -> Choice:
    """Keep a choice as if it had been measured, with conditions that differ in `other`."""
    op, axes, _ = CALLS[function]
    (call,) = (each for each in portable(op, axes, None) if each.function == function)
    made = Choice(
        variant=call.place,
        axes=dict(call.axes),
        identity={**call.identity, **other},
        instance=device,
        builtin="cpu",
        ratio=(0.5, 0.4, 0.6),
        created="2026-01-01T00:00:00Z",
        times_ns={"cpu": 20_000.0, "cuda": 10_000.0},
    )
    keep(made.variant, made.axes, made.identity, made)
    return made


def ran(function: str, **more: Any) -> tuple[str, str]:
    """The device of the call, and the note of its receipt."""
    with receipts() as found:
        CALLS[function][2](device="auto", **more)
    return found[-1].kernel.partition("/")[0], found[-1].note


def same(one: Any, other: Any) -> bool:
    pairs = zip(one, other, strict=True) if isinstance(one, tuple) else [(one, other)]
    return all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("function", CALLS)
def test_without_another_device_the_cpu_computes(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_GPU_FAKE", "none")
    monkeypatch.delenv("TRITMARK_CUDA", raising=False)
    device, note = ran(function)
    assert device == "cpu"
    assert note.startswith("auto: cpu, because cuda cannot be used: ")
    assert same(CALLS[function][2](device="auto"), CALLS[function][2]())


@pytest.mark.cuda
@pytest.mark.parametrize("function", CALLS)
def test_the_measured_device_computes(function: str, gpu: None) -> None:
    device, note = ran(function)
    assert (device, "nothing was measured" in note) == ("cpu", True)
    choose(function, "cuda")
    device, note = ran(function)
    assert device == "cuda"
    assert note.startswith("auto: cuda, measured for whole calls: cpu 20.0 µs, cuda 10.0 µs")
    assert same(CALLS[function][2](device="auto"), CALLS[function][2]())
    choose(function, "cpu")
    assert ran(function) == ("cpu", "auto: cpu, measured for whole calls: cpu 20.0 µs, cuda 10.0 µs")


@pytest.mark.cuda
@pytest.mark.parametrize(
    "other",
    [{"cuda driver": "another"}, {"cuda device": "another"}, {"cpu device": "another"}, {"code": "another"}],
)
def test_a_choice_of_other_devices_or_code_is_not_used(other: dict[str, str], gpu: None) -> None:
    made = choose("i2s_quantize", "cuda", **other)
    assert other.keys() <= choose("i2s_dequantize", "cuda").identity.keys() == made.identity.keys()
    assert ran("i2s_quantize")[0] == "cpu"
    assert ran("i2s_dequantize")[0] == "cuda"


@pytest.mark.cuda
def test_other_kernels_of_a_device_make_a_choice_stale(gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    choose("i2s_quantize", "cuda")
    monkeypatch.setenv(cpu.FORCE, "scalar")
    assert ran("i2s_quantize")[0] == "cpu"
    monkeypatch.delenv(cpu.FORCE)
    assert ran("i2s_quantize")[0] == "cuda"
    monkeypatch.setenv(tuned.SELECT, "off")
    assert ran("i2s_quantize")[0] == "cpu"


@pytest.mark.cuda
def test_shapes_dtypes_and_threads_have_choices_of_their_own(gpu: None) -> None:
    choose("activation_quantize", "cuda")
    with receipts() as found:
        for x in (X, X[:, :128].copy(), np.repeat(X, 2, axis=0), X.astype(np.float16)):
            activation_quantize(x, device="auto")
        activation_quantize(X, device="auto", threads=cpu.cores() + 1)
    assert [each.kernel.partition("/")[0] for each in found] == ["cuda", *["cpu"] * 4]


@pytest.mark.cuda
def test_a_layer_takes_the_device_of_each_call(gpu: None) -> None:
    bias = RNG.standard_normal(N, dtype=np.float32)
    layer = QuantizedLinear(WEIGHTS, bias, device="auto")
    plain = QuantizedLinear(WEIGHTS, bias)
    more = np.repeat(X, 5, axis=0)
    choose("QuantizedLinear", "cuda")
    for x, device in ((X, "cuda"), (more, "cpu"), (X[0], "cuda"), (X, "cuda")):
        assert np.array_equal(layer(x), plain(x))
        assert layer.receipt is not None
        assert layer.receipt.kernel.startswith(device)
        assert layer.receipt.note.startswith(f"auto: {device}, ")
    again = pickle.loads(pickle.dumps(layer))
    assert again.receipt == layer.receipt
    assert np.array_equal(again(X), plain(X))
    assert again.receipt.kernel.startswith("cuda")
    assert np.array_equal(layer.bind(more).run(), plain(more))
    assert "device='auto'" in repr(layer)
    layer.bias = None
    assert np.array_equal(layer(X), QuantizedLinear(WEIGHTS)(X))


@pytest.mark.parametrize("function", CALLS)
def test_a_forced_variant_is_refused(function: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"variant is 'scalar'; legal: None with device=.auto."):
        CALLS[function][2](device="auto", variant="scalar")


@pytest.mark.parametrize("threads", [0, 1.5, True])
def test_an_invalid_thread_count_is_refused(threads: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="threads"):
        i2s_quantize(X, 0.5, device="auto", threads=threads)


def test_what_the_contract_refuses_is_refused_as_on_the_cpu() -> None:
    bad: Sequence[Callable[[str], Any]] = (
        lambda device: activation_quantize("x", device=device),  # type: ignore[arg-type]
        lambda device: activation_quantize(np.full((1, 4), np.nan, np.float32), device=device),
        lambda device: i2s_quantize(X.astype(np.float64), 0.5, device=device),
        lambda device: ternary_matmul(ROWS[:, :9], WEIGHTS, device=device),
        lambda device: ternary_matmul(ROWS, WEIGHTS, device=device, dtype="int7"),
        lambda device: ternary_matmul(ROWS, None, device=device),  # type: ignore[arg-type]
        lambda device: QuantizedLinear(WEIGHTS, device=device)(X[:, :9]),
    )
    for call in bad:
        with pytest.raises(InvalidArgumentError) as expected:
            call("cpu")
        with pytest.raises(InvalidArgumentError) as found:
            call("auto")
        assert str(found.value) == str(expected.value)


def test_a_default_block_needs_no_choice() -> None:
    with receipts() as found:
        result = ternary_quantize(X, None, device="auto")
    assert same(result, ternary_quantize(X, None))
    assert "the default block depends on the device" in found[0].note


@pytest.mark.cuda
def test_the_reason_is_made_once(gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    i2s_quantize(X, 0.5, device="auto")
    monkeypatch.setattr(auto_device, "_placed", lambda calls: pytest.fail("decided again"))
    i2s_quantize(X, 0.5, device="auto")


def race(times: dict[str, float], monkeypatch: pytest.MonkeyPatch, *, wrong: str = "") -> list[MeasuredDevice]:
    """Measure i2s_quantize with calls that take so long on each device."""
    monkeypatch.setattr(placement, "untimed", lambda device: "")
    monkeypatch.setattr(placement, "CONFIRMING_S", 0.05)
    (real,) = portable("i2s_quantize", {"n": K}, None)

    class Called:
        def __init__(self, device: str) -> None:
            self.device = device

        def __call__(self) -> list[Any]:
            return [np.array(self.device == wrong)]

    class Clock:
        def sample(self, launches: Sequence[Any], first: int, calls: int) -> int:
            return round(1000 * calls * times[launches[0]._call.device])

    def calls(op: str, axes: Any, threads: Any) -> list[PortableCall]:
        return [replace(real, prepare=lambda device, inputs: Called(device))]

    monkeypatch.setattr(placement, "PythonClock", Clock)
    installed = load()
    provider = replace(installed.providers["builtin"], portable=calls)
    monkeypatch.setattr(installed, "providers", {"builtin": provider})
    return measure_devices(installed, installed.ops["i2s_quantize"], {"n": K}, threads=None, seconds=5, seed=0)


@pytest.mark.cuda
@pytest.mark.parametrize(("cuda", "kept"), [(0.5, "cuda"), (2.0, "cpu"), (1.0, "cpu"), (1 - LAYOUT_NOISE / 2, "cpu")])
def test_the_faster_device_is_kept_with_both_times(
    cuda: float, kept: str, gpu: None, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = race({"cpu": 1.0, "cuda": cuda}, monkeypatch)
    assert found.chosen == kept
    assert ran("i2s_quantize")[0] == kept
    (stored,) = tuned.read(place)
    assert stored.times_ns == pytest.approx({"cpu": 1000.0, "cuda": 1000 * cuda})
    assert kept == "cpu" or stored.ratio == pytest.approx((cuda,) * 3)


@pytest.mark.cuda
def test_a_device_with_other_outputs_is_never_kept(gpu: None, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = race({"cpu": 1.0, "cuda": 0.1}, monkeypatch, wrong="cuda")
    assert (found.chosen, found.failed) == ("", {"cuda"})
    assert "not those of the CPU" in found.why["cuda"]
    assert not place.exists()


@pytest.mark.nightly
@pytest.mark.cuda
def test_real_calls_are_timed_and_have_the_same_outputs(gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "untimed", lambda device: "")
    monkeypatch.setattr(placement, "CONFIRMING_S", 0.05)
    for op, axes, _ in {each[0]: each for each in CALLS.values()}.values():
        for found in measure_devices(load(), load().ops[op], axes, threads=1, seconds=5, seed=0):
            assert not found.failed, found.why
            assert found.times_ns.keys() == {"cpu", "cuda"}
            assert found.chosen or "too noisy" in found.note


def tune(*more: str) -> Any:
    return CliRunner().invoke(
        app, ["tune", "variants", "i2s_quantize", "--shape", "n=256", "--device", "auto", "--seconds", "1", *more]
    )


@pytest.mark.cuda
def test_a_simulator_measures_nothing(gpu: None, place: Path) -> None:
    found = tune()
    assert isinstance(found.exception, DeviceUnavailableError)
    (direct,) = measure_devices(load(), load().ops["i2s_quantize"], {"n": 256}, threads=1, seconds=5, seed=0)
    assert (direct.chosen, direct.note) == ("", "a simulated device has no speed")
    assert not place.exists()


def test_the_command_says_why_a_device_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_GPU_FAKE", "none")
    monkeypatch.delenv("TRITMARK_CUDA", raising=False)
    found = tune()
    assert found.exit_code == UNAVAILABLE, found.output
    assert isinstance(tune("--format", "x").exception, UsageError)
    assert isinstance(tune("--requirement", "memory").exception, UsageError)


@pytest.mark.cuda
def test_a_file_of_choices_without_times_is_read_and_one_with_wrong_times_is_not(gpu: None, place: Path) -> None:
    choose("i2s_quantize", "cuda")
    whole = json.loads(place.read_text())
    del whole["sha256"]
    whole["choices"][0]["times_ns"] = {"cpu": "fast"}
    place.write_text(json.dumps(whole))
    with pytest.raises(UsageError, match="times that are not numbers"):
        tuned.read(place)
    del whole["choices"][0]["times_ns"]
    place.write_text(json.dumps(whole))
    (found,) = tuned.read(place)
    assert found.times_ns == {}
    assert "times_ns" not in tuned.text((found,))


def test_nothing_is_left_active() -> None:
    i2s_quantize(X, 0.5, device="auto")
    assert hook.active is None
