"""Convert weights to one file: ternary matrices in another format, everything else unchanged.

Codes and scales keep their exact values, otherwise the conversion is refused; nothing is rounded. Floats that are not
ternary are quantized only on request, and the loss is reported. Memory holds one tensor at a time: its codes, its
stored bytes and its new bytes. Tensors without codes are copied byte for byte, in parts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tritmark.harness.errors import InvalidArgumentError, UsageError, WeightFileError
from tritmark.harness.nearest import nearest
from tritmark.harness.weights.atomic_file import written
from tritmark.harness.weights.companions import SCALE_SUFFIX
from tritmark.harness.weights.configuration import MULTIPLY
from tritmark.harness.weights.format_names import PACKED_ROWS
from tritmark.harness.weights.gguf_types import gguf_types
from tritmark.harness.weights.names import inert, inert_path
from tritmark.harness.weights.outlines import Outline, OutlinedTensor, gguf_outline, safetensors_outline
from tritmark.harness.weights.published_names import gguf_name, hf_name
from tritmark.harness.weights.quantized import NOTHING, RULES, Loss, loss
from tritmark.harness.weights.scales import fitted
from tritmark.harness.weights.source import open_weights
from tritmark.harness.weights.ternary import (
    ROWS_TO_A_BYTE,
    WEIGHT_SCALE_KEY,
    CodeFormat,
    Conventions,
    Holders,
    TernaryInfo,
    TernaryWeights,
)

SUFFIXES = (".gguf", ".safetensors")


@dataclass(frozen=True, slots=True)
class Converted:
    """The result of a conversion."""

    matrices: int
    others: int
    nbytes: int
    floats: int = 0
    """Linear layers of floats that are not ternary; they are among `others` and copied unchanged."""
    quantized: int = 0
    """Matrices that were quantized."""
    loss: Loss = NOTHING
    """The loss of all quantized matrices together."""
    aside: tuple[str, ...] = ()
    """.safetensors files of the folder that do not belong to the model and were not read."""


@dataclass(frozen=True, slots=True)
class _Type:
    """The type of the matrices in the new file."""

    dtype: str
    layout: str
    """The layout, or "" for the usual one of the type."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One tensor of the source, and its plan in the new file."""

    source: str
    planned: OutlinedTensor
    info: TernaryInfo | None
    """None for a tensor that is copied."""
    scale: OutlinedTensor | None = None


def convert(
    path: str | Path,
    out: Path,
    format: str,
    holders: Holders,
    conventions: Conventions | None = None,
    progress: Callable[[str, int], None] = lambda name, total: None,
    *,
    quantize: str = "",
) -> Converted:
    """Write the weights at `path` to `out`, a .gguf or .safetensors file, with ternary matrices in `format`.

    `quantize` names a rule in quantized.RULES that quantizes linear layers of floats that are not ternary. Without it
    they are copied if other matrices are ternary; otherwise the conversion is refused.

    Tensors get the names that are published for the kind of file (published_names). `out` is replaced only after the
    new file was read back and every code, scale and byte agreed. `progress(name, total)` is called before each of
    `total` tensors is written.

    Raises UsageError for an invalid `out` or `format` and for an error of the disk; WeightFileError for weights that
    cannot be read; InvalidArgumentError with the tensor and the value for anything that `format` cannot hold.
    """
    if quantize not in {"", *RULES}:
        raise UsageError(f"--quantize {quantize!r}; legal: {' or '.join(RULES)}")
    if out.suffix not in SUFFIXES:
        raise UsageError(f"{out}: ends in {out.suffix!r}; legal: {' or '.join(SUFFIXES)}")
    type = _type(format, out.suffix, holders)
    form: CodeFormat = holders.formats[format]
    with open_weights(path) as source:
        weights = TernaryWeights(source, holders, conventions, quantize=bool(quantize))
        if not weights.matrices:
            legal = f"types with codes ({', '.join(holders.types)}), or linear layers with published names"
            raise WeightFileError(path=inert_path(path), found="no ternary matrix", legal=legal)
        if not quantize:
            _refuse_floats(weights)
        if weights.transform and not out.suffix == source.suffix == ".gguf":
            legal = "from a .gguf file to a .gguf file, which keeps these keys"
            raise InvalidArgumentError(op="convert", argument="OUT", found=f"{out}; {weights.transform}", legal=legal)
        parts = _plan(weights, form, type, out.suffix)
        planned = [each for part in parts for each in (part.planned, part.scale) if each is not None]
        _names_once(planned)
        if out.suffix == ".gguf":
            outline = gguf_outline(source, planned, type.dtype, type.layout)
        else:
            outline = safetensors_outline(planned, {"format": "pt", WEIGHT_SCALE_KEY: MULTIPLY})
        with written(out) as temporary:
            digests, lost = _write(temporary, weights, parts, outline, planned, form, holders, progress)
            _verify(temporary, digests, holders, Conventions())
    infos = [part.info for part in parts if part.info is not None]
    quantized = sum(info.ruled for info in infos)
    others = len(parts) - len(infos)
    return Converted(len(infos), others, outline.size, len(weights.floats) - quantized, quantized, lost, source.aside)


