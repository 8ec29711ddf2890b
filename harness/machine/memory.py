"""Main memory of the host: its size, its page mode, and the part that is available."""

from __future__ import annotations

from pathlib import Path

from tritmark.harness.machine.files import SYS, line, number

THP = Path("kernel/mm/transparent_hugepage/enabled")
CGROUP = Path("fs/cgroup")


def total() -> int:
    """Bytes of main memory."""
    import psutil

    return int(psutil.virtual_memory().total)


def available(sys: Path = SYS) -> int:
    """Bytes available without swapping: the host's, or the rest of the control group's limit (version 2) if that is
    less."""
    import psutil

    free = int(psutil.virtual_memory().available)
    limit, taken = number(sys / CGROUP / "memory.max"), number(sys / CGROUP / "memory.current")
    return free if limit is None or taken is None else max(0, min(free, limit - taken))


def rss_bytes() -> int:
    """Bytes of main memory that this process holds."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def huge_pages(sys: Path = SYS) -> str | None:
    """The mode of transparent huge pages (always, madvise or never); None if the kernel has none."""
    text = line(sys / THP)
    if text is None or "[" not in text:
        return None
    return text[text.index("[") + 1 : text.index("]")]
