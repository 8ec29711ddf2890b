"""JSON with its own digest: what was damaged is refused, what was not is read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.sealed import sealed, unsealed

pytestmark = pytest.mark.long

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(st.text().filter(lambda name: name != "sha256"), VALUES, max_size=4)


@given(DOCUMENTS)
def test_a_document_comes_back(document: dict[str, object]) -> None:
    assert unsealed(sealed(document), document.keys()) == document


@given(DOCUMENTS, st.data())
def test_a_flipped_bit_changes_nothing_unnoticed(document: dict[str, object], data: st.DataObject) -> None:
    """Either the text is refused, or it still has the same content."""
    whole = bytearray(sealed(document).encode())
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    try:
        found = unsealed(whole.decode(), document.keys())
    except ValueError:  # UnicodeDecodeError and JSONDecodeError too
        return
    assert found == document


@given(DOCUMENTS)
def test_older_files_have_no_digest(document: dict[str, object]) -> None:
    assert unsealed(json.dumps(document), document.keys()) == document


def test_a_damaged_name_of_the_digest_is_no_older_file() -> None:
    text = sealed({"a": 1}).replace("sha256", "rha256")
    with pytest.raises(ValueError, match="keys a, rha256; legal: a"):
        unsealed(text, {"a"})


@pytest.mark.parametrize("text", ["", "[]", "3", '{"a": 1', "\x00"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"legal: an object|Expecting|delimiter"):
        unsealed(text, {"a"})
