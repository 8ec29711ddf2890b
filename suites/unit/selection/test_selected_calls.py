"""Choices between this package's kernels, as calls obey them: with a receipt, at once, and never where they are stale
or something is forced."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest

from tritmark.harness import caches, tuned
from tritmark.harness.autotune.keep import keep
from tritmark.harness.errors import InvalidArgumentError, UsageError
from tritmark.harness.machine import cpu as processor
from tritmark.harness.machine.cpu import affinity
from tritmark.harness.spec import Axes, KernelKey, Requirement
from tritmark.harness.tuned import Choice
from tritmark.kernels import QuantizedLinear, pack_weights, ternary_matmul
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_matmul.api import with_receipt
from tritmark.kernels.weights.packed import preferred_format, product_with

N, K = 96, 256
AXES = {"M": 1, "N": N, "K": K}
KEY = KernelKey("cpu", "ternary_matmul", "tile64", "float32")
RNG = np.random.default_rng(6)
CODES = RNG.integers(-1, 2, (N, K), dtype=np.int8)
X = RNG.standard_normal((1, K), dtype=np.float32)
ROWS = RNG.integers(-128, 128, (1, K), dtype=np.int8)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file of choices of its own."""
    monkeypatch.setenv(caches.CACHE, str(tmp_path))
    monkeypatch.delenv(tuned.SELECT, raising=False)
    monkeypatch.delenv(cpu.FORCE, raising=False)
    tuned.forget()
    yield tuned.path()
    tuned.forget()


def choose(
    name: str,
    *keys: KernelKey,
    axes: Axes = AXES,
    requirement: Requirement = Requirement.LATENCY,
    other: Mapping[str, str] | None = None,
) -> Choice:
    """Keep the variant of that name, of the last of the keys, as if it had been measured to be the best, on a machine
    and with code that are in that way others."""
    asked = dispatch.registry().question(keys or (KEY,), axes, requirement, None)
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


def ran(layer: QuantizedLinear) -> str:
    layer(X)
    assert layer.receipt is not None
    assert layer.receipt.tuned == ("" if layer.receipt.ran == BEST else f"{KEY}/{layer.receipt.ran} for latency")
    return layer.receipt.ran


BEST = cpu.best("ternary_matmul")
pytestmark = pytest.mark.skipif(BEST == "scalar", reason="this processor has but one instruction set")


def test_a_new_choice_counts_from_the_next_call_on() -> None:
    layer, weights = QuantizedLinear(pack_weights(CODES, 0.5)), pack_weights(CODES, 0.5)
    expected, product = layer(X), ternary_matmul(ROWS, weights)
    assert [ran(layer) for _ in range(3)] == [BEST] * 3
    bound = layer.bind(X)
    ternary_matmul(ROWS, weights)
    choose("scalar")
    assert [ran(layer) for _ in range(3)] == ["scalar"] * 3
    assert np.array_equal(layer(X), expected)
    for _ in range(3):
        assert np.array_equal(ternary_matmul(ROWS, weights), product)
    receipt = with_receipt(ROWS, weights)[1]
    assert (receipt.ran, receipt.tuned) == ("scalar", f"{KEY}/scalar for latency")
    later = layer.bind(X)
    later.run()
    assert (later.receipt.ran, later.receipt.tuned) == ("scalar", f"{KEY}/scalar for latency")
    bound.run()  # was told beforehand
    assert (bound.receipt.ran, bound.receipt.tuned) == (BEST, "")
    choose(BEST)
    assert ran(layer) == BEST


def test_what_the_environment_says_counts_from_the_next_call_on(monkeypatch: pytest.MonkeyPatch) -> None:
    choose("scalar")
    layer = QuantizedLinear(pack_weights(CODES, 0.5))
    assert [ran(layer) for _ in range(3)] == ["scalar"] * 3
    monkeypatch.setenv(tuned.SELECT, "off")
    assert [ran(layer) for _ in range(3)] == [BEST] * 3
    monkeypatch.setenv(tuned.SELECT, "on")
    assert [ran(layer) for _ in range(3)] == ["scalar"] * 3
    monkeypatch.setenv(cpu.FORCE, BEST)
    assert [ran(layer) for _ in range(3)] == [BEST] * 3
    monkeypatch.delenv(cpu.FORCE)
    assert QuantizedLinear(pack_weights(CODES, 0.5), variant=BEST)(X).shape == (1, N)
    assert product_with(pack_weights(CODES, 0.5), "cpu", "float32", AXES, BEST).name == BEST


