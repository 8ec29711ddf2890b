"""Weights from the Hugging Face hub, where its client library is installed."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from tritmark.harness.errors import WeightFileError
from tritmark.harness.weights.names import inert, inert_path

PREFIX = "hf:"

_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_SPEC = re.compile(rf"hf:({_PART}/{_PART})(?:@([A-Za-z0-9_][A-Za-z0-9_./-]*))?")


def download(spec: str) -> Path:
    """The local folder with the .safetensors files and the config.json in the top folder of
    `hf:OWNER/NAME[@REVISION]`.

    The client keeps its own cache, and asks the network only for what is not there. Raises WeightFileError for a
    malformed `spec`, a missing library, and whatever the library raises.
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
    try:
        folder = library.snapshot_download(
            repo_id=match[1],
            revision=match[2],
            allow_patterns=["*.safetensors", "config.json"],
            ignore_patterns=["*/*"],
        )
    except Exception as error:
        # The client raises its own, its HTTP library's and the system's errors, with no common base.
        raise WeightFileError(
            path=spec,
            found=f"{type(error).__name__}: {inert(str(error))}",
            legal="a repository that can be reached and read",
        ) from error
    return Path(folder)
