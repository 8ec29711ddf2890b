"""The Python fuzz targets. Each takes any bytes and raises if something illegal happens: an untyped error, or an
impossible result.

The bytes are either the file itself, or numbers that determine the changes of a good document, array or call.
"""

from __future__ import annotations

import json
import os
import tomllib
import warnings
from collections.abc import Callable
from copy import deepcopy
from fnmatch import fnmatchcase
from functools import cache, partial
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import corpus
import numpy as np
import weights
from numbers_of import Numbers, edited, toml
from numpy.typing import NDArray

from tritmark import workloads
from tritmark.harness import suite, verify
from tritmark.harness.errors import InvalidArgumentError, RecordError, TritmarkError, UsageError
from tritmark.harness.providers import Installed, load
from tritmark.harness.record import Record, Status, with_digest
from tritmark.harness.spec import Op, Tier, Workload
from tritmark.harness.store import read
from tritmark.harness.validate.accuracy import judge
from tritmark.harness.validate.cases import Material
from tritmark.kernels.formats import FORMATS, Format, NonFiniteWarning, TailDroppedWarning
from tritmark.kernels.ops import files

ZEROS = "0" * 64


class Target(NamedTuple):
    """`seeds`: bytes to start from."""

    name: str
    seeds: Callable[[], list[bytes]]
    check: Callable[[bytes], object]


