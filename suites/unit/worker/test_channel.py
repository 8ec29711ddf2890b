"""What parent and worker say to each other."""

from __future__ import annotations

from multiprocessing import Pipe
from typing import Any

import pytest

from tritmark.harness.record import Status
from tritmark.harness.spec import Tier
from tritmark.harness.worker.channel import Channel

pytestmark = pytest.mark.interpreter


def as_python_3_11_0(self: Any, protocol: object) -> tuple[Any, ...]:
    """How members of enumerations were pickled by Python 3.11.0 to 3.11.3."""
    return getattr, (self.__class__, self._name_)


def test_members_of_enumerations_come_back_whatever_python_makes_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Status, Tier):
        monkeypatch.setattr(kind, "__reduce_ex__", as_python_3_11_0)
    near, far = Pipe()
    parent, worker = Channel(near, trusted=False), Channel(far, trusted=True)
    parent.send("a request")
    assert worker.receive() == "a request"
    told = {"verdict": Status.PASS, "tiers": [Tier.BASELINE, Tier.PEER]}
    worker.send(told)
    found = parent.receive()
    assert found == told
    assert found["verdict"] is Status.PASS
