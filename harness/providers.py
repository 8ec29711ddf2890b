"""Loads the installed packages that bring ops, kernels and devices, from the entry-point group `tritmark.providers`."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol

from tritmark.harness.errors import RegistrationError, UsageError
from tritmark.harness.nearest import nearest
from tritmark.harness.numbered import numbered
from tritmark.harness.registry import Registry
from tritmark.harness.spec import Axes, KernelKey, Op, Peer, Provider, Ternarized, Variant, WeightType

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

    from tritmark.harness.suite import KnownNames, Suite

_OWN = "tritmark"
GROUP = "tritmark.providers"
VARIANTS = "tritmark.variants"
"""Entry-point group of packages that bring variants for ops and devices of other packages: a sequence of Variant, or a
callable that returns one."""
_INFO = (".dist-info", ".egg-info", ".egg")
"""Suffixes of what describes an installed package."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An entry point that could not be loaded. It is left out."""

    name: str
    group: str
    value: str
    """Its target: MODULE:OBJECT."""
    error: str
    traceback: str

    def __str__(self) -> str:
        return f"entry point {self.name!r} of {self.group} ({self.value}) is left out: {self.error}"


class Candidate(Protocol):
    """A user's kernel outside installed packages. It is pickled to the process in which it runs."""

    def variants(self, installed: Installed) -> Sequence[Variant]:
        """Its variants, for installed ops and devices. Raises UsageError for an invalid file."""


class PeerLibrary(Protocol):
    """A library whose functions a user names as peers. It is pickled to the process in which they run."""

    def peers(self, installed: Installed) -> Sequence[Peer]:
        """Its peers, for installed ops. Raises UsageError for an invalid description."""


