"""Records of two devices for the tests of the report and of `tritmark verify`."""

from __future__ import annotations

import pytest
from made_up_records import on_the_simulator, two_devices

from tritmark.harness.record import Record


@pytest.fixture(scope="session")
def gpu_record() -> Record:
    return two_devices()


@pytest.fixture(scope="session")
def simulated_record() -> Record:
    return on_the_simulator()
