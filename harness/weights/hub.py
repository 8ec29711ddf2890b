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
_FILE = rf"(?:{_PART}/)*{_PART}\.(?:gguf|onnx)"
_SPEC = re.compile(rf"hf:({_PART}/{_PART})(?:/({_FILE}))?(?:@([A-Za-z0-9_][A-Za-z0-9_./-]*))?")
_LEGAL = "hf:OWNER/NAME, hf:OWNER/NAME/FILE.gguf or hf:OWNER/NAME/FILE.onnx, each with @REVISION or without"
_MODEL = re.compile(_FILE)
_SPLIT = re.compile(r"(.*)-[0-9]{5}(-of-[0-9]{5}\.gguf)", re.DOTALL)


def download(spec: str) -> Path:
    """Download the .safetensors files in the top folder of `hf:OWNER/NAME[@REVISION]`, with the index.json and the
    configuration files. Returns the local folder. With `/FILE` behind the name, or if a repository has no .safetensors
    and one model of .gguf or .onnx, download that file, the other parts of a split one, and external data beside it.
    Returns its local path.

    If there is an index, only the files that it names are downloaded. The client keeps its own cache and requests only
    missing files. Raises WeightFileError for a malformed `spec`, a missing library, any error of the library, and an
    index that cannot be read.
    """
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise WeightFileError(path=inert_path(spec), found="not a name on the hub", legal=_LEGAL)
    try:
        library = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise WeightFileError(
            path=spec,
            found=f"huggingface_hub cannot be imported ({error})",
            legal="`pip install huggingface_hub`, or a local path",
        ) from error
    revision = match[3]

    def fetched(patterns: list[str], within: str = "") -> Path:
        ignored = {} if "/" in within else {"ignore_patterns": ["*/*"]}
        try:
            folder = library.snapshot_download(repo_id=match[1], revision=revision, allow_patterns=patterns, **ignored)
        except Exception as error:
            raise _failed(spec, error) from error
        return Path(folder)

    def file_of(name: str) -> Path:
        return fetched(_patterns(name), name) / name

    if match[2] is not None:
        return file_of(match[2])
    folder = fetched([f"*{index.SUFFIX}", *CONFIGURATIONS])
    if _COMMIT.fullmatch(folder.name):
        revision = folder.name  # a branch may move between the two requests
    found = index.path_of(folder)
    # Exact names: a file name in an index may look like a pattern.
    if found is not None:
        return fetched([_literal(name) for name in index.names_of(found)])
    folder = fetched(["*.safetensors"])
    if any(folder.glob("*.safetensors")):
        return folder
    try:
        names = sorted(map(str, library.list_repo_files(repo_id=match[1], revision=revision)))
    except Exception as error:
        raise _failed(spec, error) from error
    models = list(dict.fromkeys(_SPLIT.sub(r"\1-00001\2", each) for each in names if _MODEL.fullmatch(each)))
    if len(models) != 1:
        listed = f"{len(models)} .gguf and .onnx models" + (f": {', '.join(map(inert, models))}" if models else "")
        raise WeightFileError(path=spec, found=f"no .safetensors files, and {listed}", legal=f"hf:{match[1]}/FILE")
    return file_of(models[0])


def _patterns(name: str) -> list[str]:
    """Patterns of fnmatch for a file, all parts of a split model, and external data."""
    split = _SPLIT.fullmatch(name)
    if split is not None:
        return [f"{_literal(split[1])}-?????{_literal(split[2])}"]
    data = [f"{_literal(name)}_data*", f"{_literal(name)}.data*"] if name.endswith(".onnx") else []
    return [_literal(name), *data]


def _failed(spec: str, error: Exception) -> WeightFileError:
    # The client raises its own errors, those of its HTTP library and OSError, with no common base class.
    found = f"{type(error).__name__}: {inert(str(error))}"
    return WeightFileError(path=spec, found=found, legal="a repository that exists and that you may read")


def _literal(name: str) -> str:
    """A pattern of fnmatch that matches only this name."""
    return re.sub(r"([*?[])", r"[\1]", name)
