"""JSON documents with their own digest, for caches that are changed in place: a damaged file is detected, not
believed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from hashlib import sha256
from typing import Any

_DIGEST = "sha256"


def sealed(document: Mapping[str, Any]) -> str:
    """The text of a document, with the digest of its content."""
    return json.dumps({**document, _DIGEST: _digest(document)}, indent=1) + "\n"


def unsealed(text: str, keys: Set[str]) -> dict[str, Any]:
    """The document with these keys in such a text. A text without a digest, as older versions wrote it, is taken as it
    is. Raises ValueError for other text than JSON of an object, for other keys, and for a digest of other content."""
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError(f"a JSON {type(document).__name__}; legal: an object")
    claimed = document.pop(_DIGEST, None)
    if claimed is not None and claimed != _digest(document):
        raise ValueError("the file was damaged or changed after it was written: its content has another digest")
    if document.keys() != keys:  # a damaged name of the digest is one too
        raise ValueError(f"keys {', '.join(document)}; legal: {', '.join(sorted(keys))}")
    return document


def _digest(document: Mapping[str, Any]) -> str:
    return sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
