"""The report: one valid, inert, self-contained page for any Record, quickly made and the same each time."""

from __future__ import annotations

import json
import random
import re
import shlex
import subprocess
import time
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from tritmark.harness.errors import RecordError
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
from tritmark.harness.report import build
from tritmark.harness.report.commands import of_layers, of_report, of_run
from tritmark.harness.report.page import SECTIONS, render
from tritmark.harness.report.text import label, quoted, visible
from tritmark.harness.report.units import fraction, number, percent, rate, size
from tritmark.harness.report.units import time as duration
from tritmark.harness.spec import Receipt

HOSTILE = '</script><script>alert("x")</script><img src=http://evil.example/x onerror=alert(1)>'
MARKS = "a\u202egnp.exe\u200f \x1b[31mred\x1b[0m \x00 =cmd|' /C calc'!A0 $x^2$ {{ 7*7 }} שלום"
ISAS = {"scalar": 0.11, "sse41": 0.48, "avx2": 0.83, "avx512": 0.94}
SHAPES = ((2560, 2560), (640, 2560), (6912, 2560), (2560, 6912))
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


@pytest.fixture(scope="module")
def record() -> Record:
    return full_record()


@pytest.fixture(scope="module")
def small() -> Record:
    return small_record()


@pytest.fixture(scope="module")
def page(record: Record) -> str:
    return render(record)


class Page(HTMLParser):
    """Reads a page strictly: every tag is closed, in order; collects what the tests look at."""

    VOID = frozenset({"meta", "link", "br", "wbr"})

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.text: list[str] = []
        self.parents: list[str] = []
        self.feed(source)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        found = dict(attrs)
        self.tags.append((tag, found))
        if found.get("id"):
            self.ids.append(str(found["id"]))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> is out of place"

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in {"style", "script"}:
            self.text.append(data)
            self.parents.append(self.open[-1] if self.open else "")

    def around(self, word: str) -> set[str]:
        """The elements that hold this word."""
        return {parent for parent, text in zip(self.parents, self.text, strict=True) if word in text}

    @property
    def words(self) -> str:
        return " ".join(self.text)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


_NOT_THERE = {"next", "baseline", "cross", "peers", "memory", "gpu", "graph", "threads", "code", "history"}
"""Sections of which the Record of these tests holds nothing; test_report_sections.py has them."""


