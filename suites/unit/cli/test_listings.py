"""What `tritmark list` prints, in terminals of several widths: no word is broken, and what cannot run here has its
reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console
from rich.table import Table

from tritmark.harness.cli import listings
from tritmark.harness.providers import Installed
from tritmark.harness.text.table import fit
from tritmark.kernels import PROVIDER

WHY = "there is no such device here; next: buy one"
LISTINGS = (listings.ops, listings.variants, listings.formats, listings.workloads)


@pytest.fixture
def installed() -> Installed:
    """All that is here, on a CPU that lacks everything and with no other device."""
    found = {each.type: each for each in PROVIDER.devices}
    devices = replace(found["cpu"], features=frozenset), replace(found["cuda"], missing=lambda: WHY)
    return Installed({"builtin": replace(PROVIDER, devices=devices)})


def printed(table: Table, width: int) -> str:
    out = StringIO()
    if not any(column.no_wrap for column in table.columns):
        fit(table, width)  # as the command does
    Console(file=out, width=width, markup=False, emoji=False, highlight=False).print(table)
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("listing", LISTINGS, ids=[each.__name__ for each in LISTINGS])
def test_no_word_is_broken_and_no_line_is_longer(
    installed: Installed, listing: Callable[[Installed], Table], width: int
) -> None:
    if listing is listings.variants:  # its ids are not wrapped, and beside them are words
        width = max(width, 32 + max(len(each.id) for each in installed.registry.variants))
    told = printed(listing(installed), width)
    assert max(map(len, told.splitlines())) <= width
    assert sorted(told.split()) == sorted(printed(listing(installed), 1000).split())


def test_each_variant_that_cannot_run_is_numbered_with_its_reason(installed: Installed) -> None:
    lines = printed(listings.variants(installed), 1000).splitlines()
    reasons = {
        f"no {number})": reason.strip() for line in lines if line[0] == "(" for number, reason in [line.split(") ", 1)]
    }
    assert WHY in reasons.values()
    assert any(reason.startswith("this cpu lacks ") for reason in reasons.values())
    told = {
        cells[0]: " ".join(cells[1:3]) for line in lines if "/" in line and line[0] != "(" for cells in [line.split()]
    }
    for key in {variant.key for variant in installed.registry.variants}:
        for variant, refusal in installed.registry.candidates(key):
            assert told[variant.id].startswith("yes ") if refusal is None else reasons[told[variant.id]] == refusal
