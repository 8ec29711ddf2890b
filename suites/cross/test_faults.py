"""An incorrect peer is detected, with the exact value; an incorrect kernel fails; neither is confused with the
other."""

from __future__ import annotations

import hashlib
import pickle
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tritmark.harness.cross import CppLibrary
from tritmark.harness.errors import UsageError
from tritmark.harness.providers import Installed
from tritmark.harness.record import PeerComparison, Ratio, Status
from tritmark.harness.spec import Arrays, Axes, KernelKey, Launch, Peer, Variant
from tritmark.harness.validate.compare import expectations
from tritmark.harness.validate.cross import Collected, CrossTask, collect, confront, cross, suited

INT32 = KernelKey("cpu", "ternary_matmul", "tile64", "int32")
QUANTIZE = KernelKey("cpu", "i2s_quantize", "none", "int8")
DEQUANTIZE = KernelKey("cpu", "i2s_dequantize", "none", "float32")
GOLDEN = Path(__file__).parents[1] / "golden"

Compare = Callable[..., PeerComparison]


@pytest.fixture
def best(installed: Installed) -> Callable[[KernelKey, Axes], Variant]:
    return installed.registry.select_best


def _product(activations: np.ndarray, weights: np.ndarray) -> tuple[Axes, dict[str, Any]]:
    axes = {"M": activations.shape[0], "N": weights.shape[0], "K": weights.shape[1]}
    scales = {"weight_scale": np.asarray(0.5, np.float32), "act_scale": np.ones(axes["M"], np.float32)}
    return axes, {"activations": activations, "weights": weights, **scales}


@pytest.mark.parametrize("vector", ["mm_i2s_k2176", "mm_i2s_rand", "mm_i2s_float"])
def test_the_planted_overflow_is_the_originals(vector: str, faults: Mapping[str, Peer]) -> None:
    """The outputs of microsoft/BitNet's AVX2 build for these inputs, incorrect values included."""
    with np.load(GOLDEN / f"{vector}.npz") as golden:
        axes, logical = _product(golden["acts"], golden["weights"])
        out = np.empty((axes["M"], axes["N"]), np.int32)
        peer = faults["bitnet_raw"]
        peer.bind(peer.encode(logical, axes), {"out": out}, axes, 1).run()
        assert np.array_equal(out, golden["out_1x1"].astype(np.int32))
        assert bool((out != golden["raw_exact"]).any()) is bool(golden["x86_overflow"])


def test_the_int16_overflow_is_the_peers_fault(
    faults: Mapping[str, Peer], compare: Compare, best: Callable[..., Variant]
) -> None:
    axes, logical = _product(np.full((2, 2176), 127, np.int8), np.ones((3, 2176), np.int8))
    found = compare(best(INT32, axes), faults["bitnet_matmul"], axes, logical=logical)
    assert (found.status, found.match, found.peer_wrong, found.mismatches) == (Status.PASS, False, True, 6)
    assert found.exact == str(2176 * 127)
    assert found.first is not None
    assert (found.first.output, found.first.index) == ("out", (0, 0))
    assert (found.first.found, found.first.expected) == (str(2176 * 127), str(-495872 - 2176 * 127))
    assert found.largest_error == 552704 + 495872
    assert found.inputs["activations[0, :]"] == "[127, 127, 127, 127, 127, 127, …] (2176 values from 127 to 127)"
    assert found.inputs["weights[0, :]"] == "[1, 1, 1, 1, 1, 1, …] (2176 values from 1 to 1)"
    assert "the peer is incorrect in 6 elements" in found.reason
    assert "276352 exactly" in found.reason


def test_below_the_overflow_the_same_function_is_right(
    faults: Mapping[str, Peer], compare: Compare, best: Callable[..., Variant]
) -> None:
    axes, logical = _product(np.full((2, 2048), 127, np.int8), np.ones((3, 2048), np.int8))
    found = compare(best(INT32, axes), faults["bitnet_matmul"], axes, logical=logical)
    assert (found.status, found.match, found.peer_wrong, found.mismatches, found.exact) == (
        Status.PASS,
        True,
        False,
        0,
        "",
    )


def test_a_wrong_rounding_is_found_with_its_element(
    faults: Mapping[str, Peer], compare: Compare, best: Callable[..., Variant]
) -> None:
    x = np.zeros(1000, np.float32)
    x[[700, 901]] = -0.25, 0.25
    logical = {"x": x, "scale": np.asarray(0.5, np.float32)}
    found = compare(best(QUANTIZE, {"n": 1000}), faults["quantize_halves"], {"n": 1000}, logical=logical)
    assert found.peer_wrong
    assert found.first is not None
    assert (found.first.index, found.first.found, found.first.expected, found.exact) == ((700,), "0", "-1", "0")
    assert found.inputs == {"x[700]": "-0.25", "scale": "0.5"}
    assert found.mismatches == 2


