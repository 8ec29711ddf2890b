"""tritmark.harness.cross: the bridge to anyone's C or C++ library. A CppLibrary can be pickled, and its peers are
made where they run."""

from __future__ import annotations

from tritmark.harness.cross.bridge import CppLibrary, bridge

__all__ = ["CppLibrary", "bridge"]