class Installed:
    """All ops, formats, devices, variants and suites of the providers.

    Raises RegistrationError if two providers bring the same op, format, device or variant, if two variants have the
    same precedence, or if no provider brings the op or device of a variant. `selects`: see Registry.
    """

    def __init__(self, providers: Mapping[str, Provider], *, selects: bool = True) -> None:
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
            selects=selects,
        )
        self.weight_types: dict[str, WeightType] = {}
        """By the name of the type in the file readers; of two providers, the first one's."""
        for each in (each for provider in everything for each in provider.weight_types):
            self.weight_types.setdefault(each.dtype, each)
        self.added: set[str] = set()
        """Ids of variants that no provider brings."""
        self.own: set[str] = set()
        """Ids of variants of tritmark itself, and of its peers. See load."""
        self.peers: tuple[Peer, ...] = tuple(self._peer(peer) for provider in everything for peer in provider.peers)
        self.problems: tuple[Problem, ...] = ()
        """Entry points of other packages that could not be loaded."""
        for variant in self.registry.variants:
            self._belongs(variant)

    def add(self, *variants: Variant) -> None:
        """Register variants, all or none.

        Raises RegistrationError for a duplicate, for a variant with the same precedence as another, and for an op or
        device that no provider brings.
        """
        for variant in variants:
            self._belongs(variant)
        self.registry.register(*variants)
        self.added |= {variant.id for variant in variants}

    def choose(self, devices: str) -> None:
        """Register the devices that a glob selects by number, such as "cuda:*"."""
        if ":" not in devices:
            return
        self.registry.number_all()
        kinds = {each: (numbered(each) or ("", 0))[0] for each in self.registry.devices}
        self.added |= {
            each.id
            for each in self.registry.variants
            if replace(each, key=replace(each.key, device=kinds[each.key.device])).id in self.added
        }

    def scales_of(self, format: str) -> str:
        """The scales of a format's weights in words; "" for a format that is not installed, and for one of values."""
        return str(getattr(self.formats.get(format), "scales", ""))

    def bits_of(self, format: str, axes: Axes) -> float | None:
        """The stored bits of a weight in that format; None for values, and for axes without N and K."""
        form = self.formats.get(format)
        if form is None or not {"N", "K"} <= set(axes):
            return None
        return float(form.bits_per_weight((axes["N"], axes["K"])))

    def _belongs(self, variant: Variant) -> None:
        if variant.key.op not in self.ops:
            raise RegistrationError(
                f"{variant.id}: no provider brings the op {variant.key.op!r}; {nearest(variant.key.op, self.ops)}"
            )
        if variant.key.device not in self.registry.devices:
            offer = nearest(variant.key.device, self.registry.devices)
            raise RegistrationError(f"{variant.id}: no provider brings the device {variant.key.device!r}; {offer}")

    def _peer(self, peer: Peer) -> Peer:
        """The peer with the formats of other packages that it accepts."""
        taken = {name for name, format in self.formats.items() if peer.takes(format)}
        return replace(peer, formats=peer.formats | taken) if taken else peer

    @property
    def ternarize(self) -> Callable[[Any], Ternarized] | None:
        """The rule that quantizes linear layers of models published as floats; the first provider's that has one."""
        return next((each.ternarize for each in self.providers.values() if each.ternarize is not None), None)

    def keys(self, op: str) -> list[KernelKey]:
        """Every key for which a variant of the op exists, in the order of registration."""
        return list(dict.fromkeys(variant.key for variant in self.registry.variants if variant.key.op == op))

    @cached_property
    def known(self) -> KnownNames:
        """The names that suites may use."""
        from tritmark.harness.suite import KnownNames

        keys = {op: self.keys(op) for op in self.ops}
        return KnownNames(
            self.ops.values(),
            {op: [key.format for key in found] for op, found in keys.items()},
            {op: [key.dtype for key in found] for op, found in keys.items()},
            self.registry.devices,
        )

    def suites(self) -> dict[str, Path]:
        """The named suites: every TOML file with a `workloads` table, or a title, in the providers' workload
        packages."""
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
                # A suite may have one of the two misspelt; models.toml has neither.
                if not {"workloads", "title"} & table.keys():
                    continue
                if path.stem in found:
                    raise RegistrationError(f"provider {name}: suite {path.stem!r} is registered already")
                found[path.stem] = path
        return found

    def suite(self, name: str) -> Suite:
        """The suite with that name or in that file. Raises UsageError if it does not exist or is invalid."""
        from tritmark.harness.suite import read_suite

        return read_suite(self.suite_file(name), name, self.known, self.suite_parts(name))

    def suite_parts(self, name: str) -> list[Path]:
        """The files of ops with workloads for named suites; none for a suite that is a file of its own. Raises
        UsageError for one with tables for an unknown suite."""
        from tritmark.harness.suite import part_suites

        if name.endswith(".toml"):
            return []
        named = self.suites()
        parts = self.op_workloads()
        for path in parts:
            for each in part_suites(path):
                if each not in named:
                    raise UsageError(f"{path}: unknown suite {each!r}; {nearest(each, named)}")
        return parts

    def op_workloads(self) -> list[Path]:
        """The files of ops with workloads for named suites."""
        return [path for provider in self.providers.values() for path in provider.op_workloads()]

    def suite_file(self, name: str) -> Path:
        """The file of the suite with that name, or the named file. Raises UsageError for an unknown name."""
        if name.endswith(".toml"):
            return Path(name)
        named = self.suites()
        if name not in named:
            raise UsageError(f"unknown suite {name!r}; {nearest(name, named)}, or the path of a .toml file")
        return named[name]


def load(candidates: Sequence[Candidate] = (), before: Callable[[Installed], object] = lambda found: None) -> Installed:
    """Load all installed providers, the variants of other packages, and candidates. `before` is called with all that is
    installed before the candidates are loaded.

    An entry point that cannot be loaded, or clashes with an earlier one, is left out and listed in
    `Installed.problems`. tritmark's own packages come first. Raises UsageError if no provider is left, and for an
    invalid candidate; RegistrationError for candidates that clash with others or have an unknown op or device.
    """
    of_providers = points(GROUP)
    if not of_providers:
        raise UsageError(
            f"no installed package brings kernels (entry-point group {GROUP!r}); next: pip install tritmark"
        )
    problems: list[Problem] = []
    installed: Installed | None = None
    own: list[Variant] = []
    for point in of_providers:
        known = {} if installed is None else installed.providers
        try:
            if point.name in known:
                raise RegistrationError(f"another package has a provider with the name {point.name!r}")
            installed = Installed({**known, point.name: _load(point)})
            if _is_own(point):
                own += installed.providers[point.name].variants
        except (Exception, SystemExit) as error:  # an import may raise anything
            problems.append(_problem(point, error))
    if installed is None:
        raise UsageError("; ".join(map(str, problems)))
    for point in points(VARIANTS):
        try:
            brought = _variants(point)
            installed.add(*brought)
            if _is_own(point):
                own += brought
        except (Exception, SystemExit) as error:
            problems.append(_problem(point, error))
    installed.own = {variant.id for variant in own}
    before(installed)
    for candidate in candidates:
        for variant in candidate.variants(installed):
            installed.add(variant)
    installed.problems = tuple(problems)
    return installed


