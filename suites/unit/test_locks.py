"""Locks of files, and file systems that have none."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from tritmark.harness import locks
from tritmark.harness.locks import locked


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    locks._without.cache_clear()
    yield
    locks._without.cache_clear()


def test_two_at_once_wait_for_each_other(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"), pytest.raises(Timeout), locked(tmp_path / "lock", 0):
        pass
    with locked(tmp_path / "lock", 0):
        pass


@pytest.mark.parametrize(
    "answer",
    [
        *(OSError(number, "") for number in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)),
        NotImplementedError(),
    ],
    ids=["ENOSYS", "ENOLCK", "EOPNOTSUPP", "older filelock"],
)
def test_without_locks_the_work_goes_on_and_the_folder_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, answer: Exception
) -> None:
    def refuse(self: FileLock, *arguments: object, **options: object) -> None:
        raise answer

    monkeypatch.setattr(FileLock, "acquire", refuse)
    done = 0
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with locked(tmp_path / "lock"):
                done += 1
    assert done == 2
    (told,) = caplog.messages
    assert told.startswith(f"{tmp_path} does not support file locks; next: ")


def test_what_else_a_lock_meets_is_raised(tmp_path: Path) -> None:
    a_file = tmp_path / "file"
    a_file.touch()
    with pytest.raises(OSError, match="file"), locked(a_file / "lock"):
        pass
