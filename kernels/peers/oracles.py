"""Packers of other projects, with which formats are compared: ORACLES."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import FormatOracle
from tritmark.kernels.formats import NonFiniteWarning
from tritmark.kernels.peers import gguf_numpy, libggml, libik, onnx

_SHAPE = (16, 1024)


def _quantizes_alike(
    quantize: Callable[[str, npt.NDArray[np.float32]], npt.NDArray[np.uint8]],
) -> Callable[[Any, np.random.Generator], str | None]:
    """A check that both pack float weights of many magnitudes into the same bytes."""

    def complaint(format: Any, rng: np.random.Generator) -> str | None:
        x = rng.standard_normal(_SHAPE, np.float32)
        x *= np.ldexp(np.float32(1), rng.integers(-20, 12, (_SHAPE[0], 1))).astype(np.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NonFiniteWarning)
            ours = format.quantize(x)
        theirs = np.asarray(quantize(format.name, x))
        if ours.shape != theirs.shape:
            return f"quantize returns bytes of shape {ours.shape}, expected {theirs.shape}"
        differ = int(np.count_nonzero(ours != theirs))
        return f"{differ} of {ours.size} bytes from quantize differ" if differ else None

    return complaint


def _reads_the_same(format: Any, rng: np.random.Generator) -> str | None:
    """Check that ONNX Runtime's product with the identity equals the packed weights."""
    K = 2 * format.group
    codes = rng.integers(-1, 2, (16, K), np.int8)
    found = onnx.OnnxProduct(format.pack(codes, 1.0), 1.0, K, accuracy=0)(np.eye(K, dtype=np.float32))
    differ = int(np.count_nonzero(found != codes.T))
    return f"{differ} of {codes.size} weights are decoded incorrectly" if differ else None


ORACLES: tuple[FormatOracle, ...] = (
    FormatOracle(
        name="gguf",
        formats=frozenset({"tq1_0", "tq2_0"}),
        version=gguf_numpy.version,
        missing=gguf_numpy.missing,
        complaint=_quantizes_alike(gguf_numpy.quantize),
    ),
    FormatOracle(
        name="libggml",
        formats=frozenset({"tq1_0", "tq2_0"}),
        version=lambda: f"libggml {libggml.version()}",
        missing=libggml.missing,
        complaint=_quantizes_alike(libggml.quantize),
    ),
    FormatOracle(
        name="libggml with Q2_0",
        formats=frozenset({"q2_0"}),
        version=lambda: f"libggml {libggml.version()}",
        missing=partial(libggml.missing, "q2_0"),
        complaint=_quantizes_alike(libggml.quantize),
    ),
    FormatOracle(
        name="ik_llama",
        formats=frozenset({"iq1_bn", "iq2_bn", "iq2_bn_r4"}),
        version=libik.version,
        missing=libik.missing,
        complaint=_quantizes_alike(libik.quantize),
    ),
    FormatOracle(
        name="onnxruntime",
        formats=frozenset({"ort_q2"}),
        version=onnx.version,
        missing=onnx.missing,
        complaint=_reads_the_same,
    ),
)
"""All oracles, in the order of reports."""
