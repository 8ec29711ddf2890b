"""Products of other projects as variants of ternary_matmul_experts on the CPU; see products.py. Weights of all experts
are packed one after another; rows of activations are sorted by expert, as each library's own product sorts them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tritmark.harness.spec import Variant
from tritmark.kernels.formats.tile64_grouped import FORMATS
from tritmark.kernels.peers import ggml, libik, products_grouped
from tritmark.kernels.peers.experts_bound import of_experts
from tritmark.kernels.peers.products import FASTEST, IK_BOUND, ErrorBound, ggml_variant, ik_variant
from tritmark.kernels.ternary_matmul_experts.spec import OP


def _ggml(format: str, own: str) -> Variant:
    one = ggml_variant(format, own, OP.name, "product of experts (mul_mat_id)")
    assert one.error_bound is not None
    return replace(one, error_bound=partial(of_experts, one.error_bound))


def _ik(format: str, own: str, bound: ErrorBound) -> Variant:
    return ik_variant(format, own, partial(of_experts, bound), OP.name)


VARIANTS: tuple[Variant, ...] = (
    *(_ggml(format, own) for format, own in ggml.EXPERTS.items()),
    _ik(FASTEST, "iq2_bn_r4", IK_BOUND),
    *(_ik(form.name, libik.GROUPED, products_grouped.of_ik(form.name)) for form in FORMATS),
)
"""The variants of packages on PyPI; they register through the entry-point group `tritmark.variants`."""