@cache
def _folder() -> tuple[Path, TemporaryDirectory[str]]:
    """One for each process, in memory if possible."""
    there = TemporaryDirectory(prefix="tritmark-fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    return Path(there.name), there


def _file(name: str, content: bytes) -> Path:
    path = _folder()[0] / name
    path.write_bytes(content)
    return path


def _told(error: TritmarkError, what: str = "legal: ") -> None:
    assert what in str(error)


# ---- weight files
# ----------------------------------------------------------------------------------------------------------------------


@cache
def _weight_seeds(suffix: str) -> list[bytes]:
    named = [file.content() for file in (corpus.BAD | corpus.ODD).values() if file.suffix == suffix]
    return [corpus.written(suffix), *(content for content in named if len(content) < 20_000)]


def _weights(suffix: str, data: bytes) -> None:
    with warnings.catch_warnings():
        # The gguf library computes with any values; only the results count here.
        warnings.simplefilter("ignore", RuntimeWarning)
        weights.check(_file(f"m{suffix}", data))


# ---- Records and suites
# ----------------------------------------------------------------------------------------------------------------------


@cache
def _record() -> Record:
    """The smallest Record with a measured Run of each device: the one of the unit tests."""
    spec = spec_from_file_location(
        "made_up_records", Path(__file__).parents[1] / "unit" / "helpers" / "made_up_records.py"
    )
    assert spec is not None
    assert spec.loader is not None
    unit = module_from_spec(spec)
    spec.loader.exec_module(unit)
    runs = [
        unit.one_run(
            Random(1), (*kernel[:3], kernel[3][device][0]), axes=axes, measured=True, device=device, function=kernel[4]
        )
        for device, kernel, axes in (
            ("cpu", unit.KERNELS[2], {"M": 1, "N": 64, "K": 64}),
            ("cuda", unit.KERNELS[0], {"n": 1 << 24}),
        )
    ]
    made: Record = unit.record_of(runs, gpus=(unit.gpu(),))
    return made


def _record_bytes(data: bytes) -> None:
    path = _file("record.json", data)
    try:
        record = read(path)
        assert Record.model_validate_json(with_digest(record)).model_copy(update={"digest": ""}) == record.model_copy(
            update={"digest": ""}
        )
    except RecordError as error:
        _told(error)
    try:
        verify.verify(path)
    except RecordError as error:
        _told(error)


def _record_fields(data: bytes) -> None:
    document = edited(json.loads(with_digest(_record())), Numbers(data))
    if isinstance(document, dict):
        document.pop("digest", None)
        document["digest"] = f"sha256:{ZEROS}"
    text = json.dumps(document, indent=1) + "\n"
    head, digits, tail = text.rpartition(ZEROS)
    _record_bytes(f"{head}{sha256(text.encode()).hexdigest()}{tail}".encode() if digits else text.encode())


@cache
def _installed() -> Installed:
    return load()


@cache
def _smoke() -> dict[str, Any]:
    """The smoke suite as one file."""
    found: dict[str, Any] = tomllib.loads((Path(workloads.__path__[0]) / "smoke.toml").read_text(encoding="utf-8"))
    found["workloads"] = []
    for path in files("workloads.toml"):
        of_op = tomllib.loads(path.read_text(encoding="utf-8"))
        found["workloads"] += [{"op": of_op.get("op"), **table} for table in of_op.get("smoke", ())]
    return found


def _suite_bytes(data: bytes) -> None:
    path = _file("suite.toml", data)
    try:
        found = suite.read_suite(path, "fuzz", _installed().known)
        assert found.selected
    except UsageError as error:
        _told(error, str(path))


def _suite_fields(data: bytes) -> None:
    _suite_bytes(toml(edited(deepcopy(_smoke()), Numbers(data))).encode("utf-8", "surrogatepass"))


# ---- formats
# ----------------------------------------------------------------------------------------------------------------------


def _shape(format: Format, numbers: Numbers) -> tuple[int, int]:
    n, k = numbers.size(200), numbers.size(600)
    if numbers.below(8):
        n, k = (
            -(-n // format.row_multiple) * format.row_multiple,
            -(-k // format.column_multiple) * format.column_multiple,
        )
    return n, k


def _format(format: Format, data: bytes) -> None:
    numbers = Numbers(data)
    shape = _shape(format, numbers)
    way = (_packs, _unpacks, _quantizes)[numbers.below(3)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        way(format, shape, numbers)
    assert all(issubclass(each.category, (NonFiniteWarning, TailDroppedWarning)) for each in caught), [
        str(each.message) for each in caught
    ]


def _codes(format: Format, shape: tuple[int, int], numbers: Numbers) -> NDArray[np.int8]:
    if format.limit and format.holds(shape):
        return format.sample(shape, numbers.generator())
    return numbers.generator().choice(np.array(format.codes, np.int8), shape)


def _packs(format: Format, shape: tuple[int, int], numbers: Numbers) -> None:
    right = _codes(format, shape, numbers)
    codes = numbers.patched(right.copy())
    scale = np.array([numbers.take(4)], "<u4").view("<f4")[0]
    kept, legal = codes.copy(), set(format.codes)
    try:
        packed = format.pack(codes, scale)
    except InvalidArgumentError:
        if shape[0] % format.row_multiple or shape[1] % format.column_multiple or not set(np.unique(codes)) <= legal:
            return
        if format.limit and not np.array_equal(codes, right):
            return
        # A scale: not finite or negative, or too large for the stored type.
        assert not (np.isfinite(scale) and 0 <= scale < 65504)
        return
    assert packed.shape == format.packed_shape(shape)
    np.testing.assert_array_equal(codes, kept)
    read_back, scales = format.unpack(packed, shape)
    held = codes.size - format.dropped(shape)
    np.testing.assert_array_equal(read_back.reshape(-1)[:held], codes.reshape(-1)[:held])
    assert (read_back.reshape(-1)[held:] == -1).all()
    stored = np.float32(scale) if format.scale_dtype == "float32" else np.float32(np.float16(scale))
    np.testing.assert_array_equal(
        scales, np.broadcast_to(stored if format.scale_stored else np.float32(1), format.scale_shape(shape))
    )


def _unpacks(format: Format, shape: tuple[int, int], numbers: Numbers) -> None:
    if shape[0] % format.row_multiple or shape[1] % format.column_multiple:
        shape = (shape[0] * format.row_multiple, shape[1] * format.column_multiple)
    packed = format.pack(_codes(format, shape, numbers), 1.5).reshape(-1)
    packed = numbers.patched(packed)
    if not numbers.below(8):
        packed = packed[: numbers.take(3) % (packed.size + 1)]
    try:
        codes, scales = format.unpack(packed, shape)
    except InvalidArgumentError:
        return
    assert set(np.unique(codes)) <= set(format.codes)
    again, scales_again = format.unpack(format.pack(codes, scales), shape)
    np.testing.assert_array_equal(again, codes)
    np.testing.assert_array_equal(scales_again, scales)


def _quantizes(format: Format, shape: tuple[int, int], numbers: Numbers) -> None:
    rng = numbers.generator()
    with np.errstate(over="ignore"):
        x = numbers.patched(rng.standard_normal(shape, np.float32) * np.float32(10.0 ** (numbers.below(80) - 40)))
    finite = bool(np.isfinite(x).all())
    refuse: Literal["error", "keep"] = "error" if numbers.below(2) else "keep"
    try:
        packed = format.quantize(x, nonfinite=refuse)
    except InvalidArgumentError:
        legal = format.rule is not None and not shape[0] % format.row_multiple and not shape[1] % format.column_multiple
        assert not (legal and (refuse == "keep" or (finite and np.abs(x).max() < 65504)))
        return
    assert packed.shape == format.packed_shape(shape)
    if finite:
        codes, _ = format.unpack(packed, shape)
        assert codes.shape == shape


# ---- ops
# ----------------------------------------------------------------------------------------------------------------------


def _op(op: Op, data: bytes) -> None:
    """Any kernel of the host on any small shape, family and layout is correct; kernels of other projects have their own
    bounds."""
    numbers = Numbers(data)
    registry = _installed().registry
    device = registry.devices["cpu"]
    keyed = [variant for variant in registry.variants if variant.key.op == op.name and variant.key.device == "cpu"]
    kernels = [variant for variant in keyed if variant.tier is not Tier.PEER]
    variant = kernels[numbers.below(len(kernels))]
    axes = {axis: numbers.size((2000, 150, 60)[min(len(op.axes), 3) - 1]) for axis in op.axes}
    family, layout = (
        op.input_families[numbers.below(len(op.input_families))],
        ("aligned", "unaligned")[numbers.below(2)],
    )
    if {each.name: refusal for each, refusal in registry.candidates(variant.key, axes)}[variant.name] is not None:
        return
    seed = numbers.take(3)
    try:
        cases = Material(op, Workload(op=op.name, axes=axes, family=family, layout=layout), seed).cases(variant.key)
    except InvalidArgumentError:
        return
    found = judge(
        op, variant, cases, axes, layout=layout, threads=1 + numbers.below(3), seed=seed, device=device
    ).accuracy
    assert found.status is Status.PASS, f"{variant.id} {axes} {family} {layout} seed {seed}: {found.reason}"


def _programs() -> list[bytes]:
    """Seeds for targets that read numbers."""
    random = Random(5)
    return [bytes(16), *(random.randbytes(size) for size in (8, 16, 24, 32, 48))]


def targets(glob: str = "*") -> list[Target]:
    """The targets with matching names."""
    found = [
        Target(f"weights{suffix}", partial(_weight_seeds, suffix), partial(_weights, suffix))
        for suffix in (".safetensors", ".gguf")
    ]
    found += [
        Target("record.bytes", lambda: [with_digest(_record()).encode()], _record_bytes),
        Target("record.fields", _programs, _record_fields),
        Target("suite.bytes", lambda: [toml(_smoke()).encode()], _suite_bytes),
        Target("suite.fields", _programs, _suite_fields),
    ]
    found += [Target(f"format.{name}", _programs, partial(_format, format)) for name, format in FORMATS.items()]
    on_host = {variant.key.op for variant in _installed().registry.variants if variant.key.device == "cpu"}
    found += [
        Target(f"op.{name}", _programs, partial(_op, op)) for name, op in _installed().ops.items() if name in on_host
    ]
    return [target for target in found if fnmatchcase(target.name, glob)]
