"""Calls of ssh-keygen. It never asks for anything: a passphrase that it would ask for is an error."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from shutil import which
from typing import NamedTuple

from tritmark.harness.errors import BadEnvironmentError, MissingSshKeygenError

NAMESPACE = "record@tritmark"
"""The purpose inside each signature: a signature of a git commit or an e-mail by the same key is none of a Record."""
_TIMEOUT_S = 60.0


class KeygenAnswer(NamedTuple):
    """What ssh-keygen answered."""

    succeeded: bool
    out: str
    err: str


def signature_path(record: Path) -> Path:
    """The file of a Record's signature, named as ssh-keygen names it."""
    return record.with_name(f"{record.name}.sig")


def ssh_keygen(action: str, arguments: Sequence[str], message: bytes = b"") -> KeygenAnswer:
    """Run `ssh-keygen -Y action` on a message. Raises MissingSshKeygenError, and BadEnvironmentError if it hangs."""
    program = which("ssh-keygen")
    if program is None:
        raise MissingSshKeygenError("ssh-keygen is not installed", next_step="apt-get install openssh-client")
    # Without a terminal and without an askpass program it cannot wait for a passphrase.
    environment = {**os.environ, "SSH_ASKPASS_REQUIRE": "never", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            [program, "-Y", action, *arguments],
            input=message,
            capture_output=True,
            env=environment,
            start_new_session=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BadEnvironmentError(
            f"ssh-keygen -Y {action} did not end within {_TIMEOUT_S:.0f} s",
            next_step="touch the security key, or stop the ssh-agent that does not answer",
        ) from None
    except OSError as error:
        raise BadEnvironmentError(
            f"{program} cannot be started: {error.strerror or error}", next_step="reinstall openssh-client"
        ) from error
    return KeygenAnswer(done.returncode == 0, *(each.decode("utf-8", "replace") for each in (done.stdout, done.stderr)))
