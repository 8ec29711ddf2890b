"""Proposals: each with its evidence, the edit, the commands that reproduce and verify it, and the hit rate of its
rule."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tritmark.harness.advise.ledger import UNTRIED
from tritmark.harness.advise.rank import rank
from tritmark.harness.record import Record
from tritmark.harness.report.section import PageContext, Section

_SHOWN = 10
_MOST = 24


def _beside(record: Record, given: PageContext) -> dict[str, Any] | None:
    if not record.proposals and not record.unadvised and not record.addresses:
        return None
    runs = {run.id for run in record.runs}
    ranked = rank(record, record.proposals, given.weighed())
    cards = [
        {
            "proposal": each.proposal,
            "ranked": each,
            "known": each.proposal.run in runs,
            "others": each.others,
            "record": given.rules.get(each.proposal.rule, ""),
            "open": place == 1,
            "rank": place,
        }
        for place, each in enumerate(ranked[:_MOST], 1)
    ]
    return {
        "untried": UNTRIED,
        "cards": cards[:_SHOWN],
        "further": cards[_SHOWN:],
        "rest": Counter(each.proposal.rule for each in ranked[_MOST:]).most_common(),
        "unadvised": record.unadvised,
    }


SECTION = Section("next", "What to change next", "proposals.html", beside=_beside)
