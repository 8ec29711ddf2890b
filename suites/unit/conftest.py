"""Records of two devices for the tests of the report and of `tritmark verify`. Every figure in them is made up, and so is the GPU."""

from __future__ import annotations

import random
from dataclasses import replace
from math import exp

import numpy as np
import pytest

from tritmark.harness.machine.nvml import Health
from tritmark.harness.record import (
    Accuracy,
    Against,
    CeilingFacts,
    Cross,
    DeviceMemory,
    Environment,
    Footing,
    Gpu,
    Lane,
    Machine,
    MemoryUse,
    Performance,
    Ratio,
    Record,
    Run,
    Status,
    Timing,
    Transfer,
    WorkloadFacts,
)
from tritmark.harness.spec import Receipt

UUID = "GPU-00112233-4455-6677-8899-aabbccddeeff"
RATES = {
    "cpu": {"read": 38.6e9, "write": 29.9e9, "compute": 1.87e12},
    "cuda": {"read": 4.2e12, "write": 4.0e12, "compute": 250e12},
}
LAUNCH_NS = {"cpu": 2.0, "cuda": 520.0}
L2 = 50 << 20
HOT = {"cpu": 2.6, "cuda": 1.7}
CACHE = {"cpu": 16 << 20, "cuda": L2}
LATER = "not asked for"
KERNELS = (
    ("i2s_quantize", "none", "int8", {"cpu": ("scalar", "avx512"), "cuda": ("grid_stride", "vector")}, "i2s_gpu_quantize"),
    ("ternary_quantize", "none", "int8", {"cpu": ("avx512",), "cuda": ("block", "warp")}, "ternary_gpu_quantize"),
    ("ternary_matmul", "tile64", "float32", {"cpu": ("avx2", "avx512"), "cuda": ("tiled", "gemv")}, "gemm_i2s"),
)


def traffic(op: str, axes: dict[str, int]) -> tuple[int, int, int]:
    if op == "ternary_matmul":
        m, n, k = axes["M"], axes["N"], axes["K"]
        return n * k // 4 + m * k, 4 * m * n, 2 * m * n * k
    return 4 * axes["n"], axes["n"], 3 * axes["n"]


def footing(rng: random.Random, device: str, moved: tuple[int, int, int], speed: float, *, hot: bool) -> Footing:
    """A figure as the harness makes it: kernel and probe by turns, everything else from these samples."""
    needs = dict(zip(("read", "write", "compute"), moved, strict=True))
    footprint = moved[0] + moved[1]
    kept = hot and footprint < CACHE[device]
    rates = {name: rate * (HOT[device] if kept and name != "compute" else 1) for name, rate in RATES[device].items()}
    name = max(needs, key=lambda key: needs[key] / rates[key])
    work = needs[name]
    probe = work / rates[name] * 1e9 + LAUNCH_NS[device]
    # Reads and writes share the memory.
    kernel = max(work / rates[name], footprint / rates["read"]) / speed * 1e9 + 2 * LAUNCH_NS[device]
    a = [kernel * rng.lognormvariate(0, 0.004) for _ in range(30)]
    b = [probe * rng.lognormvariate(0, 0.004) for _ in range(30)]
    logs = np.log(b) - np.log(a)
    low, middle, high = (exp(float(np.quantile(logs, part))) for part in (0.3, 0.5, 0.7))
    q1, median, q3 = (float(np.quantile(a, part)) for part in (0.25, 0.5, 0.75))
    return Footing(
        timing=Timing(
            samples_ns=tuple(a),
            calls_per_sample=max(1, round(2e5 / kernel)),
            median_ns=median,
            q1_ns=q1,
            q3_ns=q3,
            low_ns=float(np.quantile(a, 0.4)),
            high_ns=float(np.quantile(a, 0.6)),
            stopped="interval",
            clock="CUDA graph, events" if device == "cuda" else "native loop",
            buffers=1 if hot else 40,
        ),
        against=Against(
            ceiling=name,
            unit="operations/s" if name == "compute" else "bytes/s",
            rate=work * 1e9 / float(np.median(b)),
            work=work,
            fraction=Ratio(median=middle, low=low, high=high, pairs=30),
            probe_ns=tuple(b),
            probe_work=work,
        ),
        footprint=footprint,
        rotation=footprint if hot else max(40 * footprint, 8 * L2),
    )


