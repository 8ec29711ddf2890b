"""What a monitor adds to a call, as benchmarks of pytest-benchmark and as a limit."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tritmark.harness.monitor import hook
from tritmark.harness.monitor.counters import Counters

SCRIPT = runpy.run_path(str(Path(__file__).with_name("monitor_cost.py")))
CALLS = SCRIPT["functions"]()


@pytest.fixture(params=[False, True], ids=["alone", "monitored"])
def monitored(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param:
        hook.active = Counters(hook.recorders[0]).watch
    try:
        yield
    finally:
        hook.active = None


@pytest.mark.usefixtures("monitored")
@pytest.mark.parametrize("name", CALLS)
def test_call(benchmark: Any, name: str) -> None:
    CALLS[name]()
    benchmark(CALLS[name])


@pytest.mark.nightly
@pytest.mark.timing
@pytest.mark.parametrize("name", CALLS)
def test_a_monitor_adds_at_most_a_microsecond(name: str) -> None:
    """The least of three measurements, since a busy machine only adds to it."""
    CALLS[name]()
    found = []
    for _ in range(3):
        found.append(SCRIPT["cost"](CALLS[name], batches=60)[1])
        if found[-1] <= 1000:
            break
    assert min(found) <= 1000
