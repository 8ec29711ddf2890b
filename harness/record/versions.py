"""Versions, environment variables, and the commit of a checkout."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tritmark.harness import caches
from tritmark.harness.sandbox.inside import INSIDE
from tritmark.harness.utf8 import escaped

if TYPE_CHECKING:
    from tritmark.harness.record import Environment

PACKAGES = ("cuda-bindings", "gguf", "ml_dtypes", "numpy", "nvidia-ml-py", "py-cpuinfo", "pycuda", "pydantic", "scipy")
"""Distributions whose version can change a figure or a verdict."""

PREFIXES = (
    "TRITMARK_",
    "OMP_",
    "GOMP_",
    "KMP_",
    "NVCC_",
    "BITNET_GPU_FAKE",
    "CUDA_DEVICE",
    "CUDA_LAUNCH",
    "CUDA_MODULE",
    "CUDA_VISIBLE",
    "PYCUDA_",
)
"""Prefixes of variables that change the choice of kernels, the GPU, or how threads wait."""


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def commit(folder: Path) -> str | None:
    """The commit that is checked out in `folder`, with "-dirty" if tracked files differ; None outside tritmark's own
    tree."""
    import subprocess
    import tomllib

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip() or None

    top = git("rev-parse", "--show-toplevel")
    if top is None:
        return None
    try:
        project = tomllib.loads((Path(top) / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    ours = project.get("project", {}).get("name") == "tritmark"
    return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*") if ours else None


_BY_INSTALLER = frozenset({"INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"})
"""Files that an installer adds to those of the wheel."""


def wheel(name: str = "tritmark") -> str:
    """The hash that identifies the installed wheel, see Environment.wheel."""
    import csv
    import json
    from hashlib import sha256
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = distribution(name)
        origin = json.loads(found.read_text("direct_url.json") or "{}")
        rows = list(csv.reader((found.read_text("RECORD") or "").splitlines()))
    except (PackageNotFoundError, OSError, ValueError, csv.Error):
        return ""
    editable = isinstance(origin, dict) and (origin.get("dir_info") or {}).get("editable")
    # Scripts are outside of the folder (..) and name the Python of this machine; RECORD has no hash of itself.
    lines = [
        f"{row[0]},{row[1]}"
        for row in rows
        if len(row) > 1 and row[1] and not row[0].startswith(("..", "/")) and Path(row[0]).name not in _BY_INSTALLER
    ]
    return "" if editable or not lines else f"sha256:{sha256(chr(10).join(sorted(lines)).encode()).hexdigest()}"


def environment(command: Sequence[str], seed: int, *, compiler: str = "") -> Environment:
    """The environment of this process. `compiler`, from the devices, is the one that built their native code."""
    from tritmark.harness.record import Environment

    packages = {name: found for name in PACKAGES if (found := _version(name)) is not None}
    return Environment(
        tritmark=_version("tritmark") or "not installed",
        python=platform.python_version(),
        packages=packages,
        compiler=compiler,
        # Where caches and state are, and a sandbox, have no effect on results and differ between machines.
        variables={
            escaped(name): escaped(value)
            for name, value in sorted(os.environ.items())
            if name.startswith(PREFIXES) and name not in {caches.CACHE, caches.STATE, INSIDE}
        },
        commit=commit(Path.cwd()),
        command=tuple(map(escaped, command)),
        seed=seed,
        wheel=wheel(),
    )
