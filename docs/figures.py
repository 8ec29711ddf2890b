"""Tables of docs/performance.md and the README from what is under results/baselines; docs/generate.py writes them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from rich.console import Console

from tritmark.harness.cli import overview, tables
from tritmark.harness.criteria import shown
from tritmark.harness.criteria.file import read_report
from tritmark.harness.models import ModelResult
from tritmark.harness.record import HOST, Measurement, Record, Run
from tritmark.harness.report.model_judgement import verdict
from tritmark.harness.store import read
from tritmark.harness.text import groups, units

_COLUMNS, _KERNELS = 100, 6
BASELINES = Path(__file__).parents[1] / "results" / "baselines"


def section(name: str) -> str:
    """The machine of the Record `name`.json, its ceilings, and the fastest correct kernel of each op at each shape: of
    any weight format and dtype, on the GPU where the Record has one."""
    record = read(BASELINES / f"{name}.json")
    best = _best(record)
    head = ["kernel", "weights, dtype", "shape", "cold", "of the ceiling", "hot", "of the ceiling"]
    rows = [_row(run) for run in best]
    return "\n".join([*_facts(record, best[0].device, max(run.threads for run in best)), "", _table(head, rows)])


def _best(record: Record, op: str = "") -> list[Run]:
    measured = [
        run
        for run in groups.steady(groups.right(record))
        if (run.performance.cold or run.performance.hot) and op in ("", run.op)
    ]
    device = "cuda" if any(run.device == "cuda" for run in measured) else HOST
    best: dict[tuple[object, ...], Run] = {}
    for run in sorted(measured, key=groups.median_ns, reverse=True):
        if run.device == device:
            best[run.op, run.workload.id] = run
    return sorted(best.values(), key=lambda run: (run.op, *run.workload.axes.values()))


def _facts(record: Record, device: str, threads: int) -> Iterator[str]:
    machine, commit = record.machine, record.environment.commit
    host = f"{machine.cpu}, {units.counted(machine.logical_cores, 'logical core')}; {units.counted(threads, 'thread')}"
    yield f"- Machine: {host if device == HOST else machine.gpus[0].name}"
    yield f"- Measured on {record.created[:10]}, {f'commit `{commit[:10]}`' if commit else 'no commit known'}"
    rates = [
        f"{each.name} {units.rate(each.rate, each.unit)}"
        for each in machine.ceilings
        if (each.device, each.level, each.unit, each.threads) == (device, "memory", "bytes/s", threads)
    ]
    if rates:
        yield f"- Memory: {', '.join(rates)}"


def _row(run: Run) -> list[str]:
    kept = "" if run.format == "none" else f"`{run.format}`, "
    shape = ", ".join(f"{axis}={size:,}" for axis, size in run.workload.axes.items())
    figures = [*_figure(run.performance.cold), *_figure(run.performance.hot)]
    return [f"`{run.op}` {run.variant}", f"{kept}{run.dtype}", shape, *figures]


def _figure(footing: Measurement | None) -> tuple[str, str]:
    if footing is None:
        return "", ""
    return units.timed(footing.timing), f"{units.percent(footing.against.fraction.median)} of {footing.against.ceiling}"


_LINE = re.compile(r"^\s*(\d+) x (\d+) x (\d+): (.+); (\S+) takes ([\d.]+) times as long", re.MULTILINE)
_COMMIT = re.compile(r"commit (\w+)")


def beside_peers(name: str) -> str:
    """Times of `name`.txt, which suites/performance/gpu_peers.py printed, interleaved: the last line of each size."""
    return _table(
        ["tokens", "N x K", "tritmark", "fastest peer", "peer's time / tritmark's", "commit"], _peer_rows(name)
    )


def _peer_rows(name: str) -> list[list[str]]:
    rows: dict[tuple[int, ...], list[str]] = {}
    commit = ""
    for line in (BASELINES / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if found := _COMMIT.search(line):
            commit = found[1]
        if found := _LINE.match(line):
            M, N, K = map(int, found.group(1, 2, 3))
            words = found[4].split()
            times = dict(zip(words[::2], words[1::2], strict=True))
            peer = f"{found[5]} {times[found[5]]} µs"
            rows[M, N, K] = [f"{M:,}", f"{N:,} x {K:,}", f"{times['tritmark']} µs", peer, found[6], f"`{commit}`"]
    return [rows[size] for size in sorted(rows)]


def output(name: str) -> str:
    """The lines of `name`.txt, as they were printed."""
    return f"```text\n{(BASELINES / f'{name}.txt').read_text(encoding='utf-8').rstrip()}\n```"


def model(result: str) -> str:
    """The verdict and the rates of a whole model, of the result `models/RESULT.json`."""
    found = ModelResult.model_validate_json((BASELINES / "models" / f"{result}.json").read_text(encoding="utf-8"))
    rows = []
    for each in found.rates:
        speed = "" if each.speed is None else units.times(each.speed)
        rate = f"{each.tokens_per_s:,.0f}" if each.tokens_per_s >= 100 else f"{each.tokens_per_s:.3g}"
        rows.append([_without_path(each.engine), each.work, str(each.batch), str(each.prompt), rate, speed])
    machine = found.machine_name or found.device
    facts = [f"- {verdict(found)}", f"- Measured on {found.created[:10]}; machine: {machine}"]
    for engine in found.engines:
        name = _without_path(engine.name)
        facts.append(f"- {name} {engine.version}: {engine.settings}")
        facts += [f"- {name}, not timed: {why}" for why in engine.missing]
    head = ["engine", "work", "batch", "prompt", "tokens/s", "tritmark is faster"]
    lines = (textwrap.fill(each, 120, subsequent_indent="  ", break_on_hyphens=False) for each in facts)
    return "\n".join(lines) + "\n\n" + _table(head, rows)


def _without_path(engine: str) -> str:
    """llama-bench of llama-bench=PATH."""
    return engine.partition("=")[0]


def lines_of_run(name: str) -> str:
    """What `tritmark run` prints of the Record `name`.json: the verdict, and the fastest kernels of a few ops."""
    record = read(BASELINES / f"{name}.json")
    out = Console(file=StringIO(), width=_COLUMNS, color_system=None, highlight=False)
    fastest = overview.fastest(record, _COLUMNS, _KERNELS)
    assert fastest is not None
    out.print(tables.verdict(record))
    out.print(fastest)
    assert isinstance(out.file, StringIO)
    lines = (line.rstrip() for line in out.file.getvalue().splitlines())
    return "\n".join(["```text", *filter(None, lines), "```"])


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


_ZEN4, _AMX = "cpu-zen4-2-cores.speed", "cpu-emerald-rapids-16-cores.amx"
_H200, _H100 = "nvidia-h200.gpu", "nvidia-h100.gpu"
_SPEED = "tritmark run --suite speed"
_HEADLINES = (
    (_ZEN4, "Zen 4, 2 threads", f"{_SPEED} --variant avx512 --threads 2", "ternary_matmul", (1, 2560, 6912), "cold"),
    (_ZEN4, "Zen 4, 2 threads", f"{_SPEED} --variant avx512 --threads 2", "ternary_matmul", (512, 2560, 2560), "hot"),
    (_AMX, "Xeon, 16 threads", f"{_SPEED} --variant amx", "ternary_matmul", (512, 2560, 2560), "hot"),
    (_H200, "H200", "tritmark run --suite gpu", "i2s_quantize", (1 << 28,), "cold"),
    (_H200, "H200", "tritmark run --suite gpu", "ternary_matmul", (1, 55296, 5120), "cold"),
    (_H200, "H200", "tritmark run --suite gpu", "ternary_matmul", (2048, 14336, 4096), "cold"),
    (_H100, "H100", "tritmark run --suite gpu", "ternary_matmul", (1, 55296, 5120), "cold"),
)


def headlines(_: str) -> str:
    """README's table: some Runs of the Records, and the interleaved comparisons with peers."""
    rows = []
    for name, machine, command, op, sizes, temperature in _HEADLINES:
        best = _best(read(BASELINES / f"{name}.json"), op)
        (run,) = (run for run in best if tuple(run.workload.axes.values()) == sizes)
        time, part = _figure(getattr(run.performance, temperature))
        shape = ", ".join(f"{axis}={size:,}" for axis, size in run.workload.axes.items())
        record = f"[Record](results/baselines/{name}.json)"
        rows.append([f"`{op}`, {shape}, {temperature}", machine, f"{time}, {part}", f"{record}, `{command}`"])
    for name, machine in (("nvidia-h200.peers", "H200"), ("nvidia-h100.peers", "H100")):
        ratios = [float(row[4]) for row in _peer_rows(name) if row[0] == "1"]
        words = f"{min(ratios):.1f} to {max(ratios):.1f}x tritmark's time"
        text = f"[text](results/baselines/{name}.txt), `python suites/performance/gpu_peers.py`"
        rows.append(["fastest peer, one token, interleaved", machine, words, text])
    decode = (BASELINES / "nvidia-h200.decode-step.txt").read_text(encoding="utf-8")
    times = dict(re.findall(r"^(\w+ \w+) +([\d.]+)", decode, re.MULTILINE))
    words = f"{times['tritmark BitLinear']} µs; humming-kernels W2A8 {times['humming W2A8']} µs"
    text = "[text](results/baselines/nvidia-h200.decode-step.txt), `python suites/performance/decode_step.py`"
    rows.append(["linear layers of a block of bitnet-b1.58-2B-4T, decoding, interleaved", "H200", words, text])
    return _table(["kernel and size", "machine", "result", "file and command"], rows)


def criteria(_: str) -> str:
    """The criteria of each machine whose report is committed."""
    rows = []
    for path in sorted((BASELINES / "criteria").glob("*.json")):
        report = read_report(path)
        for each in report.criteria:
            wins = shown.winners(each.crossover) if each.crossover is not None else ""
            found = "; ".join(filter(None, (shown.measured(each), wins)))
            rows.append([path.stem, report.title, each.id, shown.required(each), each.status.value.upper(), found])
    if not rows:
        return "No report is committed yet."
    return _table(["report", "device", "criterion", "required", "verdict", "measured"], rows)
