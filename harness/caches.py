"""Where what can be made again is kept."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

CACHE = "TRITMARK_CACHE"
"""Environment variable: folder of the caches; the user's cache folder unless set."""


def cache_folder(name: str) -> Path:
    """The folder of the cache of that name, which need not exist. Of a user without a home folder, as containers run
    under numbers that no passwd knows, it lies among the temporary files and has the user's number in its name."""
    reported = os.environ.get(CACHE, "").strip()
    if reported:
        return Path(reported) / name
    from platformdirs import user_cache_dir

    try:
        folder = Path(user_cache_dir("tritmark"))
    except RuntimeError:  # pathlib's, where there is neither HOME nor an entry in passwd
        folder = Path()
    # platformdirs leaves "~" as it is where the folder is unknown.
    return (folder if folder.is_absolute() else Path(tempfile.gettempdir(), f"tritmark-{os.getuid()}")) / name


def runs_code(folder: Path) -> bool:
    """Whether what lies there may be loaded as code: not on a file system that is mounted noexec."""
    return not os.statvfs(folder).f_flag & os.ST_NOEXEC
