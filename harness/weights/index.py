"""index.json of a folder of .safetensors files: which files form the model, and which file holds which tensor.

save_pretrained of transformers writes it as `{"metadata": ..., "weight_map": {tensor: file}}`. In a folder without one,
model.safetensors is the whole model if it exists, as in transformers; otherwise every file belongs to the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tritmark.harness.errors import WeightFileError
from tritmark.harness.weights.names import inert, inert_path
from tritmark.harness.weights.small_json import read_json

SUFFIX = ".safetensors.index.json"
USUAL, ALONE = "model.safetensors.index.json", "model.safetensors"
_LARGEST = 64 << 20


@dataclass(frozen=True, slots=True)
class Index:
    """The content of an index.json."""

    path: Path
    weight_map: Mapping[str, str]
    """Tensor name -> file name in the same folder."""

    @property
    def files(self) -> list[Path]:
        """Each file once, sorted by name."""
        return [self.path.parent / name for name in sorted(set(self.weight_map.values()))]

    def keeps(self, tensor: str, file: str) -> bool:
        """Whether the tensor in this file belongs to the model. It does not if the index names another file for it."""
        return self.weight_map.get(tensor, file) == file

    def require(self, found: Iterable[str]) -> None:
        """Raise WeightFileError for a tensor that the index names and `found` lacks."""
        there = set(found)
        for tensor, file in self.weight_map.items():
            if tensor not in there:
                legal = f"tensor {inert(tensor)}, which {inert_path(self.path.name)} lists for this file"
                place = inert_path(self.path.parent / file)
                raise WeightFileError(path=place, found=f"no tensor {inert(tensor)}", legal=legal)


def index_of(folder: Path) -> Index | None:
    """The index of the folder, or None without one.

    Raises WeightFileError for an index that cannot be read, a file that is missing or outside the folder, and the
    errors of path_of.
    """
    path = path_of(folder)
    if path is None:
        return None
    weight_map = _weight_map(path)
    for name in dict.fromkeys(weight_map.values()):
        if not (folder / name).exists():
            found = f"no file {inert(name)}, which {inert_path(path.name)} names"
            raise WeightFileError(
                path=inert_path(folder), found=found, legal="every file of the index; download it again"
            )
    return Index(path, weight_map)


def path_of(folder: Path) -> Path | None:
    """Path of the folder's index. Raises WeightFileError for several indices of which none has the usual name."""
    there = sorted(path.name for path in folder.glob(f"[!.]*{SUFFIX}"))
    if not there:
        return None
    if USUAL not in there and len(there) > 1:
        found = f"{len(there)} index files: {', '.join(map(inert, there))}"
        raise WeightFileError(path=inert_path(folder), found=found, legal=f"one index, or {USUAL} among them")
    return folder / (USUAL if USUAL in there else there[0])


def names_of(path: Path) -> list[str]:
    """The files that the index.json at `path` names; they need not exist. Raises WeightFileError like `index_of`."""
    return sorted(set(_weight_map(path).values()))


def _weight_map(path: Path) -> dict[str, str]:
    def wrong(found: str, legal: str) -> WeightFileError:
        return WeightFileError(path=inert_path(path), found=found, legal=legal)

    index = read_json(path, _LARGEST)
    said = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(said, dict) or not said:
        raise wrong("no weight_map of tensors and their files", '{"weight_map": {"TENSOR": "FILE.safetensors", ...}}')
    for tensor, file in said.items():
        if not isinstance(file, str):
            raise wrong(f"{inert(file)} for tensor {inert(tensor)}", "a file name")
        if "/" in file or "\\" in file or "\0" in file or file.startswith("."):
            raise wrong(f"{inert(file)} for tensor {inert(tensor)}", "a file name in the same folder")
        if not file.endswith(".safetensors"):
            raise wrong(f"{inert(file)} for tensor {inert(tensor)}", "a .safetensors file")
    return said