def receipt_of(kernel: str, variant: str, function: str) -> Receipt:
    functions = (f"{function}_{variant}", *(("gemm_row_sums",) if variant == "tiled" else ()))
    return Receipt(
        kernel=kernel,
        ran=variant,
        runs=4,
        threads=1,
        code_hash=f"{abs(hash_of(kernel)):064x}",
        uuid=UUID,
        functions=functions,
        launches=4 * len(functions),
        device_ns=9_000_000.0,
        timed_runs=3,
    )


def hash_of(text: str) -> int:
    return int.from_bytes(text.encode()[::-1][:31].ljust(31, b"x"), "big")


def one_run(rng: random.Random, device: str, kernel: tuple[str, ...], function: str, axes: dict[str, int], *, measured: bool) -> Run:
    op, format, dtype, variant = kernel
    name = f"{device}/{op}/{format}/{dtype}/{variant}"
    moved = traffic(op, axes)
    shape = ",".join(f"{axis}={size}" for axis, size in axes.items())
    performance = Performance(status=Status.NOT_RUN, reason="the suite asks for accuracy only here")
    cuda = device == "cuda"
    if measured:
        speed = {"scalar": 0.11, "avx2": 0.7, "grid_stride": 0.61, "block": 0.22, "tiled": 0.2}.get(variant, 0.95)
        performance = Performance(
            status=Status.PASS,
            cold=footing(rng, device, moved, speed, hot=False),
            hot=footing(rng, device, moved, speed * 0.85, hot=True),
            call_overhead_ns=rng.uniform(4100, 4500) if cuda else rng.uniform(350, 400),
            read=moved[0],
            written=moved[1],
            operations=moved[2],
        )
    receipt = receipt_of(name, variant, function) if cuda else Receipt(kernel=name, ran=variant, runs=4, threads=2, code_hash="ab" * 32)
    return Run(
        id=f"{name} {op}[{shape}]/uniform/aligned",
        op=op,
        format=format,
        dtype=dtype,
        device=device,
        variant=variant,
        kernel=name,
        workload=WorkloadFacts(id=f"{op}[{shape}]/uniform/aligned", axes=axes, family="uniform", layout="aligned", seed=7),
        threads=1 if cuda else 2,
        accuracy=Accuracy(status=Status.PASS, family="exact", cases=3, elements=3 * moved[1], guards=("poison", "zones", "inputs")),
        performance=performance,
        memory=MemoryUse(status=Status.NOT_RUN, reason=LATER),
        cross=Cross(status=Status.NOT_RUN, reason=LATER),
        receipt=receipt,
        seconds=30.0,
        device_memory=DeviceMemory(inputs=moved[0], outputs=moved[1], workspace=256, peak=moved[0] + moved[1] + 768) if cuda else None,
        upload=Transfer(nbytes=moved[0], ns=moved[0] / 48.3 + 9000) if cuda else None,
        download=Transfer(nbytes=moved[1], ns=moved[1] / 45.1 + 9000) if cuda else None,
    )


