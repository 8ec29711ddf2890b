"""A build's kernels in this process, beside those of another build and beside the harness that measures them.

Two builds have modules of the same names. So the modules of each are kept aside, and put into `sys.modules` while
something of that build runs: an import, a bind, a clock written in Python. Native modules are told apart by the paths
of their files. What a build brings is used by its shape alone, as `harness.spec` describes it: its classes are those of
its own `harness.spec`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import partial, wraps
from importlib import invalidate_caches
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from tritmark.harness.errors import InvalidArgumentError, TritmarkError
from tritmark.harness.providers import GROUP, VARIANTS, Installed
from tritmark.harness.spec import (
    Device,
    MaxSize,
    MinSize,
    MultipleOf,
    Op,
    Provider,
    Sizes,
    Tensor,
    ToleranceKind,
    Values,
    Variant,
)
from tritmark.harness.spec.renamed import old_name

Noun = TypeVar("Noun", Op, Device, Provider, Variant, Tensor, Sizes, MinSize, MaxSize, MultipleOf)


class BuildError(TritmarkError, RuntimeError):
    """A build cannot be made, or what it brings cannot be used; the message says what to do."""


class OpenedBuild:
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
        self._seen: set[str] = set()
        self._own: set[str] = set()
        """Of the names seen, those of modules that would be this build's."""
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
        # Sets, because this happens twice each time that a kernel of either build runs.
        fresh = sys.modules.keys() - self._seen
        self._seen |= fresh
        self._own |= {name for name in fresh if self.has(name)}
        return {name: sys.modules.pop(name) for name in sys.modules.keys() & self._own}

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
                    installed.add(_variant(variant))
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
        # tritmark's own path names other installations too.
        where = [each for each in path or () if Path(each).is_relative_to(self._site)] if below else [self._site]
        spec = PathFinder.find_spec(fullname, where, target)
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


_LACKING = object()


def _provider(brought: Any) -> Provider:
    """What a build brings, as this harness has it: what a build of before or after lacks is as if nobody had said
    anything about it."""
    ops = tuple(map(_op, brought.ops))
    devices = tuple(_ours(Device, device) for device in brought.devices)
    variants = tuple(map(_variant, brought.variants))
    return _ours(Provider, brought, ops=ops, variants=variants, devices=devices, peers=(), libraries=tuple, calls=tuple)


def _op(brought: Any) -> Op:
    """Members of enumerations are compared by identity, and errors are caught by their class: both have to be ours."""
    return _ours(
        Op,
        brought,
        tolerance_kind=ToleranceKind(str(_field(Op, brought, "tolerance_kind"))),
        inputs=tuple(map(_tensor, brought.inputs)),
        outputs=tuple(map(_tensor, brought.outputs)),
        sizes={axis: _ours(Sizes, sizes) for axis, sizes in getattr(brought, "sizes", {}).items()},
        **{name: _argument_errors(getattr(brought, name)) for name in ("generate", "encode") if hasattr(brought, name)},
    )


def _tensor(brought: Any) -> Tensor:
    return _ours(Tensor, brought, values=Values(str(getattr(brought, "values", Values.ANY))))


def _variant(brought: Any) -> Variant:
    return _ours(Variant, brought, constraints=tuple(map(_constraint, getattr(brought, "constraints", ()))))


def _constraint(brought: Any) -> Any:
    """Test cases are rounded to the kinds of limits that this harness knows; others only refuse."""
    kinds: dict[str, Any] = {each.__name__: each for each in (MinSize, MaxSize, MultipleOf)}
    kind = kinds.get(type(brought).__name__)
    return brought if kind is None else _ours(kind, brought)


def _argument_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its build's InvalidArgumentError as ours."""

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except Exception as error:
            if type(error).__name__ != InvalidArgumentError.__name__ or isinstance(error, InvalidArgumentError):
                raise
            reported = {each: str(getattr(error, each, "")) for each in ("op", "argument", "found", "legal")}
            raise InvalidArgumentError(**reported) from error

    return call


def _ours(kind: type[Noun], brought: Any, **other: Any) -> Noun:
    found = {each.name: _field(kind, brought, each.name) for each in fields(kind)}
    return kind(**{name: value for name, value in found.items() if value is not _LACKING} | other)


def _field(kind: type, brought: Any, name: str) -> Any:
    """A field of what a build brings, which may have it under its old name."""
    return getattr(brought, name if hasattr(brought, name) else old_name(kind, name), _LACKING)


def unwrapped(function: Any) -> Any:
    """What a partial was made of."""
    while isinstance(function, partial):
        function = function.func
    return function
