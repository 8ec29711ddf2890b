"""Sets the folder of pytest-benchmark's runs: by default results/benchmarks, which git ignores."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def pytest_configure(config: pytest.Config) -> None:
    """Set it before pytest-benchmark, the last plugin, reads it."""
    if not any(argument.startswith("--benchmark-storage") for argument in config.invocation_params.args):
        config.option.benchmark_storage = f"file://{ROOT / 'results' / 'benchmarks'}"
