"""The program that takes the protections and becomes the command; see launch.py."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from tritmark.harness.sandbox.launch import protect


def main() -> None:
    """Take the protections, report those that are missing, and become the command."""
    told = json.loads(sys.argv[1])
    missing = [*protect([Path(each) for each in told["writable"]], [Path(each) for each in told["readable"]])]
    with suppress(OSError):
        os.write(told["report"], json.dumps(missing).encode() + b"\n")
    os.close(told["report"])
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
