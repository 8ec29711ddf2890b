"""What the tests of users' kernels share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def compiled_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is compiled is kept in a folder of the test file's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITMARK_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
