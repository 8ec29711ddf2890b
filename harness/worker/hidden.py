"""In the sandbox, hides the memory of the server that workers are forked from. Imported by it."""

from __future__ import annotations

from tritmark.harness.sandbox.inside import hide_memory

hide_memory()
