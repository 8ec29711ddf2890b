"""index.json of a folder of .safetensors files: which of them are the model, and which tensor lies in which.

Written by save_pretrained of transformers as `{"metadata": ..., "weight_map": {tensor: file}}`. Without one,
model.safetensors is the whole model where it is there, as transformers loads it; else every file belongs.
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
    """What an index.json says."""

    path: Path
    weight_map: Mapping[str, str]
    """Tensor -> name of its file, which lies in the same folder."""

    @property
    def files(self) -> list[Path]:
        """Each once, by name."""
        return [self.path.parent / name for name in sorted(set(self.weight_map.values()))]

    def keeps(self, tensor: str, file: str) -> bool:
        """Whether the tensor in that file is the model's: not where the index says that it lies in another."""
        return self.weight_map.get(tensor, file) == file

    def require(self, found: Iterable[str]) -> None:
        """Raise WeightFileError for a tensor that the index names and that is not among those found."""
        there = set(found)
        for tensor, file in self.weight_map.items():
            if tensor not in there:
                legal = f"tensor {inert(tensor)}, which {inert_path(self.path.name)} says is there"
                place = inert_path(self.path.parent / file)
                raise WeightFileError(path=place, found=f"no tensor {inert(tensor)}", legal=legal)


def index_of(folder: Path) -> Index | None:
    """The index of the folder, or None where there is none.

    Raises WeightFileError for one that cannot be read, for a file that is outside of the folder or missing, and as
    path_of does.
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
    """Where the index of the folder is. Raises WeightFileError where there are several and none has the usual name."""
    there = sorted(path.name for path in folder.glob(f"[!.]*{SUFFIX}"))
    if not there:
        return None
    if USUAL not in there and len(there) > 1:
        found = f"{len(there)} indices: {', '.join(map(inert, there))}"
        raise WeightFileError(path=inert_path(folder), found=found, legal=f"one, or {USUAL} among them")
    return folder / (USUAL if USUAL in there else there[0])


def names_of(path: Path) -> list[str]:
    """The files that the index.json at `path` names, which need not be there. Raises WeightFileError as `index_of`."""
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
            raise wrong(f"{inert(file)} for tensor {inert(tensor)}", "the name of a file")
        if "/" in file or "\\" in file or "\0" in file or file.startswith("."):
            raise wrong(f"{inert(file)} for tensor {inert(tensor)}", "the name of a file in the same folder")
        if not file.endswith(".safetensors"):
            raise wrong(f"{inert(file)} for tensor {inert(tensor)}", "a .safetensors file")
    return said
