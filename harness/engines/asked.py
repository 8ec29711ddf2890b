"""The engines that a user named."""

from __future__ import annotations

from collections.abc import Sequence

from tritmark.harness.engines.engine import Engine
from tritmark.harness.engines.llama_bench import LlamaBench
from tritmark.harness.engines.served import ADAPTERS, ServedEngine
from tritmark.harness.errors import UsageError

BENCH = "llama-bench"
BUILT_IN = "transformers"
"""Always timed: the model that tritmark's layers were put into."""
_OF_FOLDERS = ("vllm",)
"""Engines that read folders of transformers."""


def engines(names: Sequence[str], source: str, gguf: str, *, threads: int | None, device: str) -> tuple[Engine, ...]:
    """The engines of these names, for `source`, or for the file `gguf` with the same model if they read GGUF only.

    Raises UsageError for an unknown name, and for a folder without `gguf` where an engine reads GGUF.
    """
    found: list[Engine] = []
    for name in dict.fromkeys(names):
        kind, equals, path = name.partition("=")
        if name == BUILT_IN:
            continue
        if kind == BENCH and path:
            found.append(LlamaBench(path, _file(name, source, gguf), threads=threads, device=device))
        elif kind in ADAPTERS and not equals:
            model = source if kind in _OF_FOLDERS else _file(name, source, gguf)
            found.append(ServedEngine(kind, model, threads=threads, device=device))
        else:
            legal = ", ".join((BUILT_IN, f"{BENCH}=PATH", *ADAPTERS))
            raise UsageError(f"--engine {name}: unknown; legal: {legal}")
    return tuple(found)


def _file(name: str, source: str, gguf: str) -> str:
    file = gguf or source
    if not file.endswith(".gguf"):
        raise UsageError(f"--engine {name} reads GGUF, and {source} is none; next: --gguf FILE with the same model")
    return file
