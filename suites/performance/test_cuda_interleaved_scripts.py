"""The scripts that time contenders on a GPU: with a clock that returns given times, on a simulated GPU, which runs each
contender once."""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tritmark.kernels.cuda.context import CudaContext

sys.path.append(str(Path(__file__).parent))
timing: Any = import_module("interleaved_timing")


class MadeUpClock:
    """1 us for a call of the first contender, 2 us for one of the second, and so on."""

    made = 0

    def __init__(self) -> None:
        MadeUpClock.made += 1
        self._ns, self._ran = 1000 * MadeUpClock.made, False

    def sample(self, launches: Any, first: int, calls: int) -> int:
        assert calls >= max(timing.CALLS, len(launches))
        if not self._ran:
            self._ran = True
            launches[first].run()
        return self._ns * calls


@pytest.fixture
def script(request: pytest.FixtureRequest, simulator: CudaContext, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A script on the simulated GPU, with few copies of weights."""
    found: Any = import_module(request.param)
    monkeypatch.setattr(MadeUpClock, "made", 0)
    monkeypatch.setattr(timing, "GraphClock", MadeUpClock)
    monkeypatch.setattr("tritmark.kernels.cuda.measure.clock.GraphClock", MadeUpClock)
    for name in ("timeable", "COLD", "BYTES", "survey"):
        if hasattr(found, name):
            stand_in = {"timeable": lambda index: simulator, "COLD": 1 << 16, "BYTES": {"cuda": 1 << 16}}
            monkeypatch.setattr(found, name, stand_in.get(name, lambda kernels, archs: None))
    monkeypatch.setattr("tritmark.kernels.cuda.measure.clock.timeable", lambda index: simulator)
    monkeypatch.setattr(timing, "COLD", 1 << 16)
    return found


def lines(
    script: Any, arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """What it prints."""
    monkeypatch.setattr(sys, "argv", [f"{script.__name__}.py", *arguments])
    assert script.main() == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("script", ["layers"], indirect=True)
def test_layers(script: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "dense", lambda axes: None)
    (line,) = lines(script, ["--shapes", "64x256", "--rows", "1", "--rounds", "2"], capsys, monkeypatch)
    assert re.fullmatch(r"    1 x 64 x 256: (\w+ \d+\.00  )+\w+ \d+\.00; \w+ takes \d\.\d\d of the product", line), line
    assert {"product", "quantize"} < set(re.findall(r"(\w+) \d+\.00", line))


@pytest.mark.parametrize("script", ["gpu_peers"], indirect=True)
@pytest.mark.parametrize("more", [[], ["--activations", "bfloat16"], ["--format", "row16_g128"]], ids=" ".join)
def test_gpu_peers(
    script: Any,
    more: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(script, "PEERS", dict.fromkeys(script.PEERS, ()))
    out = tmp_path / "figures.json"
    given = ["--shapes", "64x256", "--rows", "1", "16", "--rounds", "2", "--out", str(out), *more]
    assert lines(script, given, capsys, monkeypatch) == [
        "    1 x 64 x 256: tritmark 1.00; no peer",
        "   16 x 64 x 256: tritmark 2.00; no peer",
    ]
    record = json.loads(out.read_text(encoding="utf-8"))
    assert record.keys() == {"gpu", "driver", "activations", "format", "rounds", "products"}
    assert record["products"][1] == {"M": 16, "N": 64, "K": 256, "us": {"tritmark": 2.0}}


@pytest.mark.parametrize("script", ["grouped_products"], indirect=True)
@pytest.mark.parametrize("more", [[], ["--activations", "bfloat16"]], ids=" ".join)
def test_grouped_products(
    script: Any, more: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["--shapes", "64x256", "--rows", "1", "--groups", "64", "128", "--rounds", "2", *more]
    assert lines(script, given, capsys, monkeypatch) == [
        "    1 x 64 x 256: row16 1.00  row16_g64 2.00 (2.00)  row16_g128 3.00 (3.00)"
    ]


@pytest.mark.parametrize("script", ["expert_products"], indirect=True)
def test_expert_products(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "figures.json"
    given = ["--shapes", "32x128", "--tokens", "2", "--experts", "4", "--used", "2", "--formats", "row16"]
    given += ["--rounds", "2", "--instances", "0", "--peers", "--out", str(out)]
    empty, line = lines(script, given, capsys, monkeypatch)
    assert empty == "an empty kernel: 1.00"
    assert re.fullmatch(
        r"row16     4 rows of \d experts x 32 x 128: tritmark 2\.00  dense \d+\.\d\d; read \d\.00, \d+ %, \d+ GB/s",
        line,
    ), line
    (product,) = json.loads(out.read_text(encoding="utf-8"))["products"]
    assert {"format", "E", "N", "K", "M", "touched", "bytes", "us", "read"} == product.keys()
    assert product["us"]["tritmark"] == 2.0


@pytest.mark.parametrize("script", ["hadamard_cost"], indirect=True)
def test_hadamard_cost(script: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["--device", "cuda", "--shapes", "64x256", "--block", "64", "--rounds", "2"]
    (line,) = lines(script, given, capsys, monkeypatch)
    assert line == (
        "1 x 64 x 256 row16: activation_quantize 1.00  hadamard_quantize 2.00  product 3.00  "
        "activation_quantize + product 8.00  hadamard_quantize + product 10.00; the rotation adds 2.00 us, 66.7 % of "
        "the product"
    )
