"""Select the variant for a given GPU as the registry does, measured choices included, without a PyCUDA context."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tritmark.harness.machine.gpu import DeviceInfo
from tritmark.harness.registry import Registry
from tritmark.harness.spec import Axes, KernelKey, Requirement, Variant
from tritmark.kernels.cuda.device import CAPABILITIES, DEVICE
from tritmark.kernels.cuda.launch.launch import KERNELS, REAL, STEPS, alone, compute
from tritmark.kernels.cuda.launch.tuning import gpu_identity, source_hash
from tritmark.kernels.dispatch import dispatch


def chosen(key: KernelKey, axes: Axes, info: DeviceInfo) -> Variant:
    """The best variant of the key for that GPU, among those whose launches can be planned. Raises
    NoCompatibleKernelError."""
    known = dispatch.registry()
    return _registry(known, known.version, info).select_best(key, axes, requirement=Requirement.LATENCY)


@lru_cache(maxsize=16)
def _registry(known: Registry, _version: int, info: DeviceInfo) -> Registry:
    capability = info.capability
    has = frozenset((REAL, alone(capability), *(compute(each) for each in CAPABILITIES if each <= capability)))
    device = replace(
        DEVICE,
        features=lambda: has,
        missing=lambda: None,
        identity=lambda: gpu_identity(info),
        source_hash=lambda variant_id: source_hash(KERNELS[variant_id], STEPS[variant_id], info.arch),
    )
    variants = [each for each in known.variants if each.key.device == DEVICE.type and each.id in STEPS]
    return Registry((device,), variants, selects=False)
