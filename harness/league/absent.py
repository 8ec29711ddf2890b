"""What a league has no figures of: peers, each with the reason, and formats whose weights are repacked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from tritmark.harness.league.model import AbsentPeer, LeagueTable
from tritmark.harness.spec import Tier

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed


def absent(installed: Installed, tables: Sequence[LeagueTable]) -> tuple[AbsentPeer, ...]:
    """The peers for the work of these tables that are not in them: not installed, not made for these shapes, or without
    such a product. A peer that is absent from several tables for one reason is listed once for each op and scales."""
    found: dict[tuple[str, ...], AbsentPeer] = {}
    for table in tables:
        for each in (*_variants(installed, table), *_unsupported(installed, table)):
            found.setdefault((each.name, each.op, each.scales, each.reason), each)
    return tuple(found.values())


def with_repacked(installed: Installed, table: LeagueTable) -> LeagueTable:
    """The table with the formats of weight files whose weights are repacked for its work."""
    keys = (each.key for each in installed.registry.variants)
    own = {key.format for key in keys if (key.device, key.op) == (table.device, table.op)}
    types = (each for provider in installed.providers.values() for each in provider.weight_types)
    in_files = dict.fromkeys(name for each in types for name in each.layouts.values())
    forms = {name: installed.formats[name] for name in in_files if name in installed.formats and name not in own}
    others = (
        name
        for name, form in forms.items()
        if form.scale_per == "group" and form.scales == table.scales and form.scale_stored and form.ternary
    )
    return table.model_copy(update={"repacked": tuple(others)})


def _variants(installed: Installed, table: LeagueTable) -> Iterator[AbsentPeer]:
    present = {one.kernel for one in table.contenders}
    for variant in installed.registry.variants:
        key = variant.key
        suited = (key.device, key.op, key.dtype) == (table.device, table.op, table.dtype)
        if variant.tier is not Tier.PEER or variant.id in present or not suited:
            continue
        if installed.scales_of(key.format) == table.scales:
            refusals = (limit.refusal(table.axes) for limit in variant.constraints)
            why = variant.missing() or next(filter(None, refusals), "the suite does not measure it here")
            yield AbsentPeer(name=variant.name, op=table.op, scales=table.scales, reason=why)


def _unsupported(installed: Installed, table: LeagueTable) -> Iterator[AbsentPeer]:
    kind = installed.registry.devices[table.device].type
    for provider in installed.providers.values():
        for each in provider.unsupported():
            if (each.op, each.device) == (table.op, kind) and fnmatchcase(table.scales, each.scales):
                reason = f"unsupported: {each.reason}"
                yield AbsentPeer(name=each.name, op=table.op, scales=table.scales, reason=reason)
