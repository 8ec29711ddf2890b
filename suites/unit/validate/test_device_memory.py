"""A fake device with its own memory. Its arrays are handles that NumPy cannot use, so a missing copy is detected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.measure.alternate import Timed
from tritmark.harness.measure.buffers import Rotation, memory_of, rotation
from tritmark.harness.measure.ceilings import measure_ceilings
from tritmark.harness.measure.survey import BYTES, Field
from tritmark.harness.record import Status
from tritmark.harness.spec import (
    Ceiling,
    Device,
    KernelKey,
    Launch,
    Op,
    Proof,
    Receipt,
    Tensor,
    Tier,
    ToleranceKind,
    Traffic,
    Values,
    Variant,
    Workload,
)
from tritmark.harness.validate import cases as case_module
from tritmark.harness.validate.accuracy import Judged, judge, misfit
from tritmark.harness.validate.cases import Material
from tritmark.harness.validate.evidence import with_proofs
from tritmark.harness.validate.families import KINDS
from tritmark.harness.validate.guards import MEMORY_ALIGNMENT, ZONE, GuardedArray, layout_offset
from tritmark.harness.validate.performance import Bench

HASH = "ab" * 32
UUID = "GPU-made-up"
CACHE = 1 << 20
FREE = 1 << 32
RATES = {"read": 20e9, "write": 10e9, "compute": 400e9}


class Handle:
    """An array of the device: an address, a shape and a dtype."""

    def __init__(
        self, block: Any, start: int, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...] | None
    ) -> None:
        self.block, self.start, self.shape, self.dtype, self.strides = block, start, shape, np.dtype(dtype), strides

    @property
    def address(self) -> int:
        """Blocks begin at multiples of 256."""
        return self.start

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape)) * self.dtype.itemsize  # type: ignore[no-any-return]

    def there(self) -> npt.NDArray[Any]:
        """The array that a kernel sees. The harness must not use it."""
        return np.ndarray(self.shape, self.dtype, buffer=self.block, offset=self.start, strides=self.strides)


class Far:
    """A Memory that counts."""

    cache = CACHE

    def __init__(self) -> None:
        self.allocated = 0
        self.written = 0
        self.copied_back = 0

    def available(self) -> int:
        return FREE

    def allocate(self, nbytes: int) -> Handle:
        self.allocated += nbytes
        return Handle(np.full(nbytes, 0xEE, np.uint8), 0, (nbytes,), np.uint8, None)

    def view(
        self, buffer: Handle, offset: int, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...] | None = None
    ) -> Handle:
        made = Handle(buffer.block, buffer.start + offset, shape, dtype, strides)
        assert made.start + made.nbytes <= buffer.block.nbytes
        return made

    def write(self, array: Handle, values: npt.NDArray[Any]) -> None:
        assert values.flags.c_contiguous
        assert values.nbytes == array.nbytes
        self.written += values.nbytes
        array.block[array.start : array.start + array.nbytes] = values.reshape(-1).view(np.uint8)

    def read(self, array: Handle, into: npt.NDArray[Any]) -> None:
        assert into.nbytes == array.nbytes
        self.copied_back += into.nbytes
        into.reshape(-1).view(np.uint8)[...] = array.block[array.start : array.start + array.nbytes]

    def watch(self) -> Any:
        pytest.fail("only Runs on a present device are watched")


class FarLaunch:
    """Makes two launches of the device for each run, does `work` there, and takes `cost` nanoseconds by its clock."""

    pointer = 1
    threads_used = 1

    def __init__(self, work: Callable[[], int | None], cost: float = 1000.0, name: str = "candidate") -> None:
        self._work, self.cost, self._name = work, cost, name
        self.ran, self.runs, self.bad, self.timed = "", 0, -1, 0

    def run(self) -> None:
        found = self._work()
        self.bad = -1 if found is None else found
        self.runs += 1
        self.ran = self._name

    def proof(self, simulated: bool = False) -> Proof:
        return Proof(
            uuid=UUID,
            functions=("first", "second"),
            launches=2 * self.runs,
            device_ns=self.timed * self.cost,
            timed_runs=self.timed,
            code_hash=HASH,
            simulated=simulated,
        )


class FarClock:
    name = "far"

    def sample(self, launches: Sequence[Launch], first: int, calls: int) -> int:
        taken = 0.0
        for call in range(calls):
            launch = launches[(first + call) % len(launches)]
            launch.run()
            assert isinstance(launch, FarLaunch)
            launch.timed += 1
            taken += launch.cost
        return round(taken)


def probe(name: str, buffer: Handle, threads: int) -> Launch:
    assert isinstance(buffer, Handle)
    return FarLaunch(lambda: None, buffer.nbytes / RATES[name] * 1e9, name)


def device(memory: Far, *, simulated: bool = False) -> Device:
    def ceiling(name: str, unit: str = BYTES, level: str = "") -> Ceiling:
        return Ceiling(name=name, unit=unit, summary="", bind=partial(probe, name), work=int, level=level)

    probes = {name: ceiling(name, BYTES if name != "compute" else "operations/s") for name in RATES}
    probes["upload"] = replace(ceiling("read", level="pinned"), name="upload")
    return Device(
        type="far",
        summary="",
        features=frozenset,
        clock=FarClock,
        ceilings=lambda: probes,
        cores=lambda: 1,
        memory=lambda: memory,
        simulated=lambda: simulated,
        proof=lambda launch: launch.proof(simulated) if isinstance(launch, FarLaunch) else None,
    )


def generate(axes: Mapping[str, int], family: str, rng: np.random.Generator) -> dict[str, Any]:
    return {"x": rng.normal(size=(axes["m"], axes["n"])).astype(np.float32), "scale": np.float32(3)}


def reference(inputs: Mapping[str, Any], axes: Mapping[str, int], key: KernelKey) -> dict[str, Any]:
    return {"y": inputs["x"] * inputs["scale"]}


KEY = KernelKey("far", "triple", "none", "float32")
AXES = {"m": 5, "n": 33}
TRIPLE = Op(
    name="triple",
    summary="y = 3 x",
    source="this test",
    axes=("m", "n"),
    inputs=(
        Tensor("x", ("m", "n"), "float32", "", Values.FINITE, strided_rows=True),
        Tensor("scale", (), "float32", ""),
    ),
    outputs=(Tensor("y", ("m", "n"), "float32", ""),),
    tolerance_kind=ToleranceKind.EXACT,
    input_families=("normal",),
    generate=generate,
    outputs_like=lambda axes, key: {"y": ((axes["m"], axes["n"]), "float32")},
    reference=reference,
    traffic=lambda axes, key: Traffic(
        read=4 * axes["m"] * axes["n"], written=4 * axes["m"] * axes["n"], operations=axes["m"] * axes["n"]
    ),
)

Work = Callable[[Mapping[str, Any], Mapping[str, Any]], int | None]


def triple(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> int | None:
    x = inputs["x"].there()
    wrong = np.flatnonzero(~np.isfinite(x))
    if wrong.size:
        return int(wrong[0])
    outputs["y"].there()[...] = x * inputs["scale"]
    return None


def variant(work: Work = triple, cost: float = 1000.0, **more: Any) -> Variant:
    def bind(inputs: Mapping[str, Any], outputs: Mapping[str, Any], axes: Mapping[str, int], threads: int) -> Launch:
        assert isinstance(inputs["x"], Handle)
        assert isinstance(outputs["y"], Handle)
        return FarLaunch(partial(work, inputs, outputs), cost)

    return Variant(key=KEY, name="candidate", tier=Tier.BASELINE, summary="", bind=bind, **more)


def judged(
    work: Work = triple, layout: str = "aligned", *, simulated: bool = False, axes: Mapping[str, int] = AXES
) -> Judged:
    workload = Workload(op="triple", axes=axes, layout=layout)
    cases = Material(TRIPLE, workload, 1).cases(KEY)
    return judge(
        TRIPLE, variant(work), cases, axes, layout=layout, threads=1, seed=1, device=device(Far(), simulated=simulated)
    )


# Guards


@pytest.mark.parametrize("dtype", ["int8", "float32", "bfloat16"])
@pytest.mark.parametrize("layout", ["aligned", "unaligned"])
@pytest.mark.parametrize("alignment", [64, 128, 256])
def test_addresses_over_there_are_as_the_layout_says_and_no_better(alignment: int, layout: str, dtype: str) -> None:
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    offset = layout_offset(layout, kind.itemsize)
    guarded = GuardedArray((7,), kind, seed=1, alignment=alignment, offset=offset, memory=Far())
    assert guarded.handle.address % alignment == offset
    if alignment < MEMORY_ALIGNMENT:
        assert guarded.handle.address % (2 * alignment) == alignment + offset


def test_an_alignment_that_the_memory_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="512"):
        GuardedArray((7,), np.dtype("int8"), seed=1, alignment=512, memory=Far())
    far = device(Far())
    why = misfit(variant(alignment=512), {}, "aligned", far)
    assert why is not None
    assert "512" in why
    assert misfit(variant(alignment=256), {}, "aligned", far) is None


@given(st.integers(1, 300), st.booleans(), st.integers(1, ZONE))
def test_a_byte_outside_is_noticed_once_it_was_copied_back(n: int, before: bool, away: int) -> None:
    guarded = GuardedArray((n,), np.dtype("int8"), seed=n, memory=Far())
    guarded.array[...] = 7
    guarded.push()
    assert (guarded.handle.there() == 7).all()
    at = guarded.handle.start + (-away if before else n - 1 + away)
    guarded.handle.block[at] ^= 0xFF
    assert guarded.broken() == ""
    guarded.pull()
    assert (
        guarded.broken()
        == f"1 byte {'before its start' if before else 'past its end'} changed, the nearest {away} away from it"
    )


def test_rows_apart_are_apart_over_there_too() -> None:
    guarded = GuardedArray((3, 5), np.dtype("float32"), seed=3, offset=4, gap=12, memory=Far())
    guarded.array[...] = np.arange(15).reshape(3, 5)
    guarded.push()
    assert np.array_equal(guarded.handle.there(), guarded.array)
    guarded.handle.block[guarded.handle.start + 20] ^= 1
    guarded.pull()
    assert guarded.broken() == "bytes between its rows changed, first after row 0"


# Accuracy


@pytest.mark.parametrize("layout", ["aligned", "unaligned"])
def test_a_right_kernel_passes_and_its_launches_are_proven(layout: str) -> None:
    found = judged(layout=layout)
    assert found.accuracy.status is Status.PASS, found.accuracy.reason
    assert found.accuracy.cases == 3
    assert "nonfinite" in found.accuracy.guards
    assert found.receipt == Receipt(
        kernel=variant().id,
        ran="candidate",
        runs=3 + KINDS,
        threads=1,
        code_hash=HASH,
        uuid=UUID,
        functions=("first", "second"),
        launches=2 * (3 + KINDS),
    )


def wrong(change: Callable[[Mapping[str, Any], Mapping[str, Any]], None]) -> Work:
    def work(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> int | None:
        found = triple(inputs, outputs)
        change(inputs, outputs)
        return found

    return work


def spill(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    y = outputs["y"]
    y.block[y.start + y.nbytes] ^= 1


def scribble(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    inputs["x"].there()[2, 3] += 1


def bend(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    outputs["y"].there()[4, 32] *= 2


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (wrong(spill), "it wrote outside y: 1 byte past its end"),
        (wrong(scribble), "the input x was changed"),
        (wrong(bend), "y[4, 32] is"),
        (lambda inputs, outputs: None, "165 elements of y are never written"),
        (lambda inputs, outputs: triple(inputs, outputs) and None, "is reported as at -1"),
    ],
)
def test_what_a_kernel_does_over_there_is_seen(work: Work, told: str) -> None:
    found = judged(work).accuracy
    assert found.status is Status.FAIL
    assert told in found.reason


def test_a_simulator_proves_no_time() -> None:
    receipt = judged(simulated=True).receipt
    assert receipt is not None
    assert receipt.simulated
    timed = replace(FarLaunch(lambda: None).proof(simulated=True), device_ns=5.0, timed_runs=1)
    assert with_proofs(receipt, [timed]).device_ns == 0
    assert with_proofs(receipt, [timed]).timed_runs == 0


def test_proofs_of_different_code_are_all_in_the_receipt() -> None:
    plain = Receipt(kernel="far/a", ran="a", runs=2, threads=1)
    one = Proof(
        uuid=UUID, functions=("f",), launches=3, device_ns=7.0, timed_runs=1, code_hash="1" * 64, simulated=False
    )
    other = replace(one, functions=("g", "f"), code_hash="2" * 64, launches=4)
    assert with_proofs(plain, []) is plain
    assert with_proofs(plain, [one]).code_hash == "1" * 64
    both = with_proofs(with_proofs(plain, [one]), [one, other])
    assert (both.functions, both.launches, both.device_ns, both.timed_runs) == (("f", "g"), 10, 21.0, 3)
    assert both.code_hash not in {one.code_hash, other.code_hash}
    assert both.code_hash == with_proofs(plain, [other, one]).code_hash


# Large workloads


def test_a_large_workload_has_one_set_of_data_that_repeats_at_an_odd_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_module, "LARGE", 4000)
    monkeypatch.setattr(case_module, "PART", 256)
    axes = {"m": 1024, "n": 4}
    workload = Workload(op="triple", axes=axes)
    material = Material(TRIPLE, workload, 1)
    (encoded,) = material.encoded("none")
    x = encoded["x"]
    assert x.shape == (1024, 4)
    period = 65
    assert np.array_equal(x[period:], x[:-period])
    assert all(not np.array_equal(x[step:], x[:-step]) for step in range(1, period))
    cases = material.cases(KEY)
    assert cases.second is None
    found = judge(TRIPLE, variant(), cases, axes, layout="aligned", threads=1, seed=1, device=device(Far()))
    assert found.accuracy.status is Status.PASS, found.accuracy.reason
    assert (found.accuracy.cases, found.accuracy.elements) == (1, 4096)
    assert "nonfinite" in found.accuracy.guards
    assert found.receipt is not None
    assert (found.receipt.runs, found.receipt.launches) == (1 + KINDS, 2 * (1 + KINDS))
    bad = judge(TRIPLE, variant(wrong(spill)), cases, axes, layout="aligned", threads=1, seed=1, device=device(Far()))
    assert bad.accuracy.status is Status.FAIL
    assert len(Material(TRIPLE, Workload(op="triple", axes={"m": 999, "n": 4}), 1).encoded("none")) == 2


# Measuring


def test_the_rotation_follows_the_devices_own_cache_and_memory() -> None:
    far = Far()
    assert rotation(far) == Rotation(nbytes=256 << 20, wanted=256 << 20)
    far.cache = 100 << 20
    assert rotation(far) == Rotation(nbytes=400 << 20, wanted=400 << 20)
    far.cache = 1 << 30
    assert rotation(far) == Rotation(nbytes=FREE // 8, wanted=4 << 30)


TURN = Rotation(nbytes=1 << 20, wanted=1 << 20)


def bench(memory: Far, **more: Any) -> Bench:
    axes = {"m": 100, "n": 250}
    inputs = generate(axes, "normal", np.random.default_rng(0))
    return Bench(op=TRIPLE, key=KEY, inputs=inputs, axes=axes, device=device(memory), turn=TURN, budget_s=0.05, **more)


FLOOR_NS = 100_000 / RATES["write"] * 1e9


@pytest.mark.parametrize("layout", ["aligned", "unaligned"])
def test_a_kernel_is_measured_where_its_memory_is(layout: str) -> None:
    memory, places = Far(), []

    def work(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> int | None:
        places.append((inputs["x"].start, outputs["y"].start))
        return triple(inputs, outputs)

    shared = bench(memory, layout=layout)
    found = shared.measure(variant(work, 1.25 * FLOOR_NS), 1)
    assert found.status is Status.PASS, found.reason
    assert found.cold is not None
    assert found.hot is not None
    assert found.cold.against.fraction.median == pytest.approx(0.8, rel=1e-3)
    assert (
        found.cold.timing.buffers == len(set(places)) == TURN.sets_for(200_000 + 2 * 256 + 8 * (layout == "unaligned"))
    )
    past = 4 * (layout == "unaligned")
    assert {start % MEMORY_ALIGNMENT for pair in places for start in pair} == {past}
    receipt = shared.evidence.added_to(
        Receipt(kernel="far/x", ran="candidate", runs=4, threads=1, launches=8, timed_runs=1, device_ns=5.0)
    )
    assert receipt.runs == 4 + shared.evidence.runs == 4 + len(places)
    assert receipt.launches == 8 + 2 * len(places)
    assert 1 < receipt.timed_runs <= receipt.runs
    assert receipt.device_ns == pytest.approx(5.0 + (receipt.timed_runs - 1) * 1.25 * FLOOR_NS)
    # Some sets are checked, not all of them after every call.
    assert 0 < memory.copied_back < len(places) * 100_000


def test_a_timed_loop_that_writes_nothing_over_there_fails() -> None:
    found = bench(Far()).measure(variant(lambda inputs, outputs: None, 2 * FLOOR_NS), 1)
    assert found.status is Status.FAIL
    assert "did not write y" in found.reason


def test_probes_get_the_devices_memory() -> None:
    memory = Far()
    field = Field(0, TURN, memory)
    pieces = list(field.pieces(100_000, cold=True))
    assert len(pieces) == TURN.nbytes // 100_096
    assert all(piece.start % MEMORY_ALIGNMENT == 0 for piece in pieces)
    assert (pieces[-1].there() == 1).all()
    (whole,) = Field(TURN.nbytes + 100, TURN, memory).pieces(TURN.nbytes + 100, cold=True)
    assert whole.nbytes == TURN.nbytes + 100


def test_ceilings_of_a_device_with_memory() -> None:
    memory = Far()
    memory.cache = 1 << 16
    small: Any = memory
    small.available = lambda: 8 << 20
    found = {(facts.name, facts.level): facts for facts in measure_ceilings(device(memory))}
    levels = {(name, level) for name in ("read", "write") for level in ("L2", "memory")}
    assert set(found) == levels | {("compute", "registers"), ("upload", "pinned")}
    assert found["read", "L2"].nbytes == 1 << 15
    assert found["read", "memory"].nbytes == 1 << 20
    assert found["upload", "pinned"].nbytes == 1 << 20
    assert found["write", "memory"].rate == pytest.approx(RATES["write"], rel=1e-3)


def test_a_simulated_device_has_no_ceilings() -> None:
    assert measure_ceilings(device(Far(), simulated=True)) == []


def test_the_memory_of_a_device_is_its_own() -> None:
    memory = Far()
    assert memory_of(device(memory)) is memory


# Sequences that clocks can record


@dataclass
class Counting:
    """Records the starts of samples, and the runs of each launch."""

    starts: set[int]
    runs: list[int]
    name: str = "counting"

    def sample(self, launches: Sequence[Launch], first: int, calls: int) -> int:
        self.starts.add(first)
        for call in range(calls):
            self.runs[(first + call) % len(launches)] += 1
        return calls


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 20))
def test_samples_begin_at_the_same_places_of_each_cycle(sets: int, calls: int, cycles: int) -> None:
    clock = Counting(set(), [0] * sets)
    unused: Any = None
    timed = Timed([unused] * sets, clock, calls=calls)
    timed.fit()
    assert calls * 2 / 3 - 1 <= timed.calls <= calls * 3 / 2 + 1
    left = len(timed.launches)
    parts = max(1, left // timed.calls)
    assert sets - left < parts
    for _ in range(parts * cycles):
        timed.sample()
    assert len(clock.starts) == parts
    assert len(set(clock.runs[:left])) == 1
