"""PyCUDA itself, which needs no GPU for import and compilation: the names that the project uses exist, are public and
take its arguments, and SourceModule makes the same code as kernels.cuda.driver.compile."""

from __future__ import annotations

import ast
import inspect
import os
import re
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cuda_products import data_of, expected, product, same
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import tritmark.kernels
from tritmark.harness.errors import CompileError, UsageError
from tritmark.harness.machine import gpu
from tritmark.kernels.cuda import device
from tritmark.kernels.cuda.context import cuda_context, simulated
from tritmark.kernels.cuda.driver import compile as compiler
from tritmark.kernels.cuda.driver import source_module
from tritmark.kernels.cuda.kernel import Kernel
from tritmark.kernels.cuda.launch import launch
from tritmark.kernels.i2s_quantize.cuda import VARIANTS as QUANTIZE
from tritmark.kernels.ternary_matmul import cuda_gemm
from tritmark.kernels.ternary_matmul.cuda import VARIANTS as MATMUL

ROOT = Path(__file__).resolve().parents[5]
ROOM = Path(tritmark.kernels.__path__[0]) / "cuda"
FILES = ("driver/driver.py", "driver/source_module.py", "memory/pycuda_pool.py")
"""Files that import PyCUDA."""
USERS = (*FILES, "driver/handles.py")

HOLDERS = {
    "cuda": "pycuda.driver",
    "_context": "pycuda.driver:Context",
    "module": "pycuda.driver:Module",
    "attribute": "pycuda.driver:function_attribute",
    "source": "pycuda.driver:PooledDeviceAllocation",
    "Device()": "pycuda.driver:Device",
    "raw_of()": "pycuda.driver:Stream",
    "_small": "pycuda.tools:DeviceMemoryPool",
}
"""Names of PyCUDA's modules and objects in the files, and their meaning."""
RAW = {
    "DriverBackend": "pycuda.driver:Function",
    "DriverFunction": "pycuda.driver:Function",
    "DriverStream": "pycuda.driver:Stream",
    "DriverEvent": "pycuda.driver:Event",
}
"""The type of `raw` in the classes of driver.py and handles.py."""


PRIVATE = {"pycuda.driver:Function._launch_kernel": 6}
"""Private names in use, with their arguments, including the object."""


def _here() -> bool:
    try:
        import_module("pycuda.driver")
    except ImportError as why:
        if os.environ.get("TRITMARK_REQUIRE_PYCUDA"):
            raise
        return not why
    return True


needs_pycuda = pytest.mark.skipif(not _here(), reason="PyCUDA is not installed; tox -e pycuda has it")


def _parts(node: ast.expr) -> list[str]:
    """The names of a.b.c; a call counts as its result."""
    if isinstance(node, ast.Attribute):
        return [*_parts(node.value), node.attr]
    if isinstance(node, ast.Name):
        return [node.id]
    return [f"{_parts(node.func)[-1]}()"] if isinstance(node, ast.Call) else ["?"]


Use = tuple[str, str, ast.Call | None]
"""MODULE or MODULE:CLASS, the names after it with dots, the call if it is called."""


def uses(text: str) -> Iterator[Use]:
    """The names of PyCUDA that a source uses."""
    tree = ast.parse(text)
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pycuda"):
            yield from ((node.module or "", each.name, None) for each in node.names)
    for top in tree.body:
        holder = RAW.get(top.name) if isinstance(top, ast.ClassDef) else None
        holders = HOLDERS | ({"raw": holder} if holder else {})
        for node in ast.walk(top):
            if not isinstance(node, ast.Attribute) or id(node) in inner:
                continue
            parts = _parts(node)
            place = max((place for place, part in enumerate(parts[:-1]) if part in holders), default=None)
            if place is not None:
                yield holders[parts[place]], ".".join(parts[place + 1 :]), calls.get(id(node))


def _found(holder: str, name: str) -> Any:
    module, _, of = holder.partition(":")
    found = import_module(module)
    for part in (*([of] if of else []), *name.split(".")):
        found = getattr(found, part)
    return found


