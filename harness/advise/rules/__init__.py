"""All rules in the order of their numbers: each module of this folder has one, `RULE`."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tritmark.harness.advise.rule import Rule
from tritmark.harness.errors import UsageError
from tritmark.harness.nearest import misspelt

_FOUND: list[Rule] = [import_module(f"{__name__}.{module.name}").RULE for module in iter_modules(__path__)]
RULES: tuple[Rule, ...] = tuple(sorted(_FOUND, key=lambda rule: rule.number))


def named(name: str, option: str) -> Rule:
    """The rule of that name or number. Raises UsageError with the nearest name if there is none; `option` is the
    command line option for the message."""
    found = next((rule for rule in RULES if name in {rule.name, str(rule.number)}), None)
    if found is None:
        asked = misspelt(name, [rule.name for rule in RULES])
        raise UsageError(f"{option} {asked}: no such rule; `tritmark advise --list` shows all")
    return found
