"""Loads a build's kernels into this process, beside those of another build and beside the harness that measures them.

Two builds have modules of the same names. The modules of each build are stored separately and put into `sys.modules`
only while code of that build runs: an import, a bind, a clock written in Python. Python distinguishes native modules by
their file paths. A build's objects are instances of its own `harness.spec`, so their fields are copied into this
harness's classes.
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
    """A build cannot be made, or its providers cannot be used. The message states the next step."""


class OpenedBuild:
    """The loaded providers of the distributions in the folder `site`.

    Raises BuildError if there are none, if one cannot be imported, or if this harness does not know its objects.
    """

    def __init__(self, site: Path) -> None:
        self.site = site.resolve()
        found = list(distributions(path=[str(self.site)]))
        self.packages = {each.metadata["Name"]: each.version for each in found}
        points = [point for each in found for point in each.entry_points]
        providers = {point.name: point for point in points if point.group == GROUP}
        if not providers:
            raise BuildError(
                f"{self.site}: no distribution there has kernels; legal: one with an entry point in the group {GROUP!r}"
            )
        self._tops = frozenset(_tops(self.site))
        self._modules: dict[str, ModuleType] = {}
        self._aside: dict[str, ModuleType] = {}
        self._seen: set[str] = set()
        self._own: set[str] = set()
        """The names in `_seen` that belong to this build's packages."""
        self._inside = 0
        self._finder = _Finder(self.site, self._tops)
        with self.inside():
            invalidate_caches()
            self.installed = self._load(providers, [point for point in points if point.group == VARIANTS])

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Within this context, imports come from this build. The context may be nested."""
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
        """The file of a module of this build; None if it is not loaded or has no file."""
        name = getattr(self.module(module), "__file__", None)
        return Path(name) if name else None

    def module(self, name: str) -> ModuleType | None:
        """This build's module of that name; None if it is not loaded."""
        return (sys.modules if self._inside else self._modules).get(name)

    def has(self, module: str) -> bool:
        """Whether a module of that name belongs to this build's packages."""
        return module.partition(".")[0] in self._tops

    def _taken(self) -> dict[str, ModuleType]:
        # Sets, because this runs twice for each run of a kernel.
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
            where = f"entry point {point.name!r} ({point.value})" if point is not None else "its set of providers"
            raise BuildError(f"{self.site}: {where} cannot be used: {type(error).__name__}: {error}") from error
        return installed


class _Finder(MetaPathFinder):
    """Finds the build's modules in its folder only."""

    def __init__(self, site: Path, tops: frozenset[str]) -> None:
        self._site = str(site)
        self._tops = tops

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raises ModuleNotFoundError for a module that the build lacks: another installation must not supply it."""
        top, _, below = fullname.partition(".")
        if top not in self._tops:
            return None
        # tritmark's own path names other installations too.
        where = [each for each in path or () if Path(each).is_relative_to(self._site)] if below else [self._site]
        spec = PathFinder.find_spec(fullname, where, target)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {fullname!r} in {self._site}", name=fullname)
        if spec.loader is None and not below:
            # Python would search all of sys.path for the portions of a namespace package.
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [str(Path(self._site, fullname))]
        return spec


def _tops(site: Path) -> Iterator[str]:
    """Names of the packages and modules in a folder."""
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
    """A build's provider as this harness's class. A field that an older or newer build lacks gets its default."""
    ops = tuple(map(_op, brought.ops))
    devices = tuple(_ours(Device, device) for device in brought.devices)
    variants = tuple(map(_variant, brought.variants))
    return _ours(Provider, brought, ops=ops, variants=variants, devices=devices, peers=(), libraries=tuple, calls=tuple)


def _op(brought: Any) -> Op:
    """A build's op as this harness's class, with its enumerations and errors: code compares these by identity and
    class."""
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
    """A constraint as this harness's class, to which drawn cases are rounded; a constraint of another class only
    refuses cases."""
    kinds: dict[str, Any] = {each.__name__: each for each in (MinSize, MaxSize, MultipleOf)}
    kind = kinds.get(type(brought).__name__)
    return brought if kind is None else _ours(kind, brought)


def _argument_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with the build's InvalidArgumentError raised as this harness's class."""

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
    """A field of a build's object, which may have an old name there."""
    return getattr(brought, name if hasattr(brought, name) else old_name(kind, name), _LACKING)


def unwrapped(function: Any) -> Any:
    """The function that a partial wraps, or the function itself."""
    while isinstance(function, partial):
        function = function.func
    return function
