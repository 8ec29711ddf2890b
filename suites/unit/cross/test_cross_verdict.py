"""What a comparison tells of inputs and bounds, with peers in Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.providers import Installed
from tritmark.harness.record import Ratio, Status
from tritmark.harness.spec import Arrays, Axes, KernelKey, Launch, Peer, Variant
from tritmark.harness.validate.compare import expectations
from tritmark.harness.validate.cross import Collected, collect, collect_task, confront, known, meeting, shortened
from tritmark.harness.worker.site import Site
from tritmark.kernels import PROVIDER

FLOAT32 = KernelKey("cpu", "ternary_matmul", "tile64", "float32")
CODES = KernelKey("cpu", "i2s_quantize", "none", "int8")
AXES = {"M": 2, "N": 3, "K": 40}


@pytest.fixture(scope="module")
def installed() -> Installed:
    return Installed({"builtin": PROVIDER})


class Python:
    """A launch that writes what a function of the inputs gives."""

    ran, runs, threads_used, bad, pointer = "python", 1, 1, -1, None

    def __init__(self, compute: Callable[[Arrays], Any], inputs: Arrays, outputs: Arrays, name: str) -> None:
        self._compute, self._inputs, self._out = compute, inputs, outputs[name]

    def run(self) -> None:
        self._out[...] = self._compute(self._inputs)


def peer_of(key: KernelKey, output: str, compute: Callable[[Arrays], Any], **more: Any) -> Peer:
    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        return Python(compute, inputs, outputs, output)

    fixed = {
        "name": "python",
        "source": "this test",
        "outputs": (output,),
        "formats": frozenset({key.format}),
        "dtypes": frozenset({key.dtype}),
    }
    given = {"version": lambda: "1", "missing": lambda: None, "encode": lambda inputs, axes: inputs, **fixed, **more}
    return Peer(op=key.op, bind=bind, **given)


def product(inputs: Arrays) -> Any:
    acc = inputs["activations"].astype(np.int64) @ inputs["weights"].astype(np.int64).T
    return acc * (np.float64(inputs["weight_scale"]) / inputs["act_scale"].astype(np.float64))[:, None]


def both(
    installed: Installed, key: KernelKey, axes: Axes, peer: Peer, **more: Any
) -> tuple[Collected, Callable[[Collected], Any], Variant]:
    op, variant = installed.ops[key.op], installed.registry.select_best(key, axes)
    logical = op.generate(axes, "uniform", np.random.default_rng(4))
    device = installed.registry.devices[key.device]
    found = collect(
        device,
        op,
        variant,
        peer,
        logical,
        op.encode(logical, axes, key.format),
        axes,
        threads=1,
        seed=0,
        measure=False,
        **more,
    )
    expected = expectations(op, axes, key, op.reference(logical, axes, key))
    return (
        found,
        lambda collected: confront(op, key, expected, collected, peer=peer, logical=logical, axes=axes),
        variant,
    )


@given(st.integers(1, 5), st.integers(60, 300), st.integers(1, 400), st.randoms(use_true_random=False))
def test_in_parts_nothing_else_is_found(M: int, N: int, part: int, random: Any) -> None:
    """What a peer's arithmetic admits, computed for some rows of weights at a time."""
    op, axes = next(each for each in PROVIDER.ops if each.name == FLOAT32.op), {"M": M, "N": N, "K": 40}
    logical = op.generate(axes, "uniform", np.random.default_rng(random.getrandbits(32)))
    exact = op.reference(logical, axes, FLOAT32)
    expected = expectations(op, axes, FLOAT32, exact)

    def bound(inputs: Arrays, axes: Axes) -> dict[str, Any]:
        assert inputs["weights"].shape == (axes["N"], axes["K"])
        return {"out": np.abs(product(inputs)) * 2.0**-20 + 2.0**-140}

    own, theirs = (exact["out"].astype(np.float32) for _ in range(2))
    for _ in range(random.randrange(4)):
        side = random.choice((own, theirs))
        side[random.randrange(M), random.randrange(N)] *= np.float32(random.choice((1 + 2.0**-21, 1.5)))
    collected = Collected(version="1", own={"out": own}, peer={"out": theirs})
    peer = peer_of(FLOAT32, "out", product, error_bound=bound)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tritmark.harness.validate.cross._PART", part)
        whole, parts = (
            confront(op, FLOAT32, expected, collected, peer=peer, logical=logical, axes=axes, in_parts=in_parts)
            for in_parts in (False, True)
        )
    assert parts == whole


