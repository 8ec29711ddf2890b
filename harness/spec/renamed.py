"""Deprecated field names that other packages may still use."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

C = TypeVar("C", bound=type)

_OLD: dict[tuple[type, str], str] = {}


def renamed(**names: str) -> Callable[[C], C]:
    """Decorate a dataclass with renamed fields, given as `old="new"`. Old names still work as keywords and attributes,
    with a DeprecationWarning."""

    def decorate(cls: C) -> C:
        made: Callable[..., None] = vars(cls)["__init__"]

        @wraps(made)
        def init(self: Any, *args: Any, **fields: Any) -> None:
            for old in names.keys() & fields.keys():
                _warn(cls.__name__, old, names[old])
                fields[names[old]] = fields.pop(old)
            made(self, *args, **fields)

        type.__setattr__(cls, "__init__", init)
        _OLD.update({(cls, new): old for old, new in names.items()})
        for old, new in names.items():
            type.__setattr__(cls, old, property(_reader(cls.__name__, old, new)))
        return cls

    return decorate


def old_name(cls: type, name: str) -> str:
    """The old name of a field; `name` itself if the field was never renamed."""
    return _OLD.get((cls, name), name)


def _reader(owner: str, old: str, new: str) -> Callable[[Any], Any]:
    def read(self: Any) -> Any:
        _warn(owner, old, new)
        return getattr(self, new)

    return read


def _warn(owner: str, old: str, new: str) -> None:
    warnings.warn(f"{owner}.{old} is deprecated: use {new}", DeprecationWarning, stacklevel=3)
