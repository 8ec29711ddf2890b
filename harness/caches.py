"""Where what can be made again is kept."""

from __future__ import annotations

import os
from pathlib import Path

CACHE = "TRITMARK_CACHE"
"""Environment variable: folder of the caches; the user's cache folder unless set."""


def cache_folder(name: str) -> Path:
    """The folder of the cache of that name, which need not exist."""
    told = os.environ.get(CACHE, "").strip()
    if told:
        return Path(told) / name
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("tritmark")) / name
