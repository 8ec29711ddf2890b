"""Transfer of the outputs of a timed loop, and their judgement if pieces come from other data."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.spec import ToleranceKind
from tritmark.harness.validate import measured
from tritmark.harness.validate.audit import Audited, AuditedPiece
from tritmark.harness.validate.compare import Expected
from tritmark.harness.validate.confirm import _first_wrong
from tritmark.harness.validate.pieces import Exchangeable, Piece, Pieces


def expected(values: Any) -> Expected:
    return Expected("y", ToleranceKind.EXACT, values, values, None)


@given(st.data())
def test_the_first_wrong_element_is_found_whatever_was_exchanged(data: st.DataObject) -> None:
    shape = data.draw(st.tuples(st.integers(1, 3), st.integers(2, 9), st.integers(1, 3)))
    axis = data.draw(st.integers(0, 2))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    base, other = (rng.integers(0, 100, shape) for _ in range(2))
    units = data.draw(st.sets(st.integers(0, shape[axis] - 1), max_size=3))
    pieces = tuple(Piece((), {"y": (axis, unit, unit + 1)}) for unit in sorted(units))
    right = base.copy()
    for piece in pieces:
        piece.of("y", right)[...] = piece.of("y", other)
    begin = data.draw(st.integers(0, base.size - 1))
    length = data.draw(st.integers(1, base.size - begin))
    found = right.reshape(-1)[begin : begin + length].copy()
    wrong = data.draw(st.sets(st.integers(0, length - 1), max_size=3))
    found[sorted(wrong)] += 1000
    found.setflags(write=False)  # as it comes from a worker
    parts = {nth: expected(np.array(piece.of("y", other))) for nth, piece in enumerate(pieces)}
    told = _first_wrong(expected(base), parts, Exchangeable(Pieces(pieces), ((), ())), found, begin)
    if not wrong:
        assert told is None
    else:
        at = begin + min(wrong)
        assert told is not None
        assert (told.index, told.found, told.expected) == (
            (at,),
            str(right.reshape(-1)[at] + 1000),
            str(right.reshape(-1)[at]),
        )


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 1), st.integers(0, 12)), max_size=9))
def test_all_looks_are_told_a_few_at_a_time(drawn: list[tuple[bool, int, int]]) -> None:
    def look(whole: bool, case: int, size: int) -> Audited | AuditedPiece:
        outputs = {"y": np.zeros(size, np.uint8)}
        return Audited("cold", case, outputs, {"y": 0}) if whole else AuditedPiece("cold", case, 0, False, outputs)

    looks = sorted((look(*each) for each in drawn), key=lambda each: -each.case)
    site: Any = SimpleNamespace(kept={"looks": list(looks)})
    told: list[Audited | AuditedPiece] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured, "SEEN", 10)
        while any(batch := measured.seen(site)):
            both: list[Audited | AuditedPiece] = [*batch[0], *batch[1]]
            assert len({each.case for each in both}) == 1, "expected outputs of two sets would be held together"
            assert len(both) == 1 or sum(each.outputs["y"].nbytes for each in both) <= 10
            told += both
    assert {id(each) for each in told} == {id(each) for each in looks}
    assert [each.case for each in told] == sorted((each.case for each in told), reverse=True)