def _refuse_floats(weights: TernaryWeights) -> None:
    """Raise InvalidArgumentError if every matrix would be quantized without a request."""
    ruled = [info for info in weights.matrices if info.ruled]
    if ruled:
        found = f"missing; linear layers with floats that are not ternary: {len(ruled)}, first {inert(ruled[0].name)}"
        legal = f"{' or '.join(RULES)}, which quantizes them and reports the loss"
        raise InvalidArgumentError(op="convert", argument="--quantize", found=found, legal=legal)


def _type(format: str, suffix: str, holders: Holders) -> _Type:
    legal = {}
    for dtype, type in holders.types.items():
        if type.written and (dtype == PACKED_ROWS) == (suffix == ".safetensors"):
            usual = next(iter(type.layouts))
            for layout, name in type.layouts.items():
                legal[name] = _Type(dtype, "" if layout == usual else layout)
    there = [name for name in legal if name in holders.formats]
    if format not in there:
        raise UsageError(f"--format {format!r} cannot be stored in a {suffix} file; {nearest(format, there)}")
    return legal[format]


def _plan(weights: TernaryWeights, form: CodeFormat, type: _Type, suffix: str) -> list[_Part]:
    rename = gguf_name if suffix == ".gguf" else hf_name
    parts = []
    for tensor in weights.source.tensors:
        info = weights.matrix(tensor.name)
        name = rename(tensor.name)
        if tensor.name in weights.not_ternary:
            legal = "a model whose other tensors are floats; words mean nothing without their configuration"
            raise _unfit(tensor.name, f"of {weights.not_ternary[tensor.name]}", legal)
        if info is not None:
            _require_room(info, form, type)
            if info.format:
                weights.format(info)
            shape = form.packed_shape(info.shape) if type.dtype == PACKED_ROWS else info.stored_shape
            dtype = "uint8" if type.dtype == PACKED_ROWS else type.dtype
            scale = OutlinedTensor(name + SCALE_SUFFIX, (1,), "float32", 4) if type.dtype == PACKED_ROWS else None
            parts.append(
                _Part(
                    tensor.name,
                    OutlinedTensor(name, shape, dtype, form.packed_bytes(info.shape) * len(info.expert_numbers)),
                    info,
                    scale,
                )
            )
        elif tensor.name not in weights.scales:
            parts.append(_Part(tensor.name, OutlinedTensor(name, tensor.shape, tensor.dtype, tensor.nbytes), None))
    return parts


def _require_room(info: TernaryInfo, form: CodeFormat, type: _Type) -> None:
    rows = max(form.row_multiple, ROWS_TO_A_BYTE if type.dtype == PACKED_ROWS else 1)
    if info.shape[0] % rows or not form.holds(info.shape):
        legal = f"N a multiple of {rows}, K of {form.column_multiple}, and no partial block that the layout drops"
        raise _unfit(info.name, f"of shape {info.shape}, which {form.name} cannot hold", legal)
    if info.experts and (type.dtype == PACKED_ROWS or not _holds_experts(form, type, info)):
        legal = "a format of GGUF in which rows have their own bytes"
        raise _unfit(info.name, f"with experts (3-D), which have no known place in {form.name}", legal)


def _holds_experts(form: CodeFormat, type: _Type, info: TernaryInfo) -> bool:
    """Whether the type's size of a 3-D tensor is that of all matrices."""
    kind = next((each for each in gguf_types().values() if each.dtype == type.dtype), None)
    return kind is not None and kind.nbytes(info.stored_shape) == info.experts * form.packed_bytes(info.shape)


