"""Every op, format and dtype: the best kernel agrees with the C++ reference, on the CPU if it has a kernel, else in the
simulator."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tritmark.harness.machine import gpu
from tritmark.harness.providers import Installed
from tritmark.harness.record import PeerComparison, Status
from tritmark.harness.spec import Axes, KernelKey, Peer, Variant
from tritmark.kernels import OPS, PROVIDER
from tritmark.kernels.peers.reference import NAME

AXES = {
    "n": ({"n": 1}, {"n": 131}, {"n": 5000}),
    "n,block": ({"n": 1, "block": 32}, {"n": 1000, "block": 64}, {"n": 1537, "block": 256}),
    "M,K": ({"M": 1, "K": 1}, {"M": 3, "K": 131}),
    "M,K,block": ({"M": 1, "K": 64, "block": 64}, {"M": 3, "K": 384, "block": 128}, {"M": 2, "K": 1024, "block": 1024}),
    "N,K": ({"N": 2, "K": 64}, {"N": 3, "K": 256}, {"N": 5, "K": 768}),
    "M,N,K": (
        {"M": 1, "N": 1, "K": 1},
        {"M": 3, "N": 67, "K": 133},
        {"M": 1, "N": 16, "K": 256},
        {"M": 2, "N": 12, "K": 768},
        {"M": 1, "N": 32, "K": 256},
        {"M": 3, "N": 48, "K": 96},
    ),
    "M,E,N,K": (
        {"M": 1, "E": 1, "N": 1, "K": 16},
        {"M": 5, "E": 3, "N": 67, "K": 256},
        {"M": 2, "E": 4, "N": 12, "K": 768},
    ),
}
"""Shapes for the ops with these axes: the smallest, and shapes with tails."""


def _keys() -> list[KernelKey]:
    """One key for each op, format and dtype: the CPU's if it exists."""
    keys: dict[tuple[str, str, str], KernelKey] = {}
    for variant in PROVIDER.variants:
        key = variant.key
        held = keys.setdefault((key.op, key.format, key.dtype), key)
        if held.device != "cpu" and key.device == "cpu":
            keys[key.op, key.format, key.dtype] = key
    return list(keys.values())


KEYS = _keys()
HERE = [key for key in KEYS if key.device == "cpu"]
THERE = [key for key in KEYS if key.device != "cpu"]


def test_every_op_has_a_reference(reference_for: Callable[[KernelKey], Peer]) -> None:
    assert {key.op for key in KEYS} == {op.name for op in OPS}
    assert all(reference_for(key).missing() is None for key in KEYS)


def test_its_time_is_never_compared(
    installed: Installed, reference_for: Callable[[KernelKey], Peer], compare: Callable[..., PeerComparison]
) -> None:
    for key in (each for each in HERE if "n" in installed.ops[each.op].axes):
        axes = AXES[",".join(installed.ops[key.op].axes)][0]
        variant = _best(installed, key, axes)
        if variant is None:
            continue
        found = compare(variant, reference_for(key), axes, installed.ops[key.op].input_families[0], measure=True)
        assert (found.match, found.reference, found.peer) == (True, True, NAME)
        assert (found.own_ns, found.peer_ns, found.speedup) == (None, None, None)
        assert (found.migration_recommended, found.migration_within_tenth, found.migration_reason) == (False, None, "")


def _best(installed: Installed, key: KernelKey, axes: Axes) -> Variant | None:
    """The best kernel that takes these axes; None if the format or the op takes no such shape."""
    fitting = [variant for variant, refusal in installed.registry.candidates(key, axes) if refusal is None]
    return max(fitting, key=lambda variant: variant.precedence, default=None)


def _agree(installed: Installed, key: KernelKey, peer: Peer, compare: Callable[..., PeerComparison]) -> int:
    op, judged = installed.ops[key.op], 0
    for nth, axes in enumerate(AXES[",".join(op.axes)]):
        variant = _best(installed, key, axes)
        if variant is None:
            continue
        for family in op.input_families:
            found = compare(variant, peer, axes, family, seed=nth)
            assert (found.status, found.match, found.peer_wrong) == (Status.PASS, True, False), (axes, family, found)
            assert found.elements > 0
            judged += 1
    return judged


@pytest.mark.parametrize("key", HERE, ids=str)
def test_agrees(
    key: KernelKey,
    installed: Installed,
    reference_for: Callable[[KernelKey], Peer],
    compare: Callable[..., PeerComparison],
) -> None:
    assert _agree(installed, key, reference_for(key), compare)


@pytest.mark.cuda
@pytest.mark.parametrize("key", THERE, ids=str)
def test_agrees_on_the_device(
    key: KernelKey,
    installed: Installed,
    reference_for: Callable[[KernelKey], Peer],
    compare: Callable[..., PeerComparison],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if gpu.why_not() is not None:
        monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    assert _agree(installed, key, reference_for(key), compare)
