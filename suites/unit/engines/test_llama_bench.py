"""llama-bench as an engine, with a script in its place that prints what llama.cpp prints."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tritmark.harness.engines.engine import DECODED, EngineError
from tritmark.harness.engines.llama_bench import LlamaBench

PROGRAM = """#!{python}
import json, sys
given = sys.argv[1:]
if "--help" in given:
    print({help!r})
    sys.exit(0)
flags = dict(zip(given[::2], given[1::2]))
with open({log!r}, "a") as log:
    log.write(json.dumps(flags) + "\\n")
if {crash!r}:
    print("error: unknown model architecture: 'made-up'", file=sys.stderr)
    sys.exit(1)
prompt, decoded = int(flags["-p"]), int(flags["-n"])
ns = 1000 * (prompt or 100 * decoded) // int(flags["-t"]) * (1 if flags.get("-fa", "1") == "1" else 3)
test = {{
    "build_commit": "0abc", "build_number": 7, "n_threads": int(flags["-t"]), "n_prompt": prompt, "n_gen": decoded,
    "avg_ns": ns, "stddev_ns": 0, "avg_ts": 1e9 * max(prompt, decoded) / ns, "samples_ns": [ns],
}}
print({printed!r} or json.dumps([test], indent=2))
"""
NEW = """  -m, --model <filename>
  -p, --n-prompt <n>                        (default: 512)
  -d, --n-depth <n>                         (default: 0)
  -ngl, --n-gpu-layers <n>                  (default: 99)
  -fa, --flash-attn <0|1>                   (default: 0)
"""
OLD = """  -m, --model <filename>
  -p, --n-prompt <n>                        (default: 512)
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def bench(log: Path, help: str = NEW, *, crash: bool = False, printed: str = "", threads: int | None = 2) -> LlamaBench:
    path = log.parent / "llama-bench"
    text = PROGRAM.format(python=sys.executable, help=help, log=str(log), crash=crash, printed=printed)
    path.write_text(text)
    path.chmod(0o755)
    return LlamaBench(str(path), "model.gguf", threads=threads, device="cpu")


def calls(log: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_a_sample_is_a_run_with_the_fastest_settings(log: Path) -> None:
    engine = bench(log)
    side = engine.side("prompt", [range(128)])
    assert side.sample() == 64_000
    last = calls(log)[-1]
    wanted = {"-p": "128", "-n": "0", "-r": "1", "-o": "json", "-t": "2", "-fa": "1", "-ngl": "0", "-m": "model.gguf"}
    assert wanted.items() <= last.items()
    assert len(calls(log)) == 3  # two settings, and the sample
    report = engine.report()
    assert report.settings == "2 threads, flash attention on (fastest of 2 tried)"
    assert report.version == "0abc 7"


def test_decoding_begins_behind_the_prompt(log: Path) -> None:
    engine = bench(log)
    assert engine.side("decode", [range(128)]).sample() == 400 * 1000 * DECODED // 8
    assert calls(log)[-1]["-d"] == "128"
    assert engine.report().missing == ()


def test_an_old_build_says_what_it_cannot_do(log: Path) -> None:
    engine = bench(log, OLD)
    engine.side("decode", [range(128)]).sample()
    assert not {"-d", "-fa", "-ngl"} & set(calls(log)[-1])
    assert "no -d" in engine.report().missing[0]


def test_threads_are_tried_if_none_are_given(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritmark.harness.machine.cpu.physical_cores", lambda: 4)
    monkeypatch.setattr("tritmark.harness.machine.cpu.usable_cores", lambda: 8)
    engine = bench(log, OLD, threads=None)
    engine.side("prompt", [range(8)])
    assert engine.report().settings == "8 threads (fastest of 2 tried)"


def test_batches_are_refused_and_listed(log: Path) -> None:
    engine = bench(log)
    with pytest.raises(EngineError, match="batches above 1"):
        engine.side("prompt", [[1], [2]])
    assert engine.report().missing == ("batches above 1: llama-bench times one sequence",)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"crash": True}, "status 1: error: unknown model architecture: 'made-up'"),
        ({"printed": "| model | size |"}, "no JSON"),
        ({"printed": "[]"}, "no test with 8 tokens"),
        ({"printed": '[{"n_prompt": 8, "n_gen": 0, "avg_ns": 0}]'}, "no test"),
    ],
)
def test_a_failure_has_the_message_of_the_program(log: Path, how: dict[str, object], told: str) -> None:
    with pytest.raises(EngineError, match=told.replace("|", "[|]")):
        bench(log, **how).side("prompt", [range(8)])  # type: ignore[arg-type]


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(EngineError, match="No such file"):
        LlamaBench("/nowhere/llama-bench", "m.gguf", threads=1, device="cpu").side("prompt", [[1]])