def test_a_bound_is_what_the_peers_arithmetic_admits(installed: Installed) -> None:
    """float32 products of the scales, in place of one in float64: some outputs are an ulp off."""

    def single(inputs: Arrays) -> Any:
        acc = inputs["activations"].astype(np.int64) @ inputs["weights"].astype(np.int64).T
        return acc.astype(np.float32) * inputs["weight_scale"] / inputs["act_scale"][:, None]

    def bound(inputs: Arrays, axes: Axes) -> dict[str, Any]:
        return {"out": np.abs(product(inputs)) * 4 * 2.0**-24}

    axes = {"M": 4, "N": 300, "K": 40}
    strict, relaxed = (peer_of(FLOAT32, "out", single, **more) for more in ({}, {"error_bound": bound}))
    found, judge, _ = both(installed, FLOAT32, axes, strict)
    told = judge(found)
    assert (told.status, told.peer_wrong) == (Status.PASS, True)
    assert 0 < told.mismatches < told.elements
    found, judge, _ = both(installed, FLOAT32, axes, relaxed)
    told = judge(found)
    assert (told.status, told.match, told.mismatches, told.elements) == (Status.PASS, True, 0, 1200)
    assert told.largest_error > 0


@pytest.mark.parametrize("bound", [np.inf, np.nan, -1.0])
def test_a_bound_that_admits_anything_is_no_bound(installed: Installed, bound: float) -> None:
    found, judge, _ = both(
        installed,
        FLOAT32,
        AXES,
        peer_of(FLOAT32, "out", lambda inputs: 0.0, error_bound=lambda inputs, axes: {"out": bound}),
    )
    told = judge(found)
    assert (told.status, told.match) == (Status.ERROR, None)
    assert "the peer's error_bound" in told.reason


def test_a_kernel_within_its_own_ulp_agrees(installed: Installed) -> None:
    """The contract admits an ulp, and a peer that is exact does not take that away."""
    exact = peer_of(FLOAT32, "out", product)
    found, judge, _ = both(installed, FLOAT32, AXES, exact)
    near = np.nextafter(found.own["out"], np.float32(np.inf))
    assert judge(replace(found, own={"out": near})).match
    far = np.nextafter(near, np.float32(np.inf))
    told = judge(replace(found, own={"out": far}))
    assert (told.status, told.match, told.mismatches) == (Status.FAIL, False, 6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.0])
def test_odd_values_are_no_match(installed: Installed, value: float) -> None:
    key = KernelKey("cpu", "i2s_dequantize", "none", "float32")
    found, judge, _ = both(
        installed, key, {"n": 5}, peer_of(key, "x", lambda inputs: inputs["q"] * inputs["scale"] + np.float32(0))
    )
    spoiled = found.own["x"].copy()
    spoiled[2] = value
    told = judge(
        replace(found, own={"x": spoiled}, peer={"x": np.where(np.arange(5) == 2, np.float32(1e9), found.peer["x"])})
    )
    assert told.status is Status.FAIL
    assert told.first.index == (2,)


def test_what_a_peer_does_not_take_is_not_run(installed: Installed) -> None:
    def refuse(inputs: Arrays, axes: Axes) -> Arrays:
        raise InvalidArgumentError(op="pack", argument="K", found="40", legal="a multiple of 256")

    def broken(inputs: Arrays, axes: Axes) -> Arrays:
        raise IndexError("past the end")

    cases: dict[str, dict[str, Any]] = {
        "K = 40 is no multiple of 256": {"refusal": lambda axes: "K = 40 is no multiple of 256"},
        "not installed: pip install it": {"missing": lambda: "not installed: pip install it"},
        "it does not accept these inputs: pack: K is 40; legal: a multiple of 256": {"encode": refuse},
    }
    for reason, more in cases.items():
        found, judge, _ = both(installed, FLOAT32, AXES, peer_of(FLOAT32, "out", product, **more))
        told = judge(found)
        assert (told.status, told.reason, told.match, told.elements) == (Status.NOT_RUN, reason, None, 0)
    found, judge, _ = both(installed, FLOAT32, AXES, peer_of(FLOAT32, "out", product, encode=broken))
    assert judge(found).status is Status.ERROR
    assert "IndexError: past the end" in judge(found).reason


def test_what_a_peer_raises_is_told(installed: Installed) -> None:
    def raising(inputs: Arrays) -> Any:
        raise OSError("no such device")

    found, judge, _ = both(installed, FLOAT32, AXES, peer_of(FLOAT32, "out", raising))
    assert judge(found).status is Status.ERROR
    assert judge(found).reason == "the peer raised OSError: no such device"


def test_what_cannot_be_compared_is_refused(installed: Installed) -> None:
    """A worker may send anything back."""
    found, judge, _ = both(installed, FLOAT32, AXES, peer_of(FLOAT32, "out", product))
    broken: list[dict[str, Any]] = [
        {"own": {}},
        {"own": {"out": found.own["out"][:1]}},
        {"peer": {"out": found.peer["out"].astype(np.float64)}},
        {"peer": {"out": [1.0]}},
        {"own_ns": float("nan")},
        {"peer_ns": -1.0},
        {"speedup": Ratio.model_construct(median=1.0, low=1.0, high=float("inf"), pairs=9)},
    ]
    for spoiled in broken:
        told = judge(replace(found, **spoiled))
        assert (told.status, told.match) == (Status.ERROR, None), spoiled
        assert "came back" in told.reason


