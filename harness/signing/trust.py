"""Whether a Record has a signature of a trusted signer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tritmark.harness.errors import UsageError
from tritmark.harness.signing.ssh import NAMESPACE, signature_path, ssh_keygen

_KEY = re.compile(r"with (\S+) key (\S+:\S+)")
_LARGEST = 1 << 16
"""The largest signature in bytes. One by the longest RSA key has 3 kB."""


class SignatureFault(StrEnum):
    """Why a Record has no trusted signature."""

    ABSENT = "absent"
    """No signature beside the Record."""
    UNREADABLE = "unreadable"
    """The file is not an SSH signature."""
    CHANGED = "changed"
    """The signature is of other bytes: the Record or the signature was changed."""
    PURPOSE = "purpose"
    """It was made for another purpose than Records."""
    UNTRUSTED = "untrusted"
    """No line of the trusted keys has the key."""
    EXPIRED = "expired"
    """The key of the signer has expired."""
    NOT_YET_VALID = "not-yet-valid"
    """The key of the signer is not valid yet."""
    NOT_PERMITTED = "not-permitted"
    """The signer is trusted for other purposes only."""


@dataclass(frozen=True, slots=True)
class SignatureFinding:
    """The result for one Record: its signer, or the fault."""

    detail: str
    """A sentence."""
    fault: SignatureFault | None = None
    signer: str = ""
    """The signer's name in the trusted keys; "" with a fault."""
    key: str = ""
    """Type and fingerprint of the key; "" if the signature was not read."""


class TrustedKeys:
    """A file of trusted signers, in the format of `ssh-keygen`'s allowed_signers: a line `NAME KEYTYPE KEY` for each.

    Raises UsageError for a file that cannot be read or has no key.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            found = error.strerror if isinstance(error, OSError) else "not text"
            raise UsageError(
                f"{path}: the trusted keys cannot be read: {found}; legal: a file with a line NAME KEYTYPE KEY for "
                "each signer"
            ) from None
        if not any(line.strip() and not line.lstrip().startswith("#") for line in lines):
            raise UsageError(f"{path}: has no key; legal: a line NAME KEYTYPE KEY for each signer")

    def check(self, record: Path) -> SignatureFinding:
        """Check the signature beside the Record's file. A key counts if it is valid now: the time of a signature is
        not known, since the signer could choose it.

        Raises MissingSshKeygenError, and RecordError for a file that cannot be read.
        """
        path = signature_path(record)
        if not path.is_file():
            return SignatureFinding(f"no signature: {path.name} is missing", SignatureFault.ABSENT)
        if path.stat().st_size > _LARGEST:
            return SignatureFinding(f"{path.name} is not an SSH signature: too large", SignatureFault.UNREADABLE)
        data = record.read_bytes()
        signature = ["-s", str(path)]
        intact = ssh_keygen("check-novalidate", ["-n", NAMESPACE, *signature], data)
        if not intact.succeeded:
            return _unsound(path, intact.err)
        found = _KEY.search(intact.out)
        key = f"{found[1]} {found[2]}" if found else "an unknown key"
        trusted = ["-f", str(self.path)]
        # Its standard input is not read: it looks up the key of the signature.
        named = ssh_keygen("find-principals", [*signature, *trusted])
        reasons = named.err
        for name in named.out.splitlines() if named.succeeded else ():
            verified = ssh_keygen("verify", [*trusted, "-I", name, "-n", NAMESPACE, *signature], data)
            if verified.succeeded:
                return SignatureFinding(f"by {name}, {key}", signer=name, key=key)
            reasons += verified.err
        return self._distrusted(key, reasons)

    def _distrusted(self, key: str, reasons: str) -> SignatureFinding:
        """The reason why ssh-keygen trusts no line with this key."""
        for text, fault, found in (
            ("key has expired", SignatureFault.EXPIRED, "the signer's key has expired"),
            ("key is not yet valid", SignatureFault.NOT_YET_VALID, "the signer's key is not valid yet"),
            ("not permitted for use in signature namespace", SignatureFault.NOT_PERMITTED, "not trusted for Records"),
        ):
            line = next((line for line in reasons.splitlines() if text in line), "")
            if line:
                return SignatureFinding(f"signed with {key}: {found} ({line.strip()})", fault, key=key)
        unread = [line.strip() for line in reasons.splitlines() if re.search(r":\d+: ", line)]
        more = f"; lines that were not read: {'; '.join(unread)}" if unread else ""
        return SignatureFinding(
            f"signed with {key}, which {self.path} does not have{more}", SignatureFault.UNTRUSTED, key=key
        )


def _unsound(path: Path, err: str) -> SignatureFinding:
    if "incorrect signature" in err:
        return SignatureFinding(
            f"{path.name} is a signature of other bytes: the Record was changed after it was signed",
            SignatureFault.CHANGED,
        )
    if "namespace" in err:
        return SignatureFinding(
            f"{path.name} was made for another purpose; legal: ssh-keygen -n {NAMESPACE}", SignatureFault.PURPOSE
        )
    lines = [line for line in err.splitlines() if line.strip()] or ["no reason given"]
    return SignatureFinding(
        f"{path.name} is not an SSH signature that can be checked: {lines[0].strip()}", SignatureFault.UNREADABLE
    )
