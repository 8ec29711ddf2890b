"""SSH keys for tests, and lines of allowed_signers for them."""

from __future__ import annotations

import subprocess
from pathlib import Path


def made_key(path: Path, passphrase: str = "") -> Path:
    """A new private key; its public one is beside it."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "", "-f", str(path)], check=True)
    return path


def trusting(path: Path, *lines: tuple[str, str, Path]) -> Path:
    """A file that trusts keys: each a name, options, and the private key's path."""
    text = [
        " ".join(filter(None, (name, options, Path(f"{key}.pub").read_text().strip()))) for name, options, key in lines
    ]
    path.write_text("\n".join(text) + "\n")
    return path
