"""The data of workloads, kept while the next group can use them."""

from __future__ import annotations

from collections import OrderedDict

from tritmark.harness.judge.judging import Group
from tritmark.harness.validate.cases import Material

_MATERIALS = 1 << 24
"""Input elements that are kept for the next key with the same workloads."""


class Materials:
    """A cache of the data of workloads, limited in elements."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._known: OrderedDict[int, Material] = OrderedDict()

    def of(self, group: Group) -> Material:
        """The data of the group's workload."""
        for number, there in self._known.items():
            if there.op is group.op and there.suits(group.workload):
                self._known.move_to_end(number)
                return there
        once = group.workload.stored is not None  # nothing else has the same data
        while self._known and (once or sum(known.elements for known in self._known.values()) > _MATERIALS):
            self._known.popitem(last=False)  # two of the largest together could exceed the memory
        made = Material(group.op, group.workload, self._seed)
        self._known[id(made)] = made
        return made
