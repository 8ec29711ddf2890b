"""tritmark.harness.cross: the bridge to third-party C and C++ libraries. A CppLibrary can be pickled, and its peers are
made in the process that runs them."""

from __future__ import annotations

from tritmark.harness.cross.bridge import CppLibrary, bridge

__all__ = ["CppLibrary", "bridge"]
