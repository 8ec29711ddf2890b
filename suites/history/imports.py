"""Start-up."""

from __future__ import annotations


class Import:
    """In a fresh interpreter."""

    def timeraw_kernels(self) -> str:
        return "import tritmark.kernels"

    def timeraw_command_line(self) -> str:
        return "import tritmark.harness.cli"
