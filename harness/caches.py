"""Folders of caches, which can be made again, and of state, which cannot."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

CACHE = "TRITMARK_CACHE"
"""Environment variable: folder of the caches; by default the user's cache folder."""


def cache_folder(name: str) -> Path:
    """The folder of the cache with that name, which need not exist. Without a home folder, as in containers whose user
    is not in passwd, it is in the temporary folder and its name has the user's number."""
    from platformdirs import user_cache_dir

    return _folder(CACHE, user_cache_dir) / name


def _folder(variable: str, by_default: Callable[[str], str]) -> Path:
    reported = os.environ.get(variable, "").strip()
    if reported:
        return Path(reported)
    try:
        folder = Path(by_default("tritmark"))
    except RuntimeError:  # from pathlib, without HOME and an entry in passwd
        folder = Path()
    # platformdirs returns "~" unchanged if the home folder is unknown.
    if folder.is_absolute():
        return folder
    import tempfile

    return Path(tempfile.gettempdir(), f"tritmark-{os.getuid()}")


STATE = "TRITMARK_STATE"
"""Environment variable: folder of what tritmark keeps and cannot make again; by default the user's state folder."""


def state_folder(name: str) -> Path:
    """The folder of the kept state with that name, which need not exist; see cache_folder for a user without a home."""
    from platformdirs import user_state_dir

    return _folder(STATE, user_state_dir) / name


def runs_code(folder: Path) -> bool:
    """Whether code can be loaded from there: False on a file system that is mounted noexec."""
    return not os.statvfs(folder).f_flag & os.ST_NOEXEC