def _names_once(planned: list[OutlinedTensor]) -> None:
    seen: set[str] = set()
    for each in planned:
        if each.name in seen:
            raise _unfit(each.name, "a name that two tensors of the new file would have", "names used once")
        seen.add(each.name)


def _write(
    path: Path,
    weights: TernaryWeights,
    parts: list[_Part],
    outline: Outline,
    planned: list[OutlinedTensor],
    form: CodeFormat,
    holders: Holders,
    progress: Callable[[str, int], None],
) -> tuple[dict[str, bytes], Loss]:
    """Write the file. Returns the digest of each tensor by name, and the loss of quantization."""
    offsets = dict(zip((each.name for each in planned), outline.offsets, strict=True))
    digests, lost = {}, NOTHING
    with path.open("xb") as file:
        file.truncate(outline.size)
        for piece in outline.header:
            file.write(piece)
        for part in parts:
            progress(part.source, len(parts))
            name = part.planned.name
            file.seek(offsets[name])
            if part.info is None:
                digest = sha256()
                for chunk in weights.source.chunks(part.source):
                    file.write(chunk)
                    digest.update(chunk)
                digests[name] = digest.digest()
                continue
            digest = sha256()
            for expert in part.info.expert_numbers:
                codes, scale = weights.read(part.info, expert)
                if part.info.ruled:
                    lost += loss(weights.source.read(part.source), codes, scale, part.info.dtype)
                scale = _fitted(part, scale, form, holders)
                digest.update(_digest(codes, scale))
                _write_packed(file, part, form, codes, scale)
            digests[name] = digest.digest()
            if part.scale is not None:
                file.seek(offsets[part.scale.name])
                file.write(np.float32(scale).astype("<f4").tobytes())
        file.flush()
        os.fsync(file.fileno())
    return digests, lost


def _fitted(part: _Part, scale: Any, form: CodeFormat, holders: Holders) -> Any:
    assert part.info is not None
    try:
        return fitted(part.source, scale, part.info.shape, form)
    except InvalidArgumentError as error:
        others = _that_hold(part, scale, holders)
        if not others:
            raise
        legal = f"{error.legal}; formats that hold these scales: {', '.join(others)}"
        raise InvalidArgumentError(op=error.op, argument=error.argument, found=error.found, legal=legal) from error


def _that_hold(part: _Part, scale: Any, holders: Holders) -> list[str]:
    """The formats that can hold the matrix with its scales."""
    assert part.info is not None
    found = []
    for dtype, type in holders.types.items():
        for name in type.layouts.values():
            form = holders.formats.get(name)
            try:
                if form is not None and type.written and name not in found:
                    _require_room(part.info, form, _Type(dtype, ""))
                    fitted(part.source, scale, part.info.shape, form)
                    found.append(name)
            except InvalidArgumentError:
                continue
    return found


def _write_packed(file: BinaryIO, part: _Part, form: CodeFormat, codes: Any, scale: Any) -> None:
    try:
        packed = form.pack(codes, scale, tail="error")
    except InvalidArgumentError as error:
        raise _unfit(part.source, f"with {error.argument} {error.found}", error.legal) from error
    file.write(packed.data)


def _digest(codes: Any, scale: Any) -> bytes:
    digest = sha256(np.ascontiguousarray(codes).data)
    digest.update(np.ascontiguousarray(scale, dtype="<f4").tobytes())
    return digest.digest()


def _verify(path: Path, digests: dict[str, bytes], holders: Holders, conventions: Conventions) -> None:
    """Read the file back. Raises WeightFileError if it differs from what was written."""
    with open_weights(path) as source:
        weights = TernaryWeights(source, holders._replace(ternarize=None), conventions)
        names = {each.name for each in source.tensors} - weights.scales
        if names != digests.keys():
            raise WeightFileError(path=inert_path(path), found="other tensors than were written", legal="the same ones")
        for name, expected in digests.items():
            info, digest = weights.matrix(name), sha256()
            if info is not None and info.format:
                for expert in info.expert_numbers:
                    digest.update(_digest(*weights.read(info, expert)))
            else:
                for chunk in source.chunks(name):
                    digest.update(chunk)
            if digest.digest() != expected:
                raise source.error(name, "other bytes than were written", "the same bytes; check the disk")


def _unfit(name: str, found: str, legal: str) -> InvalidArgumentError:
    return InvalidArgumentError(op="convert", argument=f"tensor {inert(name)}", found=found, legal=legal)
