"""How to install what an extra of tritmark brings."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def install(extra: str) -> str:
    """The instruction for the extra, without a path, because Records hold it. No package index has tritmark."""
    if in_clone():
        return f"pip install '.[{extra}]' in the clone"
    return f"install the extra `{extra}` of tritmark"


def in_clone() -> bool:
    """Whether tritmark was installed from a folder that is still there (PEP 610)."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        origin = json.loads(distribution("tritmark").read_text("direct_url.json") or "{}")
        address = urlsplit(origin["url"])
        folder = Path(unquote(address.path))
        return "dir_info" in origin and address.scheme == "file" and (folder / "pyproject.toml").is_file()
    except (PackageNotFoundError, OSError, ValueError, TypeError, KeyError):
        return False