def test_what_a_peer_leaves_unwritten_is_no_match(
    faults: Mapping[str, Peer], compare: Compare, best: Callable[..., Variant]
) -> None:
    variant = best(DEQUANTIZE, {"n": 64})
    short = compare(variant, faults["dequantize_short"], {"n": 64})
    assert (short.peer_wrong, short.mismatches) == (True, 1)
    assert short.first is not None
    assert short.first.index == (63,)
    nothing = compare(variant, faults["dequantize_nothing"], {"n": 64}, "zero")
    assert (nothing.peer_wrong, nothing.mismatches) == (True, 64)
    assert "the peer did not write x" in nothing.reason


def test_a_status_is_looked_at(faults: Mapping[str, Peer], compare: Compare, best: Callable[..., Variant]) -> None:
    found = compare(best(DEQUANTIZE, {"n": 64}), faults["dequantize_refused"], {"n": 64})
    assert found.status is Status.ERROR
    assert "dequantize_refused returned status 3" in found.reason
    assert found.match is None


def test_a_missing_symbol_is_not_built(
    faults: Mapping[str, Peer], compiled: Path, compare: Compare, best: Callable[..., Variant]
) -> None:
    peer = faults["dequantize_float32"]
    found = compare(best(DEQUANTIZE, {"n": 64}), peer, {"n": 64})
    assert (found.status, found.match) == (Status.NOT_RUN, None)
    assert found.reason == f"not built: symbol dequantize_float32 is not in {compiled}"


def _spoiled(variant: Variant, spoil: Callable[[Arrays], None]) -> Variant:
    """The same kernel with a fault after it."""

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        launch = variant.bind(inputs, outputs, axes, threads)

        class Spoiled:
            ran, runs, threads_used, bad, pointer = variant.name, 1, 1, -1, None

            def run(self) -> None:
                launch.run()
                spoil(outputs)

        return Spoiled()

    return replace(variant, bind=bind)


def test_a_wrong_kernel_fails_beside_a_right_peer(
    timed_for: Callable[..., Peer], compare: Compare, best: Callable[..., Variant]
) -> None:
    axes = {"M": 2, "N": 5, "K": 130}

    def spoil(outputs: Arrays) -> None:
        outputs["out"][1, 3] += 1

    found = compare(_spoiled(best(INT32, axes), spoil), timed_for(INT32), axes)
    assert (found.status, found.match, found.peer_wrong, found.mismatches, found.largest_error) == (
        Status.FAIL,
        False,
        False,
        1,
        1.0,
    )
    assert found.first is not None
    assert found.first.index == (1, 3)
    assert found.exact == found.first.expected != found.first.found
    assert {"activations[1, :]", "weights[3, :]", "weight_scale", "act_scale[1]"} == found.inputs.keys()
    assert not found.migration_recommended
    assert "it differs" in found.migration_reason


def test_both_wrong_is_a_failure_at_the_kernels_element(
    faults: Mapping[str, Peer], compare: Compare, best: Callable[..., Variant]
) -> None:
    def spoil(outputs: Arrays) -> None:
        outputs["x"][40] = 7.25

    variant = _spoiled(best(DEQUANTIZE, {"n": 64}), spoil)
    found = compare(variant, faults["dequantize_nothing"], {"n": 64}, "constant")
    assert (found.status, found.peer_wrong, found.mismatches) == (Status.FAIL, False, 64)
    assert found.first is not None
    assert (found.first.index, found.first.found) == ((40,), "7.25")


def test_the_same_wrong_value_twice_is_told(
    timed_for: Callable[..., Peer], compare: Compare, best: Callable[..., Variant]
) -> None:
    """Agreement proves nothing if the exact value differs. Accuracy fails such a kernel; cross-validation reports the
    agreement."""
    axes = {"n": 10}
    variant, peer = best(DEQUANTIZE, axes), timed_for(DEQUANTIZE)

    def wrong(outputs: Arrays) -> None:
        outputs["x"][3] = 99

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        return _spoiled(replace(variant, bind=peer.bind), wrong).bind(inputs, outputs, axes, threads)

    found = compare(_spoiled(variant, wrong), replace(peer, bind=bind), axes, "zero")
    assert (found.status, found.match) == (Status.PASS, True)
    assert found.reason == "both have the same incorrect value in 1 element"
    assert (found.migration_recommended, found.migration_reason) == (False, "no: both have the same incorrect values")


