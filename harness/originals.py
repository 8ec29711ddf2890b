"""Compares formats with bytes of the original packers, and with packers of other projects.

Only such a comparison shows whether the byte order is correct. A packer and its unpacker agree in any order.
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
    """The result for one golden vector."""

    file: str
    format: str
    why: str | None
    """The fault, or None."""


@dataclass(frozen=True)
class OracleCheck:
    """The comparison of a format with another project's packer."""

    format: str
    oracle: str
    missing: str | None
    """Why the packer could not be used, or None."""
    why: str | None = None
    """The difference, or None."""
    version: str = ""


def golden(formats: Mapping[str, Any], vectors: Iterable[GoldenVector]) -> list[Golden]:
    """Compare each vector with its format."""
    return [Golden(each.file, each.format, _judged(formats.get(each.format), each)) for each in vectors]


def asked(formats: Mapping[str, Any], oracles: Iterable[FormatOracle]) -> list[OracleCheck]:
    """Compare each oracle with each of its installed formats."""
    found = []
    for oracle in oracles:
        missing = oracle.missing()
        for name in (name for name in formats if name in oracle.formats):
            if missing is not None:
                found.append(OracleCheck(name, oracle.name, missing))
                continue
            try:
                why = oracle.complaint(formats[name], np.random.default_rng(0))
            except Exception as error:  # third-party code may raise anything
                why = f"{type(error).__name__}: {error}"
            found.append(OracleCheck(name, oracle.name, None, why, oracle.version()))
    return found


def unchecked(
    formats: Mapping[str, Any], vectors: Iterable[GoldenVector], oracles: Iterable[FormatOracle]
) -> tuple[str, ...]:
    """The formats whose byte order cannot be checked; see `without_originals`. Oracles are used only for formats
    without a golden vector."""
    judged = golden(formats, (each for each in vectors if each.format in formats))
    left = {name: formats[name] for name in without_originals(formats, judged, ())}
    return without_originals(formats, judged, asked(left, oracles))


def without_originals(
    formats: Iterable[str], judged: Iterable[Golden], given: Iterable[OracleCheck]
) -> tuple[str, ...]:
    """The formats that agree neither with a golden vector nor with another project's packer."""
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
    except Exception as error:  # a third-party format may raise anything
        return f"{type(error).__name__}: {error}"


def _complaint(format: Any, vector: GoldenVector) -> str | None:
    """Compare unpacked codes, packed bytes, and bytes quantized from float weights. None if all agree."""
    codes, scale = format.unpack(vector.packed, vector.shape, **vector.options)
    if not format.dropped(vector.shape):
        again = format.pack(codes, scale, **vector.options)
        if not np.array_equal(again, vector.packed):
            return "unpacked codes do not pack to the same bytes"
    if vector.scale is not None and format.scale_stored and np.any(scale != vector.scale):
        return "unpack gives another scale"
    if vector.codes is not None:
        kept = vector.codes.size - format.dropped(vector.shape)
        if not np.array_equal(codes.reshape(-1)[:kept], vector.codes.reshape(-1)[:kept]):
            return "unpack gives other codes"
        given = scale if vector.scale is None else vector.scale
        if not np.array_equal(format.pack(vector.codes, given, **vector.options), vector.packed):
            return "pack gives other bytes"
    if vector.values is not None:
        found = _values(format, vector, codes, scale)
        if not np.array_equal(found, vector.values, equal_nan=True):
            return "unpack gives other values"
    quantized = vector.packed
    if vector.x is not None and format.rule is not None:
        quantized = format.quantize(vector.x, **vector.options)
    return None if np.array_equal(quantized, vector.packed) else "quantize gives other bytes"


def _values(format: Any, vector: GoldenVector, codes: Any, scale: Any) -> Any:
    """The weights as floats."""
    if vector.beside:
        return format.dequantize_affine(vector.packed, **vector.beside)
    return codes * np.repeat(scale, format.group, axis=-1)
