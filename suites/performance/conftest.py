"""Sets the folder of pytest-benchmark's runs, by default results/benchmarks, which git ignores, and what it says of the
machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def pytest_configure(config: pytest.Config) -> None:
    """Set it before pytest-benchmark, the last plugin, reads it."""
    if not any(argument.startswith("--benchmark-storage") for argument in config.invocation_params.args):
        config.option.benchmark_storage = f"file://{ROOT / 'results' / 'benchmarks'}"


def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """Keep the names of the processor and of the interpreter. Clock rates are of the moment, and flags depend on the
    version of the package that reads them: with these each run seems to be of another machine."""
    cpu = machine_info["cpu"]
    machine_info["cpu"] = {name: cpu.get(name) for name in ("arch", "brand_raw", "count")}
