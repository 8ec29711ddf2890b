"""The kernel at whose speed a score is 0."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import pytest

from tritmark.harness.candidate.plan import planned
from tritmark.harness.providers import Installed, load
from tritmark.harness.registry import Registry
from tritmark.harness.spec import Tier


@pytest.fixture(scope="module")
def installed() -> Installed:
    found = load()
    found.choose("cpu")
    return found


def test_the_baseline_is_the_plainest_kernel_of_the_key(installed: Installed) -> None:
    """Also where every kernel has a limit of its shapes, as those of activation_quantize."""
    plain = [v for v in installed.registry.variants if v.key.device == "cpu" and v.tier is Tier.BASELINE]
    assert plain
    for variant in plain:
        mine = replace(variant, name="mine", tier=Tier.CANDIDATE)
        found = planned(installed, [mine], installed.suite("quick"), scored=True)
        assert found.baselines == (variant,)
        assert variant not in found.rivals or len([*installed.registry.candidates(variant.key)]) == 1


def test_a_kernel_that_refuses_a_timed_shape_is_no_baseline(installed: Installed) -> None:
    class No:
        def refusal(self, axes: object) -> str:
            return f"not {axes}"

    key = "cpu/activation_quantize/none/int8"
    plain, following, *_ = sorted(
        (v for v in installed.registry.variants if str(v.key) == key and not v.tier.named_only), key=lambda v: v.tier
    )
    changed = [replace(v, constraints=(No(),)) if v is plain else v for v in installed.registry.variants]
    limited = copy(installed)
    limited.registry = Registry([installed.registry.devices["cpu"]], [v for v in changed if v.key == plain.key])
    mine = replace(plain, name="mine", tier=Tier.CANDIDATE)
    assert planned(limited, [mine], installed.suite("quick"), scored=True).baselines == (following,)
