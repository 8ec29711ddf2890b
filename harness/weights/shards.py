"""Models in several files: numbered .safetensors shards, and the parts of a split GGUF model.

The header of a GGUF part states its number (`split.no`, from 0), the number of parts (`split.count`), and the tensors
in all of them (`split.tensors.count`); see gguf-split of llama.cpp. The file name repeats the numbers and is used to
find the other parts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tritmark.harness.errors import WeightFileError
from tritmark.harness.weights.names import inert, inert_path
from tritmark.harness.weights.plain_file import PlainFile

_NUMBERED = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})\.(safetensors|gguf)", re.DOTALL)


def require_all(folder: str, present: set[str]) -> None:
    """Refuse a folder of .safetensors files that lacks one of those numbered -00001-of-00003."""
    for match in filter(None, map(_NUMBERED.fullmatch, sorted(present))):
        stem, number, total, _ = match.groups()
        before = f"{stem}-{int(number) - 1:05}-of-{total}.safetensors"
        last = f"{stem}-{total}-of-{total}.safetensors"
        for needed in ([before] if int(number) > 1 else []) + [last]:
            if needed not in present:
                raise _missing(Path(folder), needed, "shard", int(total))


def parts(named: Path) -> list[Path]:
    """All files of the GGUF model that `named` belongs to, in order. Only `named` if its name has no number or its
    header states no split.

    Raises WeightFileError for a missing part.
    """
    match = _NUMBERED.fullmatch(named.name)
    if match is None or not _says_split(named):
        return [named]
    stem, _, total, _ = match.groups()
    found = [named.with_name(f"{stem}-{number:05}-of-{total}.gguf") for number in range(1, int(total) + 1)]
    if named not in found:
        return [named]
    for each in found:
        if not each.exists():
            raise _missing(named.parent, each.name, "part", int(total))
    return found


def check_part(file: PlainFile, facts: Mapping[str, str | int], index: int, count: int) -> None:
    """Refuse a GGUF part whose header disagrees with its name: number `index` of `count`."""
    said, number = facts.get("split.count", 1), facts.get("split.no", 0)
    if (said, number) == (count, index) or (said in {0, 1} and count == 1):
        return
    found = f"part {int(number) + 1} of {said} according to its header"
    raise file.error(found, f"part {index + 1} of {count} according to its name (NAME-00001-of-00002.gguf)")


def check_total(file: PlainFile, facts: Mapping[str, str | int], tensors: int) -> None:
    """Refuse a split model whose number of tensors differs from that in its first part."""
    said = facts.get("split.tensors.count", tensors)
    if facts.get("split.count", 1) not in {0, 1} and said != tensors:
        raise file.error(f"{tensors} tensors in all parts", f"{said}, as split.tensors.count states")


def _says_split(named: Path) -> bool:
    from tritmark.harness.weights.gguf_file import read_header

    file = PlainFile(named)
    try:
        return read_header(file).facts.get("split.count", 1) not in {0, 1}
    finally:
        file.close()


def _missing(folder: Path, needed: str, what: str, total: int) -> WeightFileError:
    return WeightFileError(path=inert_path(folder), found=f"no {what} {inert(needed)}", legal=f"all {total} {what}s")
