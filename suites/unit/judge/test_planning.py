"""Which variants run in a suite that keeps only the fastest."""

from __future__ import annotations

from tritmark.harness.judge.planning import plan
from tritmark.harness.judge.request import Request
from tritmark.harness.providers import load


def test_a_check_keeps_the_kernels_that_it_compares_with() -> None:
    """The plainest kernel is no fast one, and a score needs its time."""
    installed = load()
    key = "cpu/activation_quantize/none/int8"
    ids = frozenset({f"{key}/scalar", f"{key}/sse41"})
    suite = installed.suite("quick")
    assert any(item.fastest for item in suite.selected), "otherwise this suite keeps everything"

    def ran(rivals: frozenset[str]) -> set[str]:
        request = Request(suite=suite, op="activation_quantize", device="cpu", only=ids, rivals=rivals)
        groups = [group for group in plan(installed, request) if group.workload.measure]
        return {variant.id for group in groups for variant in group.variants if str(group.key) == key}

    assert f"{key}/scalar" in ran(frozenset({f"{key}/scalar"}))
    assert f"{key}/scalar" not in ran(frozenset())
