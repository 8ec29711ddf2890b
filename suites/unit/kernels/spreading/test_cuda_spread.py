"""A function over many tensors on several GPUs: the bits of one GPU, also if some fail. In a simulator of up to four
GPUs, and on real ones if there are any."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import count
from pathlib import Path
from threading import Barrier, Event, Lock, Semaphore, current_thread
from threading import enumerate as enumerate_threads
from typing import Any

import numpy as np
import pytest
from made_up_library import MadeUpArray, asarray

from tritmark.harness.errors import (
    DeviceError,
    DeviceFaultError,
    InsufficientMemoryError,
    InvalidArgumentError,
    NoCompatibleKernelError,
)
from tritmark.harness.machine import gpu
from tritmark.kernels import Spread, i2s_quantize, matmul, pack_codes, spread, ternary_quantize
from tritmark.kernels.cuda import context as contexts
from tritmark.kernels.cuda.context import cuda_context, gpu_count, on_gpu
from tritmark.kernels.cuda.sharing import peer
from tritmark.kernels.cuda.simulator import SimulatorBackend
from tritmark.kernels.dispatch.offload import kept
from tritmark.kernels.spreading.spread import PLACES

sys.path.append(str(Path(__file__).parents[3] / "large"))
several_gpus = import_module("several_gpus")

RNG = np.random.default_rng(41)
TENSORS = {
    f"layer {number}": RNG.normal(size=(1 + number % 3, 256 * (1 + number % 5))).astype(np.float32)
    for number in range(14)
}
CODES = {name: (RNG.integers(-1, 2, (8, 64 * (1 + name)), dtype=np.int8), 0.5) for name in range(5)}

Begin = Callable[..., None]
LOCK = Lock()


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Makes so many simulated GPUs with variables TRITMARK_SIMULATOR_NAME=value."""

    def begun(count: int, **variables: str) -> None:
        monkeypatch.setenv("TRITMARK_CUDA", "simulator")
        monkeypatch.setenv("TRITMARK_SIMULATOR_GPUS", str(count))
        for name, value in variables.items():
            monkeypatch.setenv(f"TRITMARK_SIMULATOR_{name}", value)
        contexts._CONTEXTS.clear()

    yield begun
    contexts._CONTEXTS.clear()


def parts(value: Any) -> list[Any]:
    """The arrays and numbers of a result."""
    flat = [part for each in value for part in parts(each)] if isinstance(value, tuple) else [value]
    return [each.host() if isinstance(each, MadeUpArray) else each for each in flat]


