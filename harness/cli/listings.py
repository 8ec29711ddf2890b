"""Tables of `tritmark list`. They are separate from other tables, so that the command imports little."""

from __future__ import annotations

from fnmatch import fnmatchcase

from rich.table import Table

from tritmark.harness.providers import Installed
from tritmark.harness.text.table import plain_table


def ops(installed: Installed, op: str = "*") -> Table:
    """A row for each op whose name matches the pattern `op`."""
    table = plain_table("Ops", "op", "axes", "judged", "input families", "what it does")
    for each in installed.ops.values():
        if fnmatchcase(each.name, op):
            families = " ".join(each.input_families)
            table.add_row(each.name, " ".join(each.axes), each.tolerance_kind.value, families, each.summary)
    return table


def variants(installed: Installed, op: str = "*") -> Table:
    """A row for each variant of such ops: whether it can run here, and a number that refers to the reason below the
    table.

    Ids are not wrapped, so that they can be copied from a terminal of 80 columns. This leaves no room for reasons.
    """
    table = plain_table("Variants", "variant", "here", "tier and what it is")
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    listed = [each for each in installed.registry.variants if fnmatchcase(each.key.op, op)]
    refusals = {
        variant.id: refusal
        for key in dict.fromkeys(variant.key for variant in listed)
        for variant, refusal in installed.registry.candidates(key)
    }
    numbers = {refusal: number for number, refusal in enumerate(dict.fromkeys(filter(None, refusals.values())), 1)}
    for variant in listed:
        refusal = refusals[variant.id]
        here = f"no ({numbers[refusal]})" if refusal else "yes"
        tier = variant.tier.name.lower().replace("_", " ")
        table.add_row(variant.id, here, f"{tier}: {variant.summary}")
    table.caption = "\n".join(f"({number}) {refusal}" for refusal, number in numbers.items()) or None
    table.caption_justify = "left"
    return table


def formats(installed: Installed) -> Table:
    """A row for each format."""
    table = plain_table("Formats", "format", "block", "a scale for each", "what it is", right=("block",))
    for name, format in installed.formats.items():
        table.add_row(
            name,
            str(format.block),
            format.scale_per + f" of {format.group}" * (format.scale_per == "group"),
            format.summary,
        )
    return table


def workloads(installed: Installed, op: str = "*") -> Table:
    """A row for each suite and such op: the number of workloads, and of measured ones."""
    table = plain_table("Suites", "suite", "op", "workloads", "measured", "title", right=("workloads", "measured"))
    for name in installed.suites():
        suite = installed.suite(name)
        head, title = name, suite.title
        for each in installed.ops:
            of_op = [item.workload for item in suite.selected if item.workload.op == each and fnmatchcase(each, op)]
            if of_op:
                measured = sum(workload.measure for workload in of_op)
                table.add_row(head, each, str(len(of_op)), str(measured), title)
                head = title = ""
    return table
