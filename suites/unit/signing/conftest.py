"""A Record's file, and keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from ssh_keys import made_key

from tritmark.harness.record import Record, with_digest


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("keys")
    return {
        "alice": made_key(folder / "alice"),
        "mallory": made_key(folder / "mallory"),
        "locked": made_key(folder / "locked", "secret"),
    }


@pytest.fixture
def file(gpu_record: Record, tmp_path: Path) -> Path:
    path = tmp_path / "record.json"
    path.write_text(with_digest(gpu_record))
    return path
