"""Records for tests: of a CPU, with names that try to break out of the page, and of a CPU and a GPU. Figures and GPU
are made up."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from math import exp
from typing import Any

import numpy as np

from tritmark.harness.machine.nvml import Health
from tritmark.harness.record import (
    Accuracy,
    CeilingComparison,
    CeilingFacts,
    Cross,
    DeviceMemory,
    DeviceStatus,
    Divergence,
    Environment,
    Gpu,
    Layer,
    LayerScheme,
    Machine,
    Measurement,
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

HOSTILE = '</script><script>alert("x")</script><img src=http://evil.example/x onerror=alert(1)>'
MARKS = "a\u202egnp.exe\u200f \x1b[31mred\x1b[0m \x00 =cmd|' /C calc'!A0 $x^2$ {{ 7*7 }} שלום"
SPEEDS = {"scalar": 0.11, "sse41": 0.48, "avx2": 0.7, "avx512": 0.95, "grid_stride": 0.61, "block": 0.22, "tiled": 0.2}
"""Of the ceiling; of all other variants 0.95."""
ISAS = ("scalar", "sse41", "avx2", "avx512")
SHAPES = ((2560, 2560), (640, 2560), (6912, 2560), (2560, 6912))
MACHINE = Machine(
    id="m",
    hostname="h",
    cpu="c",
    vendor="v",
    architecture="x86_64",
    features=(),
    logical_cores=2,
    physical_cores=2,
    usable_cores=2,
    caches={},
    memory=1,
    page_size=4096,
    huge_pages=None,
    governor=None,
    numa_nodes=1,
    hypervisor=None,
    kernel="k",
)
"""One of which nothing is known."""
UUID = "GPU-00112233-4455-6677-8899-aabbccddeeff"
RATES = {
    "cpu": {"read": 38.6e9, "write": 29.9e9, "compute": 1.87e12},
    "cuda": {"read": 4.2e12, "write": 4.0e12, "compute": 250e12},
}
LAUNCH_NS = {"cpu": 2.0, "cuda": 520.0}
L2 = 50 << 20
HOT = {"cpu": 2.6, "cuda": 1.7}
CACHE = {"cpu": 16 << 20, "cuda": L2}
OPS = (
    ("i2s_quantize", "none", "int8", "n"),
    ("i2s_dequantize", "none", "float32", "n"),
    ("ternary_quantize", "none", "int8", "n"),
    ("absmean_quantize", "none", "int8", "n"),
    ("activation_quantize", "none", "int8", "n"),
    ("ternary_matmul", "i2_s_x86", "float32", "M"),
    ("ternary_matmul", "tq2_0", "float32", "M"),
    ("ternary_matmul", "tile64", "float32", "M"),
    ("ternary_matmul", "tile64", "bfloat16", "M"),
)


KERNELS = (
    (
        "i2s_quantize",
        "none",
        "int8",
        {"cpu": ("scalar", "avx512"), "cuda": ("grid_stride", "vector")},
        "i2s_gpu_quantize",
    ),
    ("ternary_quantize", "none", "int8", {"cpu": ("avx512",), "cuda": ("block", "warp")}, "ternary_gpu_quantize"),
    ("ternary_matmul", "tile64", "float32", {"cpu": ("avx2", "avx512"), "cuda": ("tiled", "gemv")}, "gemm_i2s"),
)


def ratio(rng: random.Random, middle: float, width: float = 0.012) -> Ratio:
    return Ratio(
        median=middle, low=middle * (1 - width * rng.random()), high=middle * (1 + width * rng.random()), pairs=64
    )


def footing(rng: random.Random, device: str, moved: tuple[int, int, int], speed: float, *, hot: bool) -> Measurement:
    """A figure as the harness makes it: kernel and probe interleaved, everything else from these samples."""
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
    low, middle, high = (exp(each) for each in np.quantile(logs, (0.3, 0.5, 0.7)).tolist())
    q1, low_ns, median, high_ns, q3 = np.quantile(a, (0.25, 0.4, 0.5, 0.6, 0.75)).tolist()
    return Measurement(
        timing=Timing(
            samples_ns=tuple(a),
            calls_per_sample=max(1, round(2e5 / kernel)),
            median_ns=median,
            q1_ns=q1,
            q3_ns=q3,
            low_ns=low_ns,
            high_ns=high_ns,
            stopped="interval",
            clock="CUDA graph, events" if device == "cuda" else "native loop",
            buffers=1 if hot else 40,
        ),
        against=CeilingComparison(
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


def traffic_of(op: str, axes: dict[str, int], dtype: str) -> tuple[int, int, int]:
    if op == "ternary_matmul":
        m, n, k = axes["M"], axes["N"], axes["K"]
        return n * k // 4 + m * k, m * n * (2 if dtype == "bfloat16" else 4), 2 * m * n * k
    n = axes["n"]
    return (n, 4 * n, n) if op == "i2s_dequantize" else (4 * n, n, 3 * n)


def title_of(axes: dict[str, int]) -> str:
    return "2B-4T down" if axes.get("K") == 6912 and axes["M"] == 1 else ""


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


def one_run(
    rng: random.Random,
    kernel: tuple[str, str, str, str],
    *,
    axes: dict[str, int],
    measured: bool,
    device: str = "cpu",
    function: str = "",
    family: str = "uniform",
    threads: int = 2,
) -> Run:
    """`function` is what a GPU's functions are called."""
    op, format, dtype, variant = kernel
    moved = traffic_of(op, axes, dtype)
    name = f"{device}/{op}/{format}/{dtype}/{variant}"
    performance = Performance(status=Status.NOT_RUN, reason="this workload asks for correctness alone")
    cuda = device == "cuda"
    if measured:
        speed = SPEEDS.get(variant, 0.95)
        performance = Performance(
            status=Status.PASS,
            cold=footing(rng, device, moved, speed, hot=False),
            hot=footing(rng, device, moved, speed * 0.85, hot=True),
            call_overhead_ns=rng.uniform(4100, 4500) if cuda else rng.uniform(350, 400),
            read=moved[0],
            written=moved[1],
            operations=moved[2],
        )
    shape = ",".join(f"{axis}={size}" for axis, size in axes.items())
    workload = WorkloadFacts(
        id=f"{op}[{shape}]/{family}/aligned",
        axes=axes,
        family=family,
        layout="aligned",
        title=title_of(axes),
        seed=rng.getrandbits(32),
    )
    exact = op != "ternary_matmul"
    accuracy = Accuracy(
        status=Status.PASS,
        family="exact" if exact else "rounded",
        cases=3,
        elements=3 * moved[1],
        largest_error=0.0 if exact else rng.uniform(0, 2e-3),
        largest_ulp=0.0 if exact else 0.5,
        guards=("poison", "zones", "inputs"),
    )
    receipt = Receipt(kernel=name, ran=variant, runs=4, threads=threads, code_hash="ab" * 32)
    return Run(
        id=f"{name} {workload.id}",
        op=op,
        format=format,
        dtype=dtype,
        device=device,
        variant=variant,
        kernel=name,
        workload=workload,
        threads=1 if cuda else threads,
        accuracy=accuracy,
        performance=performance,
        memory=MemoryUse(status=Status.NOT_RUN, reason="memory is not measured here"),
        cross=Cross(status=Status.NOT_RUN, reason="no peer is compared here"),
        receipt=receipt_of(name, variant, function) if cuda else receipt,
        seconds=30.0,
        device_memory=DeviceMemory(inputs=moved[0], outputs=moved[1], workspace=256, peak=moved[0] + moved[1] + 768)
        if cuda
        else None,
        upload=Transfer(nbytes=moved[0], ns=moved[0] / 48.3 + 9000) if cuda else None,
        download=Transfer(nbytes=moved[1], ns=moved[1] / 45.1 + 9000) if cuda else None,
    )


