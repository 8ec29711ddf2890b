"""Each commit's times over those of one pinned commit, interleaved: the basis on which `tritmark history` finds
regressions.

The gate of the checkout that runs asv loads both builds into one process, so commits without a gate are measured too.
If the measured commit has another harness, the checkout's harness is installed in an environment under .asv/, again
after every change of the harness.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path
from typing import Any

from asv_runner.benchmarks.mark import SkipNotImplemented

from tritmark.kernels import PROVIDER

from . import shapes
from .cases import GPU, on_gpu

ANCHOR = "2f8a161"
"""The commit with which all others are compared. Another anchor begins a new history: delete the old ratios with `asv
rm`."""

DEVICES = {
    "cpu": ((*shapes.VECTOR_OPS, *shapes.PRODUCT_OPS), shapes.SIZES),
    "cuda": ((*shapes.CUDA_VECTOR_OPS, *shapes.CUDA_PRODUCT_OPS), shapes.CUDA_SIZES),
}
"""What is compared on each: kernels, and numbers of values."""
_SAMPLED_S = 0.3
"""Seconds for each kernel and shape; a step of 5 % needs less."""


def ratios() -> dict[str, float]:
    """Time over the anchor's by op, variant and axes; empty in an environment without a commit's build."""
    if not os.environ.get("ASV_COMMIT") or os.environ.get("ASV_ENV_TYPE") == "existing":
        return {}
    checkout, installed = Path(__file__).resolve().parents[2], Path(sysconfig.get_paths()["purelib"])
    require_anchor(checkout)
    gate = str(_gate(checkout, installed))
    found = {}
    # Without the other installed packages there, which must not hide the gate's own imports.
    site = Path("only-tritmark").resolve()
    for each in installed.glob("tritmark*"):
        shutil.copytree(each, site / each.name)
    for device in ("cpu", "cuda") if GPU else ("cpu",):
        suite = Path(f"history-{device}.toml").resolve()
        suite.write_text(suite_of(device, {op.name for op in PROVIDER.ops}), encoding="utf-8")
        asked = ("--device", device, "--suite", str(suite), "--budget", str(_SAMPLED_S), "--format", "json")
        done = subprocess.run(
            [gate, "gate", ANCHOR, str(site), *asked], cwd=checkout, capture_output=True, text=True, check=False
        )
        if done.returncode not in {0, 1, 4}:
            raise RuntimeError(
                f"tritmark gate {ANCHOR} {site} {' '.join(asked)}: status {done.returncode}: {done.stderr[-2000:]}"
            )
        result = json.loads(done.stdout)
        ratios_here = told(result)
        if device == "cpu" and not ratios_here:
            reasons = {each["reason"] for each in result["benchmarks"]}
            raise RuntimeError(f"the gate could compare nothing with {ANCHOR}: {'; '.join(sorted(reasons))[:2000]}")
        found.update(ratios_here)
    return found


def suite_of(device: str, ops: Collection[str]) -> str:
    """The workloads that are compared with the anchor on a device, as a suite's TOML. `ops` are those of the measured
    commit: its harness refuses others."""
    kernels, sizes = DEVICES[device]
    lines = [f'title = "History: ops on {device} at few shapes"']
    for op, kernel in {kernel.split("/")[0]: kernel for kernel in kernels}.items():
        if op in ops:
            at = ", ".join(f"{{ {place.replace(' ', ', ')} }}" for place in shapes.places(kernel, sizes))
            families = json.dumps(shapes.families(kernel))
            lines += ["[[workloads]]", f'op = "{op}"', f"shapes = [{at}]", f"families = {families}", "measure = true"]
    return "\n".join([*lines, ""])


def told(result: dict[str, Any]) -> dict[str, float]:
    """The ratios in the gate's JSON. Kernels with the same machine code are not measured: their ratio is 1."""
    found = {}
    for each in result["benchmarks"]:
        if each["identical"] or each["ratio"] is not None:
            ratio = 1.0 if each["identical"] else float(each["ratio"]["median"])
            found[
                key(
                    f"{each['op']}/{each['format']}/{each['dtype']}",
                    f"{each['device']}:{each['variant']}",
                    each["axes"],
                )
            ] = ratio
    return found


