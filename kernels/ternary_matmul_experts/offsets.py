"""Which rows belong to which expert."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import InvalidArgumentError

Offsets = npt.NDArray[np.int32]


def touched(M: int, E: int) -> int:
    """The number of experts that have rows in the inputs of family "uniform"."""
    return min(M, E)


def drawn(family: str, M: int, E: int, rng: np.random.Generator) -> Offsets:
    """Offsets int32 (E + 1,) of M rows. "uniform": `touched` experts drawn at random, whose rows differ by one at most.
    Other families: rows as a router deals them to experts of different popularity, or cut at random, or all rows to one
    expert, or one row to one expert and the others to another. Experts without rows are common."""
    counts = np.zeros(E, np.int64)
    if family == "uniform":
        busy = touched(M, E)
        counts[rng.choice(E, busy, replace=False)] = M // busy + (np.arange(busy) < M % busy)
    elif family == "constant":
        counts[rng.integers(E)] = M
    elif family == "zero":
        counts[rng.choice((0, E - 1))] = M
    elif family == "one_nonzero":
        np.add.at(counts, rng.integers(E, size=2), (1, M - 1))
    elif family == "corners":
        cuts = np.sort(rng.integers(M + 1, size=E - 1))
        counts[:] = np.diff(cuts, prepend=0, append=M)
    else:
        counts[:] = rng.multinomial(M, rng.dirichlet(np.full(E, 0.5)))
    return _summed(counts)


def _summed(counts: npt.NDArray[np.int64]) -> Offsets:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def expert_of(offsets: npt.NDArray[Any], M: int) -> npt.NDArray[np.intp]:
    """The expert of each of M rows: the first whose rows end behind it. Any offsets give experts, so that mutants may
    read them incorrectly; `check` refuses those outside the contract."""
    ends = np.asarray(offsets)[1:]
    found: npt.NDArray[np.intp] = (ends <= np.arange(M)[:, np.newaxis]).sum(axis=1)
    return np.minimum(found, len(ends) - 1)


def parts(offsets: npt.NDArray[Any], M: int) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Each expert that has rows, and their indices."""
    experts = expert_of(offsets, M)
    for expert in np.unique(experts):
        yield int(expert), np.flatnonzero(experts == expert)


def check(op: str, offsets: Offsets, M: int) -> None:
    """Raise InvalidArgumentError unless the offsets begin at 0, ascend and end at M."""
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if offsets[0] != 0:
        found, legal = f"{offsets[0]} at index 0", "0: the rows of the first expert begin there"
    elif falls.size:
        at = int(falls[0])
        found, legal = f"{offsets[at + 1]} at index {at + 1}, after {offsets[at]}", "ascending offsets"
    elif offsets[-1] != M:
        found, legal = f"{offsets[-1]} at the end", f"{M}, the number of rows of the activations"
    else:
        return
    raise InvalidArgumentError(op=op, argument="offsets", found=found, legal=legal)
