"""The library that makes the system clock jump and the disk full, for the processes that load it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from time import monotonic_ns

from tritmark.harness.candidate.compiling import compiled

_OPTIONS = ("-O2", "-ldl")
_SLOT_NS = 250_000_000
_LONGEST_JUMP_S = 12 * 3600


def library() -> Path:
    """The library, compiled or from the cache. Raises BadEnvironmentError without a C compiler."""
    with resources.as_file(resources.files(__package__) / "preload.c") as source:
        return compiled(source, _OPTIONS)


def loaded(library: Path) -> dict[str, str]:
    """The environment of a process that loads it, and in which nothing is broken yet."""
    before = os.environ.get("LD_PRELOAD", "")
    return {"LD_PRELOAD": f"{library}:{before}" if before else str(library)}


def jumping(library: Path, seed: int) -> Mapping[str, str]:
    """The system clock is off by up to 12 hours, by another amount every 250 ms."""
    return loaded(library) | {"TRITMARK_SOAK_CLOCK": f"{seed}:{monotonic_ns()}:{_SLOT_NS}:{_LONGEST_JUMP_S}"}


def full(library: Path, folder: Path, calls: int, marker: Path) -> Mapping[str, str]:
    """After `calls` calls of a process that use space below `folder`, all of them fail; `marker` then is not empty."""
    return loaded(library) | {"TRITMARK_SOAK_DISK": f"{calls}:{marker}:{folder}/"}