MADE: dict[tuple[Any, int, tuple[str, ...], bool], tuple[list[Run], Any]] = {}
"""Lists of clean_runs, with the generator's state after each."""


def clean_runs(
    rng: random.Random, *, edges: int, isas: tuple[str, ...] = ISAS, every_measured: bool = False
) -> list[Run]:
    """Runs never change, and many tests ask for the same ones: each list is made once."""
    asked = rng.getstate(), edges, isas, every_measured
    if asked not in MADE:
        MADE[asked] = _clean_runs(rng, edges, isas, every_measured), rng.getstate()
    runs, after = MADE[asked]
    rng.setstate(after)
    return list(runs)


def _clean_runs(rng: random.Random, edges: int, isas: tuple[str, ...], every_measured: bool) -> list[Run]:
    runs = []
    for op, format, dtype, first in OPS:
        for isa in isas:
            kernel = (op, format, dtype, isa)
            for n, k in SHAPES:
                axes = {"M": 1, "N": n, "K": k} if first == "M" else {"n": n * k}
                if first == "M" or (n, k) != (2560, 6912):
                    runs.append(one_run(rng, kernel, axes=axes, family="normal", threads=2, measured=True))
            if first == "M":
                axes = {"M": 32, "N": 2560, "K": 6912}
                runs.append(one_run(rng, kernel, axes=axes, family="normal", threads=2, measured=True))
            for _ in range(edges):
                size = rng.randint(1, 300)
                axes = {"M": rng.randint(1, 4), "N": size, "K": 256} if first == "M" else {"n": size}
                family = rng.choice(("uniform", "constant", "zero", "extremes", "one_nonzero", "ties"))
                runs.append(
                    one_run(rng, kernel, axes=axes, family=family, threads=rng.choice((1, 2)), measured=every_measured)
                )
    return runs