def key(op: str, variant: str, axes: dict[str, int]) -> str:
    """One name for op, variant and shape, independent of the order of axes."""
    return " ".join([op, variant, *(f"{axis}={axes[axis]}" for axis in sorted(axes))])


def require_anchor(checkout: Path) -> None:
    """Raise RuntimeError if the clone lacks the commit, for instance a shallow clone."""
    command = ["git", "-C", str(checkout), "cat-file", "-e", f"{ANCHOR}^{{commit}}"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        raise RuntimeError(
            f"{checkout} lacks the anchor's commit {ANCHOR}, so no ratio to it can be measured; next: git fetch "
            "--unshallow (in a GitHub workflow: actions/checkout with fetch-depth: 0)"
        )


def _gate(checkout: Path, installed: Path) -> Path:
    """`tritmark` with the harness of the checkout: that of the measured commit if it has the same harness, else one
    that is installed once for each state of the harness."""
    digest = _digest(checkout / "harness")
    own = Path(sysconfig.get_paths()["scripts"], "tritmark")
    if own.exists() and _digest(installed / "tritmark" / "harness") == digest:
        return own
    folder = checkout / ".asv" / "gate" / digest
    command = folder / "bin" / "tritmark"
    if not command.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, capture_output=True)
        subprocess.run(
            [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", str(checkout)],
            check=True,
            capture_output=True,
        )
    return command


def _digest(harness: Path) -> str:
    """A hash of the names and contents of its Python files."""
    files = sorted(harness.rglob("*.py"))
    return sha256(b"".join(str(path.relative_to(harness)).encode() + path.read_bytes() for path in files)).hexdigest()[
        :12
    ]


class _Ratios:
    unit = "times the anchor"
    timeout = 3600

    def setup(self, found: dict[str, float], op: str, variant: str, at: object) -> None:
        shape = shapes.vector_shape(op, at) if isinstance(at, int) else str(at)
        axes = {axis: int(size) for axis, _, size in (word.partition("=") for word in shape.split())}
        if key(op, variant, axes) not in found:
            raise SkipNotImplemented(f"not compared with {ANCHOR}")
        self.ratio = found[key(op, variant, axes)]


class Quantize(_Ratios):
    """Ops over vectors and rows, on the host."""

    params = (shapes.VECTOR_OPS, shapes.CPU, shapes.SIZES)
    param_names = ("op", "variant", "n")

    def setup_cache(self) -> dict[str, float]:
        return ratios()

    def track_ratio_to_anchor(self, found: dict[str, float], op: str, variant: str, n: int) -> float:
        return self.ratio


Quantize.setup_cache.timeout = 3600  # type: ignore[attr-defined]


class Matmul(_Ratios):
    """Products, on the host."""

    params = (shapes.PRODUCT_OPS, shapes.CPU, shapes.LAYERS)
    param_names = shapes.PARAMETERS

    setup_cache = Quantize.setup_cache

    def track_ratio_to_anchor(self, found: dict[str, float], op: str, variant: str, shape: str) -> float:
        return self.ratio


class QuantizeCuda(_Ratios):
    """Ops over vectors and rows, on a GPU."""

    params = (shapes.CUDA_VECTOR_OPS, shapes.CUDA_VECTOR, shapes.CUDA_SIZES)
    param_names = ("op", "variant", "n")

    setup_cache = Quantize.setup_cache

    @on_gpu
    def track_ratio_to_anchor(self, found: dict[str, float], op: str, variant: str, n: int) -> float:
        return self.ratio


class MatmulCuda(_Ratios):
    """Products, on a GPU."""

    params = (shapes.CUDA_PRODUCT_OPS, shapes.CUDA_PRODUCT, shapes.LAYERS)
    param_names = shapes.PARAMETERS

    setup_cache = Quantize.setup_cache

    @on_gpu
    def track_ratio_to_anchor(self, found: dict[str, float], op: str, variant: str, shape: str) -> float:
        return self.ratio
