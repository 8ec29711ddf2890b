"""Download weights from the Hugging Face hub with its client library."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from tritmark.harness.errors import WeightFileError
from tritmark.harness.weights import index
from tritmark.harness.weights.names import inert, inert_path
from tritmark.harness.weights.small_json import CONFIGURATIONS

PREFIX = "hf:"

_COMMIT = re.compile(r"[0-9a-f]{40}")
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_SPEC = re.compile(rf"hf:({_PART}/{_PART})(?:@([A-Za-z0-9_][A-Za-z0-9_./-]*))?")


def download(spec: str) -> Path:
    """Download the .safetensors files in the top folder of `hf:OWNER/NAME[@REVISION]`, with the index.json and the
    configuration files. Returns the local folder.

    If there is an index, only the files that it names are downloaded. The client keeps its own cache and requests only
    missing files. Raises WeightFileError for a malformed `spec`, a missing library, any error of the library, and an
    index that cannot be read.
    """
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise WeightFileError(
            path=inert_path(spec), found="not a name on the hub", legal="hf:OWNER/NAME or hf:OWNER/NAME@REVISION"
        )
    try:
        library = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise WeightFileError(
            path=spec,
            found=f"huggingface_hub cannot be imported ({error})",
            legal="`pip install huggingface_hub`, or a local path",
        ) from error
    revision = match[2]

    def fetched(patterns: list[str]) -> Path:
        try:
            folder = library.snapshot_download(
                repo_id=match[1], revision=revision, allow_patterns=patterns, ignore_patterns=["*/*"]
            )
        except Exception as error:
            # The client raises its own errors, those of its HTTP library and OSError, with no common base class.
            raise WeightFileError(
                path=spec,
                found=f"{type(error).__name__}: {inert(str(error))}",
                legal="a repository that exists and that you may read",
            ) from error
        return Path(folder)

    folder = fetched([f"*{index.SUFFIX}", *CONFIGURATIONS])
    if _COMMIT.fullmatch(folder.name):
        revision = folder.name  # a branch may move between the two requests
    found = index.path_of(folder)
    # Exact names: a file name in an index may look like a pattern.
    return fetched([_literal(name) for name in index.names_of(found)] if found is not None else ["*.safetensors"])


def _literal(name: str) -> str:
    """A pattern of fnmatch that matches only this name."""
    return re.sub(r"([*?[])", r"[\1]", name)
