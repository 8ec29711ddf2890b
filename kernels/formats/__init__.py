"""Weight formats in NumPy: pack to the exact bytes of the original packers, and unpack.

`FORMATS[name]` has `pack`, `unpack` and `quantize`, see `base.Format`. To add a format, add one file here, or bring it
with the provider of another package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType

from tritmark.harness.spec import WeightType
from tritmark.kernels.formats.base import Format, NonFiniteWarning, TailDroppedWarning

__all__ = ["BUILT_IN", "FORMATS", "WEIGHT_TYPES", "Format", "NonFiniteWarning", "TailDroppedWarning"]

_MODULES = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]

BUILT_IN: Mapping[str, Format] = MappingProxyType(
    {form.name: form for module in _MODULES for form in getattr(module, "FORMATS", ())}
)
"""The formats of this package: those that a module of this folder has in FORMATS."""

WEIGHT_TYPES: tuple[WeightType, ...] = tuple(
    each for module in _MODULES for each in getattr(module, "WEIGHT_TYPES", ())
)
"""Tensor types of weight files that hold ternary codes, and the format of each. A type with a format that is not
installed is refused when it is read."""


class _InstalledFormats(Mapping[str, Format]):
    """The formats of all providers. Other packages are imported only for a name that is not in BUILT_IN, and for a
    list of all names."""

    def __getitem__(self, name: str) -> Format:
        return BUILT_IN[name] if name in BUILT_IN else self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    @staticmethod
    def _all() -> Mapping[str, Format]:
        from tritmark.harness.providers import installed

        return installed().formats


FORMATS: Mapping[str, Format] = _InstalledFormats()
"""All formats by name; those of other packages come last."""