_LOCK = RLock()
_LOADED: list[Installed] = []


def installed() -> Installed:
    """All that is installed, loaded once for this process, for the public functions. Raises UsageError; see load."""
    if _LOADED:  # without the lock, because each call of a public function comes here
        return _LOADED[0]
    with _LOCK:  # two threads must not load twice
        if not _LOADED:
            _LOADED.append(load())
        return _LOADED[0]


def take_loaded(loaded: Installed) -> None:
    """Use what was loaded already as the result of `installed`, unless that was called before."""
    with _LOCK:
        if not _LOADED:
            _LOADED.append(loaded)


def entry_points(*, group: str) -> list[EntryPoint]:
    """The entry points of a group that begins with "tritmark.". A folder of packages is read again only after it
    changed: reading takes most of the time of `load`, and each worker would do it."""
    # importlib.metadata takes a twentieth of the import of tritmark.kernels, which needs it only at the first call of a
    # kernel.
    from importlib.metadata import distributions

    found: list[EntryPoint] = []
    earlier: list[str] = []
    for folder, changed_ns in _folders_of_packages():
        for dist, brought in _read(folder, changed_ns):
            if not any(distributions(name=_name(dist), path=earlier)):  # Python imports the first of two copies
                found += [point for point in brought if point.group == group]
        earlier.append(folder)
    return found


def _folders_of_packages() -> Iterator[tuple[str, int]]:
    """The entries of sys.path in which packages are installed, each with the time of its last change, ns."""
    for entry in map(os.path.abspath, sys.path):
        try:
            if os.path.isfile(entry) or any(name.endswith(_INFO) for name in os.listdir(entry)):
                yield entry, os.stat(entry).st_mtime_ns
        except OSError:
            continue  # Python imports nothing from there


@lru_cache(maxsize=64)
def _read(folder: str, changed_ns: int) -> list[tuple[Distribution, list[EntryPoint]]]:
    """The packages there that bring something to tritmark, of which `changed_ns` is the state."""
    from importlib.metadata import distributions

    every = [
        (dist, [point for point in dist.entry_points if point.group.startswith(f"{_OWN}.")])
        for dist in distributions(path=[folder])
    ]
    return [(dist, brought) for dist, brought in every if brought]


def points(group: str) -> list[EntryPoint]:
    """The entry points of a group, those of tritmark first, without duplicates: a source tree beside the installed
    package lists the same one twice."""
    return list(dict.fromkeys(sorted(entry_points(group=group), key=lambda point: not _is_own(point))))


def _is_own(point: EntryPoint) -> bool:
    return point.dist is not None and _name(point.dist) == _OWN


@cache
def _name(dist: Distribution) -> str:
    """Parsed from a file each time that importlib.metadata is asked."""
    return dist.name


def _problem(point: EntryPoint, error: BaseException) -> Problem:
    text = "".join(traceback.format_exception(error))
    return Problem(point.name, point.group, point.value, f"{type(error).__name__}: {error}", text)


def _load(point: EntryPoint) -> Provider:
    provider = point.load()
    if not isinstance(provider, Provider):
        raise RegistrationError(f"the object is a {type(provider).__name__}; legal: a tritmark.harness.spec.Provider")
    return provider


def _variants(point: EntryPoint) -> Sequence[Variant]:
    brought = point.load()
    if callable(brought):
        brought = brought()
    if not isinstance(brought, Sequence) or not all(isinstance(each, Variant) for each in brought):
        raise RegistrationError(
            f"it gives {brought!r:.80}; legal: a sequence of tritmark.harness.spec.Variant, or a callable giving one"
        )
    return brought