def with_faults(runs: list[Run]) -> list[Run]:
    """A wrong code, a crash, noise, a refusal, and a name that means harm."""
    wrong = Accuracy(
        status=Status.FAIL,
        reason="3 of 655,360 elements differ from the reference",
        family="exact",
        cases=4,
        elements=655_360,
        mismatches=3,
        largest_error=1.0,
        guards=("poison", "zones", "inputs"),
        first=Divergence(output="q", index=(639, 2559), expected="-1", found="1"),
    )
    places: dict[int, dict[str, Any]] = {
        7: {"accuracy": wrong},
        40: {
            "accuracy": Accuracy(
                status=Status.ERROR,
                reason="the kernel raised InvalidArgumentError: i2s_dequantize: q is empty\nlegal: one element",
            ),
            "performance": Performance(status=Status.NOT_RUN, reason="the accuracy was not judged"),
            "receipt": None,
        },
        90: {
            "performance": runs[2].performance.model_copy(
                update={"status": Status.AMBIGUOUS, "reason": "the interval is 31 % wide"}
            )
        },
        120: {"accuracy": Accuracy(status=Status.NOT_RUN, reason="needs avx512_vnni, which this machine has not")},
        121: {
            "performance": Performance(
                status=Status.FAIL,
                reason="1.21 of the ceiling: faster than the machine can read, so something was not done",
            ),
        },
    }
    changed = [run.model_copy(update=places[number]) if number in places else run for number, run in enumerate(runs)]
    hostile = {
        "op": HOSTILE,
        "variant": MARKS,
        "format": "ft\u2066",
        "kernel": f"cpu/{HOSTILE}/ft\u2066/int8/{MARKS}",
        "workload": runs[0].workload.model_copy(update={"axes": {HOSTILE: 7}, "family": MARKS, "layout": HOSTILE}),
        "accuracy": wrong.model_copy(
            update={"reason": MARKS, "first": Divergence(output=HOSTILE, index=(0,), expected=MARKS, found="nan")}
        ),
    }
    return [
        *changed,
        runs[0].model_copy(update=hostile),
        runs[1].model_copy(update={**hostile, "accuracy": runs[1].accuracy}),
    ]


