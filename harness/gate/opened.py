"""A build's kernels in this process, beside those of another build and beside the harness that measures them.

Two builds have modules of the same names. So the modules of each are kept aside, and put into `sys.modules` while
something of that build runs: an import, a bind, a clock written in Python. Native modules are told apart by the paths
of their files. What a build brings is used by its shape alone, as `harness.spec` describes it: its classes are those of
its own `harness.spec`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from importlib import invalidate_caches
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from tritmark.harness.errors import TritmarkError
from tritmark.harness.providers import GROUP, VARIANTS, Installed
from tritmark.harness.spec import Device, Family, Op, Provider, Variant

Noun = TypeVar("Noun", Op, Device, Provider, Variant)


class BuildError(TritmarkError, RuntimeError):
    """A build cannot be made, or what it brings cannot be used; the message says what to do."""


class Opened:
    """The providers of the distributions in the folder `site`, loaded.

    Raises BuildError where there are none, they cannot be imported, or what they bring is nothing that this harness
    knows.
    """

    def __init__(self, site: Path) -> None:
        self.site = site.resolve()
        found = list(distributions(path=[str(self.site)]))
        self.packages = {each.metadata["Name"]: each.version for each in found}
        points = [point for each in found for point in each.entry_points]
        providers = {point.name: point for point in points if point.group == GROUP}
        if not providers:
            raise BuildError(f"{self.site}: no distribution there brings kernels (entry-point group {GROUP!r})")
        self._tops = frozenset(_tops(self.site))
        self._modules: dict[str, ModuleType] = {}
        self._aside: dict[str, ModuleType] = {}
        self._inside = 0
        self._finder = _Finder(self.site, self._tops)
        with self.inside():
            invalidate_caches()
            self.installed = self._load(providers, [point for point in points if point.group == VARIANTS])

    @contextmanager
    def inside(self) -> Iterator[None]:
        """While this lasts, what is imported comes from this build. It can be entered again within itself."""
        self._inside += 1
        if self._inside == 1:
            self._aside = self._taken()
            sys.modules.update(self._modules)
            sys.meta_path.insert(0, self._finder)
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                sys.meta_path.remove(self._finder)
                self._modules = self._taken()
                sys.modules.update(self._aside)

    def file(self, module: str) -> Path | None:
        """Where a module of this build was loaded from; None for one that is not loaded or is in no file."""
        name = getattr(self.module(module), "__file__", None)
        return Path(name) if name else None

    def module(self, name: str) -> ModuleType | None:
        """The module of that name of this build; None for one that is not loaded."""
        return (sys.modules if self._inside else self._modules).get(name)

    def has(self, module: str) -> bool:
        """Whether a module of that name would be this build's."""
        return module.partition(".")[0] in self._tops

    def _taken(self) -> dict[str, ModuleType]:
        names = [name for name in sys.modules if name.partition(".")[0] in self._tops]
        return {name: sys.modules.pop(name) for name in names}

    def _load(self, providers: dict[str, EntryPoint], further: Sequence[EntryPoint]) -> Installed:
        point: EntryPoint | None = None
        try:
            loaded = {}
            for point in providers.values():
                loaded[point.name] = _provider(point.load())
            point = None
            installed = Installed(loaded, selects=False)
            for point in further:
                brought = point.load()
                for variant in brought() if callable(brought) else brought:
                    installed.add(_ours(Variant, variant))
        except Exception as error:
            where = f"entry point {point.name!r} ({point.value})" if point is not None else "what its providers bring"
            raise BuildError(f"{self.site}: {where} cannot be used: {type(error).__name__}: {error}") from error
        return installed


class _Finder(MetaPathFinder):
    """Finds the build's modules in its folder, and nowhere else."""

    def __init__(self, site: Path, tops: frozenset[str]) -> None:
        self._site = str(site)
        self._tops = tops

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raises ModuleNotFoundError for what the build lacks: another installation might have it."""
        top, _, below = fullname.partition(".")
        if top not in self._tops:
            return None
        spec = PathFinder.find_spec(fullname, path if below else [self._site], target)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {fullname!r} in {self._site}", name=fullname)
        if spec.loader is None and not below:
            # A namespace package's own path would be looked for in all of sys.path again.
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [str(Path(self._site, fullname))]
        return spec


def _tops(site: Path) -> Iterator[str]:
    """Names of the packages and modules that lie in a folder."""
    for path in site.iterdir():
        name = path.name.partition(".")[0]
        if (
            name.isidentifier()
            and (path.suffix in {".py", ".so"} or (path.is_dir() and not path.suffix))
            and name != "__pycache__"
        ):
            yield name


def _provider(brought: Any) -> Provider:
    """What a build brings, as this harness has it: what a build of before or after lacks is as if nobody had said
    anything about it."""
    ops = tuple(_ours(Op, op, family=Family(str(op.family))) for op in brought.ops)  # a family is compared by identity
    devices = tuple(_ours(Device, device) for device in brought.devices)
    variants = tuple(_ours(Variant, variant) for variant in brought.variants)
    return _ours(Provider, brought, ops=ops, variants=variants, devices=devices, peers=(), libraries=tuple, calls=tuple)


def _ours(kind: type[Noun], brought: Any, **other: Any) -> Noun:
    told = {each.name: getattr(brought, each.name) for each in fields(kind) if hasattr(brought, each.name)}
    return kind(**told | other)


def unwrapped(function: Any) -> Any:
    """What a partial was made of."""
    while isinstance(function, partial):
        function = function.func
    return function
