"""A source that only a device understands, such as a .cu."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tritmark.harness.candidate.manifest import WithManifest
from tritmark.harness.errors import UsageError
from tritmark.harness.spec import Variant

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed

SUFFIXES = (".cu",)


class DeviceFile(WithManifest):
    """A source for the devices that take such files (Device.adopt)."""

    def variants(self, installed: Installed) -> Sequence[Variant]:
        """What the devices make of it. Raises UsageError with file, line and column, and CompileError where the
        device is there."""
        kernel = self.described(installed, launched=True)
        adopting = [device.adopt for device in installed.registry.devices.values() if device.adopt is not None]
        if not adopting:
            raise UsageError(f"{kernel.path}: no installed device takes {kernel.path.suffix} files")
        return tuple(variant for adopt in adopting for variant in adopt(kernel))
