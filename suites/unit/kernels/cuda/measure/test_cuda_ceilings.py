"""The GPU's probes do the work that their rates claim: in the simulator, or on a GPU if there is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tritmark.harness.machine import gpu
from tritmark.harness.measure.ceilings import measure_ceilings
from tritmark.kernels.cuda import device
from tritmark.kernels.cuda.context import CudaContext, cuda_context
from tritmark.kernels.cuda.launch.launch import REAL
from tritmark.kernels.cuda.measure.ceilings import (
    DOT_OPERATIONS,
    DOT_ROUNDS,
    HALF,
    PROBES,
    THREADS,
    WGMMA,
    WGMMA_ROUNDS,
    WORD,
    CopyProbe,
    OneByOne,
    Probe,
    ceilings,
)


@pytest.fixture(autouse=True, scope="module")
def here() -> Any:
    """The context on the GPU, or in the simulator."""
    with pytest.MonkeyPatch.context() as patch:
        if gpu.why_not() is not None:
            patch.setenv("TRITMARK_CUDA", "simulator")
        why = device.missing()
        if why is not None:
            pytest.skip(why)
        yield cuda_context()


def named(name: str) -> list[str]:
    return [key for key, ceiling in ceilings().items() if ceiling.name == name]


def upload(here: CudaContext, data: Any, past: int = 0) -> Any:
    """The bytes on the device, with equally many after them that no probe may access."""
    buffer = here.array((data.nbytes + past,), np.uint8)
    buffer.write(np.concatenate([data, np.full(past, 0x77, np.uint8)]))
    return buffer


SIZES = st.sampled_from([1, 15, 16, 17, 4095, 4096, 65_541, 200_003])


def data(nbytes: int) -> Any:
    return np.random.default_rng(nbytes).integers(0, 256, nbytes, dtype=np.uint8)


def word_sum(values: Any) -> int:
    padded = np.zeros(-(-values.nbytes // 4) * 4, np.uint8)
    padded[: values.nbytes] = values
    return int(padded.view(np.uint32).sum(dtype=np.uint64)) % (1 << 32)


@settings(max_examples=10)
@given(SIZES)
def test_read_probes_read_every_byte_once(here: CudaContext, nbytes: int) -> None:
    values = data(nbytes)
    whole = upload(here, values, 64)
    for key in named("read"):
        probe = ceilings()[key].bind(whole.view((nbytes,), np.uint8), 1)
        assert isinstance(probe, Probe)
        probe.run()
        assert probe.checksum == word_sum(values), key


@settings(max_examples=10)
@given(SIZES)
def test_write_probes_write_every_byte_and_none_beside(here: CudaContext, nbytes: int) -> None:
    for key in named("write"):
        whole = upload(here, data(nbytes), 64)
        ceilings()[key].bind(whole.view((nbytes,), np.uint8), 1).run()
        found = whole.numpy()
        assert (found[:nbytes] == WORD & 0xFF).all(), key
        assert (found[nbytes:] == 0x77).all(), key


@pytest.mark.parametrize("nbytes", [256, 8192, 65_536 + 300, 200_003])
def test_copy_probes_copy_one_half_to_the_other(here: CudaContext, nbytes: int) -> None:
    half = nbytes // HALF * HALF // 2
    for key in named("copy"):
        ceiling = ceilings()[key]
        whole = upload(here, data(nbytes), 64)
        ceiling.bind(whole.view((nbytes,), np.uint8), 1).run()
        found = whole.numpy()
        assert ceiling.work(nbytes) == 2 * half
        assert np.array_equal(found[half : 2 * half], data(nbytes)[:half]), key
        assert np.array_equal(found[:half], data(nbytes)[:half])
        assert np.array_equal(found[2 * half : nbytes], data(nbytes)[2 * half :])
        assert (found[nbytes:] == 0x77).all()


def dot_of(rounds: int) -> int:
    """The sum of one thread's accumulators after so many rounds, in 32 bits."""
    acc = np.arange(1, 9, dtype=np.int32)
    weights = np.array([0x03, 0x01, -1, 0x01], np.int32)
    for _ in range(4 * rounds):
        acc = acc + acc.view(np.int8).reshape(8, 4).astype(np.int32) @ weights
    return int(acc.astype(np.int64).sum())


def test_the_dot_probe_does_every_product(here: CudaContext) -> None:
    (key,) = named("dot")
    ceiling = ceilings()[key]
    nbytes = 2
    probe: Any = ceiling.bind(upload(here, data(nbytes)), 1)
    probe.run()
    threads = probe.steps[0].grid[0] * THREADS
    rounds, rest = divmod(nbytes * DOT_ROUNDS, threads)
    assert probe.checksum == (rest * dot_of(rounds + 1) + (threads - rest) * dot_of(rounds)) % (1 << 32)
    assert ceiling.work(nbytes) == nbytes * DOT_ROUNDS * DOT_OPERATIONS


def test_hoppers_products_are_all_made(here: CudaContext) -> None:
    """The accumulators hold the sum of the claimed products."""
    if here.backend.simulated or not WGMMA.runs_on(here.backend.info.capability):
        pytest.skip("the probe is for the tensor cores of compute capability 9.0")
    ceiling = ceilings()["compute: wgmma"]
    for nbytes in (1, 4096, 65_541):
        probe = ceiling.bind(upload(here, data(nbytes)), 1)
        assert isinstance(probe, Probe)
        probe.run()
        products, warpgroups = nbytes * WGMMA_ROUNDS * 8, probe.steps[0].grid[0] * THREADS // 128
        of_a_row = 32 // 4 * (0 + 1 + 2 + 3)  # operand B is 1, A the lane's number within the four of a row
        sums = products * 64 * 128 * of_a_row + warpgroups * 128 * sum(range(64))
        assert probe.checksum == sums % (1 << 32)
        assert ceiling.work(nbytes) == products * 2 * 64 * 128 * 32


def test_launches_and_transfers(here: CudaContext) -> None:
    for name, kind in (("launch", Probe), ("Python launch", OneByOne), ("upload", CopyProbe), ("download", CopyProbe)):
        (key,) = named(name)
        launch = ceilings()[key].bind(upload(here, data(5000)), 1)
        assert isinstance(launch, kind)
        launch.run()
        assert launch.runs == 1
        assert launch.ran
        assert (launch.pointer is None) is (kind is not Probe)


def test_every_probe_is_there_and_no_slower_one_is_offered(here: CudaContext) -> None:
    bound = {name: [ceilings()[key] for key in named(name)] for name in ("read", "write", "copy", "compute")}
    assert all(bound.values())
    real, capability = not here.backend.simulated, here.backend.info.capability
    assert len(bound["compute"]) == 1 + (real and capability >= (8, 0)) + (real and capability == (9, 0))
    assert all(kernel.name.startswith("probe_gpu_") for kernel in PROBES)


def test_the_simulator_has_no_ceilings_and_is_not_real(here: CudaContext) -> None:
    assert (REAL in device.features()) is not here.backend.simulated
    if here.backend.simulated:
        assert measure_ceilings(device.DEVICE) == []
