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
    )
