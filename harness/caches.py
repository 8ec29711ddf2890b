"""Folders of caches: files that can be made again."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

CACHE = "TRITMARK_CACHE"
"""Environment variable: folder of the caches; by default the user's cache folder."""


def cache_folder(name: str) -> Path:
    """The folder of the cache with that name, which need not exist. Without a home folder, as in containers whose user
    is not in passwd, it is in the temporary folder and its name has the user's number."""
    reported = os.environ.get(CACHE, "").strip()
    if reported:
        return Path(reported) / name
    from platformdirs import user_cache_dir

    try:
        folder = Path(user_cache_dir("tritmark"))
    except RuntimeError:  # from pathlib, without HOME and an entry in passwd
        folder = Path()
    # platformdirs returns "~" unchanged if the home folder is unknown.
    return (folder if folder.is_absolute() else Path(tempfile.gettempdir(), f"tritmark-{os.getuid()}")) / name


def runs_code(folder: Path) -> bool:
    """Whether code can be loaded from there: False on a file system that is mounted noexec."""
    return not os.statvfs(folder).f_flag & os.ST_NOEXEC
