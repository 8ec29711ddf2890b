"""The output of the original packers, from the files of tritmark.golden."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tritmark.harness.spec import GoldenVector
from tritmark.kernels.formats import BUILT_IN

_PACKAGE = "tritmark.golden"
_PRODUCTS = {
    "i2_s_matmul": {"i2_s_x86": "packed", "i2_s_x86_r4": "packed_r4", "i2_s_arm": "packed_arm"},
    "tq1_0_matmul": {"tq1_0": "packed"},
    "tq2_0_matmul": {"tq2_0": "packed"},
    "mm_q2_0": {"q2_0": "packed"},
}
"""Files of products: the formats of their weights, and the key of each."""
FORMER = {"q2_0_type42_g128": "pq2_0"}
"""Names in the files of formats that were renamed."""


def vectors() -> Iterator[GoldenVector]:
    """The vectors of every file."""
    for path in sorted(Path(import_module(_PACKAGE).__path__[0]).glob("*.npz")):
        yield from read(path)


def read(path: Path) -> Iterator[GoldenVector]:
    """The vectors of one file, one for each format of its weights; see suites/accuracy/test_golden_files.py."""
    with np.load(path) as archive:
        content = dict(archive)
    name = str(content["format"])
    name = FORMER.get(name, name)
    codes, scale = content.get("weights"), content.get("scale")
    x = content.get("w_float") if name in _PRODUCTS else content.get("x")
    if x is None and codes is not None and scale is not None:
        groups = scale if scale.ndim < 2 else np.repeat(scale, codes.shape[1] // scale.shape[1], axis=1)
        x = (codes * groups).astype(np.float32)
    elif x is not None and not x.any():
        codes = None  # some originals encode zeros as rows of ones with scale 0
    known = codes if codes is not None else x
    if known is None:
        raise ValueError(f"{path} has neither codes nor float weights")
    for format, key in _PRODUCTS.get(name, {name: "packed"}).items():
        yield GoldenVector(
            file=path.name,
            format=format,
            shape=known.shape,
            packed=content[key],
            codes=codes,
            scale=scale if scale is not None else _stored_scales(format, content),
            x=x,
            **_values(format, content),
            options=_options(format, content),
        )


def _options(format: str, content: dict[str, Any]) -> dict[str, int]:
    """The layout options of the format that the file contains."""
    taken = BUILT_IN[format].options if format in BUILT_IN else ()
    return {key: int(content[key]) for key in taken if key in content and content[key].dtype == np.int64}


def _values(format: str, content: dict[str, Any]) -> dict[str, Any]:
    """The floats that the original makes from the bytes, and the arrays beside the bytes that decide them."""
    form, values = BUILT_IN.get(format), content.get("dequant_c")
    if form is None or values is None or form.scale_per != "group":
        return {}
    if form.scale_stored:
        return {"values": values}
    beside: dict[str, Any] = {key: content[key] for key in ("scales", "biases", "zero_points") if key in content}
    if "biases" not in beside:
        beside = {"zero_points": None, **beside, "columns": values.shape[-1]}
    return {"values": values, "beside": beside}


def _stored_scales(format: str, content: dict[str, Any]) -> Any:
    """The scales of groups as the bytes have them, from those that the original was given; None without any."""
    form, scales = BUILT_IN.get(format), content.get("scales")
    if form is None or scales is None or not form.scale_stored:
        return None
    with np.errstate(over="ignore"):
        return scales.astype(form.scale_dtype).astype(np.float32)
