"""A hypothesis strategy: seeds with a few bytes replaced, inserted or deleted, and truncated."""

from __future__ import annotations

from hypothesis import strategies as st

_PIECES = st.one_of(
    st.binary(min_size=1, max_size=1), st.sampled_from([b"\0" * 8, b"\xff" * 8, b'"', b"{", b"[", b"9", b"0", b","])
)
# Most of the places are in the header, which has the structure.
_PLACES = st.one_of(st.integers(0, 400), st.integers(0, 4000), st.integers(0, 1 << 20))
_CHANGES = st.lists(st.tuples(_PLACES, _PIECES, st.sampled_from(["replace", "insert", "delete"])), max_size=4)
_KEPT = st.one_of(st.just(1.0), st.just(1.0), st.just(1.0), st.floats(0, 1))
_PROGRAM = 64
"""Seeds up to this many bytes are treated as plain noise."""


def mutants(seeds: list[bytes]) -> st.SearchStrategy[bytes]:
    """Changed seeds; if they are short, also any short bytes."""
    changed = st.builds(mutated, st.sampled_from(seeds), _CHANGES, _KEPT)
    return st.one_of(st.binary(max_size=_PROGRAM), changed) if max(map(len, seeds)) <= _PROGRAM else changed


def mutated(content: bytes, changes: list[tuple[int, bytes, str]], kept: float) -> bytes:
    result = bytearray(content)
    for place, new, how in changes:
        at = place % (len(result) + 1)
        result[at : at + (0 if how == "insert" else len(new))] = b"" if how == "delete" else new
    return bytes(result[: round(len(result) * kept)])