def same(one: Any, other: Any) -> None:
    for mine, theirs in zip(parts(one), parts(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)
        assert getattr(mine, "dtype", None) == getattr(theirs, "dtype", None)


def after(failures: int, survivor: str) -> Callable[..., Any]:
    """ternary_quantize, which begins on that GPU after so many failures on others."""
    seen = Semaphore(0)
    passed = Event()

    def call(x: Any, device: str, **options: Any) -> Any:
        if device == survivor:
            with LOCK:
                if not passed.is_set():
                    for _ in range(failures):
                        assert seen.acquire(timeout=60)
                    passed.set()
            return ternary_quantize(x, device=device, **options)
        try:
            return ternary_quantize(x, device=device, **options)
        except DeviceError:
            seen.release()
            raise

    return call


def together(gpus: int) -> Callable[..., Any]:
    """ternary_quantize, which begins on each GPU after all have a tensor."""
    barrier, begun = Barrier(gpus), set[str]()

    def call(x: Any, device: str, **options: Any) -> Any:
        with LOCK:
            first = device not in begun
            begun.add(device)
        if first:
            barrier.wait(60)
        return ternary_quantize(x, device=device, **options)

    return call


CALLS: dict[str, tuple[Callable[..., Any], Any, dict[str, Any]]] = {
    "i2s_quantize": (lambda x, device, **more: i2s_quantize(x, 0.5, device=device), TENSORS, {}),
    "ternary_quantize": (ternary_quantize, TENSORS, {"block": 64}),
    "ternary_quantize, packed": (ternary_quantize, list(TENSORS.values()), {"packed": True, "block": 128}),
    "pack_codes": (pack_codes, CODES, {}),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_results_are_those_of_one_gpu(begin: Begin, name: str, count: int) -> None:
    function, tensors, options = CALLS[name]
    begin(count)
    found = spread(function, tensors, **options)
    named = tensors if isinstance(tensors, dict) else dict(enumerate(tensors))
    assert list(found.results) == list(found.made_by) == list(named)
    for key, value in named.items():
        arguments = value if isinstance(value, tuple) else (value,)
        same(found.results[key], function(*arguments, device="cuda", **options))
    assert set(found.made_by.values()) <= {f"cuda:{index}" for index in range(count)}
    assert found.failed == ()
    assert found.copies == {}
    assert found.rates.keys() == set(found.made_by.values())
    assert list(found.busy_s) == [f"cuda:{index}" for index in range(count)]
    assert all(0 <= busy <= found.wall_s for busy in found.busy_s.values())
    assert found.utilization is not None
    assert found.balance is not None
    assert 0 < found.utilization <= 1
    assert 0 < found.balance <= 1
    assert all(rate > 0 for rate in found.rates.values())


@pytest.mark.parametrize("launch", [1, 2, 5])
def test_a_gpu_that_fails_is_taken_out_and_its_work_is_done_by_the_other(begin: Begin, launch: int) -> None:
    begin(2, FAILS=f"1@{launch}")
    found = spread(after(1, "cuda:0"), TENSORS, block=64)
    for key, value in TENSORS.items():
        same(found.results[key], ternary_quantize(value, 64))
    (failed,) = found.failed
    assert failed.device == "cuda:1"
    assert isinstance(failed.error, DeviceFaultError)
    assert sum(device == "cuda:1" for device in found.made_by.values()) < launch
    again = spread(ternary_quantize, TENSORS, block=64)
    assert set(again.made_by.values()) == {"cuda:0"}, "it stays lost"
    assert [each.device for each in again.failed] == ["cuda:1"]


def test_the_first_gpu_may_fail_too_and_two_of_three(begin: Begin) -> None:
    begin(3, FAILS="0@1,2@2")
    found = spread(after(2, "cuda:1"), TENSORS, block=64)
    assert {each.device for each in found.failed} == {"cuda:0", "cuda:2"}
    assert "cuda:0" not in found.made_by.values()
    for key, value in TENSORS.items():
        same(found.results[key], ternary_quantize(value, 64))


def others_ended() -> bool:
    """Waits for all other threads of `spread`."""
    others = [
        each for each in enumerate_threads() if each.name.startswith("tritmark cuda:") and each != current_thread()
    ]
    for each in others:
        each.join(60)
    return not any(each.is_alive() for each in others)


def test_threads_end_once_nothing_waits_and_what_fails_then_is_done_by_another(begin: Begin) -> None:
    begin(2)
    begun, lost = Event(), list[float]()

    def fails_last(x: Any, device: str) -> Any:
        with LOCK:
            fails = device == "cuda:1" and not lost
            if fails:
                lost.append(float(x[0, 0]))
        if fails:
            begun.set()
            assert others_ended()
            raise DeviceError("lost", next_step="look")
        assert begun.wait(60)
        return ternary_quantize(x, device=device)

    found = spread(fails_last, list(TENSORS.values()))
    assert [each.device for each in found.failed] == ["cuda:1"]
    for number, value in enumerate(TENSORS.values()):
        same(found.results[number], ternary_quantize(value))
        assert float(value[0, 0]) not in lost or found.made_by[number] == "cuda:0"


def test_where_all_fail_the_error_says_what_of(begin: Begin) -> None:
    begin(2, FAILS="0@3,1@2")
    with pytest.raises(DeviceError, match=r"no GPU is left for \d+ of 14 tensors \(cuda:. *") as raised:
        spread(ternary_quantize, TENSORS, block=64)
    for words in ("cuda:0: simulated: GPU 0 was lost at its launch 3", "cuda:1: simulated: GPU 1 was lost at its"):
        assert words in str(raised.value)
    # Three launches passed, but a result whose copy comes after the loss of its GPU is lost too.
    results = raised.value.spread.results  # type: ignore[attr-defined]
    assert len(results) <= 3
    assert f"no GPU is left for {14 - len(results)} of 14 tensors" in str(raised.value)
    for key, found in results.items():
        same(found, ternary_quantize(TENSORS[key], 64))


def test_a_gpu_that_is_short_of_memory_leaves_the_work_to_the_other(begin: Begin) -> None:
    begin(2, MEMORY="100000000,4000")
    found = spread(after(PLACES, "cuda:0"), TENSORS, block=64)
    for key, value in TENSORS.items():
        same(found.results[key], ternary_quantize(value, 64))
    (failed,) = found.failed
    assert failed.device == "cuda:1"
    assert isinstance(failed.error, InsufficientMemoryError)


def test_what_a_thread_keeps_is_let_go_where_memory_is_short(begin: Begin) -> None:
    begin(1, MEMORY=str(8 << 20))
    with kept():
        for n in (1_200_000, 1_100_000):  # 6 MB and 5.5 MB, with codes
            x = RNG.normal(size=n).astype(np.float32)
            same(ternary_quantize(x, device="cuda"), ternary_quantize(x))
        with pytest.raises(InsufficientMemoryError):
            ternary_quantize(np.zeros(2_000_000, np.float32), device="cuda")


def test_what_fits_alone_is_done_alone(begin: Begin) -> None:
    tensors = {number: RNG.normal(size=1 << 16).astype(np.float32) for number in range(6)}
    begin(1, MEMORY="500000")  # a tensor takes 256 KiB, and its result 68
    found = spread(ternary_quantize, tensors, block=64)
    assert found.failed == ()
    for key, value in tensors.items():
        same(found.results[key], ternary_quantize(value, 64))


def test_what_an_earlier_context_holds_is_not_of_this_ones_memory(begin: Begin) -> None:
    begin(1)
    held = cuda_context(0).array((1 << 20,), np.uint8)
    begin(1, MEMORY="5000")
    assert cuda_context(0).pool.available() == 5000
    more = cuda_context(0).array((2000,), np.uint8)
    assert cuda_context(0).pool.available() == 3000
    del more, held
    assert cuda_context(0).pool.available() == 5000


def test_memory_that_all_were_short_of_together_is_enough_for_one(begin: Begin) -> None:
    begin(1)
    together, asked = Barrier(PLACES), count()

    def short_at_first(x: Any, device: str) -> Any:
        if next(asked) < PLACES:
            together.wait(10)
            raise InsufficientMemoryError(what="x", required=2, available=1, next_step="wait")
        return x

    tensors = {number: np.zeros(1 << 10, np.float32) for number in range(2 * PLACES)}
    found = spread(short_at_first, tensors)
    assert found.failed == ()
    assert found.results.keys() == tensors.keys()


@pytest.mark.parametrize(("peers", "way"), [("1", "peer"), ("0", "staged")])
def test_arrays_on_one_gpu_are_quantized_by_all_and_come_back(begin: Begin, peers: str, way: str) -> None:
    begin(3, PEERS=peers)
    with on_gpu(1):
        tensors = {name: asarray(value) for name, value in TENSORS.items()}
    found = spread(together(3), tensors, packed=True, block=128)
    for key, value in TENSORS.items():
        result: Any = found.results[key]
        assert {each.index for each in result if isinstance(each, MadeUpArray)} == {1}
        same(result, ternary_quantize(value, 128, packed=True))
    pairs = [(one, other) for one in ("cuda:0", "cuda:2") for other in ("cuda:1",)]
    assert found.copies == {pair: way for each in pairs for pair in (each, each[::-1])}


@pytest.mark.parametrize("peers", ["1", "0"])
def test_copies_from_gpu_to_gpu(begin: Begin, peers: str) -> None:
    begin(2, PEERS=peers)
    here, there = cuda_context(0), cuda_context(1)
    for shape in ((), (0,), (3, 5), (1000,)):
        values = RNG.integers(0, 255, shape, dtype=np.uint8)
        source, target = here.upload(values), there.array(shape, np.uint8)
        assert peer.copy_between(source, 0, target, 1) == ("peer" if peers == "1" else "staged")
        np.testing.assert_array_equal(target.numpy(), values)
    begin(2, FAILS="0@1", PEERS=peers)
    with pytest.raises(DeviceFaultError):
        i2s_quantize(TENSORS["layer 0"], 0.5, device="cuda:0")
    lost, target = cuda_context(0), cuda_context(1).array((8,), np.uint8)
    with pytest.raises(DeviceFaultError, match="GPU 0 was lost"):
        peer.copy_between(lost_array(lost), 0, target, 1)


def lost_array(context: Any) -> Any:
    """An array from before on a GPU that is lost."""
    backend = context.backend
    assert isinstance(backend, SimulatorBackend)
    backend._lost = False
    made = context.array((8,), np.uint8)
    backend._lost = True
    return made


def test_what_the_function_refuses_is_told_with_the_tensor(begin: Begin) -> None:
    begin(2)
    wrong = {**TENSORS, "bad": np.full((8, 1280), np.nan, np.float32)}  # the largest, while others wait
    with pytest.raises(InvalidArgumentError, match="x is nan at index 0") as raised:
        spread(ternary_quantize, wrong, block=64)
    assert len(raised.value.__notes__) == 1
    assert "tensor 'bad', on cuda:" in raised.value.__notes__[0]
    finished: Spread[str, Any] = raised.value.spread  # type: ignore[attr-defined]
    assert "bad" not in finished.results
    assert finished.results.keys() == finished.made_by.keys()
    for key, result in finished.results.items():
        same(result, ternary_quantize(TENSORS[key], 64))


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "words"),
    [
        ((ternary_quantize, TENSORS), {"devices": []}, InvalidArgumentError, "devices is none; legal: at least one"),
        ((ternary_quantize, TENSORS), {"devices": ["cpu:0"]}, NoCompatibleKernelError, "cpu:0"),
        (
            (ternary_quantize, TENSORS),
            {"devices": ["cuda:1", "cpu"]},
            InvalidArgumentError,
            "devices is cuda:1, cpu; legal: cpu alone, or GPUs",
        ),
        ((ternary_quantize, TENSORS), {"threads": 0}, InvalidArgumentError, "threads is 0; legal: an integer of at"),
        ((ternary_quantize, TENSORS), {"devices": ["cuda:5"]}, NoCompatibleKernelError, "there is no cuda:5"),
        ((np.sort, TENSORS), {}, InvalidArgumentError, "function is sort; legal: a function that takes a device"),
    ],
)
def test_bad_arguments_are_refused(
    begin: Begin, arguments: Any, options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    begin(2)
    with pytest.raises(kind, match=words):
        spread(*arguments, **options)


def test_a_kernel_is_loaded_once_on_each_gpu_however_many_threads_need_it(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(2)
    loaded: list[tuple[int, str]] = []
    real = SimulatorBackend.function

    def slowly(self: SimulatorBackend, kernel: Any) -> Any:
        loaded.append((self.info.index, kernel))
        Event().wait(0.05)  # so that all its users are there
        return real(self, kernel)

    monkeypatch.setattr(SimulatorBackend, "function", slowly)
    spread(together(2), TENSORS, block=64)
    assert len(loaded) == len(set(loaded)) == 2


def test_gpus_may_be_chosen_and_nothing_is_done_for_nothing(begin: Begin) -> None:
    begin(3)
    found = spread(i2s_quantize, [(TENSORS["layer 0"], 0.5)] * 3, devices=("cuda:2", "cuda:2"))
    assert set(found.made_by.values()) == {"cuda:2"}
    nothing = spread(ternary_quantize, {})
    assert (nothing.results, nothing.wall_s, nothing.utilization, nothing.balance) == ({}, 0.0, None, None)
    assert set(spread(ternary_quantize, TENSORS, devices="cuda:1").made_by.values()) == {"cuda:1"}
    square = [(np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32))]
    np.testing.assert_array_equal(spread(matmul, square, devices=["cuda:1"]).results[0], np.eye(4))


def test_without_a_gpu_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITMARK_CUDA", raising=False)
    monkeypatch.setenv("TRITMARK_GPU_FAKE", "no")
    monkeypatch.setattr("tritmark.kernels.cuda.context.gpu_count", lambda: 0)
    with pytest.raises(NoCompatibleKernelError, match="TRITMARK_GPU_FAKE=no hides the GPU"):
        spread(ternary_quantize, TENSORS)


def test_the_script_for_a_large_model_compares_and_counts(begin: Begin, capsys: pytest.CaptureFixture[str]) -> None:
    begin(2)
    tensors = several_gpus.weights([(4, 256, 2), (2, 512, 1)], layers=2)
    assert len(tensors) == 6
    several_gpus.compared(tensors, 2, turns=1, copies=True)  # a simulator has no speed: its verdict is ignored
    told = capsys.readouterr().out
    assert "6 tensors" in told
    assert "copied alone on 2: " in told
    assert "bits differ from one GPU: none" in told
    _, one = several_gpus.quantized(tensors, 1)
    _, other = several_gpus.quantized({**tensors, "0.4x256.0": tensors["0.4x256.0"][:, ::-1].copy()}, 2)
    assert several_gpus.differing(one, other) == ["0.4x256.0"]
    assert sum(N * K * count for N, K, count in several_gpus.published()) * 32 == 6_979_321_856


@pytest.mark.skipif(gpu.why_not() is not None, reason="needs a GPU of NVIDIA's")
def test_a_real_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITMARK_CUDA", raising=False)
    tensors = {number: RNG.normal(size=(1 << 22) + number).astype(np.float32) for number in range(6)}
    found = spread(ternary_quantize, tensors, devices=["cuda:0"], block=64, packed=True)
    assert found.failed == ()
    for key, value in tensors.items():
        same(found.results[key], ternary_quantize(value, 64, packed=True))


two_gpus = pytest.mark.skipif(
    gpu.why_not() is not None or gpu.device_count() < 2, reason="needs two GPUs of NVIDIA's in one machine"
)


@two_gpus
def test_two_real_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITMARK_CUDA", raising=False)
    tensors = {number: RNG.normal(size=(1 << 22) + number).astype(np.float32) for number in range(12)}
    found = spread(ternary_quantize, tensors, block=64, packed=True)
    assert set(found.made_by.values()) == {f"cuda:{index}" for index in range(gpu_count())}
    assert found.failed == ()
    for key, value in tensors.items():
        same(found.results[key], ternary_quantize(value, 64, packed=True, device="cuda:0"))


@two_gpus
def test_copies_between_two_real_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITMARK_CUDA", raising=False)
    values = RNG.integers(0, 255, 40_000_000, dtype=np.uint8)
    for source, target in ((0, 1), (1, 0)):
        there = cuda_context(target).array(values.shape, np.uint8)
        way = peer.copy_between(cuda_context(source).upload(values), source, there, target)
        np.testing.assert_array_equal(there.numpy(), values)
        backends = cuda_context(target).backend, cuda_context(source).backend
        assert way == ("peer" if backends[0].reaches(backends[1]) else "staged")
        monkeypatch.setattr(type(backends[0]), "reaches", lambda self, other: False)
        assert peer.copy_between(cuda_context(source).upload(values[::-1]), source, there, target) == "staged"
        np.testing.assert_array_equal(there.numpy(), values[::-1])
        monkeypatch.undo()