def some_layers(rng: random.Random) -> tuple[Layer, ...]:
    layers = []
    for block in range(6):
        for part, shape in (
            ("attention.self.query", (384, 384)),
            ("intermediate.dense", (1536, 384)),
            ("output.dense", (384, 1536)),
        ):
            schemes = []
            for scheme, format, bits, snr in (("absmean", "tile64", 2.0, 5.6), ("block absmax", "tq2_0", 2.0625, 3.9)):
                schemes.append(
                    LayerScheme(
                        scheme=scheme,
                        format=format,
                        zeros=rng.uniform(0.3, 0.52),
                        snr_db=snr + rng.uniform(-0.4, 0.4),
                        cosine=rng.uniform(0.83, 0.9),
                        output_cosine=rng.uniform(0.84, 0.91),
                        output_snr_db=snr + rng.uniform(-0.3, 0.6),
                        packed_bytes=int(shape[0] * shape[1] * bits / 8),
                        largest_error=rng.uniform(0.02, 0.3),
                        quantize_ns=shape[0] * shape[1] * 0.3,
                    )
                )
            kernel_ns = shape[0] * shape[1] * 0.011 + 1500
            layers.append(
                Layer(
                    status=Status.PASS,
                    name=f"encoder.layer.{block}.{part}.weight",
                    shape=shape,
                    dtype="F32",
                    bytes=shape[0] * shape[1] * 4,
                    schemes=tuple(schemes),
                    kernel="cpu/ternary_matmul/tile64/float32/avx512",
                    matmul_ns=kernel_ns,
                    float32_ns=kernel_ns * 9.1,
                    speedup=ratio(rng, 9.1, 0.05),
                )
            )
    layers.append(
        Layer(status=Status.PASS, name="zeros.weight", shape=(4, 8), dtype="BF16", bytes=64, schemes=(zero_scheme(),))
    )
    layers.append(
        Layer(
            status=Status.FAIL,
            reason=f"cosine of the output is under its bound {MARKS}",
            name=HOSTILE,
            shape=(4, 8),
            dtype="F16",
            bytes=64,
        )
    )
    return tuple(layers)


def zero_scheme() -> LayerScheme:
    return LayerScheme(
        scheme="absmean",
        format="tile64",
        zeros=1.0,
        snr_db=None,
        cosine=None,
        output_cosine=None,
        output_snr_db=None,
        packed_bytes=8,
        largest_error=0.0,
        quantize_ns=90.0,
    )


def ceilings(*devices: str) -> tuple[CeilingFacts, ...]:
    return tuple(each for each in (*_of_the_cpu(), *_of_the_gpu()) if each.device in devices)


def _of_the_cpu() -> Iterator[CeilingFacts]:
    levels = {"L1": (24 << 10, 6.1), "L2": (768 << 10, 3.2), "L3": (12 << 20, 2.1), "memory": (512 << 20, 1.0)}
    for threads, scale in ((1, 0.62), (2, 1.0)):
        for level, (nbytes, factor) in levels.items():
            for name, base in (
                ("read", RATES["cpu"]["read"]),
                ("write", RATES["cpu"]["write"]),
                ("copy", RATES["cpu"]["write"] * 0.9),
            ):
                value = base * factor * scale
                yield CeilingFacts(
                    device="cpu", name=name, level=level, threads=threads, nbytes=nbytes, rate=value, unit="bytes/s"
                )
        value = RATES["cpu"]["compute"] * scale
        yield CeilingFacts(
            device="cpu", name="compute", level="registers", threads=threads, nbytes=0, rate=value, unit="operations/s"
        )