def test_inputs_that_meet(installed: Installed) -> None:
    ops = installed.ops
    axes = {"n": 1000, "block": 128}
    x = np.arange(1000, dtype=np.float32)
    codes = KernelKey("cpu", "ternary_quantize", "none", "int8")
    packed = KernelKey("cpu", "ternary_quantize", "i2_s_x86", "uint8")
    assert meeting(ops["ternary_quantize"], codes, "codes", (7,), {"x": x}, axes) == {"x[7]": "7.0"}
    # Which elements a packed byte or a block's scale holds is the op's affair.
    whole = {"x": "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, …] (1000 values from 0.0 to 999.0)"}
    assert meeting(ops["ternary_quantize"], packed, "codes", (7,), {"x": x}, axes) == whole
    assert meeting(ops["ternary_quantize"], codes, "scales", (1,), {"x": x}, axes) == whole
    rows = KernelKey("cpu", "activation_quantize", "none", "int8")
    inputs = {"x": np.array([[1, 2], [3, 4]], np.float32)}
    assert meeting(ops["activation_quantize"], rows, "scale", (1,), inputs, {"M": 2, "K": 2}) == {
        "x[1, :]": "[3.0, 4.0]"
    }
    assert meeting(ops["activation_quantize"], rows, "q", (1, 0), inputs, {"M": 2, "K": 2}) == {"x[1, 0]": "3.0"}


SMALL = st.integers(-2, 1)


@given(elements=st.lists(st.tuples(SMALL, SMALL, SMALL), min_size=1, max_size=12))
def test_the_exact_value_is_the_judge(elements: list[tuple[int, int, int]]) -> None:
    """Against the definition, element by element: (exact, kernel's, peer's)."""
    op = next(op for op in PROVIDER.ops if op.name == CODES.op)
    exact, own, theirs = (np.array(side, np.int8) for side in zip(*elements, strict=True))
    axes = {"n": len(elements)}
    logical = {"x": np.zeros(len(elements), np.float32), "scale": np.float32(1)}
    peer = peer_of(CODES, "q", lambda inputs: None)
    told = confront(
        op,
        CODES,
        expectations(op, axes, CODES, {"q": exact}),
        Collected(own={"q": own}, peer={"q": theirs}),
        peer=peer,
        logical=logical,
        axes=axes,
    )
    differing = [index for index, (_, ours, other) in enumerate(elements) if ours != other]
    mistaken = [index for index in differing if elements[index][0] != elements[index][1]]
    assert told.match is not bool(differing)
    assert told.mismatches == len(differing)
    assert told.largest_error == max(abs(ours - other) for _, ours, other in elements)
    assert told.status is (Status.FAIL if mistaken else Status.PASS)
    assert told.peer_wrong is (bool(differing) and not mistaken)
    assert (told.first is None) is not bool(differing)
    if told.first is not None:
        assert told.first.index == ((mistaken or differing)[0],)
    assert told.migration_recommended is False
    assert ("both have the same incorrect value" in told.reason) is any(
        value != ours == other for value, ours, other in elements
    )


@given(values=st.lists(st.integers(-128, 127), min_size=1, max_size=40))
def test_texts_stay_short(values: list[int]) -> None:
    text = shortened(np.array(values, np.int8))
    assert len(text) < 100
    assert text.startswith(f"[{values[0]}")
    assert (f"{len(values)} values" in text) is (len(values) > 6)


def test_in_a_worker_a_peer_goes_by_its_name(installed: Installed) -> None:
    peer = peer_of(CODES, "q", lambda inputs: np.rint(np.clip(inputs["x"] / inputs["scale"], -2, 1)))
    with_peer = Installed({"builtin": replace(PROVIDER, peers=(peer,), libraries=tuple)})
    assert known(with_peer) == (peer,)
    site = Site(with_peer, with_peer.registry.select_best(CODES, {"n": 9}))
    inputs = site.op.generate({"n": 9}, "normal", np.random.default_rng(0))
    found = collect_task(site, "python", (), inputs, inputs, {"n": 9}, 1, 0, False)
    assert (found.version, found.missing, found.untimed) == ("1", "", "not requested")
    assert np.array_equal(found.own["q"], found.peer["q"])
    assert collect_task(site, "other", (), inputs, inputs, {"n": 9}, 1, 0, False).missing.startswith(
        "not installed: the worker has no peer"
    )
