"""Where runs of pytest-benchmark are kept: results/benchmarks, which git ignores, unless told otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def pytest_configure(config: pytest.Config) -> None:
    """Before pytest-benchmark reads it, which comes last of all plugins."""
    if not any(argument.startswith("--benchmark-storage") for argument in config.invocation_params.args):
        config.option.benchmark_storage = f"file://{ROOT / 'results' / 'benchmarks'}"