def ceilings() -> tuple[CeilingFacts, ...]:
    found = []
    for threads, scale in ((1, 0.62), (2, 1.0)):
        for level, nbytes, factor in (("L1", 48 << 10, 6.0), ("L2", 1 << 20, 3.0), ("memory", 4 << 20, 1.0)):
            for name in ("read", "write"):
                rate = RATES["cpu"][name] * factor * scale
                found.append(CeilingFacts(device="cpu", name=name, level=level, threads=threads, nbytes=nbytes, rate=rate, unit="bytes/s"))
    for level, nbytes, factor in (("L2", L2 // 2, 1.8), ("memory", 1 << 30, 1.0)):
        for name, rate in (("read", 4.2e12), ("write", 4.0e12), ("copy", 4.15e12)):
            found.append(CeilingFacts(device="cuda", name=name, level=level, threads=1, nbytes=nbytes, rate=rate * factor, unit="bytes/s"))
    for name, level, rate, unit in (
        ("launch", "CUDA graph", 1.92e6, "launches/s"),
        ("Python launch", "stream", 2.4e5, "launches/s"),
        ("upload", "pinned memory", 54.1e9, "bytes/s"),
        ("download", "pinned memory", 51.7e9, "bytes/s"),
    ):
        found.append(CeilingFacts(device="cuda", name=name, level=level, threads=1, nbytes=128 << 20, rate=rate, unit=unit))
    for device, threads in (("cpu", 2), ("cuda", 1)):
        rate = RATES[device]["compute"]
        found.append(
            CeilingFacts(device=device, name="compute", level="registers", threads=threads, nbytes=0, rate=rate, unit="operations/s")
        )
    return tuple(found)


def gpu() -> Gpu:
    return Gpu(
        index=0,
        name="Made-up GPU",
        uuid=UUID,
        capability=(9, 0),
        memory=141 << 30,
        l2=L2,
        sms=132,
        clock_hz=1_980_000_000,
        memory_clock_hz=3_201_000_000,
        memory_bus_bits=6144,
        peak_bandwidth=4.917e12,
        driver="580.65.06, CUDA 13.0",
        health=Health(
            temperature=41,
            power=124.5,
            power_limit=700.0,
            clock_hz=1_980_000_000,
            clock_max_hz=1_980_000_000,
            memory_clock_hz=3_201_000_000,
            memory_clock_max_hz=3_201_000_000,
            throttle=("gpu_idle",),
            ecc=True,
            ecc_uncorrected=0,
            utilization=0,
            memory_used=600 << 20,
        ),
    )


def record_of(runs: list[Run], *, gpus: tuple[Gpu, ...], rates: tuple[CeilingFacts, ...], simulated: bool = False) -> Record:
    return Record(
        id="20250311T142233Z-00004f1c",
        created="2025-03-11T14:22:33+00:00",
        suite="quick",
        complete=True,
        environment=Environment(
            tritmark="0.1.0",
            python="3.11.2",
            packages={"numpy": "2.2.3", "pycuda": "2025.1.2"},
            compiler="gcc 12.2.0: -O3; nvcc 13.0: -fmad=false",
            variables={"TRITMARK_CUDA": "simulator"} if simulated else {},
            commit=None,
            command=("tritmark", "run", "--suite", "quick"),
            seed=7,
        ),
        machine=Machine(
            id="9c1d77aa02be",
            hostname="bench-04",
            cpu="Made-up CPU",
            vendor="GenuineIntel",
            architecture="x86_64",
            features=("avx2", "avx512f", "f16c"),
            logical_cores=4,
            physical_cores=2,
            usable_cores=4,
            caches={"L1d": 48 << 10, "L2": 2 << 20, "L3": 32 << 20},
            memory=128 << 30,
            page_size=4096,
            huge_pages="madvise",
            governor=None,
            numa_nodes=1,
            hypervisor="KVM",
            kernel="6.1.0",
            ceilings=rates,
            gpus=gpus,
        ),
        lanes=(Lane(device="cpu", ran=True), Lane(device="cuda", ran=True, simulated=simulated)),
        runs=tuple(runs),
    )


def two_devices() -> Record:
    """An honest Record of a CPU and a GPU."""
    rng = random.Random(11)
    runs = []
    for op, format, dtype, variants, function in KERNELS:
        product = op == "ternary_matmul"
        shapes = (
            ({"M": 1, "N": 2560, "K": 2560}, {"M": 1, "N": 5120, "K": 27648})
            if product
            else ({"n": 1 << 16}, {"n": 1 << 24}, {"n": 1 << 28})
        )
        for device, names in variants.items():
            for name in names:
                for axes in shapes:
                    runs.append(one_run(rng, device, (op, format, dtype, name), function, axes, measured=True))
                small = {"M": 2, "N": 5, "K": 7} if product else {"n": 65}
                runs.append(one_run(rng, device, (op, format, dtype, name), function, small, measured=False))
    return record_of(runs, gpus=(gpu(),), rates=ceilings())


def on_the_simulator() -> Record:
    """The same kernels where a simulator stood in for the GPU."""
    runs = []
    for run in two_devices().runs:
        if run.device == "cpu" or run.performance.cold is None:
            runs.append(run)
    changed = []
    for run in runs:
        if run.device == "cuda":
            assert run.receipt is not None
            receipt = replace(run.receipt, simulated=True, uuid="SIMULATOR", device_ns=0.0, timed_runs=0)
            changed.append(run.model_copy(update={"receipt": receipt, "upload": None, "download": None, "device_memory": None}))
        else:
            changed.append(run)
    rates = tuple(each for each in ceilings() if each.device == "cpu")
    return record_of(changed, gpus=(), rates=rates, simulated=True)


@pytest.fixture(scope="session")
def gpu_record() -> Record:
    return two_devices()


@pytest.fixture(scope="session")
def simulated_record() -> Record:
    return on_the_simulator()
