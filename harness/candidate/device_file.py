"""A source that only a device understands, such as a .cu."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tritmark.harness.candidate.located import must_be_as_opened, read_text
from tritmark.harness.candidate.manifest import read_manifest
from tritmark.harness.errors import UsageError
from tritmark.harness.spec import Variant

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed

SUFFIXES = (".cu",)


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """A source with a manifest beside it, for the devices that take such files (Device.adopt)."""

    path: str
    manifest: str
    digest: str
    """SHA-256 of the file as it was opened."""

    def variants(self, installed: Installed) -> Sequence[Variant]:
        """What the devices make of it. Raises UsageError with file, line and column, and CompileError where the device is there."""
        path, beside = Path(self.path), Path(self.manifest)
        kernel = read_manifest(path, beside, read_text(beside, "the manifest of a kernel"), installed, launched=True)
        must_be_as_opened(path, path.read_bytes(), self.digest)
        adopting = [device.adopt for device in installed.registry.devices.values() if device.adopt is not None]
        if not adopting:
            raise UsageError(f"{path}: no installed device takes {path.suffix} files")
        return tuple(variant for adopt in adopting for variant in adopt(kernel))
