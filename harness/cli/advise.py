"""`tritmark advise`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli import completion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tritmark.harness.advise.ledger import Ledger
    from tritmark.harness.record import Proposal, Record

_SHOWN = 10


def advise(
    record: Annotated[
        str,
        typer.Argument(metavar="RECORD", autocompletion=completion.records, help="Path or id; the newest unless told."),
    ] = "",
    list_rules: Annotated[
        bool, typer.Option("--list", help="List the rules, each with its record of promises kept.")
    ] = False,
    explain: Annotated[
        str, typer.Option(metavar="RULE", help="What a rule looks at, its formula, and where its thresholds come from.")
    ] = "",
    ncu: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv", dir_okay=False, help="Counters from `ncu --csv --page raw`, for rules on them."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    everything: Annotated[bool, typer.Option("--all", help=f"Every proposal, not the first {_SHOWN}.")] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Where Records and the ledger are.")] = Path(
        "results"
    ),
) -> None:
    """Say what to change next: for each kernel of a Record the evidence, the edit, and the gain that it should
    bring."""
    from tritmark.harness.advise.outcome import ledger_of
    from tritmark.harness.store import Store, read

    store = Store(out)
    ledger = ledger_of(store)
    if list_rules:
        typer.echo(_listed(ledger, as_json=as_json), nl=False)
    elif explain:
        typer.echo(_explained(explain, ledger), nl=False)
    else:
        found = read(store.find(record) if record else store.latest())
        if ncu is not None:
            from tritmark.harness.disassembly.ncu import with_counters

            found = with_counters(found, ncu)
        typer.echo(_advised(found, ledger, as_json=as_json, most=None if everything else _SHOWN), nl=False)


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
    told = ("guards the others" if rule.forbids is not None else str(ledger.standing(rule.name)) for rule in RULES)
    return "".join(
        f"{rule.number:>2}  {rule.name:<{width}}  {rule.title} [{record}]\n"
        for rule, record in zip(RULES, told, strict=True)
    )


def _explained(name: str, ledger: Ledger) -> str:
    from tritmark.harness.advise.rules import named

    rule = named(name, "--explain")
    record = "guards the others" if rule.forbids is not None else str(ledger.standing(rule.name))
    return (
        f"{rule.number}. {rule.name}: {rule.title}\n\n{rule.explanation}\n\nNeeds: {rule.needs}.\nIts record: "
        f"{record}.\n"
    )


def _advised(record: Record, ledger: Ledger, *, as_json: bool, most: int | None) -> str:
    from tritmark.harness.advise.advise import advise as proposals_of
    from tritmark.harness.advise.missing import unadvised

    proposals, missing = proposals_of(record, ledger.weights()), unadvised(record)
    if as_json:
        import json

        rows = [proposal.model_dump(mode="json") for proposal in proposals]
        return json.dumps({"record": record.id, "proposals": rows, "unadvised": missing}, indent=1) + "\n"
    from tritmark.harness.text.visible import visible

    shown = proposals[:most]
    lines = [line for rank, proposal in enumerate(shown, 1) for line in (*_told(rank, proposal, ledger), "")]
    if len(proposals) > len(shown):
        lines += [f"{len(proposals) - len(shown):,} more: --all", ""]
    if not proposals:
        lines += ["no rule proposes anything", ""]
    lines += ["Not looked at:", *(f"  {each}" for each in missing)] if missing else []
    return "".join(f"{visible(line)}\n" for line in lines)


def _told(rank: int, proposal: Proposal, ledger: Ledger) -> Sequence[str]:
    gain = proposal.gain
    told = f"gain: {gain.low:.2f}x to {gain.high:.2f}x; the machine allows {proposal.ceiling:.2f}x"
    return (
        f"{rank}. {proposal.title} [{proposal.rule}]",
        f"   {proposal.kernel}  {proposal.workload}",
        f"   {told}; the rule: {ledger.standing(proposal.rule)}",
        *(f"   {fact.name}: {fact.value}  ({fact.source})" for fact in proposal.evidence),
        f"   edit: {proposal.edit}",
        f"   reproduce: {proposal.reproduce}",
        f"   verify: {proposal.verify}",
    )
