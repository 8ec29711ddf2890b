"""The programs that all modules run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from aarch64 import COMPILER, PROCESSORS, RANKS, on
from matmul_driver import Builder, Driver


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """Its folder is shared with the other processes that test."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "aarch64"
    folder.mkdir(exist_ok=True)
    return Builder(COMPILER, folder, tuple(RANKS), link=["-static"])


@pytest.fixture(scope="session")
def program(builder: Builder) -> Path:
    return builder.program()


@pytest.fixture(scope="session")
def drivers(program: Path) -> Iterator[dict[str, Driver]]:
    made = {processor: on(processor, program) for processor in PROCESSORS}
    yield made
    for driver in made.values():
        driver.__exit__(None, None, None)
