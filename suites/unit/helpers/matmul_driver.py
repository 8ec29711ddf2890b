"""Kernels of ternary_matmul in a program of their own, matmul_driver.c: built for another processor and run in an
emulator, or with instructions that this processor lacks written in C."""

from __future__ import annotations

import ast
import os
import re
import runpy
import shutil
import struct
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any

import ml_dtypes
import numpy as np
from filelock import FileLock
from grouped_tiles import GROUPS as TILES
from grouped_tiles import grouped_model
from numpy.typing import NDArray

from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.ternary_matmul.tables import tiles

HERE = Path(__file__).parent
SOURCES = HERE.parents[2] / "cython_ext" / "src"
runpy.run_path(str(SOURCES / "tables.py"))["write"]()


def package_flags() -> list[str]:
    """What setup.py compiles the package's C with."""
    for node in ast.parse((HERE.parents[2] / "setup.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FLAGS":
            return [*ast.literal_eval(node.value), "-Werror"]
    raise AssertionError("setup.py has no FLAGS")


FLAGS = package_flags()
KINDS = {"int32": 0, "float32": 1, "bfloat16": 2}
"""In the order of ternary_matmul.h."""
_SCALE_BYTES = {"tile64": 64, "tile80": 64, "i2_s_x86": 32, "tl1": 0, "tl2": 0}
"""What lies behind the weights in formats of one scale."""
_ANSWER_S = 60.0
_INCLUDED = re.compile(rb'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)
"""Relative to the file itself, as all are."""


@dataclass(frozen=True)
class Edit:
    """What is put in place of a passage of a C file, given by its path below cython_ext/src: a fault, or C for
    instructions that are not there."""

    file: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{Path(self.file).stem}: {self.new}"


@dataclass
class Builder:
    """Compiles the kernels for one target; objects are kept in `folder`, so that a fault costs one file."""

    compiler: str
    folder: Path
    sets: Sequence[str]
    """Those that the target has kernels of tile64 for: the files in ternary_matmul/ itself."""
    flags: Sequence[str] = ()
    link: Sequence[str] = ()
    first: Path | None = None
    """A header before every file."""
    own: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Further flags of files, by their names."""

    def program(self, *edits: Edit, only: str = "") -> Path:
        """The driver with the kernels, in edited files. `only`: the format whose kernels have the last edit, where
        others need not have it, for compiling takes its time."""
        tree = self.tree(*edits)
        rest = self.tree(*edits[:-1]) if only else tree
        root = tree if only == "tile64" else rest
        kernels = [root / "ternary_matmul" / f"{name}.c" for name in (*self.sets, "formats")]
        for folder in sorted(path for path in (rest / "ternary_matmul").iterdir() if path.is_dir()):
            of = tree if folder.name == only else rest
            kernels += sorted((of / "ternary_matmul" / folder.name).glob("*.c"))
        pool = sorted((rest / "pool").glob("*.c"))
        return self.built("driver", [HERE / "matmul_driver.c", rest / "cpu" / "cpu.c", *pool, *kernels])

    def built(self, name: str, files: Sequence[Path]) -> Path:
        """The program of those C files."""
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            objects = list(pool.map(self._object, files))
        program = self.folder / f"{name}-{sha256(repr(objects).encode()).hexdigest()[:16]}"
        with FileLock(f"{program}.lock"):
            if not program.exists():
                self._run([self.compiler, "-pthread", "-o", str(program), *map(str, objects), *self.link])
        return program

    def tree(self, *edits: Edit) -> Path:
        """The sources with edited files."""
        if not edits:
            return SOURCES
        tree = self.folder / ("edited-" + sha256(repr(edits).encode()).hexdigest()[:16])
        with FileLock(f"{tree}.lock"):
            if not tree.exists():
                unfinished = tree.with_suffix(".unfinished")
                shutil.copytree(SOURCES, unfinished)
                for edit in edits:
                    text = (unfinished / edit.file).read_text(encoding="utf-8")
                    assert text.count(edit.old) == 1, f"{edit.file} has {edit.old!r} {text.count(edit.old)} times"
                    (unfinished / edit.file).write_text(text.replace(edit.old, edit.new), encoding="utf-8")
                unfinished.rename(tree)
        return tree

    def _object(self, source: Path) -> Path:
        command = [self.compiler, *FLAGS, *self.flags, *self.own.get(source.name, ())]
        if self.first is not None:
            command += ["-include", str(self._compiled(self.first, command))]
        # Its text with all that it includes says whether it was compiled before, wherever the tree lies. The
        # preprocessor would say more, and take as long for all files as the compiler for a few.
        digest = sha256(repr((command, _with_includes(source))).encode()).hexdigest()[:16]
        made = self.folder / f"{source.parent.name}-{source.stem}-{digest}.o"
        with FileLock(f"{made}.lock"):  # another process that tests may be at it
            if not made.exists():
                self._run([*command, "-c", str(source), "-o", str(made)])
        return made

    def _compiled(self, header: Path, command: Sequence[str]) -> Path:
        """A copy beside which it lies compiled: what it includes takes the compiler as long as a kernel."""
        text = header.read_bytes()
        copy = self.folder / f"{header.stem}-{sha256(repr((command, text)).encode()).hexdigest()[:16]}.h"
        with FileLock(f"{copy}.lock"):
            if not copy.exists():
                copy.with_suffix(".unfinished").write_bytes(text)
                self._run([*command, "-x", "c-header", str(copy.with_suffix(".unfinished")), "-o", f"{copy}.gch"])
                copy.with_suffix(".unfinished").rename(copy)
        return copy

    @staticmethod
    def _run(command: Sequence[str]) -> bytes:
        done = subprocess.run(command, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
        return done.stdout


def _with_includes(source: Path) -> list[bytes]:
    """A C file and the files of ours that it includes, in the order in which they are met."""
    found: dict[Path, bytes] = {}
    left = [source.resolve()]
    while left:
        path = left.pop()
        if path not in found:
            found[path] = path.read_bytes()
            left += [(path.parent / name.decode()).resolve() for name in _INCLUDED.findall(found[path])]
    return list(found.values())


class DriverEndedError(Exception):
    """The program ended in a request: a kernel crashed, or touched what lies behind an array."""


class Driver:
    """A running driver. `command` starts it, with an emulator before the program if need be."""

    def __init__(self, command: Iterable[str | Path]) -> None:
        self._process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self.features = frozenset(self._process.stdout.readline().decode().split())
        told = (each.partition(":") for each in self._process.stdout.readline().decode().split())
        self.sets = {name: frozenset(filter(None, needs.split(","))) for name, _, needs in told}

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    def run(
        self,
        isa: str,
        activations: NDArray[np.int8],
        codes: NDArray[np.int8],
        weight_scale: float = 1.0,
        act_scale: NDArray[np.float32] | None = None,
        dtype: str = "int32",
        threads: int = 1,
        format: str = "tile64",
        group_scales: NDArray[np.float32] | None = None,
    ) -> tuple[NDArray[Any], int, int]:
        """The product of activations (M, K), whose rows may lie apart, and codes (N, K), with a scale for each row or
        group of them in formats of such; the rank of the set whose code ran, and how many threads took part."""
        (M, K), N, lda = activations.shape, codes.shape[0], activations.strides[0]
        block = np.lib.stride_tricks.as_strided(activations, ((M - 1) * lda + K,), (1,))
        if group_scales is None:
            packed = BUILT_IN[format].pack(codes, np.float32(weight_scale))
            packed = packed[: packed.size - _SCALE_BYTES[format]]
        else:
            packed = BUILT_IN[format].pack(codes, group_scales)
        layout = tiles(format, {"M": M, "N": N, "K": K}) or (0, 0, 0)
        names, sizes = (format.encode(), isa.encode()), (M, N, K, lda, *layout)
        head = struct.pack("<16s16s7q2ifi", *names, *sizes, KINDS[dtype], threads, weight_scale, 0)
        scales = b"" if act_scale is None else act_scale.tobytes()
        kind = {"int32": np.int32, "float32": np.float32, "bfloat16": np.uint16}[dtype]
        wanted = M * N * np.dtype(kind).itemsize
        try:
            answer = self._asked(head + block.tobytes() + packed.tobytes() + scales, 8 + wanted)
        except BrokenPipeError:
            answer = b""
        if len(answer) != 8 + wanted:
            raise DriverEndedError(f"{format}, {isa}: status {self._process.wait(_ANSWER_S)} at M, N, K = {M, N, K}")
        ran, used = struct.unpack("<2i", answer[:8])
        return np.frombuffer(answer[8:], kind).reshape(M, N), ran, used

    def _asked(self, request: bytes, size: int) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(request)
        self._process.stdin.flush()
        return self._process.stdout.read(size)


def drawn(shape: tuple[int, int, int], seed: int, gap: int = 0) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Activations (M, K), whose rows lie `gap` bytes apart, and codes (N, K)."""
    M, N, K = shape
    rng = np.random.default_rng(seed)
    block = rng.integers(-128, 128, M * (K + gap), dtype=np.int8)
    return np.lib.stride_tricks.as_strided(block, (M, K), (K + gap, 1)), rng.integers(-1, 2, (N, K), dtype=np.int8)


def exact(activations: NDArray[np.int8], codes: NDArray[np.int8]) -> NDArray[np.int64]:
    """The product. In float64, which holds these sums, as NumPy has no fast product of integers."""
    return (activations.astype(np.float64) @ codes.T.astype(np.float64)).astype(np.int64)


def check_outputs(
    driver: Driver,
    kernel: str,
    rank: int,
    shape: tuple[int, int, int],
    seed: int,
    gap: int,
    threads: int,
    dtype: str,
    format: str = "tile64",
) -> None:
    """Fail where an output is not the contract's bits, or the receipt's facts are not what ran."""
    activations, codes = drawn(shape, seed, gap)
    rng = np.random.default_rng(seed)
    weight_scale, act_scale = float(np.float32(rng.uniform(1e-3, 10))), rng.uniform(1e-2, 1e3, shape[0])
    rows = rng.uniform(1e-3, 10, shape[1]).astype(np.float32) if BUILT_IN[format].scale_per == "row" else None
    scales = None if dtype == "int32" else act_scale.astype(np.float32)
    found, ran, used = driver.run(kernel, activations, codes, weight_scale, scales, dtype, threads, format, rows)
    assert ran == rank
    assert 1 <= used <= threads
    expected = exact(activations, codes)
    if scales is not None:
        factors = (weight_scale / scales.astype(np.float64))[:, np.newaxis]
        each = 1.0 if rows is None else rows.astype(np.float64)
        expected = (expected.astype(np.float64) * each * factors).astype(np.float32)
    wanted = expected.astype(ml_dtypes.bfloat16).view(np.uint16) if dtype == "bfloat16" else expected
    assert np.array_equal(found.view(np.uint8), np.ascontiguousarray(wanted.astype(found.dtype)).view(np.uint8))


def groups_right(
    driver: Driver,
    format: str,
    kernel: str,
    shape: tuple[int, int, int],
    seed: int,
    *,
    extreme: tuple[int, int] | None = None,
    gap: int = 0,
    threads: int = 1,
    dtype: str = "float32",
) -> bool:
    """Whether outputs are the contract's bits for M, N and a number of groups, in a format of such.

    Scales are powers of two, so that sums are exact in float64, whatever their order; those of tiles are any, as their
    kernels' order is given. `extreme` is what all activations are, and all codes."""
    (M, N, groups), form = shape, BUILT_IN[format]
    assert form.group
    activations, codes = drawn((M, N, groups * form.group), seed, gap)
    if extreme is not None:
        activations, codes = np.full_like(activations, extreme[0]), np.full_like(codes, extreme[1])
    rng = np.random.default_rng(seed)
    scales = (2.0 ** rng.integers(-6, 7, (N, groups))).astype(np.float32)
    act_scale = rng.uniform(1e-2, 1e3, M).astype(np.float32)
    if format in TILES:
        scales *= (rng.integers(-2048, 2048, scales.shape) / 1024).astype(np.float32)
    found, *_ = driver.run(kernel, activations, codes, 1.0, act_scale, dtype, threads, format, scales)
    if format in TILES:
        expected = grouped_model(activations, codes, scales, act_scale)
    else:
        sums = activations.astype(np.float64) @ (codes * np.repeat(scales.astype(np.float64), form.group, axis=1)).T
        expected = (sums * (1 / act_scale.astype(np.float64))[:, np.newaxis]).astype(np.float32)
    if dtype == "bfloat16":
        return np.array_equal(found, expected.astype(ml_dtypes.bfloat16).view(np.uint16))
    return np.array_equal(found, expected)


def fault_seen(
    driver: Driver,
    kernels: Iterable[str],
    cases: Iterable[tuple[tuple[int, int, int], int | None]],
    threads: int = 1,
    format: str = "tile64",
) -> bool:
    """Whether a kernel fails on one of the shapes; with each what all activations are, where all codes are 1, or
    None."""
    for shape, activation in cases:
        activations, codes = drawn(shape, 5)
        if activation is not None:
            activations, codes = np.full_like(activations, activation), np.ones_like(codes)
        for kernel in kernels:
            ones = np.ones(shape[1], np.float32) if BUILT_IN[format].scale_per == "row" else None
            try:
                found, *_ = driver.run(kernel, activations, codes, threads=threads, format=format, group_scales=ones)
            except DriverEndedError:
                return True
            if not np.array_equal(found, exact(activations, codes)):
                return True
    return False


def group_fault_seen(
    driver: Driver,
    kernels: Sequence[str],
    shapes: Sequence[tuple[int, int, int]],
    format: str,
    *,
    seed: int = 5,
    gap: int = 0,
    threads: Sequence[int] = (1,),
    cases: Sequence[tuple[str, tuple[int, int] | None]] = (("float32", None),),
) -> bool:
    """Whether a kernel is wrong, or touches what is not its own, in a format with a scale for each group. Each of the
    `cases` is the outputs' dtype, and `extreme` of groups_right."""
    try:
        return not all(
            groups_right(driver, format, kernel, shape, seed, extreme=extreme, gap=gap, threads=count, dtype=dtype)
            for kernel in kernels
            for dtype, extreme in cases
            for shape in shapes
            for count in threads
        )
    except DriverEndedError:
        return True
