"""Records for the tests of the report: every section has something to show, and names try to break out of the page."""

from __future__ import annotations

import random

from tritmark.harness.record import (
    Accuracy,
    Against,
    CeilingFacts,
    Cross,
    Divergence,
    Environment,
    Footing,
    Lane,
    Layer,
    LayerScheme,
    Machine,
    MemoryUse,
    Performance,
    Ratio,
    Record,
    Run,
    Status,
    Timing,
    WorkloadFacts,
)
from tritmark.harness.spec import Receipt

HOSTILE = '</script><script>alert("x")</script><img src=http://evil.example/x onerror=alert(1)>'
MARKS = "a\u202egnp.exe\u200f \x1b[31mred\x1b[0m \x00 =cmd|' /C calc'!A0 $x^2$ {{ 7*7 }} שלום"
ISAS = {"scalar": 0.11, "sse41": 0.48, "avx2": 0.83, "avx512": 0.94}
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
READ, WRITE, COMPUTE = 38.6e9, 29.9e9, 1.87e12
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


def ratio(rng: random.Random, middle: float, width: float = 0.012) -> Ratio:
    return Ratio(median=middle, low=middle * (1 - width * rng.random()), high=middle * (1 + width * rng.random()), pairs=64)


def footing(rng: random.Random, *, traffic: tuple[int, int, int], speed: float, hot: bool, samples: int) -> Footing:
    read, written, operations = traffic
    factor = 2.6 if hot else 1.0
    least = {"read": read / (READ * factor), "write": written / (WRITE * factor), "compute": operations / COMPUTE}
    name = max(least, key=lambda key: least[key])
    reached = speed * rng.uniform(0.93, 1.0) * (0.88 if hot else 1.0)
    median = least[name] / reached * 1e9
    drawn = [median * rng.lognormvariate(0, 0.01) for _ in range(samples)]
    timing = Timing(
        samples_ns=tuple(drawn),
        calls_per_sample=4,
        median_ns=median,
        q1_ns=median * 0.99,
        q3_ns=median * 1.01,
        low_ns=median * 0.995,
        high_ns=median * 1.005,
        stopped=rng.choice(("interval", "interval", "plateau", "time")),
        clock="native loop (clock_gettime, CLOCK_MONOTONIC_RAW)",
        buffers=1 if hot else 24,
    )
    work = {"read": read, "write": written, "compute": operations}[name]
    against = Against(
        ceiling=name,
        unit="operations/s" if name == "compute" else "bytes/s",
        rate=work / least[name],
        work=work,
        fraction=ratio(rng, reached),
    )
    return Footing(timing=timing, against=against, footprint=read + written, rotation=(read + written) * (1 if hot else 24))


def traffic_of(op: str, axes: dict[str, int], dtype: str) -> tuple[int, int, int]:
    if op == "ternary_matmul":
        m, n, k = axes["M"], axes["N"], axes["K"]
        return n * k // 4 + m * k, m * n * (2 if dtype == "bfloat16" else 4), 2 * m * n * k
    n = axes["n"]
    return (n, 4 * n, n) if op == "i2s_dequantize" else (4 * n, n, 3 * n)


def title_of(axes: dict[str, int]) -> str:
    return "2B-4T down" if axes.get("K") == 6912 and axes["M"] == 1 else ""


def one_run(
    rng: random.Random, kernel: tuple[str, str, str, str], *, axes: dict[str, int], family: str, threads: int, measured: bool
) -> Run:
    op, format, dtype, variant = kernel
    traffic = traffic_of(op, axes, dtype)
    name = f"cpu/{op}/{format}/{dtype}/{variant}"
    samples = 10
    performance = Performance(status=Status.NOT_RUN, reason="this workload asks for correctness alone")
    if measured:
        speed = ISAS.get(variant, 0.5)
        performance = Performance(
            status=Status.PASS,
            cold=footing(rng, traffic=traffic, speed=speed, hot=False, samples=samples),
            hot=footing(rng, traffic=traffic, speed=speed, hot=True, samples=samples),
            call_overhead_ns=rng.uniform(900, 1900),
            read=traffic[0],
            written=traffic[1],
            operations=traffic[2],
        )
    cases = rng.randint(1, 6)
    shape = ",".join(f"{name}={length}" for name, length in axes.items())
    workload = WorkloadFacts(
        id=f"{op}[{shape}]/{family}/aligned", axes=axes, family=family, layout="aligned", title=title_of(axes), seed=rng.getrandbits(32)
    )
    exact = op != "ternary_matmul"
    accuracy = Accuracy(
        status=Status.PASS,
        family="exact" if exact else "rounded",
        cases=cases,
        elements=cases * traffic[1] // 4 + 1,
        largest_error=0.0 if exact else rng.uniform(0, 2e-3),
        largest_ulp=0.0 if exact else 0.5,
        guards=("poison", "zones", "inputs"),
    )
    return Run(
        id=f"{name}@{workload.id}@{threads}",
        op=op,
        format=format,
        dtype=dtype,
        device="cpu",
        variant=variant,
        kernel=name,
        workload=workload,
        threads=threads,
        accuracy=accuracy,
        performance=performance,
        memory=MemoryUse(status=Status.NOT_RUN, reason="memory is not measured here"),
        cross=Cross(status=Status.NOT_RUN, reason="no peer is compared here"),
        receipt=Receipt(kernel=name, ran=variant, runs=cases, threads=threads),
        seconds=rng.uniform(0.001, 0.3),
    )