@pytest.mark.timing
def test_times_by_turns(timed_for: Callable[..., Peer], compare: Compare, best: Callable[..., Variant]) -> None:
    """The kernel against a loop over single elements: so much faster that noise cannot hide it."""
    axes = {"M": 1, "N": 256, "K": 1024}
    found = compare(best(INT32, axes), timed_for(INT32), axes, measure=True)
    assert found.own_ns is not None
    assert found.peer_ns is not None
    assert found.speedup is not None
    assert found.speedup.low <= found.speedup.median <= found.speedup.high
    assert found.speedup.median > 2
    assert found.migration_recommended is (found.speedup.low > 1)
    assert found.migration_reason.startswith("yes: both are correct, and it is ")


def test_a_time_is_one_of_work_that_was_done(
    timed_for: Callable[..., Peer], compare: Compare, best: Callable[..., Variant]
) -> None:
    """A kernel that does not write its output is fast and incorrect."""
    variant = best(DEQUANTIZE, {"n": 4096})

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        launch = variant.bind(inputs, outputs, axes, threads)

        class Lazy:
            ran, runs, threads_used, bad, pointer = variant.name, 0, 1, -1, None

            def run(self) -> None:
                if not self.runs:
                    launch.run()
                self.runs += 1

        return Lazy()

    lazy = replace(variant, bind=bind)
    assert compare(lazy, timed_for(DEQUANTIZE), {"n": 4096}).match
    found = compare(lazy, timed_for(DEQUANTIZE), {"n": 4096}, measure=True)
    assert (found.status, found.mismatches, found.migration_recommended) == (Status.FAIL, 4096, False)


def test_what_takes_too_long_is_compared_and_not_timed(
    compare: Compare, timed_for: Callable[..., Peer], best: Callable[..., Variant]
) -> None:
    peer = timed_for(DEQUANTIZE)

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        launch = peer.bind(inputs, outputs, axes, threads)

        class Slow:
            ran, runs, threads_used, bad, pointer = "slow", 1, 1, -1, None

            def run(self) -> None:
                time.sleep(0.3)
                launch.run()

        return Slow()

    found = compare(best(DEQUANTIZE, {"n": 8}), replace(peer, bind=bind), {"n": 8}, measure=True)
    assert (found.status, found.match, found.speedup) == (Status.PASS, True, None)
    assert found.migration_reason.startswith("no: not timed (a call of the peer takes 0.")


@pytest.mark.timing
def test_a_call_s_own_cost_is_nobody_s_time(
    faults: Mapping[str, Peer], timed_for: Callable[..., Peer], compare: Compare, best: Callable[..., Variant]
) -> None:
    """ctypes takes some hundred nanoseconds: included in the time, an empty call would look like slow work."""
    axes = {"n": 16}
    tries = [
        compare(best(DEQUANTIZE, axes), faults["dequantize_nothing"], axes, measure=True).peer_ns for _ in range(5)
    ]
    assert min(ns for ns in tries if ns is not None) < 100, "at least one of five is undisturbed"
    large = {"n": 1 << 16}
    work = compare(best(DEQUANTIZE, large), timed_for(DEQUANTIZE), large, measure=True)
    assert work.peer_ns is not None
    assert work.peer_ns > 1000


def _ratio(low: float, high: float, pairs: int = 30) -> Ratio:
    return Ratio(median=(low * high) ** 0.5, low=low, high=high, pairs=pairs)


@pytest.mark.parametrize(
    ("speedup", "strict", "why", "within_tenth"),
    [
        (_ratio(1.2, 1.3), True, "yes: both are correct, and it is 1.25x as fast (1.2 to 1.3)", True),
        (_ratio(0.9, 1.3), False, "no: not distinguishable", True),
        (_ratio(0.910, 0.911), False, "no: slower", True),
        (_ratio(0.907, 0.908), False, "no: slower", False),
        (_ratio(0.5, 0.6), False, "no: slower", False),
        (_ratio(1.2, 1.3, pairs=5), False, "no: not distinguishable, only 5 pairs", True),
        (None, False, "no: not timed (not requested)", None),
    ],
)
def test_migration(
    installed: Installed,
    timed_for: Callable[..., Peer],
    speedup: Ratio | None,
    strict: bool,
    why: str,
    within_tenth: bool,
) -> None:
    """Both rules: 1 / 1.1 is 0.909."""
    op, axes = installed.ops[DEQUANTIZE.op], {"n": 4}
    logical = op.generate(axes, "uniform", np.random.default_rng(0))
    expected = expectations(op, axes, DEQUANTIZE, op.reference(logical, axes, DEQUANTIZE))
    values = {"x": expected[0].values}
    found = Collected(own=values, peer=values, own_ns=1.0, peer_ns=1.25, speedup=speedup)
    judged = confront(op, DEQUANTIZE, expected, found, peer=timed_for(DEQUANTIZE), logical=logical, axes=axes)
    assert judged.migration_recommended is strict
    assert judged.migration_reason.startswith(why)
    assert judged.migration_within_tenth is within_tenth
    wrong = replace(found, peer={"x": expected[0].values + 1})
    judged = confront(op, DEQUANTIZE, expected, wrong, peer=timed_for(DEQUANTIZE), logical=logical, axes=axes)
    assert (judged.peer_wrong, judged.migration_recommended) == (True, strict)
    assert judged.migration_within_tenth is not True  # the lenient rule requires agreement, whichever is correct