def _of_the_gpu() -> Iterator[CeilingFacts]:
    for level, nbytes, factor in (("L2", L2 // 2, 1.8), ("memory", 1 << 30, 1.0)):
        for name, rate in (("read", 4.2e12), ("write", 4.0e12), ("copy", 4.15e12)):
            yield CeilingFacts(
                device="cuda", name=name, level=level, threads=1, nbytes=nbytes, rate=rate * factor, unit="bytes/s"
            )
    for name, level, rate, unit in (
        ("launch", "CUDA graph", 1.92e6, "launches/s"),
        ("Python launch", "stream", 2.4e5, "launches/s"),
        ("upload", "pinned memory", 54.1e9, "bytes/s"),
        ("download", "pinned memory", 51.7e9, "bytes/s"),
    ):
        yield CeilingFacts(device="cuda", name=name, level=level, threads=1, nbytes=128 << 20, rate=rate, unit=unit)
    rate = RATES["cuda"]["compute"]
    yield CeilingFacts(
        device="cuda", name="compute", level="registers", threads=1, nbytes=0, rate=rate, unit="operations/s"
    )


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


def record_of(
    runs: list[Run],
    layers: tuple[Layer, ...] = (),
    *,
    hostile: bool = False,
    gpus: tuple[Gpu, ...] = (),
    cuda: DeviceStatus | None = None,
) -> Record:
    """`cuda` is the GPU's lane, where it ran."""
    simulated = cuda is not None and cuda.simulated
    variables = {"OMP_PROC_BIND": "close"} if cuda is None else {"TRITMARK_CUDA": "simulator"} if simulated else {}
    return Record(
        id="20250311T142233Z-00004f1c",
        created="2025-03-11T14:22:33+00:00",
        suite="quick",
        complete=True,
        environment=Environment(
            tritmark="0.1.0",
            python="3.11.2 (CPython, GCC 12.2.0)",
            packages={"numpy": "2.2.3", "scipy": "1.15.2", "pydantic": "2.10.6"},
            compiler="gcc 12.2.0: -std=gnu11 -O3 -ffp-contract=off -fopenmp",
            variables={"TRITMARK_FORCE_ISA": MARKS} if hostile else variables,
            commit="3f9a1c0d52be",
            command=("tritmark", "run", "--suite", "quick", *(("--weights", HOSTILE) if hostile else ())),
            seed=20250311,
        ),
        machine=Machine(
            id="9c1d77aa02be41f3",
            hostname=MARKS if hostile else "bench-03",
            cpu="AMD EPYC 9R14 96-Core Processor",
            vendor="AuthenticAMD",
            architecture="x86_64",
            features=(
                "sse4_1",
                "ssse3",
                "avx",
                "avx2",
                "f16c",
                "fma",
                "avx512f",
                "avx512bw",
                "avx512dq",
                "avx512vl",
                "avx512_vnni",
            ),
            logical_cores=2,
            physical_cores=2,
            usable_cores=2,
            caches={"L1d": 32 << 10, "L1i": 32 << 10, "L2": 1 << 20, "L3": 32 << 20},
            memory=16_500_000_000,
            page_size=4096,
            huge_pages="madvise",
            governor=None,
            numa_nodes=1,
            hypervisor="KVM",
            kernel="Linux 6.1.0-31-cloud-amd64",
            ceilings=ceilings("cpu", *(("cuda",) if gpus else ())),
            gpus=gpus,
        ),
        lanes=(
            DeviceStatus(device="cpu", ran=True),
            cuda
            or DeviceStatus(device="cuda", ran=False, reason="no driver: /dev/nvidiactl is missing. Next: install one"),
        ),
        runs=tuple(runs),
        weights_path="/models/minilm/model.safetensors" if layers else "",
        layers=layers,
    )


def full_record(edges: int = 6) -> Record:
    rng = random.Random(20250311)
    return record_of(with_faults(clean_runs(rng, edges=edges)), some_layers(rng), hostile=True)


def small_record() -> Record:
    """A Record whose page is quickly made."""
    rng = random.Random(7)
    return record_of(clean_runs(rng, edges=1, isas=("scalar", "avx2"))[:12], some_layers(rng)[:3])


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
                    runs.append(
                        one_run(
                            rng, (op, format, dtype, name), axes=axes, measured=True, device=device, function=function
                        )
                    )
                small = {"M": 2, "N": 5, "K": 7} if product else {"n": 65}
                runs.append(
                    one_run(
                        rng, (op, format, dtype, name), axes=small, measured=False, device=device, function=function
                    )
                )
    return record_of(runs, gpus=(gpu(),), cuda=DeviceStatus(device="cuda", ran=True))


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
            changed.append(
                run.model_copy(update={"receipt": receipt, "upload": None, "download": None, "device_memory": None})
            )
        else:
            changed.append(run)
    return record_of(changed, cuda=DeviceStatus(device="cuda", ran=True, simulated=True))
