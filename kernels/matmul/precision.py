"""Precisions of products: the ones that a device supports, and its best one (specification, 3.2)."""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import TYPE_CHECKING

from tritmark.harness.errors import InvalidArgumentError

if TYPE_CHECKING:
    from tritmark.harness.machine.gpu import DeviceInfo

_LOG = logging.getLogger(__name__)


class PrecisionMode(StrEnum):
    """The precision to which factors are rounded; sums and products are float32 in every mode. The 16-bit modes use
    tensor cores if the device has them."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    AUTO = "auto"
    """The best mode of the device."""

    @property
    def dtype(self) -> str:
        """Name of the factors' dtype; AUTO has none."""
        return {PrecisionMode.FP32: "float32", PrecisionMode.FP16: "float16", PrecisionMode.BF16: "bfloat16"}[self]


def supported_precisions(info: DeviceInfo) -> tuple[PrecisionMode, ...]:
    """FP32, FP16 from compute capability 6.1, BF16 from 8.0."""
    modes = [PrecisionMode.FP32]
    if info.fp16:
        modes.append(PrecisionMode.FP16)
    if info.bf16:
        modes.append(PrecisionMode.BF16)
    return tuple(modes)


def detect_best_precision(info: DeviceInfo) -> PrecisionMode:
    """BF16 if supported (it has float32's range), else FP16, else FP32."""
    supported = supported_precisions(info)
    return next(mode for mode in (PrecisionMode.BF16, PrecisionMode.FP16, PrecisionMode.FP32) if mode in supported)


def effective_precision(mode: PrecisionMode | str, info: DeviceInfo) -> tuple[PrecisionMode, str]:
    """The mode that is used, and why it differs from the requested one ("" if it does not, or after AUTO).

    FP32 replaces a mode that the device lacks, and a warning is logged. Raises InvalidArgumentError for an unknown
    mode.
    """
    try:
        asked = PrecisionMode(mode)
    except ValueError:
        raise InvalidArgumentError(
            op="matmul", argument="mode", found=repr(mode), legal=", ".join(PrecisionMode)
        ) from None
    if asked is PrecisionMode.AUTO:
        return detect_best_precision(info), ""
    if asked in supported_precisions(info):
        return asked, ""
    major, minor = info.capability
    note = f"{asked} was asked for, {info.name} (compute capability {major}.{minor}) lacks it, fp32 took its place"
    _LOG.warning("matmul: %s", note)
    return PrecisionMode.FP32, note
