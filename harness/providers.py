"""What is installed: the packages that bring ops, kernels and devices, found through the entry-point group `tritmark.providers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritmark.harness.errors import RegistrationError, UsageError
from tritmark.harness.registry import Registry
from tritmark.harness.spec import KernelKey, Op, Peer, Provider, Variant

if TYPE_CHECKING:
    from tritmark.harness.candidate import Candidate
    from tritmark.harness.suite import Known, Suite

GROUP = "tritmark.providers"
VARIANTS = "tritmark.variants"
"""Entry-point group of packages that bring variants for the ops and devices of others: a sequence of Variant, or a callable giving it."""


class Installed:
    """Everything that the providers bring, under one roof.

    Raises RegistrationError where two bring the same op, format, device or variant, or a variant is for an op or a device that
    nobody brings.
    """

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        self.providers = dict(providers)
        self.ops: dict[str, Op] = {}
        self.formats: dict[str, Any] = {}
        for name, provider in self.providers.items():
            for op in provider.ops:
                if op.name in self.ops:
                    raise RegistrationError(f"provider {name}: op {op.name!r} is registered already")
                self.ops[op.name] = op
            for format_name, format in provider.formats.items():
                if format_name in self.formats:
                    raise RegistrationError(f"provider {name}: format {format_name!r} is registered already")
                self.formats[format_name] = format
        everything = self.providers.values()
        self.registry = Registry(
            (device for provider in everything for device in provider.devices),
            (variant for provider in everything for variant in provider.variants),
        )
        self.added: set[str] = set()
        """Ids of variants that no provider brings."""
        self.peers: tuple[Peer, ...] = tuple(peer for provider in everything for peer in provider.peers)
        for variant in self.registry.variants:
            self._belongs(variant)

    def add(self, variant: Variant) -> None:
        """Register one more. Raises RegistrationError for a duplicate, and for an op or device that nobody brings."""
        self._belongs(variant)
        self.registry.register(variant)
        self.added.add(variant.id)

    def _belongs(self, variant: Variant) -> None:
        if variant.key.op not in self.ops:
            raise RegistrationError(f"{variant.id}: no provider brings the op {variant.key.op!r}; there are: {', '.join(self.ops)}")
        if variant.key.device not in self.registry.devices:
            there = ", ".join(self.registry.devices)
            raise RegistrationError(f"{variant.id}: no provider brings the device {variant.key.device!r}; there are: {there}")

    def keys(self, op: str) -> list[KernelKey]:
        """Every key for which a variant of the op exists, in the order of registration."""
        return list(dict.fromkeys(variant.key for variant in self.registry.variants if variant.key.op == op))

    @cached_property
    def known(self) -> Known:
        """What suites may name."""
        from tritmark.harness.suite import Known

        keys = {op: self.keys(op) for op in self.ops}
        return Known(
            self.ops.values(),
            {op: [key.format for key in found] for op, found in keys.items()},
            {op: [key.dtype for key in found] for op, found in keys.items()},
            self.registry.devices,
        )

    def suites(self) -> dict[str, Path]:
        """The named suites: every TOML file with a `workloads` table, or a title, in the providers' workload packages."""
        import tomllib

        found: dict[str, Path] = {}
        for name, provider in self.providers.items():
            if not provider.workloads:
                continue
            folder = Path(import_module(provider.workloads).__path__[0])
            for path in sorted(folder.glob("*.toml")):
                try:
                    table = tomllib.loads(path.read_text(encoding="utf-8"))
                except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
                    raise UsageError(f"{path}: {error}") from None
                # One of them may be misspelt; models.toml has neither.
                if not {"workloads", "title"} & table.keys():
                    continue
                if path.stem in found:
                    raise RegistrationError(f"provider {name}: suite {path.stem!r} is registered already")
                found[path.stem] = path
        return found

    def suite(self, name: str) -> Suite:
        """The suite of that name, or in that file. Raises UsageError where there is none, or something is wrong with it."""
        from tritmark.harness.suite import read_suite

        return read_suite(self.suite_file(name), name, self.known)

    def suite_file(self, name: str) -> Path:
        """Where the suite of that name is, or that file. Raises UsageError where there is none."""
        from tritmark.harness.suite import nearest

        if name.endswith(".toml"):
            return Path(name)
        named = self.suites()
        if name not in named:
            raise UsageError(f"unknown suite {name!r}; {nearest(name, named)}, or the path of a .toml file")
        return named[name]


def load(candidates: Sequence[Candidate] = ()) -> Installed:
    """Load every installed provider, the variants of other packages, and candidates beside them.

    Raises UsageError, with the entry point's name, for a provider or variants that cannot be loaded, and for a candidate that cannot be
    taken; RegistrationError for variants that clash with others or belong to no op or device.
    """
    points = entry_points(group=GROUP)
    if not points:
        raise UsageError(f"no package brings kernels (entry-point group {GROUP!r}); is tritmark installed? try: pip install tritmark")
    found: dict[str, Provider] = {}
    # A source tree beside the installed package shows the same entry point twice.
    for point in dict.fromkeys(points):
        if point.name in found:
            raise UsageError(f"two packages call their provider {point.name!r} (entry-point group {GROUP!r})")
        found[point.name] = _load(point)
    installed = Installed(found)
    for point in dict.fromkeys(entry_points(group=VARIANTS)):
        for variant in _variants(point):
            installed.add(variant)
    for candidate in candidates:
        for variant in candidate.variants(installed):
            installed.add(variant)
    return installed


def _load(point: EntryPoint) -> Provider:
    label = f"provider {point.name!r} ({point.value})"
    try:
        provider = point.load()
    except Exception as error:
        raise UsageError(f"{label} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(provider, Provider):
        raise UsageError(f"{label} is a {type(provider).__name__}; legal: a tritmark.harness.spec.Provider")
    return provider


def _variants(point: EntryPoint) -> Sequence[Variant]:
    label = f"entry point {point.name!r} of {VARIANTS} ({point.value})"
    try:
        brought = point.load()
        if callable(brought):
            brought = brought()
    except Exception as error:
        raise UsageError(f"{label} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(brought, Sequence) or not all(isinstance(each, Variant) for each in brought):
        raise UsageError(f"{label} gives {brought!r:.80}; legal: a sequence of tritmark.harness.spec.Variant, or a callable giving one")
    return brought