def takes(function: Any, given: int, named: set[str]) -> bool:
    """Whether a call with so many positional arguments and these names is possible: as Python reports, or as
    Boost.Python writes into the docstring, where the object is an argument too."""
    if inspect.isclass(function):
        function, given = function.__init__, given + 1
    if inspect.isfunction(function):
        try:
            bound = inspect.signature(function).bind(*[None] * given, **dict.fromkeys(named))
        except TypeError:
            return False
        # These names are the ones that it reads from **kwargs.
        return set(bound.arguments.get("kwargs", {})) <= set(function.__code__.co_consts)
    for head in re.findall(r"^\s*\w+\((.*)\) ->", function.__doc__ or "", re.MULTILINE):
        least = len(re.findall(r"\(\w+\)", head.partition("[")[0]))
        names = re.findall(r"\(\w+\)(\w+)", head)
        if least <= given + len(named) <= len(names) and named <= set(names):
            return True
    return False


def complaints(text: str) -> list[str]:
    """Names of PyCUDA in a source that do not exist, are private, or do not take the arguments of the call."""
    found = []
    for holder, name, call in uses(text):
        what = f"{holder}.{name}"
        if what not in PRIVATE and any(re.match("_[^_]", part) for part in re.split("[.:]", what)):
            found.append(f"{what} is private")
            continue
        try:
            value = _found(holder, name)
        except AttributeError:
            found.append(f"{what} is not there")
            continue
        if call is not None:
            method = ":" in holder  # Context's static ones are called as the module's
            named = {each.arg for each in call.keywords if each.arg}
            if not takes(value, len(call.args) + method, named):
                found.append(f"{what} does not take {len(call.args)} arguments and {sorted(named)}")
    return found


@needs_pycuda
@pytest.mark.parametrize("file", USERS)
def test_what_is_used_is_there_and_public(file: str) -> None:
    text = (ROOM / file).read_text()
    assert len(list(uses(text))) >= 2
    assert complaints(text) == []


@needs_pycuda
def test_private_names_are_those_of_the_versions_that_are_admitted() -> None:
    """A later version must be checked before it is admitted: the private name, and its call."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (asked,) = (each for each in map(Requirement, extras["cuda"]) if each.name == "pycuda")
    assert asked.specifier == SpecifierSet(">=2024.1,<2027")
    assert asked.specifier.contains(version("pycuda"))
    for what, arguments in PRIVATE.items():
        found = _found(*what.rsplit(".", 1))
        assert takes(found, arguments, set())
        assert not takes(found, arguments - 1, set())
        assert not takes(found, arguments + 1, set())


def test_no_other_file_imports_pycuda() -> None:
    found = [
        path.relative_to(ROOM).as_posix()
        for path in ROOM.rglob("*.py")
        if re.search(r"^\s*(import|from) pycuda", path.read_text(), re.MULTILINE)
    ]
    assert sorted(found) == sorted(FILES)


@needs_pycuda
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("self.cuda.mem_allocate(4)", ["pycuda.driver.mem_allocate is not there"]),
        ("self.cuda.memcpy_htod(pointer)", ["pycuda.driver.memcpy_htod does not take 1 arguments and []"]),
        ("self.cuda.Stream(1, 2)", ["pycuda.driver.Stream does not take 2 arguments and []"]),
        ("self._small.allocate()", ["pycuda.tools:DeviceMemoryPool.allocate does not take 0 arguments and []"]),
        (
            "function.raw._launch_kernel(1)",
            ["pycuda.driver:Function._launch_kernel does not take 1 arguments and []"],
        ),
        ("function.raw._set_block_shape(1, 1, 1)", ["pycuda.driver:Function._set_block_shape is private"]),
        ("self.raw.get_attribute(1, 2)", ["pycuda.driver:Function.get_attribute does not take 2 arguments and []"]),
        ("self.cuda.mem_alloc(4)", []),
    ],
)
def test_what_is_not_there_is_seen(line: str, found: list[str]) -> None:
    assert complaints(f"class DriverFunction:\n    def f(self):\n        {line}\n") == found


# SourceModule


def representatives() -> list[Kernel]:
    """A kernel of each source."""
    return list({kernel.file: kernel for kernels in launch.KERNELS.values() for kernel in kernels}.values())


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv(compiler.CACHE, str(tmp_path))
    return tmp_path


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The code for the driver."""
    loaded: list[bytes] = []
    nothing = SimpleNamespace(get_global=None, get_texref=None, get_surfref=None)

    def load(code: bytes) -> SimpleNamespace:
        loaded.append(code)
        return nothing

    monkeypatch.setattr("pycuda.driver.module_from_buffer", load)
    return loaded


