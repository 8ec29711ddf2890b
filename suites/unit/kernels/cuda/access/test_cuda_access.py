"""Access patterns of the kernels' loads and stores, from the simulator's traces."""

from __future__ import annotations

import pytest

from tritmark.harness.spec import Tier, Variant
from tritmark.kernels.cuda.access import traced as access
from tritmark.kernels.cuda.context import CudaContext

STREAMING = (
    "i2s_quantize",
    "i2s_dequantize",
    "ternary_quantize",
    "activation_quantize",
    "absmean_quantize",
    "float_narrow",
    "float_widen",
)
"""Memory-bound ops: their tuned kernels must be fully coalesced."""
TUNED = [
    each
    for op in STREAMING
    for each in access.cuda_variants(f"cuda/{op}/*")
    # TQ2_0's blocks of 66 bytes begin anywhere in a sector; `split` is for one scale per tensor and packs in a second
    # pass.
    if each.tier >= Tier.HIGHLY_OPTIMIZED and each.key.format != "tq2_0" and each.name != "split"
]


@pytest.mark.parametrize("variant", TUNED, ids=lambda variant: variant.id)
def test_tuned_streaming_kernels_move_no_byte_for_nothing(simulator: CudaContext, variant: Variant) -> None:
    assert [str(site) for site in access.sites(variant) if site.percent < 100] == []


def test_what_is_not_coalesced_is_seen(simulator: CudaContext) -> None:
    (variant,) = access.cuda_variants("cuda/ternary_quantize/row16/uint8/v1")
    assert access.percent(access.sites(variant)) < 100


def test_every_variant_can_be_traced(simulator: CudaContext) -> None:
    for variant in access.cuda_variants("*/v1"):
        assert access.sites(variant)
