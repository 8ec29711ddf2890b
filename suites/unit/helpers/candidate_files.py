"""Users' kernel files in C and in Python, and their verdicts."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tritmark.harness.candidate.opening import open_candidate
from tritmark.harness.providers import Installed, load
from tritmark.harness.record import Status
from tritmark.harness.spec import Launch, Variant, Workload
from tritmark.harness.validate.accuracy import judge
from tritmark.harness.validate.cases import Material

INSTALLED = load()
MANIFEST = """\
op = "i2s_dequantize"
dtype = "float32"
function = "f"
arguments = ["q", "scale", "x", "n"]
"""
SOURCE = """
#include <stdint.h>
void f(const int8_t *q, float scale, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)q[i] * scale;
}
"""
FUNCTION = """
import numpy as np
from tritmark.harness.candidate import kernel

@kernel(op="i2s_dequantize", dtype="float32")
def f(q, scale, x):
    with np.errstate(over="ignore"):
        np.multiply(q.astype(np.float32), np.float32(scale), out=x)
"""


def native(folder: Path, source: str = SOURCE, manifest: str = MANIFEST, suffix: str = ".c") -> Path:
    path = folder / f"my{suffix}"
    path.write_text(source, encoding="utf-8")
    path.with_suffix(".toml").write_text(manifest, encoding="utf-8")
    return path


def python(folder: Path, text: str = FUNCTION) -> Path:
    path = folder / "my.py"
    path.write_text(text, encoding="utf-8")
    return path


def variants(path: Path, installed: Installed = INSTALLED) -> Sequence[Variant]:
    """The variants after pickling, as in a worker."""
    return pickle.loads(pickle.dumps(open_candidate(path))).variants(installed)  # type: ignore[no-any-return]


def verdict(variant: Variant, n: int = 129, layout: str = "aligned", family: str = "extremes") -> tuple[Status, str]:
    op = INSTALLED.ops[variant.key.op]
    axes = {"n": n} if "n" in op.axes else {"M": 3, "K": n}
    cases = Material(op, Workload(op=op.name, axes=axes, family=family, layout=layout), 0).cases(variant.key)
    found = judge(op, variant, cases, axes, layout=layout, threads=1, seed=0).accuracy
    return found.status, found.reason


def bound(variant: Variant, n: int = 5) -> tuple[Launch, dict[str, Any]]:
    outputs = {"x": np.zeros(n, np.float32)}
    return variant.bind({"q": np.arange(n, dtype=np.int8), "scale": np.float32(2)}, outputs, {"n": n}, 1), outputs