@needs_pycuda
@pytest.mark.usefixtures("kept")
def test_source_module_makes_the_same_code(no_driver: list[bytes]) -> None:
    """From several threads concurrently; a warning is an error here."""
    meant = [
        launch.KERNELS[QUANTIZE[-1].id][0],
        cuda_gemm.KERNELS[cuda_gemm.MMA[0]],
        cuda_gemm.KERNELS[cuda_gemm.WGMMA[0]],
    ]

    def codes() -> list[bytes]:
        with ThreadPoolExecutor(len(meant)) as pool:
            made = list(pool.map(lambda kernel: source_module.source_module(kernel, "sm_90")[1], meant))
        cached.append([each.cached for each in made])
        return [each.code for each in made]

    cached: list[list[bool]] = []
    ours = [compiler.compile_kernel(kernel, "sm_90").code for kernel in meant]
    assert ours == codes() == codes()
    assert sorted(no_driver) == sorted(2 * ours)
    assert cached == [[False] * 3, [True] * 3]


@needs_pycuda
@pytest.mark.usefixtures("kept", "no_driver")
def test_source_module_refuses_what_would_go_unseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "odd.cu"
    source.write_text("__global__ void broken( {}\n")
    odd = Kernel(file=str(source), name="broken", threads=32, registers=32)
    with pytest.raises(CompileError, match=r"(?s)odd\.cu does not compile .*error"):
        source_module.source_module(odd, "sm_90")
    two = Kernel(file=str(source), name="broken", threads=32, registers=32, options=("-arch=sm_80", "-arch=sm_90"))
    with pytest.raises(UsageError, match="legal: one architecture"):
        source_module.source_module(two, "sm_90")
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-G")
    with pytest.raises(UsageError, match=r"NVCC_APPEND_FLAGS is set, and TRITMARK_CUDA_LOADER=sourcemodule"):
        source_module.source_module(odd, "sm_90")


# On a GPU


def _gpu() -> bool:
    return gpu.problem() is None and not simulated()


@pytest.mark.cuda
@needs_pycuda
@pytest.mark.skipif(not _gpu(), reason="needs a GPU")
@pytest.mark.usefixtures("kept")
def test_code_and_results_of_every_source_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    here = cuda_context()
    meant = [kernel for kernel in representatives() if kernel.runs_on(here.backend.info.capability)]
    products = [
        (each, data_of(M, 256, 512)) for each in MATMUL if (M := _rows(each.name)) and each.key.dtype == "int32"
    ]

    def found() -> tuple[list[str], list[Any]]:
        monkeypatch.setattr(here, "_functions", {})
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            hashes = list(pool.map(lambda kernel: here.backend.function(kernel).code_hash, meant))
        return hashes, [product(here, variant, data) for variant, data in products]

    ours, results = found()
    monkeypatch.setenv(compiler.LOADER, compiler.SOURCE_MODULE)
    theirs, again = found()
    assert "through PyCUDA's SourceModule" in device.compiler()
    assert ours == theirs
    for one, other, (variant, data) in zip(results, again, products, strict=True):
        same(one, expected(data, variant.key.dtype))
        same(other, one)


def _rows(variant: str) -> int:
    """Rows of activations for which the variant is made."""
    return {"gemv": 1, "gemv_dp4a": 1, "gemm": 64, "mma": 16, "dp4a": 9, "tiled": 3}.get(variant, 0)
