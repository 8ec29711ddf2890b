"""What to change next: each proposal with its evidence, the edit, the commands that reproduce and verify it, and its
rule's record."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tritmark.harness.record import Proposal, Record
from tritmark.harness.report.section import Given, Section

_OPEN = 3
_MOST = 24


def _beside(record: Record, given: Given) -> dict[str, Any] | None:
    if not record.proposals and not record.unadvised and not record.addresses:
        return None
    runs = {run.id for run in record.runs}
    # The same rule on another shape of the same kernel is the same edit: it stands under the most certain one.
    found: dict[tuple[str, str], list[Proposal]] = {}
    for each in record.proposals:
        found.setdefault((each.rule, each.kernel), []).append(each)
    cards = [
        {
            "proposal": same[0],
            "known": same[0].run in runs,
            "others": same[1:],
            "record": given.rules.get(rule, ""),
            "open": rank < _OPEN,
            "rank": rank + 1,
        }
        for rank, ((rule, _), same) in enumerate(list(found.items())[:_MOST])
    ]
    rest = Counter(rule for rule, _ in list(found)[_MOST:])
    return {"cards": cards, "rest": rest.most_common(), "unadvised": record.unadvised}


SECTION = Section("next", "What to change next", "proposals.html", beside=_beside)
