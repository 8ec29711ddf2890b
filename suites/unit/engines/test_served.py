"""Python packages as engines, each in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tritmark.harness.engines import served
from tritmark.harness.engines.asked import engines
from tritmark.harness.engines.engine import EngineError
from tritmark.harness.engines.served import ServedEngine
from tritmark.harness.errors import UsageError

MODULE = """
import os, sys
class Engine:
    version = "9"
    def __init__(self, flash): self.flash = flash
    def prompt(self, tokens):
        print("a line that is no answer")
        if len(tokens) > 1: raise ValueError("one sequence only")
        if tokens[0][0] == 13:
            print("GGML_ASSERT(k > 0) failed", file=sys.stderr, flush=True)
            os.abort()
        return 1000 if self.flash else 2000
    def decode(self, tokens, count): return 10 * count * (2 if self.flash else 1)
def load(*, model, device, threads, flash, room):
    if model == "bad":
        print("gguf_init: tensor has invalid ggml type 135", file=sys.stderr)
        raise ValueError("failed to load")
    assert room >= 9
    return Engine(flash)
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "an_engine.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setitem(served.ADAPTERS, "vllm", ("an_engine", (False, True)))


def engine(model: str = "good") -> ServedEngine:
    return ServedEngine("vllm", model, threads=2, device="cpu")


@pytest.mark.usefixtures("made")
def test_each_work_has_its_fastest_settings() -> None:
    made = engine()
    prompt, decode = made.side("prompt", [[1]]), made.side("decode", [[1]])
    assert (prompt.sample(), decode.sample()) == (1000, 80)
    report = made.report()
    assert report.version == "9"
    assert "prompt: 2 threads, flash attention on; decode: 2 threads, flash attention off" in report.settings
    made.close()


@pytest.mark.usefixtures("made")
def test_a_failed_load_has_its_message() -> None:
    with pytest.raises(EngineError, match=r"failed to load; it printed: .*invalid ggml type 135"):
        engine("bad").side("prompt", [[1]])


@pytest.mark.usefixtures("made")
def test_a_crash_is_a_failure_of_the_engine_alone() -> None:
    made = engine()
    with pytest.raises(EngineError, match="status -6 during prompt; it printed: GGML_ASSERT"):
        made.side("prompt", [[13]])
    with pytest.raises(EngineError, match="status -6"):
        made.side("decode", [[1]])  # no settings are left
    made.close()


@pytest.mark.usefixtures("made")
def test_batches_that_it_refuses_are_listed() -> None:
    made = engine()
    made.side("prompt", [[1]])
    with pytest.raises(EngineError, match="one sequence only"):
        made.side("prompt", [[1], [2]])
    assert made.side("prompt", [[1]]).sample() == 1000
    assert "one sequence only" in made.report().missing[0]
    made.close()


def test_a_package_that_is_not_installed() -> None:
    with pytest.raises(EngineError, match="ModuleNotFoundError"):
        ServedEngine("vllm", "m", threads=1, device="cpu").side("prompt", [[1]])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("llamabench=x", "unknown; legal: transformers, llama-bench=PATH"),
        ("llama-bench", "unknown"),
        ("llama-bench=x", "reads GGUF.*next: --gguf FILE"),
        ("llama-cpp-python", "reads GGUF"),
    ],
)
def test_engines_that_cannot_be_meant(name: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        engines([name], "folder", "", threads=None, device="cpu")


def test_engines_by_name() -> None:
    found = engines(
        ["transformers", "vllm", "llama-bench=x", "ik-llama-cpp-python", "vllm"],
        "folder",
        "m.gguf",
        threads=None,
        device="cpu",
    )
    assert [each.name for each in found] == ["vllm", "llama-bench=x", "ik-llama-cpp-python"]
