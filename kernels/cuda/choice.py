"""Select the variant for a given GPU as the registry does, without a PyCUDA context."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tritmark.harness.registry import Registry
from tritmark.harness.spec import Axes, KernelKey, Variant
from tritmark.kernels import dispatch
from tritmark.kernels.cuda.device import CAPABILITIES, DEVICE
from tritmark.kernels.cuda.launch import REAL, STEPS, alone, compute


def chosen(key: KernelKey, axes: Axes, capability: tuple[int, int]) -> Variant:
    """The best variant of the key for that compute capability, among those whose launches can be planned. Raises
    NoCompatibleKernelError."""
    known = dispatch.registry()
    return _registry(known, known.version, capability).select_best(key, axes)


@lru_cache(maxsize=16)
def _registry(known: Registry, _version: int, capability: tuple[int, int]) -> Registry:
    has = frozenset((REAL, alone(capability), *(compute(each) for each in CAPABILITIES if each <= capability)))
    device = replace(DEVICE, features=lambda: has, missing=lambda: None)
    variants = [each for each in known.variants if each.key.device == DEVICE.type and each.id in STEPS]
    return Registry((device,), variants, selects=False)
