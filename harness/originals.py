"""The formats against others: bytes that the original packers wrote, and packers of other projects.

That a packer and its unpacker agree does not show whose order of bytes it is: only one of these two does.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tritmark.harness.spec import FormatOracle, GoldenVector


@dataclass(frozen=True)
class Golden:
    """What became of one golden vector."""

    file: str
    format: str
    why: str | None
    """What is wrong, or None."""


@dataclass(frozen=True)
class OracleCheck:
    """What another project's packer says of a format."""

    format: str
    oracle: str
    missing: str | None
    """Why it could not be asked, or None."""
    why: str | None = None
    """What it says is wrong, or None."""
    version: str = ""


def golden(formats: Mapping[str, Any], vectors: Iterable[GoldenVector]) -> list[Golden]:
    """Each vector against its format."""
    return [Golden(each.file, each.format, _judged(formats.get(each.format), each)) for each in vectors]


def asked(formats: Mapping[str, Any], oracles: Iterable[FormatOracle]) -> list[OracleCheck]:
    """Each oracle about each of its formats that is installed."""
    found = []
    for oracle in oracles:
        missing = oracle.missing()
        for name in (name for name in formats if name in oracle.formats):
            if missing is not None:
                found.append(OracleCheck(name, oracle.name, missing))
                continue
            try:
                why = oracle.complaint(formats[name], np.random.default_rng(0))
            except Exception as error:  # whatever another package does
                why = f"{type(error).__name__}: {error}"
            found.append(OracleCheck(name, oracle.name, None, why, oracle.version()))
    return found


def unchecked(
    formats: Mapping[str, Any], vectors: Iterable[GoldenVector], oracles: Iterable[FormatOracle]
) -> tuple[str, ...]:
    """Those formats whose order of bytes nothing vouches for, in their order; see `without_originals`. Oracles are
    asked only about formats without a golden vector."""
    judged = golden(formats, (each for each in vectors if each.format in formats))
    left = {name: formats[name] for name in without_originals(formats, judged, ())}
    return without_originals(formats, judged, asked(left, oracles))


def without_originals(
    formats: Iterable[str], judged: Iterable[Golden], given: Iterable[OracleCheck]
) -> tuple[str, ...]:
    """Those formats that neither agree with a golden vector nor with another project's packer."""
    agreed = {each.format for each in judged if each.why is None}
    agreed |= {each.format for each in given if each.missing is None and each.why is None}
    return tuple(name for name in formats if name not in agreed)


def _judged(format: Any, vector: GoldenVector) -> str | None:
    if format is None:
        return f"no format {vector.format} is installed"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _complaint(format, vector)
    except Exception as error:  # whatever a package's format does
        return f"{type(error).__name__}: {error}"


def _complaint(format: Any, vector: GoldenVector) -> str | None:
    """All three ways: the bytes of the codes, the codes of the bytes, the bytes of the float weights."""
    codes, scale = format.unpack(vector.packed, vector.shape, **vector.options)
    if not format.dropped(vector.shape):
        again = format.pack(codes, scale, **vector.options)
        if not np.array_equal(again, vector.packed):
            return "what is unpacked does not pack to the same bytes"
    if vector.scale is not None and format.scale_stored and np.any(scale != vector.scale):
        return "unpack gives another scale"
    if vector.codes is not None:
        kept = vector.codes.size - format.dropped(vector.shape)
        if not np.array_equal(codes.reshape(-1)[:kept], vector.codes.reshape(-1)[:kept]):
            return "unpack gives other codes"
        given = scale if vector.scale is None else vector.scale
        if not np.array_equal(format.pack(vector.codes, given, **vector.options), vector.packed):
            return "pack gives other bytes"
    quantized = vector.packed
    if vector.x is not None and format.rule is not None:
        quantized = format.quantize(vector.x, **vector.options)
    return None if np.array_equal(quantized, vector.packed) else "quantize gives other bytes"
