"""Reads signed Records of many machines from a folder. What is not believed, or not signed by a trusted key, is refused
and listed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Generic, TypeVar

from tritmark.harness.errors import RecordError, UsageError
from tritmark.harness.record import Record
from tritmark.harness.report.page import named
from tritmark.harness.signing import SignatureFault, TrustedKeys
from tritmark.harness.verify import believed

_MACHINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_SUFFIX = ".json.sig"

TakenT = TypeVar("TakenT")


@dataclass(frozen=True, slots=True)
class RefusedFile:
    """A file that is not shown. It is left as it is."""

    name: str
    """Its path in the folder."""
    reason: str


@dataclass(frozen=True, slots=True)
class AcceptedRecord(Generic[TakenT]):
    """A Record with a trusted signature."""

    taken: TakenT
    """What the caller takes of the Record. The Record itself, with all samples, is not kept."""
    id: str
    path: Path
    digest: str
    """SHA-256 of the file."""
    signers: tuple[str, ...]
    """Each trusted signer of the same bytes."""


@dataclass(frozen=True, slots=True)
class Collection(Generic[TakenT]):
    """All files of a folder: accepted, counted once; refused; and the number of further copies of accepted Records."""

    accepted: tuple[AcceptedRecord[TakenT], ...]
    refused: tuple[RefusedFile, ...]
    copies: int


def collect(folder: Path, keys: TrustedKeys, take: Callable[[Record], TakenT]) -> Collection[TakenT]:
    """Read every `.json` below the folder, except in folders whose name begins with a dot.

    The signature is checked before the file is parsed. Files with equal bytes are one Record. Of different Records with
    one id, none is accepted. Raises UsageError for a folder that is not there, and MissingSshKeygenError.
    """
    if not folder.is_dir():
        raise UsageError(f"--collect {folder}: no such folder; legal: a folder of Records with their signatures")
    found: dict[str, AcceptedRecord[TakenT]] = {}
    refused: list[RefusedFile] = []
    copies = 0
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        try:
            one = _accepted(path, keys, take)
        except (RecordError, OSError) as error:
            text = error.found if isinstance(error, RecordError) else error.strerror or str(error)
            refused.append(RefusedFile(name, text))
            continue
        known = found.get(one.digest)
        if known is not None:
            copies += 1
            signers = tuple(dict.fromkeys((*known.signers, *one.signers)))
            one = AcceptedRecord(known.taken, known.id, known.path, known.digest, signers)
        found[one.digest] = one
    ids = [each.id for each in found.values()]
    accepted = []
    for each in found.values():
        if ids.count(each.id) > 1:
            name = each.path.relative_to(folder).as_posix()
            refused.append(RefusedFile(name, f"several different Records have the id {each.id}"))
        else:
            accepted.append(each)
    return Collection(tuple(accepted), tuple(refused), copies)


def _files(folder: Path) -> Iterator[Path]:
    """Records, and signatures without a Record."""
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        alone = path.name.endswith(_SUFFIX) and not path.with_suffix("").exists()
        if not hidden and (alone or path.suffix == ".json") and (path.is_symlink() or path.is_file()):
            yield path


def _accepted(path: Path, keys: TrustedKeys, take: Callable[[Record], TakenT]) -> AcceptedRecord[TakenT]:
    def refuse(found: str) -> RecordError:
        return RecordError(path=str(path), found=found, legal="a Record with a trusted signature")

    if path.is_symlink():
        raise refuse("a symbolic link")
    if path.suffix != ".json":
        raise refuse("a signature without its Record")
    signature = keys.check(path)
    if signature.fault is not None:
        word = "FORGED: " if signature.fault is SignatureFault.CHANGED else ""
        raise refuse(f"{word}{signature.detail}")
    digest = sha256(path.read_bytes()).hexdigest()
    record, faults = believed(path)
    if faults:
        more = f" and {len(faults) - 1:,} more" if len(faults) > 1 else ""
        raise refuse(f"signed by {signature.signer}, but contradicts itself: {faults[0]}{more}")
    if not _MACHINE.fullmatch(record.machine.id):
        raise refuse(f"machine id {record.machine.id!r}; legal: letters, digits, '_' and '-'")
    named(record.id, path)
    if sha256(path.read_bytes()).hexdigest() != digest or keys.check(path) != signature:
        raise refuse("it was changed while it was read")
    return AcceptedRecord(take(record), record.id, path, digest, (signature.signer,))