def test_page_is_valid_and_in_order(page: str) -> None:
    read = Page(page)
    assert len(read.ids) == len(set(read.ids)), "an id is used twice"
    levels = [int(tag[1]) for tag, _ in read.tags if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(deeper <= level + 1 for level, deeper in pairwise(levels))
    assert len(read.all("caption")) == len(read.all("table")) > 5
    assert all(attributes.get("scope") for attributes in read.all("th"))
    assert read.all("html")[0]["lang"] == "en"
    links = [str(attributes["href"]) for attributes in read.all("a") if "download" not in attributes]
    assert {link.removeprefix("#") for link in links} <= set(read.ids), "a link leads nowhere"
    for section in SECTIONS:
        assert (section.id in read.ids) != (section.id in _NOT_THERE)


@pytest.fixture(scope="module")
def gpu_page(gpu_record: Record) -> str:
    return render(gpu_record)


def table_of(page: str, caption: str) -> str:
    """The text of the table under a caption that begins so."""
    found = re.search(f"<caption><span>{re.escape(caption)}.*?</table>", page, re.DOTALL)
    assert found, caption
    return " ".join(Page(found[0].removesuffix("</table>").replace("<wbr>", "")).words.split())


def test_gpu_section(gpu_record: Record, gpu_page: str) -> None:
    words = Page(gpu_page.replace("<wbr>", "")).words
    assert "SIMULATED" not in words
    (gpu,) = gpu_record.machine.gpus
    facts = table_of(gpu_page, "The GPU, and how it was")
    for text in (gpu.name, gpu.uuid, "9.0", "4.92 TB/s", "41 °C", "124 W of 700 W", "gpu_idle", "on, 0 errors not corrected"):
        assert text in facts
    run = next(run for run in gpu_record.runs if run.variant == "vector" and run.workload.axes == {"n": 1 << 28})
    cold = run.performance.cold
    assert cold is not None
    moved = (run.performance.read + run.performance.written) * 1e9 / cold.timing.median_ns
    bandwidth = table_of(gpu_page, "Bandwidth, cold")
    for text in (rate(moved, "bytes/s"), percent(moved / 4.15e12), percent(run.performance.read * 1e9 / cold.timing.median_ns / 4.2e12)):
        assert text in bandwidth
    assert "TB/s" in bandwidth
    ratios = table_of(gpu_page, "The quickest kernel of each device, cold: not interleaved")
    host = next(run for run in gpu_record.runs if run.kernel.endswith("int8/avx512") and run.workload.axes == {"n": 1 << 28})
    assert host.performance.cold is not None
    assert f"{number(host.performance.cold.timing.median_ns / cold.timing.median_ns)}x" in ratios
    assert "They were not interleaved" in words
    assert run.performance.call_overhead_ns is not None
    launches = table_of(gpu_page, "Cost of a launch")
    assert "an empty kernel launch – 521 ns CUDA graph" in launches
    assert "an empty kernel Python launch – 4.17 µs stream" in launches
    copies = table_of(gpu_page, "Copies between")
    assert "GB/s" in copies
    assert "host to device 22" in copies
    assert "upload, pinned memory – 128 MiB – – 54.1 GB/s" in copies
    assert "768 B" in table_of(gpu_page, "Device memory")


def test_every_receipt_is_shown(gpu_record: Record, gpu_page: str) -> None:
    receipts = table_of(gpu_page, "Receipts")
    for run in gpu_record.runs:
        shown = run.device == "cuda"
        assert (run.kernel in receipts) == shown
        if shown:
            assert run.receipt is not None
            assert run.receipt.code_hash[:12] in receipts
            assert run.receipt.uuid in receipts
            assert all(name in receipts for name in run.receipt.functions)


def test_two_devices_are_told_apart(gpu_page: str) -> None:
    read = Page(gpu_page.replace("<wbr>", ""))
    for caption in ("The best variant of each op", "Every kernel"):
        assert {"Device", "cpu", "cuda"} <= set(table_of(gpu_page, caption).split())
    assert {"cpu", "cuda"} <= set(re.findall(r"<h3>(\w+)</h3>", gpu_page)), "a roofline each"
    folds = re.findall(r"<summary>(c\w+) \w", gpu_page.replace("<wbr>", ""))
    assert folds.count("cpu") == folds.count("cuda") == 6, "kernel by shape, cold and hot, apart for each device"
    assert "Made-up GPU, 141 GiB" in read.words
    assert f"tritmark verify {'20250311T142233Z-00004f1c'}" in read.words


def test_what_is_simulated_cannot_be_overlooked(simulated_record: Record) -> None:
    page = render(simulated_record)
    read = Page(page.replace("<wbr>", ""))
    first, banner = page.index("<table"), page.index("SIMULATED</b>")
    assert banner < first, "before any figure"
    receipts = table_of(page, "Receipts")
    assert receipts.count("SIMULATED") == sum(run.device == "cuda" for run in simulated_record.runs)
    for caption in ("Bandwidth", "Cost of a launch", "The quickest kernel", "Copies between", "The points of the roofline of cuda"):
        assert f"<span>{caption}" not in page
    assert "tritmark verify --allow-simulated" in read.words


def test_a_gpu_s_names_are_inert(gpu_record: Record) -> None:
    (gpu,) = gpu_record.machine.gpus
    gpus = (gpu.model_copy(update={"name": HOSTILE, "uuid": MARKS, "driver": HOSTILE}),)
    runs = []
    for run in gpu_record.runs:
        if run.receipt is not None and run.device == "cuda":
            receipt = replace(run.receipt, uuid=MARKS, functions=(HOSTILE,), note=MARKS, code_hash=HOSTILE)
            runs.append(run.model_copy(update={"receipt": receipt, "variant": HOSTILE, "format": MARKS}))
        else:
            runs.append(run)
    machine = gpu_record.machine.model_copy(update={"gpus": gpus})
    page = render(gpu_record.model_copy(update={"runs": tuple(runs), "machine": machine}))
    read = Page(page)
    assert not read.all("img")
    assert not {char for char in page if not char.isprintable() and char != "\n"}
    assert len(read.all("script")) == 1


def test_page_needs_nothing_from_outside(page: str) -> None:
    read = Page(page)
    for tag, attributes in read.tags:
        assert "src" not in attributes
        assert "style" not in attributes, f"<{tag}>: the policy would refuse it"
        assert not any(name.startswith("on") for name in attributes)
        target = attributes.get("href") or "#"
        assert (
            target.startswith("#")
            or target == "data:,"
            or ("download" in attributes and target.startswith("data:application/gzip;base64,"))
        )
    assert not re.search(r"url\((?!#)", page)
    assert "@import" not in page
    policy = str(read.all("meta")[1]["content"])
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert len(read.all("script")) == len(read.all("style")) == 1


def test_policy_admits_the_page_s_own_style_and_script(page: str) -> None:
    from base64 import b64encode
    from hashlib import sha256

    policy = str(Page(page).all("meta")[1]["content"])
    for tag in ("style", "script"):
        source = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[0]
        assert f"{tag}-src 'sha256-{b64encode(sha256(source.encode()).digest()).decode()}'" in policy


def test_hostile_names_are_inert(page: str) -> None:
    read = Page(page)
    assert "<img" not in page
    assert not read.all("img")
    assert HOSTILE in read.words, "the name has to be shown as text"
    assert "7*7" in read.words
    unseen = {f"{ord(char):#x}" for char in page if not char.isprintable() and char != "\n"}
    assert not unseen, "a control character or direction mark went through"
    assert "\\u202e" in read.words
    assert "\\x1b[31m" in read.words
    assert read.around("שלום") <= {"bdi", "title"}, "text that runs right to left could reorder its neighbours"


def test_every_kernel_and_run_is_shown(record: Record, page: str) -> None:
    read = Page(page.replace("<wbr>", ""))
    for run in record.runs:
        assert visible(run.kernel) in read.words
    rows = len(record.runs)
    assert page.count('<td class="notes">') == rows
    assert "first divergence: q[639, 2559] is 1, expected -1" in read.words
    for layer in record.layers:
        assert visible(layer.name) in read.words
    for reason in ("no driver: /dev/nvidiactl is missing", "needs avx512_vnni", "the interval is 31 % wide"):
        assert reason in read.words


def test_failures_come_first_and_open(page: str) -> None:
    folds = [attributes for attributes in Page(page).all("details") if attributes.get("class") == "kernel"]
    opened = ["open" in attributes for attributes in folds]
    assert opened.count(True) == 4
    assert opened == sorted(opened, reverse=True)


def test_no_figure_is_broken_text(page: str) -> None:
    text = Page(page.replace("is nan,", "")).words
    assert not re.search(r"\b(nan|inf|None|Undefined|Status\.)\b", text)


def test_plots_are_labelled_and_take_the_page_s_colours(page: str) -> None:
    plots = re.findall("<svg.*?</svg>", page, re.DOTALL)
    assert page.count("percent of the measured ceiling</text>") == len(OPS) + 1, (
        "one for each op, format and dtype, and for the hostile name"
    )
    batch = page[page.index('<section id="batch"') : page.index('<section id="samples"')].count("<svg")
    assert batch > 0
    assert len(plots) == 1 + len(OPS) + 1 + batch, "and a roofline"
    assert all('role="img"' in plot and 'aria-label="' in plot for plot in plots)
    assert not re.findall("#0101[0-9a-f]{2}", "".join(plots)), "a stand-in colour was left"
    colours = set(re.findall('(?:fill|stroke)="(#[^"]*)"', "".join(plots)))
    assert not colours, "a colour that the page cannot change"
    for temperature in ("cold", "hot"):
        assert re.search(f"<title>cpu/[^<]*, {temperature}: [0-9.]+ [GM]OP/s</title>", plots[0])
    assert all(len(re.findall("<(?:use|path)", plot)) < 1000 for plot in plots)


def test_passing_record_says_so(small: Record) -> None:
    page = render(small)
    read = Page(page)
    assert f"No failure in {len(small.runs)} Runs, no failure in 3 layers" in read.words
    assert ' class="mark fail"' not in page
    assert not [attributes for attributes in read.all("details") if attributes.get("class") == "kernel" and "open" in attributes]


def test_bare_and_odd_records_have_a_page_too(small: Record) -> None:
    machine = small.machine.model_copy(update={"ceilings": ()})
    slow = [ceiling.model_copy(update={"rate": 7.0}) for ceiling in small.machine.ceilings]
    first = small.runs[0]
    assert first.performance.hot is not None
    remark = first.performance.model_copy(update={"cold": None, "reason": "no cold figure: 64 bytes are too few"})
    unsure = MemoryUse(status=Status.AMBIGUOUS, reason="memory moved")
    for update, said in (
        ({"runs": (), "layers": ()}, "Nothing ran"),
        ({"runs": (), "machine": machine}, "No failure in 3 layers"),
        ({"complete": False, "layers": ()}, "interrupted"),
        ({"machine": machine, "layers": ()}, "No ceilings were measured"),
        ({"machine": machine.model_copy(update={"ceilings": tuple(slow)}), "layers": ()}, "7.00 OP/s"),
        ({"runs": (first.model_copy(update={"performance": remark}),), "layers": ()}, "performance: no cold figure: 64 bytes are too few"),
        ({"runs": (first.model_copy(update={"memory": unsure}),), "layers": ()}, "No failure in 1 Run (1 ambiguous)"),
    ):
        assert said in Page(render(small.model_copy(update=update))).words


@pytest.mark.parametrize("every_measured", [False, True])
def test_two_thousand_runs_stay_small_and_quick(every_measured: bool, tmp_path: Path) -> None:
    rng = random.Random(5)
    runs = clean_runs(rng, edges=53, every_measured=every_measured)[:2000]
    assert len(runs) == 2000
    record = record_of(runs)
    build(small_record(), tmp_path)  # imports and font lists are paid for once
    begun = time.process_time()
    path = build(record, tmp_path)
    assert time.process_time() - begun < 5
    assert path.stat().st_size < 2_000_000


def test_same_record_gives_the_same_bytes_whatever_the_caller_s_settings(record: Record, page: str) -> None:
    import matplotlib

    again = Record.model_validate(json.loads(record.model_dump_json()))
    with matplotlib.rc_context({"font.size": 23, "axes.facecolor": "red"}):
        assert render(again) == page
        assert matplotlib.rcParams["font.size"] == 23


def test_file_is_whole_or_not_there(small: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build(small, tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / f"{small.id}.html"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    before = path.read_bytes()

    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        build(small.model_copy(update={"suite": "other"}), path.parent)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a\0b", "x" * 300, "a\n"])
def test_record_id_has_to_be_a_file_s_name(small: Record, tmp_path: Path, name: str) -> None:
    with pytest.raises(RecordError, match="record id"):
        build(small.model_copy(update={"id": name}), tmp_path)
    assert not list(tmp_path.iterdir())


def test_commands_survive_the_shell() -> None:
    for word in ("plain", "two words", "it's", MARKS.replace("\0", ""), HOSTILE, "\udc80", "new\nline", ""):
        found = subprocess.run(["bash", "-c", f"printf %s {quoted(word)}"], capture_output=True, check=True).stdout
        assert found == word.encode("utf-8", "surrogateescape")
        assert quoted(word).isascii()
        assert quoted(word).isprintable()


def test_commands_repeat_the_figures(small: Record) -> None:
    prefix = "env OMP_PROC_BIND=close "
    run = "--op i2s_quantize --variant cpu/i2s_quantize/none/int8/scalar --threads 2 --seed 20250311"
    assert of_run(small, small.runs[0]) == f"{prefix}tritmark run --suite quick {run}"
    assert of_layers(small) == f"{prefix}tritmark run --weights /models/minilm/model.safetensors --seed 20250311"
    assert of_report(small) == f"tritmark report {small.id}"
    for given in (("--out", "some where"), ("--out=some where",)):
        elsewhere = small.environment.model_copy(update={"command": ("tritmark", "run", *given, "--seed", "1")})
        line = of_report(small.model_copy(update={"environment": elsewhere}))
        assert shlex.split(line) == ["tritmark", "report", *given, small.id]
    starred = small.runs[0].model_copy(update={"op": "a*", "kernel": "b[c]?"})
    assert "--op 'a[*]' --variant 'b[[]c][?]'" in of_run(small, starred)


def test_text_is_made_visible() -> None:
    assert visible("plain שלום\nnext") == "plain שלום\nnext"
    assert visible("a\u202eb\x1b[0m\udc80\u00a0") == "a\\u202eb\\x1b[0m\\udc80\\xa0"
    assert label("שלום") == "\\u05e9\\u05dc\\u05d5\\u05dd"
    assert label("x" * 90, 10) == "xxxxxxx..."


def test_units() -> None:
    assert [duration(ns) for ns in (None, 0, 0.5, 812, 999.7, 1234, 45_600_000, 1.2e9)] == [
        "–", "0 ns", "0.5 ns", "812 ns", "1.00 µs", "1.23 µs", "45.6 ms", "1.20 s",
    ]  # fmt: skip
    assert [size(nbytes) for nbytes in (0, 1023, 1024, 34_000_000)] == ["0 B", "1,023 B", "1.00 KiB", "32.4 MiB"]
    assert rate(38.6e9, "bytes/s") == "38.6 GB/s"
    assert rate(1.87e12, "operations/s") == "1.87 TOP/s"
    assert percent(0.8766) == "87.7 %"
    assert fraction(Ratio(median=0.9, low=0.89, high=0.91, pairs=9)) == "90.0 % (89.0 to 91.0)"
    assert [number(value) for value in (0, 1.23456e-7, 12.345, 99.96, 123456)] == ["0", "1.23e-07", "12.3", "100", "123,456"]