@pytest.mark.parametrize("variable", [tuned.SELECT, cpu.FORCE])
def test_a_choice_that_was_made_before_is_not_given_for_an_environment_that_does_not_exist(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose("scalar")
    for _ in range(2):
        assert dispatch.select(KEY, AXES, None).name == "scalar"
        monkeypatch.setenv(variable, "nonsense \udcff")
        with pytest.raises(UsageError, match=f"{variable} is 'nonsense"):
            dispatch.select(KEY, AXES, None)
        monkeypatch.delenv(variable)


@pytest.mark.timing
def test_a_choice_that_was_made_before_costs_less_than_two_microseconds() -> None:
    """Least of many short rounds, for up to 20 s: whatever else the machine does only adds, for seconds at a time."""
    choose("scalar")
    least, end = float("inf"), perf_counter() + 20
    while least >= 2 and perf_counter() < end:
        begin = perf_counter()
        for _ in range(50):
            dispatch.select(KEY, AXES, None)
        least = min(least, (perf_counter() - begin) / 50 * 1e6)
    assert least < 2


@pytest.mark.parametrize(
    "stale", [{"code": "of another build"}, {"device": "another"}, {"features": ""}, {"pool": "x"}]
)
def test_a_choice_of_another_machine_or_build_is_not_obeyed(stale: dict[str, str]) -> None:
    choose("scalar", other=stale)
    assert ran(QuantizedLinear(pack_weights(CODES, 0.5))) == BEST


def test_requirements_and_threads_have_choices_of_their_own() -> None:
    choose("scalar", requirement=Requirement.THROUGHPUT)
    layer = QuantizedLinear(pack_weights(CODES, 0.5))
    assert ran(layer) == BEST
    layer = QuantizedLinear(pack_weights(CODES, 0.5), requirement="throughput")
    for _ in range(3):
        layer(X)
        assert layer.receipt is not None
        assert layer.receipt.ran == "scalar"
    layer.threads = cpu.cores() + 1
    for _ in range(3):
        layer(X)
        assert layer.receipt is not None
        assert layer.receipt.ran == BEST


def test_the_format_of_a_layer_is_chosen_for_one_row() -> None:
    other = KernelKey("cpu", "ternary_matmul", "tl2", "float32")
    keys = [KernelKey("cpu", "ternary_matmul", each, "float32") for each in ("tile64", "tile80", "i2_s_x86", "tl1")]
    floats = np.random.default_rng(0).standard_normal((N, K), dtype=np.float32)
    assert QuantizedLinear(floats).weights.format == preferred_format("cpu", (N, K)) == "tile64"
    choose("scalar", *keys, other)
    assert preferred_format("cpu", (N, K)) == QuantizedLinear(floats).weights.format == "tl2"
    assert pack_weights(CODES, 0.5).format == "tl2"
    assert QuantizedLinear(floats, format="tl1").weights.format == "tl1"
    assert QuantizedLinear(floats, requirement="memory").weights.format == "tile64"
    assert preferred_format("cpu") == preferred_format("cpu", (N, 2 * K)) == "tile64"
    assert np.array_equal(QuantizedLinear(floats)(X), QuantizedLinear(floats, format="tile64")(X))


@pytest.mark.parametrize("told", ["fast", "Latency", ""])
def test_a_requirement_that_does_not_exist_is_answered_with_those_that_do(told: str) -> None:
    with pytest.raises(InvalidArgumentError, match="legal: latency, throughput, memory, exactness"):
        QuantizedLinear(pack_weights(CODES, 0.5), requirement=told)


def test_weights_whose_groups_have_scales_are_not_exact() -> None:
    grouped = pack_weights(CODES, np.full((N, 1), 0.5, np.float32), format="tq2_0")
    assert QuantizedLinear(grouped).native
    with pytest.raises(InvalidArgumentError, match=r"requirement is .*tq2_0.*latency, throughput, memory"):
        QuantizedLinear(grouped, requirement="exactness")


CHILD = """
import numpy as np
from tritmark.kernels import QuantizedLinear, pack_weights
layer = QuantizedLinear(pack_weights(np.ones((96, 256), np.int8), 0.5))
layer(np.ones((1, 256), np.float32))
print(layer.receipt.ran)
"""


def test_another_process_finds_the_choice() -> None:
    choose("scalar")
    command = [sys.executable, "-c", CHILD]
    # A choice holds for as many cores as there were; OpenMP may have bound this thread to one.
    child = subprocess.run(
        command,
        env=os.environ,
        text=True,
        capture_output=True,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, affinity()),
    )
    assert child.stdout == "scalar\n"


MEASURER = """
import sys
from tritmark.harness.providers import load
from tritmark.harness.selection.measure import measure
from tritmark.harness.spec import KernelKey, Requirement
from tritmark.harness.worker import Workers
installed, key = load(), KernelKey("cpu", "activation_quantize", "none", "int8")
print("ready", flush=True)
sys.stdin.readline()
with Workers(installed, isolated=False) as workers:
    for K in map(int, sys.argv[1:]):
        asked = installed.registry.question((key,), {"M": 1, "K": K}, Requirement.THROUGHPUT, 1)
        assert measure(workers, asked, seconds=60, seed=0).chosen
"""


@pytest.mark.nightly
def test_two_processes_that_measure_at_once_lose_nothing(place: Path) -> None:
    shares = [["64", "128", "192"], ["65", "129", "193"]]
    commands = [[sys.executable, "-c", MEASURER, *share] for share in shares]
    started = [subprocess.Popen(each, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for each in commands]
    for each in started:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in started:
        each.communicate("\n")
    assert [each.returncode for each in started] == [0, 0]
    assert {str(each.axes["K"]) for each in tuned.read(place)} == {*shares[0], *shares[1]}


@pytest.mark.parametrize(
    ("told", "model"),
    [
        (
            "processor : 0\nmodel name : A\ncpu family : 6\ncpu MHz : 9\n\nprocessor : 1\nmodel name : B\n",
            "model name A, cpu family 6",
        ),
        ("processor\t: 0\nCPU part\t: 0xd40\nCPU implementer\t: 0x41\n", "CPU implementer 0x41, CPU part 0xd40"),
        ("", ""),
    ],
)
def test_which_processor_it_is(told: str, model: str, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(told)
    assert processor.model(tmp_path) == model
    assert processor.model(tmp_path / "none") == ""
