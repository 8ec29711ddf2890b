"""Sessions of a made-up server, for the comparison and the report."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from math import exp

from tritmark.harness.monitor.counters import SeriesKey
from tritmark.harness.monitor.data import Series, SessionData, by_time
from tritmark.harness.monitor.histogram import bucket
from tritmark.harness.monitor.machine_samples import GpuSample, Sample

KERNEL = "cpu/ternary_matmul/tile64/float32/avx512"
DAY = 86400.0
START = 1_750_000_000.0


def series(
    median_ns: float,
    *,
    calls: int = 60,
    key: SeriesKey | None = None,
    shape: str = "M=1 N=2560 K=2560",
    errors: dict[str, int] | None = None,
    operations: int = 2 * 2560 * 2560,
    seed: int = 0,
) -> Series:
    """Calls whose times scatter by 4 % around a median, with some slow ones."""
    rng = random.Random(seed)
    times = [
        round(median_ns * exp(rng.gauss(0, 0.04)) * (1 if rng.random() < 0.98 else 3)) for _ in range(min(calls, 300))
    ]
    return Series(
        key or SeriesKey("QuantizedLinear", KERNEL, shape, 8),
        calls,
        sum(times),
        dict(Counter(map(bucket, times))),
        errors or {},
        calls * (2560 * 2560 // 4 + 2560 * 5),
        calls * operations,
    )


def samples(
    count: int = 60,
    *,
    other_cores: float = 0.1,
    clock_hz: float = 3.2e9,
    throttled: int = 0,
    gpu: Sequence[str] | None = None,
    grows: int = 0,
) -> tuple[Sample, ...]:
    """One a second; `gpu`: reasons of its lower clocks, None for no GPU."""
    found = GpuSample(63, 1_980_000_000, 412.0, 61, 9 << 30, tuple(gpu)) if gpu is not None else None
    return tuple(
        Sample(
            at_s=float(number),
            own_cores=5.5,
            other_cores=other_cores,
            clock_hz=clock_hz,
            throttled=throttled if number == count // 2 else 0,
            rss=(700 << 20) + number * grows,
            calls=40,
            gpus={"GPU-1": found} if found is not None else {},
        )
        for number in range(count)
    )


def session(
    number: int,
    some: Sequence[Series],
    *,
    program: str = "serve.py",
    at: float | None = None,
    machine: str = "0123456789ab",
    seen: tuple[Sample, ...] | None = None,
    version: str = "0.1.0",
    complete: bool = True,
) -> SessionData:
    """The session of that number; four a day."""
    started = START + number * DAY / 4 if at is None else at
    return SessionData(
        id=f"session-{number:04d}",
        program=program,
        started=started,
        ended=started + 60,
        complete=complete,
        machine=machine,
        host="server, AMD EPYC 9554 64-Core Processor",
        version=version,
        pid=1000 + number,
        every=1,
        series=by_time(some),
        samples=samples() if seen is None else seen,
    )


def drawn(count: int, *, spread: float = 0.03, seed: int = 0, median_ns: float = 180_000.0) -> list[SessionData]:
    """Sessions of equal speed, whose medians scatter as sessions do."""
    rng = random.Random(seed)
    return [
        session(number, [series(median_ns * exp(rng.gauss(0, spread)), seed=1000 * seed + number)])
        for number in range(count)
    ]


def week() -> list[SessionData]:
    """Two weeks of a server. In the last days one layer became 30 % slower, other processes were busy in one session,
    the processor throttled in another one, and calls were refused."""
    rng = random.Random(7)
    found = []
    attention, down, prompt = "M=1 N=2560 K=2560", "M=1 N=2560 K=6912", "M=257..512 N=6912 K=2560"
    gpu = SeriesKey("torch.linear", "cuda/ternary_linear_bfloat16/row16/bfloat16/gemv_rows", attention, 0, True)
    quantize = SeriesKey("activation_quantize", "cpu/activation_quantize/none/int8/avx512", "M=1 K=2560", 8)
    for number in range(56):
        slower = 1.3 if number >= 48 else 1.0
        busy, hot = number == 45, number == 51
        load = 1.5 if busy else 1.0

        def like(median_ns: float, load: float = load) -> float:
            return median_ns * load * exp(rng.gauss(0, 0.02))

        some = [
            series(like(182_000), calls=90_000, shape=attention, seed=number),
            series(like(470_000 * slower), calls=30_000, shape=down, seed=number + 100),
            series(like(21_000_000), calls=160, shape=prompt, operations=2 * 400 * 6912 * 2560, seed=number + 200),
            series(like(4_200), calls=12_000, key=quantize, seed=number + 300),
            series(like(9_300), calls=40_000, key=gpu, seed=number + 400),
        ]
        if number == 53:
            refused = SeriesKey("QuantizedLinear", "none", "", 0)
            some.append(Series(refused, 0, 0, {}, {"InvalidArgumentError": 17}, None, None))
        seen = samples(
            other_cores=3.4 if busy else 0.1 + 0.1 * rng.random(),
            clock_hz=3.2e9 * (0.98 + 0.02 * rng.random()),
            throttled=12 if hot else 0,
            gpu=("sw_power_cap",) if number % 9 == 0 else (),
        )
        found.append(session(number, some, seen=seen, version="0.2.0" if number >= 48 else "0.1.0"))
    found.append(
        session(56, [series(95_000, calls=300, shape="M=1 N=1536 K=1536")], program="notebook", complete=False)
    )
    return found
