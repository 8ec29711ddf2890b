"""Plans of calls: the same bits and the same errors as the long way, taken where they should be and dropped when what
they rest on has changed."""

from __future__ import annotations

import copy
import pickle
import re
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from unittest.mock import patch

import ml_dtypes
import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from no_plans import NoPlans

from tritmark.harness import providers
from tritmark.harness.errors import InvalidArgumentError, UsageError
from tritmark.harness.spec import Tier
from tritmark.kernels import (
    PROVIDER,
    QuantizedLinear,
    activation_quantize,
    pack_weights,
    register,
    ternary_matmul,
)
from tritmark.kernels.activation_quantize import plans
from tritmark.kernels.activation_quantize.api import ActivationQuantized
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_matmul.api import with_receipt

N, K = 70, 256
RNG = np.random.default_rng(5)
CODES = RNG.integers(-1, 2, (N, K), dtype=np.int8)
SCALES = {"tile64": 0.5, "tq2_0": np.full((N, K // 256), 0.5, np.float32)}


class Subclass(np.ndarray[Any, Any]):
    pass


@dataclass(frozen=True)
class Case:
    """Arguments by name, so that hypothesis shrinks to plain ones: each call draws its arrays anew from the seed."""

    seed: int
    format: str
    rows: int | None
    """M, or None for one row of one axis."""
    activations: str
    act_scale: str
    dtype: str
    out: str
    threads: int | None
    variant: str | None


ACTIVATIONS = ("plain", "apart", "strided", "reversed", "int16", "wide", "empty", "subclass", "list", "read-only")
ACT_SCALES = ("float", "int", "float32", "array", "0-d", "one", "float64", "apart", "NaN", "negative", "zero", "short",
              "huge", "big int", "list", "text", "none")  # fmt: skip
OUTS = ("none", "plain", "read-only", "strided", "wrong dtype", "swapped", "other shape", "fortran", "in activations",
        "in weights", "in act_scale", "subclass", "unaligned", "list")  # fmt: skip


def cases() -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        seed=st.integers(0, 99),
        format=st.sampled_from(list(SCALES)),
        rows=st.sampled_from([None, 1, 2, 5]),
        activations=st.just("plain") | st.sampled_from(ACTIVATIONS),
        act_scale=st.just("array") | st.sampled_from(ACT_SCALES),
        dtype=st.sampled_from(["float32", "int32", "bfloat16", "float64"]),
        out=st.just("plain") | st.sampled_from(OUTS),
        threads=st.sampled_from([None, 1, 2, 0]),
        variant=st.sampled_from([None, "scalar", "sse5"]),
    )


def arguments(case: Case) -> dict[str, Any]:
    """What the case says, in memory of its own."""
    rng, M = np.random.default_rng(case.seed), case.rows or 1
    codes = rng.integers(-128, 128, (2 * M, 2 * K), dtype=np.int8)
    plain = codes[:M, :K].copy()
    rows: Any = {
        "plain": plain,
        "apart": codes[:M, :K],
        "strided": codes[:M, ::2],
        "reversed": plain[::-1],
        "int16": plain.astype(np.int16),
        "wide": codes[:M].copy(),
        "empty": codes[:0, :K],
        "subclass": plain.view(Subclass),
        "list": plain.tolist(),
        "read-only": np.frombuffer(plain.tobytes(), np.int8).reshape(M, K),
    }[case.activations]
    if case.rows is None:
        rows = rows[0] if len(rows) else rows.reshape(-1)
    room = rng.uniform(0.1, 100, (2 * M + 2) * max(N, K)).astype(np.float32)
    scales: Any = {
        "float": 3.7,
        "int": 40,
        "float32": np.float32(2.5),
        "array": room[:M].copy(),
        "0-d": np.array(1.5, np.float32),
        "one": np.ones(1, np.float32),
        "float64": room[:M].astype(np.float64),
        "apart": room[: 2 * M : 2],
        "NaN": np.full(M, np.nan, np.float32),
        "negative": -1.0,
        "zero": np.zeros(M, np.float32),
        "short": np.ones(M + 1, np.float32),
        "huge": 1e300,
        "big int": 2**24 + 1,
        "list": [1.0] * M,
        "text": "x",
        "none": None,
    }[case.act_scale]
    kind: Any = np.int32 if case.dtype == "int32" else np.float32
    shape = (N,) if case.rows is None else (M, N)
    if case.out == "in act_scale":
        scales = room[:M]
    read_only = np.zeros(shape, kind)
    read_only.flags.writeable = False
    out: Any = {
        "none": lambda: None,
        "plain": lambda: np.zeros(shape, kind),
        "read-only": lambda: read_only,
        "strided": lambda: np.zeros((*shape, 2), kind)[..., 0],
        "wrong dtype": lambda: np.zeros(shape, np.float64),
        "swapped": lambda: np.zeros(shape, np.dtype(kind).newbyteorder()),
        "other shape": lambda: np.zeros((*shape[:-1], N + 1), kind),
        "fortran": lambda: np.zeros(shape, kind, order="F"),
        "in activations": lambda: (
            (plain if case.activations == "plain" else codes).reshape(-1)[: M * N * 4].view(kind).reshape(shape)
        ),
        "in weights": lambda: (
            packed(case.format).data.reshape(-1).view(np.uint8)[: M * N * 4].view(kind).reshape(shape)
        ),
        "in act_scale": lambda: room[: M * N].view(kind).reshape(shape),
        "subclass": lambda: np.zeros(shape, kind).view(Subclass),
        "unaligned": lambda: np.zeros(M * N * 4 + 1, np.uint8)[1:].view(kind).reshape(shape),
        "list": lambda: [0.0],
    }[case.out]
    try:
        made = out()
    except ValueError:  # fewer bytes than an output has
        made = None
    return {
        "activations": rows,
        "act_scale": scales,
        "dtype": case.dtype,
        "out": made,
        "variant": case.variant,
        "threads": case.threads,
    }


@cache
def packed(format: str) -> Any:
    return pack_weights(CODES, SCALES[format], format=format)


def _words(error: Exception) -> str:
    """What it says, but where arrays lie."""
    return re.sub("0x[0-9a-f]+", "0x", str(error))


def thrice(call: Callable[[], Any]) -> Any:
    """The first of three results: by then there is a plan."""
    first = call()
    call(), call()
    return first


def outcome(call: Any, told: dict[str, Any]) -> tuple[Any, ...]:
    """What a caller sees: the result's dtype, shape and bits, and whether it is `out`; or the error, and what is then
    in `out`."""
    given = told["out"]
    with np.errstate(all="ignore"):
        try:
            made = call(**told)
        except Exception as error:
            kept = given.tobytes() if isinstance(given, np.ndarray) else None
            return type(error), _words(error), kept
    return made.dtype, made.shape, made.tobytes(), made is given, type(made)


def agrees(case: Case, planned: Any = None) -> bool:
    """Whether a product whose plan is there does what the long way does. `planned` stands in for the plans."""
    weights = packed(case.format)
    told = arguments(case)
    expected = outcome(lambda activations, **more: with_receipt(activations, weights, **more)[0], told)
    plain = replace(case, activations="plain", act_scale="float", out="none")
    outcome(lambda activations, **more: ternary_matmul(activations, weights, **more), arguments(plain))
    mine = weights if planned is None else copy.copy(weights)
    if planned is not None:
        object.__setattr__(mine, "plans", planned(weights.plans))
    return outcome(lambda activations, **more: ternary_matmul(activations, mine, **more), arguments(case)) == expected


@given(cases())
@settings(max_examples=300)
def test_a_product_with_a_plan_is_that_of_the_long_way(case: Case) -> None:
    assert agrees(case)


class Faulty(ABC):
    """Plans with a fault."""

    def __init__(self, right: Any) -> None:
        self.right = right

    def __contains__(self, key: Any) -> bool:
        return True

    def current(self, registry: Any) -> bool:
        return True

    def run(self, registry: Any, *told: Any) -> Any:
        return None if self.right is None else self.faulty(registry, *told)

    @abstractmethod
    def faulty(self, registry: Any, *told: Any) -> Any:
        """What is done in place of the right call."""


class IgnoresScale(Faulty):
    def faulty(self, registry: Any, activations: Any, act_scale: Any, *told: Any) -> Any:
        return self.right.run(registry, activations, 1.0, *told)


class FirstScale(Faulty):
    def faulty(self, registry: Any, activations: Any, act_scale: Any, *told: Any) -> Any:
        one = act_scale.reshape(-1)[0] if type(act_scale) is np.ndarray else act_scale
        return self.right.run(registry, activations, one, *told)


class OwnOut(Faulty):
    def faulty(self, registry: Any, activations: Any, act_scale: Any, dtype: Any, out: Any, *told: Any) -> Any:
        return self.right.run(registry, activations, act_scale, dtype, None, *told)


class AnyOut(Faulty):
    """Takes an output that is refused: one to be read only, or of another dtype."""

    def faulty(self, registry: Any, activations: Any, act_scale: Any, dtype: Any, out: Any, *told: Any) -> Any:
        made = self.right.run(registry, activations, act_scale, dtype, None, *told)
        if made is None or type(out) is not np.ndarray or out.shape != made.shape or out.base is not None:
            return None
        out.setflags(write=True)
        out[...] = made
        return out


class AnyScale(Faulty):
    def faulty(self, registry: Any, activations: Any, act_scale: Any, *told: Any) -> Any:
        found = self.right.run(registry, activations, act_scale, *told)
        return self.right.run(registry, activations, 1.0, *told) if found is None else found


class CopiesRows(Faulty):
    def faulty(self, registry: Any, activations: Any, *told: Any) -> Any:
        if type(activations) is not np.ndarray:
            return None
        return self.right.run(registry, np.ascontiguousarray(activations).astype(np.int8), *told)


class AnyDtype(Faulty):
    def faulty(self, registry: Any, activations: Any, act_scale: Any, dtype: Any, *told: Any) -> Any:
        return self.right.run(registry, activations, act_scale, "float32", *told)


@pytest.mark.parametrize("fault", [IgnoresScale, FirstScale, OwnOut, AnyOut, AnyScale, CopiesRows, AnyDtype])
def test_a_fault_in_a_plan_would_be_found(fault: Callable[[Any], Faulty]) -> None:
    unshrunk = settings(max_examples=3000, derandomize=True, phases=[Phase.generate])
    find(cases(), lambda case: not agrees(case, fault), settings=unshrunk)


def _bits(made: Any) -> tuple[Any, ...]:
    arrays = made if isinstance(made, tuple) else (made,)
    return type(made), *((each.dtype, each.shape, each.tobytes()) for each in arrays)


ROWS = ("plain", "apart", "strided", "NaN", "infinite", "float64", "swapped", "unaligned", "empty", "0-d", "4-d",
        "subclass", "short", "fortran", "float16", "bfloat16", "float16 apart", "bfloat16 strided", "float16 NaN",
        "bfloat16 infinite", "swapped float16", "int16", "float16 subclass")  # fmt: skip


def floats(kind: str, shape: tuple[int, ...], seed: int) -> Any:
    x = np.random.default_rng(seed).standard_normal((*shape, 2), dtype=np.float32)
    plain = np.ascontiguousarray(x[..., 0])
    if kind.endswith(("NaN", "infinite")):
        plain.flat[seed % plain.size] = np.nan if kind.endswith("NaN") else -np.inf
    half, brain = plain.astype(np.float16), plain.astype(ml_dtypes.bfloat16)
    other: dict[str, Any] = {
        "apart": lambda: np.concatenate([plain, plain], axis=-1)[..., : shape[-1]],
        "strided": lambda: x[..., 0],
        "float64": lambda: plain.astype(np.float64),
        "swapped": lambda: plain.astype(">f4"),
        "unaligned": lambda: np.frombuffer(b"\0" + plain.tobytes(), np.uint8)[1:].view(np.float32).reshape(shape),
        "empty": lambda: plain[..., :0],
        "0-d": lambda: np.array(1.0, np.float32),
        "4-d": lambda: plain.reshape(1, *(1,) * (3 - len(shape)), *shape),
        "subclass": lambda: plain.view(Subclass),
        "short": lambda: np.delete(plain, 0, -1),
        "fortran": lambda: np.asfortranarray(plain),
        "float16 apart": lambda: np.concatenate([half, half], axis=-1)[..., : shape[-1]],
        "bfloat16 strided": lambda: np.repeat(brain, 2, axis=-1)[..., ::2],
        "swapped float16": lambda: half.astype(">f2"),
        "int16": lambda: half.view(np.int16),
        "float16 subclass": lambda: half.view(Subclass),
    }
    if kind in other:
        return other[kind]()
    return half if kind.startswith("float16") else brain if kind.startswith("bfloat16") else plain


def made_by(call: Any) -> tuple[Any, ...]:
    with np.errstate(all="ignore"):
        try:
            return _bits(call())
        except Exception as error:
            return type(error), _words(error)


SHAPES = st.sampled_from([(K,), (1, K), (3, K), (2, 3, K)])


@given(
    kind=st.just("plain") | st.sampled_from(ROWS),
    shape=SHAPES,
    seed=st.integers(0, 99),
    out=st.sampled_from(["none", "plain", "read-only", "in x", "other shape", "tuple"]),
    nonfinite=st.sampled_from(["error", "zero", "keep"]),
    threads=st.sampled_from([None, 1, 0]),
    variant=st.sampled_from([None, "scalar", "sse5"]),
)
@settings(max_examples=300)
def test_a_quantization_with_a_plan_is_that_of_the_long_way(
    kind: str, shape: tuple[int, ...], seed: int, out: Any, nonfinite: str, threads: int | None, variant: str | None
) -> None:
    def call() -> Any:
        x: Any = floats(kind, shape, seed)
        made: Any = None
        if out != "none":
            made = ActivationQuantized(
                np.zeros(shape, np.int8), np.zeros(shape[:-1], np.float32), np.zeros(shape[:-1], np.int32)
            )
        if out == "read-only":
            made.sum.flags.writeable = False
        if out == "in x" and type(x) is np.ndarray and x.nbytes >= made.q.nbytes and x.flags.c_contiguous:
            made = made._replace(q=x.reshape(-1).view(np.int8)[: made.q.size].reshape(shape))
        if out == "other shape":
            made = made._replace(scale=np.zeros(7, np.float32))
        if out == "tuple":
            made = tuple(made)
        found = activation_quantize(x, out=made, nonfinite=nonfinite, threads=threads, variant=variant)
        assert made is None or all(np.shares_memory(one, other) for one, other in zip(found, made, strict=True))
        return found

    with patch.object(plans, "quantize_plans", NoPlans):
        expected = made_by(call)
    made_by(lambda: activation_quantize(floats("plain", shape, 0), threads=threads, variant=variant))
    assert made_by(call) == expected


SIGNS = RNG.choice(np.array([-1, 1], np.int8), K)
LAYERS: dict[tuple[str, bool, int], QuantizedLinear] = {
    (format, bias, block): QuantizedLinear(
        packed(format),
        RNG.standard_normal(N, dtype=np.float32) if bias else None,
        hadamard=(block, SIGNS) if block else None,
    )
    for format in SCALES
    for bias in (False, True)
    for block in (0, 64, 256)
}


@given(
    kind=st.just("plain") | st.sampled_from(ROWS),
    shape=SHAPES,
    seed=st.integers(0, 99),
    layer=st.sampled_from(list(LAYERS)),
)
@settings(max_examples=200)
def test_a_layer_with_a_plan_is_that_of_the_long_way(
    kind: str, shape: tuple[int, ...], seed: int, layer: tuple[str, bool, int]
) -> None:
    mine = LAYERS[layer]
    x = floats(kind, shape, seed)
    with patch.object(mine, "_plans", NoPlans()):
        expected, receipt = made_by(lambda: mine(x)), mine.receipt
    made_by(lambda: mine(floats("plain", shape, 0)))
    assert made_by(lambda: mine(x)) == expected
    if len(expected) > 2:
        assert mine.receipt == receipt
        if x.flags.c_contiguous and x.flags.aligned and type(x) is np.ndarray and x.dtype == np.float32:
            bound = mine.bind(x)
            assert _bits(bound.run()) == expected
            assert bound.receipt == receipt


@pytest.mark.parametrize("format", SCALES)
@pytest.mark.parametrize("shape", [(K,), (1, K), (4, K)])
def test_plain_calls_find_a_plan(format: str, shape: tuple[int, ...]) -> None:
    weights = pack_weights(CODES, SCALES[format], format=format)
    x, out = floats("plain", shape, 1), np.zeros((*shape[:-1], N), np.float32)
    known, told = dispatch.registry(), ("float32", out, None, None)
    quantized: Any = activation_quantize(x)
    again = plans.quantize_plans().run(known, x, None, None, None)
    assert all(np.array_equal(one, other) for one, other in zip(quantized, again, strict=True))
    expected = ternary_matmul(quantized.q, weights, act_scale=quantized.scale)
    assert weights.plans.run(known, quantized.q, quantized.scale, *told) is out
    assert np.array_equal(out, expected)
    assert weights.plans.run(known, quantized.q, quantized.scale, "int32", None, None, None) is None
    layer = QuantizedLinear(weights)
    layer(x)
    assert layer._plans.last is None
    assert np.array_equal(layer(x), expected)
    assert layer._plans.last is not None


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_calls_with_16_bits_find_the_plan_of_32(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weights, x = pack_weights(CODES, 0.5), floats(kind, (7, K), 1)
    layer = QuantizedLinear(weights)
    quantized, expected = activation_quantize(x, threads=1), layer(x)  # both go the long way, and make a plan
    monkeypatch.setattr(dispatch, "run", lambda *_: pytest.fail("a call went the long way"))
    assert _bits(activation_quantize(x, threads=1)) == _bits(quantized)
    assert _bits(layer(x)) == _bits(expected)


def test_only_the_oldest_plan_makes_room_for_another() -> None:
    known, of = dispatch.registry(), plans.quantize_plans()
    rows = [floats("plain", (1, 64 + k), 1) for k in range(65)]
    for x in rows:
        activation_quantize(x)
    assert len(of) == 64
    found = [of.run(known, x, None, None, None) is not None for x in rows]
    assert found == [False] + 64 * [True]


@pytest.mark.parametrize("told", [{"variant": "scalar"}, {"nonfinite": "zero"}, {"out": True}, {"rows": 2000}])
def test_16_bits_are_widened_for_plain_and_small_calls_alone(
    told: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = floats("float16", (told.pop("rows", 3), K), 1)
    made = activation_quantize(x)
    if told.get("out"):
        told["out"] = made
    run, asked = dispatch.run, list[str]()

    def seen(op: Any, variant: Any, *given: Any, **more: Any) -> Any:
        asked.append(variant.key.format)
        return run(op, variant, *given, **more)

    monkeypatch.setattr(dispatch, "run", seen)
    assert _bits(activation_quantize(x, **told)) == _bits(made)
    assert asked == ["float16"]


def test_a_signalling_nan_of_16_bits_is_refused() -> None:
    x = np.full((1, K), 0x3C00, np.uint16).view(np.float16)
    activation_quantize(x)
    x.view(np.uint16)[0, 9] = 0x7D01
    with pytest.raises(InvalidArgumentError, match="x is nan at index 9"):
        activation_quantize(x)


def test_a_plan_keeps_no_array_of_a_call() -> None:
    weights = pack_weights(CODES, 0.5)
    rows, out = RNG.integers(-128, 128, (2, K), dtype=np.int8), np.zeros((2, N), np.float32)
    for _ in range(3):
        ternary_matmul(rows, weights, out=out)
    gone = weakref.ref(rows), weakref.ref(out)
    del rows, out
    assert [each() for each in gone] == [None, None]


def test_weights_and_layers_with_plans_are_copied_without_them() -> None:
    weights = pack_weights(CODES, 0.5)
    layer, x = QuantizedLinear(weights), floats("plain", (K,), 3)
    expected = thrice(lambda: layer(x))
    ternary_matmul(np.ones(K, np.int8), weights)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert np.array_equal(twin(x), expected)
        assert 1 in twin._plans
        assert 1 in layer._plans


def test_the_environment_chooses_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cpu.FORCE, raising=False)
    layer, x = QuantizedLinear(packed("tile64")), floats("plain", (K,), 3)
    for isa in ("scalar", None, "scalar"):
        if isa is None:
            monkeypatch.delenv(cpu.FORCE)
        else:
            monkeypatch.setenv(cpu.FORCE, isa)
        for _ in range(3):
            layer(x)
            assert layer.receipt is not None
            assert layer.receipt.ran == (isa or cpu.best("ternary_matmul"))
    monkeypatch.setenv(cpu.FORCE, "sse5")
    with pytest.raises(UsageError):
        layer(x)


def test_what_is_registered_chooses_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A better third-party kernel runs from the next call on, without a plan."""
    monkeypatch.setattr(providers, "_LOADED", [])
    monkeypatch.delenv(cpu.FORCE, raising=False)
    weights, ran = pack_weights(CODES, 0.5), []
    layer, x = QuantizedLinear(weights, np.ones(N, np.float32)), floats("plain", (2, K), 3)
    rows = np.ones((2, K), np.int8)
    expected, product = thrice(lambda: layer(x)), thrice(lambda: ternary_matmul(rows, weights))
    bound = layer.bind(x)
    scalar = next(each for each in PROVIDER.variants if each.id == "cpu/ternary_matmul/tile64/float32/scalar")

    def bind(*told: Any) -> Any:
        ran.append(told)
        return scalar.bind(*told)

    register(replace(scalar, name="mine", tier=Tier.EXTREMELY_OPTIMIZED, rank=1000, bind=bind))
    for count in (1, 2, 3):
        assert np.array_equal(layer(x), expected)
        assert layer.receipt is not None
        assert layer.receipt.kernel.endswith("/mine")
        assert np.array_equal(ternary_matmul(rows, weights), product)
        assert len(ran) == 2 * count
    theirs = layer.bind(x)
    assert np.array_equal(theirs.run(), expected)
    assert theirs.receipt.kernel.endswith("/mine")
    assert np.array_equal(bound.run(), expected)
    assert not bound.receipt.kernel.endswith("/mine")


def test_what_a_layer_is_told_later_counts() -> None:
    layer, x = QuantizedLinear(packed("tile64")), floats("plain", (K,), 3)
    plain = thrice(lambda: layer(x))
    layer.bias = np.ones(N, np.float32)
    assert all(np.array_equal(layer(x), plain + 1) for _ in range(3))
    layer.bias[...] = 2
    assert np.array_equal(layer(x), plain + 2)
    layer.bias = np.ones(2 * N, np.float32)[::2]
    assert all(np.array_equal(layer(x), plain + 1) for _ in range(3))
    assert np.array_equal(layer.bind(x).run(), plain + 1)
    layer.bias, layer.variant = None, "scalar"
    assert all(np.array_equal(layer(x), plain) and layer.receipt.ran == "scalar" for _ in range(3))  # type: ignore[union-attr]
    layer.threads = 0
    with pytest.raises(InvalidArgumentError, match="threads"):
        layer(x)


@pytest.mark.parametrize("format", SCALES)
def test_threads_of_python_share_a_layer(format: str) -> None:
    layer, inputs = QuantizedLinear(packed(format), threads=1), [floats("plain", (K,), seed) for seed in range(8)]
    expected = [layer(x) for x in inputs]

    def work(at: int) -> bool:
        return all(np.array_equal(layer(inputs[at]), expected[at]) for _ in range(300))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_a_bound_call_reads_its_arrays_anew_and_leaves_out_untouched_where_they_are_wrong() -> None:
    layer = QuantizedLinear(packed("tile64"), np.ones(N, np.float32))
    x, out = floats("plain", (3, K), 3), np.zeros((3, N), np.float32)
    bound = layer.bind(x, out)
    assert bound.receipt.runs == 0
    for seed in (4, 5):
        x[...] = floats("plain", (3, K), seed)
        assert bound() is out
        assert np.array_equal(out, layer(x))
    assert bound.receipt.runs == 2
    x[1, 7] = np.inf
    before = out.copy()
    with pytest.raises(InvalidArgumentError) as caught:
        bound.run()
    with pytest.raises(InvalidArgumentError) as told:
        layer(x)
    assert str(caught.value) == str(told.value)
    assert np.array_equal(out, before)
    x[1, 7] = 0
    assert np.array_equal(bound.run(), layer(x))


@pytest.mark.parametrize(
    ("x", "out", "argument"),
    [
        (np.ones(K + 1, np.float32), None, "x"),
        (np.ones(K), None, "x"),
        (np.ones((2, 2 * K), np.float32)[:, ::2], None, "x"),
        (np.ones((1, 1, 1, K), np.float32), None, "x"),
        ([1.0], None, "x"),
        (np.ones(K, np.float32), np.ones((1, N), np.float32), "out"),
        (np.ones(K, np.float32), np.ones(N), "out"),
        (np.ones(K, np.float32), np.ones(2 * N, np.float32)[::2], "out"),
        (np.ones(K, np.float32), np.frombuffer(bytes(4 * N), np.float32), "out"),
        (np.ones(K, np.float32), [0.0], "out"),
    ],
)
def test_what_cannot_be_bound_is_named(x: Any, out: Any, argument: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        QuantizedLinear(packed("tile64")).bind(x, out)
    assert caught.value.argument == argument


def test_an_output_in_the_memory_of_an_input_is_not_bound() -> None:
    memory = np.ones(K, np.float32)
    bias = np.ones(2 * N, np.float32)
    for x, out in ((memory, memory[:N]), (memory.copy(), bias[N // 2 : N // 2 + N])):
        with pytest.raises(InvalidArgumentError, match="in the same memory"):
            QuantizedLinear(packed("tile64"), bias[:N]).bind(x, out)
