"""A source that a device compiles, such as a .cu."""

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
    """A source for the devices that accept such files (Device.adopt)."""

    def variants(self, installed: Installed) -> Sequence[Variant]:
        """The variants that the devices make from the file. Raises UsageError with file, line and column, and
        CompileError if the device is present."""
        kernel = self.described(installed, launched=True)
        adopting = [device.adopt for device in installed.registry.devices.values() if device.adopt is not None]
        if not adopting:
            raise UsageError(
                f"{kernel.path}: no installed device accepts {kernel.path.suffix} files; next: install a package "
                "with such a device"
            )
        return tuple(variant for adopt in adopting for variant in adopt(kernel))
