"""Sign the file of a Record."""

from __future__ import annotations

from pathlib import Path

from tritmark.harness.errors import EncryptedKeyError, SigningError
from tritmark.harness.signing.ssh import NAMESPACE, signature_path, ssh_keygen
from tritmark.harness.store import read, write_atomically
from tritmark.harness.verify import refuted


def sign(record: Path, key: Path) -> Path:
    """Sign the bytes of the Record's file with a private SSH key, or with the public key of one that ssh-agent holds.
    Returns the path of the new signature.

    Raises RecordError for a file that is not a Record or was changed, SigningError for a Record that `verify` refutes,
    a signature that exists, or a key that does not sign, EncryptedKeyError for an encrypted one, and
    MissingSshKeygenError.
    """
    faults = refuted(read(record))
    if faults:
        raise SigningError(
            f"{record}: not signed, because `tritmark verify` refutes it: {faults[0]}",
            next_step="measure again with `tritmark run`",
        )
    path = signature_path(record)
    if path.exists():
        raise SigningError(
            f"{path}: exists already, and signatures are never overwritten",
            next_step="check it with `tritmark verify --trusted KEYS`, or remove it to sign again",
        )
    key = key.expanduser()
    if not key.is_file():
        raise SigningError(
            f"--key {key}: no such file", next_step="give a private key, or make one: ssh-keygen -t ed25519"
        )
    found = ssh_keygen("sign", ["-q", "-n", NAMESPACE, "-f", str(key)], record.read_bytes())
    if not found.succeeded:
        raise _refused(key, found.err)
    write_atomically(path, found.out)
    return path


def _refused(key: Path, err: str) -> SigningError:
    if "passphrase" in err:
        return EncryptedKeyError(
            f"--key {key}: the key is encrypted, and no ssh-agent holds it",
            next_step=f"add it to ssh-agent, then sign again: ssh-add {key}",
        )
    if "UNPROTECTED" in err:
        return SigningError(f"--key {key}: other users can read the key", next_step=f"chmod 600 {key}")
    lines = [line for line in err.splitlines() if line.strip()] or ["ssh-keygen gave no reason"]
    return SigningError(
        f"--key {key}: ssh-keygen does not sign with it: {lines[-1].strip()}",
        next_step="give a private SSH key, or the public key of one that ssh-agent holds",
    )
