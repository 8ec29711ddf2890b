"""`tritmark advise`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli import completion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tritmark.harness.advise.ledger import Ledger
    from tritmark.harness.advise.rank import RankedProposal
    from tritmark.harness.record import Record

SHOWN = 10
"""Number of proposals shown without --all."""

_REASONS = 3
"""Number of reasons for missing advice shown without --all."""


def advise(
    record: Annotated[
        str,
        typer.Argument(metavar="RECORD", autocompletion=completion.records, help="Path or id; by default the newest."),
    ] = "",
    list_rules: Annotated[
        bool, typer.Option("--list", help="List the rules, each with its record of kept predictions.")
    ] = False,
    explain: Annotated[
        str, typer.Option(metavar="RULE", help="Explain a rule: its inputs, its formula, the source of its thresholds.")
    ] = "",
    ncu: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv", dir_okay=False, help="Counters from `ncu --csv --page raw`, for rules that use them."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help=f"Show every proposal with its evidence, not only the first {SHOWN}.")
    ] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Folder of Records and the ledger.")] = Path(
        "results"
    ),
) -> None:
    """Propose optimizations: evidence, edit and predicted gain for each kernel of a Record."""
    from tritmark.harness.advise.outcome import ledger_of
    from tritmark.harness.store import Store
    from tritmark.harness.text.distrust import distrust
    from tritmark.harness.verify import believed

    store = Store(out)
    ledger = ledger_of(store)
    if list_rules:
        typer.echo(_listed(ledger, as_json=as_json), nl=False)
    elif explain:
        typer.echo(_explained(explain, ledger), nl=False)
    else:
        found, faults = believed(store.find(record) if record else store.latest())
        reported = distrust(faults)
        if ncu is not None:
            from tritmark.harness.disassembly.ncu import with_counters

            found = with_counters(found, ncu)
        most = None if everything else SHOWN
        typer.echo(_advised(found, ledger, reported, as_json=as_json, most=most), nl=False)


def _listed(ledger: Ledger, *, as_json: bool) -> str:
    import json

    from tritmark.harness.advise.rules import RULES

    if as_json:
        rows = [
            {
                "name": rule.name,
                "number": rule.number,
                "title": rule.title,
                "needs": rule.needs,
                "record": str(ledger.standing(rule.name)),
            }
            for rule in RULES
        ]
        return json.dumps(rows, indent=1) + "\n"
    width = max(len(rule.name) for rule in RULES)
    reported = ("guards the others" if rule.forbids is not None else str(ledger.standing(rule.name)) for rule in RULES)
    return "".join(
        f"{rule.number:>2}  {rule.name:<{width}}  {rule.title} [{record}]\n"
        for rule, record in zip(RULES, reported, strict=True)
    )


def _explained(name: str, ledger: Ledger) -> str:
    from tritmark.harness.advise.rules import named

    rule = named(name, "--explain")
    record = "guards the others" if rule.forbids is not None else str(ledger.standing(rule.name))
    return (
        f"{rule.number}. {rule.name}: {rule.title}\n\n{rule.explanation}\n\nNeeds: {rule.needs}.\nIts record: "
        f"{record}.\n"
    )


def _advised(record: Record, ledger: Ledger, distrust: str, *, as_json: bool, most: int | None) -> str:
    from tritmark.harness.advise.advise import advise as proposals_of
    from tritmark.harness.advise.missing import unadvised
    from tritmark.harness.advise.rank import rank

    weights = ledger.weights()
    proposals, missing = proposals_of(record, weights), unadvised(record)
    if as_json:
        import json

        rows = [proposal.model_dump(mode="json") for proposal in proposals]
        reported = {"record": record.id, "distrust": distrust, "proposals": rows, "unadvised": missing}
        return json.dumps(reported, indent=1) + "\n"
    from tritmark.harness.text.units import counted
    from tritmark.harness.text.visible import visible

    ranked = rank(record, proposals, weights)
    shown = ranked[:most]
    lines = [distrust, ""] if distrust else []
    own = any(not each.beside for each in ranked)
    for number, each in enumerate(shown, 1):
        if each.beside and (number == 1 or not shown[number - 2].beside):
            lines += [
                "" if own else "No rule has a proposal for your kernel.",
                "For the built-in kernel beside it:",
                "",
            ]
        lines += [*_lines(number, each, ledger, whole=most is None), ""]
    if not ranked:
        lines += ["no rule has a proposal", ""]
    elif most is not None:
        more = f"{counted(len(ranked) - len(shown), 'further proposal')}, " if len(ranked) > len(shown) else ""
        lines += [f"{more}evidence and other workloads: add --all to the command", ""]
    lines += _not_looked_at(missing, most)
    return "".join(f"{visible(line)}\n" for line in lines)


def _not_looked_at(missing: Sequence[str], most: int | None) -> Sequence[str]:
    if not missing:
        return ()
    shown = missing if most is None else missing[:_REASONS]
    more = [f"  and {len(missing) - len(shown):,} more: --all"] if len(missing) > len(shown) else []
    return ("Not examined:", *(f"  {each}" for each in shown), *more)


def _lines(number: int, ranked: RankedProposal, ledger: Ledger, *, whole: bool) -> Sequence[str]:
    from tritmark.harness.text.units import counted, time

    proposal, gain = ranked.proposal, ranked.proposal.gain
    others = f", and {counted(len(ranked.others), 'more workload')}" if ranked.others else ""
    saved = f"should save {time(ranked.saved_ns)} of {time(ranked.of_ns)}"
    text = f"{saved}; gain {gain.low:.2f}x to {gain.high:.2f}x, the machine allows {proposal.ceiling:.2f}x"
    marks = "".join(
        f"; {mark}"
        for mark, applies in (
            ("another variant is faster", ranked.outrun),
            ("shorter than its call overhead", ranked.short),
        )
        if applies
    )
    lines = [
        f"{number}. {proposal.title} [{proposal.rule}: {ledger.standing(proposal.rule)}]",
        f"   {proposal.kernel}  {proposal.workload}{others}",
        f"   {text}{marks}",
    ]
    if whole:
        lines += [f"   {fact.name}: {fact.value}  ({fact.source})" for fact in proposal.evidence]
    lines += [f"   edit: {proposal.edit}"]
    if whole:
        lines += [f"   reproduce: {proposal.reproduce}"]
    lines += [f"   verify: {proposal.verify}"]
    if whole:
        lines += [
            f"   also at {each.workload}: gain {each.gain.low:.2f}x to {each.gain.high:.2f}x" for each in ranked.others
        ]
    return lines
