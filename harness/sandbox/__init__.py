"""Runs a command without a network, with a private /tmp and a file system that it cannot write, except in some folders.

`__main__.py` is the program that takes the protections and then runs the command; `protections.py` has each of them,
`contain.py` ends what the command leaves, and `inside.py` has what a judge there keeps from the kernels.
What a system lacks is reported, not ignored. Native code that attacks the kernel of the system is not contained.
"""

from __future__ import annotations

from tritmark.harness.sandbox.launch import NOT_RESTRICTED, sandboxed

__all__ = ["NOT_RESTRICTED", "sandboxed"]
