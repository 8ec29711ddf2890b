"""Launches of CUDA kernels. Kernels of other packages import what stands here."""

from tritmark.kernels.cuda.device_type import DEVICE
from tritmark.kernels.cuda.launch.launch import Call, variant

__all__ = ["DEVICE", "Call", "variant"]