def test_a_run_is_as_good_as_its_worst_comparison(
    faults: Mapping[str, Peer], compare: Compare, best: Callable[..., Variant], installed: Installed
) -> None:
    op, variant = installed.ops[DEQUANTIZE.op], best(DEQUANTIZE, {"n": 64})
    by_name = {name: compare(variant, peer, {"n": 64}) for name, peer in faults.items() if peer.op == DEQUANTIZE.op}
    absent, refused, wrong = by_name["dequantize_float32"], by_name["dequantize_refused"], by_name["dequantize_nothing"]
    assert cross(op, []).status is Status.NOT_RUN
    alone = cross(op, [absent])
    assert alone.status is Status.NOT_RUN
    assert "not built" in alone.reason
    found = cross(op, [absent, wrong])
    assert found.status is Status.PASS
    assert "the peer is incorrect" in found.reason
    assert cross(op, [absent, wrong, refused]).status is Status.ERROR
    failed = wrong.model_copy(update={"status": Status.FAIL, "reason": "it is wrong"})
    assert cross(op, [refused, failed]).status is Status.FAIL


def test_every_peer_that_suits_is_asked(
    installed: Installed, faults: Mapping[str, Peer], best: Callable[..., Variant]
) -> None:
    op, axes = installed.ops[DEQUANTIZE.op], {"n": 64}
    variant, device = best(DEQUANTIZE, axes), installed.registry.devices["cpu"]
    logical = op.generate(axes, "uniform", np.random.default_rng(0))
    expected = expectations(op, axes, DEQUANTIZE, op.reference(logical, axes, DEQUANTIZE))
    computed = []

    def bound(inputs: Arrays, axes: Axes) -> dict[str, Any]:
        computed.append(axes)
        return {"x": 0.0}

    def run(peer: Peer) -> Collected:
        if peer.name.endswith("short"):
            raise UsageError("killed by SIGSEGV")
        return collect(device, op, variant, peer, logical, logical, axes, threads=1, seed=0, measure=False)

    crossing = CrossTask(
        op, DEQUANTIZE, [replace(peer, error_bound=bound) for peer in faults.values()], expected, logical, axes, 2
    )
    for _ in range(2):
        found = crossing.judge(run)
        assert [each.peer.rpartition("_")[2] for each in found.peers] == ["float32", "short", "nothing", "refused"]
        assert [each.status for each in found.peers] == [Status.NOT_RUN, Status.ERROR, Status.PASS, Status.ERROR]
        assert found.status is Status.ERROR
        assert "running both raised UsageError: killed by SIGSEGV" in found.reason
    assert len(computed) == 1
    assert suited(faults.values(), QUANTIZE) == [faults["quantize_halves"]]


def test_a_library_that_is_not_there(
    tmp_path: Path, installed: Installed, compare: Compare, best: Callable[..., Variant]
) -> None:
    library = tmp_path / "libnowhere.so"
    described = CppLibrary(str(library), str(Path(__file__).parent / "faults.toml")).peers(installed)
    for peer in (*suited(described, DEQUANTIZE), *suited(CppLibrary(str(library)).peers(installed), DEQUANTIZE)):
        found = compare(best(DEQUANTIZE, {"n": 8}), peer, {"n": 8})
        assert (found.status, found.reason, found.match) == (Status.NOT_RUN, f"not found: {library}", None)


def test_a_library_that_cannot_be_loaded(tmp_path: Path, installed: Installed) -> None:
    library = tmp_path / "libtext.so"
    library.write_text("no ELF file")
    peers = CppLibrary(str(library), str(Path(__file__).parent / "faults.toml")).peers(installed)
    assert all(
        (peer.missing() or "").startswith("cannot be loaded: ") and str(library) in (peer.missing() or "")
        for peer in peers
    )


def test_version_and_pickling(compiled: Path, installed: Installed, faults: Mapping[str, Peer]) -> None:
    library = CppLibrary(str(compiled), str(Path(__file__).parent / "faults.toml"))
    again = pickle.loads(pickle.dumps(library))
    assert [peer.name for peer in again.peers(installed)] == [peer.name for peer in faults.values()]
    assert faults["bitnet_raw"].version() == f"sha256:{hashlib.sha256(compiled.read_bytes()).hexdigest()}"