def clean_runs(rng: random.Random, *, edges: int, isas: tuple[str, ...] = tuple(ISAS), every_measured: bool = False) -> list[Run]:
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
                runs.append(one_run(rng, kernel, axes=axes, family=family, threads=rng.choice((1, 2)), measured=every_measured))
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
    places = {
        7: {"accuracy": wrong},
        40: {
            "accuracy": Accuracy(
                status=Status.ERROR, reason="the kernel raised InvalidArgumentError: i2s_dequantize: q is empty\nlegal: one element"
            ),
            "performance": Performance(status=Status.NOT_RUN, reason="the accuracy was not judged"),
            "receipt": None,
        },
        90: {"performance": runs[2].performance.model_copy(update={"status": Status.AMBIGUOUS, "reason": "the interval is 31 % wide"})},
        120: {"accuracy": Accuracy(status=Status.NOT_RUN, reason="needs avx512_vnni, which this machine has not")},
        121: {
            "performance": Performance(
                status=Status.FAIL, reason="1.21 of the ceiling: faster than the machine can read, so something was not done"
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
    return [*changed, runs[0].model_copy(update=hostile), runs[1].model_copy(update={**hostile, "accuracy": runs[1].accuracy})]


def some_layers(rng: random.Random) -> tuple[Layer, ...]:
    layers = []
    for block in range(6):
        for part, shape in (("attention.self.query", (384, 384)), ("intermediate.dense", (1536, 384)), ("output.dense", (384, 1536))):
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
    layers.append(Layer(status=Status.PASS, name="zeros.weight", shape=(4, 8), dtype="BF16", bytes=64, schemes=(zero_scheme(),)))
    layers.append(
        Layer(
            status=Status.FAIL, reason=f"cosine of the output is under its bound {MARKS}", name=HOSTILE, shape=(4, 8), dtype="F16", bytes=64
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


def ceilings() -> tuple[CeilingFacts, ...]:
    found = []
    levels = {"L1": (24 << 10, 6.1), "L2": (768 << 10, 3.2), "L3": (12 << 20, 2.1), "memory": (512 << 20, 1.0)}
    for threads, scale in ((1, 0.62), (2, 1.0)):
        for level, (nbytes, factor) in levels.items():
            for name, base in (("read", READ), ("write", WRITE), ("copy", WRITE * 0.9)):
                value = base * factor * scale
                found.append(CeilingFacts(device="cpu", name=name, level=level, threads=threads, nbytes=nbytes, rate=value, unit="bytes/s"))
        value = COMPUTE * scale
        found.append(
            CeilingFacts(device="cpu", name="compute", level="registers", threads=threads, nbytes=0, rate=value, unit="operations/s")
        )
    return tuple(found)


def record_of(runs: list[Run], layers: tuple[Layer, ...] = (), *, hostile: bool = False) -> Record:
    return Record(
        id="20250311T142233Z-quick-4f1c",
        created="2025-03-11T14:22:33Z",
        suite="quick",
        complete=True,
        environment=Environment(
            tritmark="0.1.0",
            python="3.11.2 (CPython, GCC 12.2.0)",
            packages={"numpy": "2.2.3", "scipy": "1.15.2", "pydantic": "2.10.6"},
            compiler="gcc 12.2.0: -std=gnu11 -O3 -ffp-contract=off -fopenmp",
            variables={"TRITMARK_FORCE_ISA": MARKS} if hostile else {"OMP_PROC_BIND": "close"},
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
            features=("sse4_1", "ssse3", "avx", "avx2", "f16c", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"),
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
            ceilings=ceilings(),
        ),
        lanes=(
            Lane(device="cpu", ran=True),
            Lane(device="cuda", ran=False, reason="no driver: /dev/nvidiactl is missing. Next: install one"),
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
