"""The program that takes the protections and runs the command; see launch.py."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from tritmark.harness.sandbox.contain import contained
from tritmark.harness.sandbox.inside import hide_memory
from tritmark.harness.sandbox.launch import protect


def main() -> None:
    """Take the protections, report those that are missing, and run the command."""
    told = json.loads(sys.argv[1])
    missing = [*protect([Path(each) for each in told["writable"]], [Path(each) for each in told["readable"]])]
    with suppress(OSError):
        os.write(told["report"], json.dumps(missing).encode() + b"\n")
    os.close(told["report"])
    hide_memory()  # it writes the exit status
    raise SystemExit(contained(sys.argv[2:]))


if __name__ == "__main__":
    main()
