"""Kernels through PyCUDA's own SourceModule, for who asks for it (TRITMARK_CUDA_LOADER=sourcemodule).

The source, the options and nvcc are those of kernels.cuda.compile, and so is the code, byte for byte. PyCUDA's cache
has no lock and is not written at once: it gets a folder of its own for each kernel, which is filled aside and then put
in its place.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

from tritmark.harness.errors import UsageError
from tritmark.harness.locks import locked
from tritmark.kernels.cuda import compile as compiler
from tritmark.kernels.cuda.compile import Cubin
from tritmark.kernels.cuda.kernel import Kernel

REFUSED = (*compiler.FLAGS, "PYCUDA_DISABLE_CACHE")
"""Environment variables that PyCUDA obeys, or hands to nvcc: with the first ones the code would be another than its
hash in the cache says, without the cache nobody could tell what was loaded."""

_REPORTED = ("ignore", re.compile("The CUDA compiler succeeded, but said", re.IGNORECASE), UserWarning, None, 0)
_LOCK = Lock()
_TARGET = re.compile(r"(?:-arch|--gpu-architecture)=(?P<arch>\w+)")
_TARGETS = re.compile(r"(?:-gencode|--generate-code)=arch=(?P<arch>\w+),code=(?P<code>\w+)")


def source_module(kernel: Kernel, arch: str) -> tuple[Any, Cubin]:
    """PyCUDA's module of the kernel, compiled for `arch` as compile_kernel does, and what was loaded.

    Needs a current context of PyCUDA's. Raises CompileError with nvcc's words, UsageError for an environment variable
    that would change the code unseen and for options with which SourceModule cannot be called, what find_nvcc raises,
    and PyCUDA's Error where the driver does not take the code.
    """
    from pycuda.compiler import SourceModule
    from pycuda.driver import CompileError as Refused

    for name in REFUSED:
        if name in os.environ:
            raise UsageError(f"{name} is set, and {compiler.LOADER}={compiler.SOURCE_MODULE}; legal: one of them")
    nvcc, sources = compiler.find_nvcc(), compiler.local_sources(kernel.path)
    options, target = _split(compiler.options_of(kernel, arch))
    # PyCUDA's name for what it keeps has the folder of the source in it.
    made_of = (*options, *target.values(), str(kernel.path.parent))
    with _folder(compiler.stored_as(nvcc, sources, made_of).with_suffix(".pycuda")) as (folder, cached):
        _expect_the_report()
        try:
            made = SourceModule(
                next(iter(sources.values())),
                nvcc=str(nvcc),
                options=[*options],
                no_extern_c=True,
                cache_dir=str(folder),
                include_dirs=[str(kernel.path.parent)],
                **target,
            )
        except Refused as why:
            said = f"{why.stdout or ''}{why.stderr or ''}"
            raise compiler.refused(PurePath(kernel.file), options, said) from None
        (kept,) = folder.glob("*.cubin")
        return made.module, Cubin(kept.read_bytes(), "", cached)


def _expect_the_report() -> None:
    """No warning about ptxas's report. Filters are the process's: none is taken away, not for a moment either, which
    other threads would see."""
    with _LOCK:
        if _REPORTED not in warnings.filters:
            warnings.filterwarnings("ignore", _REPORTED[1].pattern, UserWarning)


def _split(options: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The options without the architecture, which SourceModule takes by itself: without, it adds the device's."""
    rest, found = [], []
    for option in options:
        target = _TARGET.fullmatch(option) or _TARGETS.fullmatch(option)
        (rest.append(option) if target is None else found.append(target.groupdict()))
    if len(found) != 1 or any(option.startswith(compiler.ARCHITECTURES) for option in rest):
        raise UsageError(
            f"{compiler.LOADER}={compiler.SOURCE_MODULE} with the options {' '.join(options)}; "
            "legal: one architecture, as -arch=sm_90 or -gencode=arch=compute_90a,code=sm_90a"
        )
    return (*compiler.REPORT, *rest), found[0]


@contextmanager
def _folder(place: Path) -> Iterator[tuple[Path, bool]]:
    """The folder with what PyCUDA keeps of one kernel, and whether it was there; new, it is put in its place at the
    end, and where nothing can be kept it goes."""
    with ExitStack() as stack:
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            compiler.must_be_private(place.parent)
            stack.enter_context(locked(place.with_suffix(".pycuda.lock")))
        except OSError as why:
            compiler.not_kept(place.parent, why)
            with TemporaryDirectory(prefix="tritmark-") as scratch:
                yield Path(scratch), False
            return
        if place.is_dir():
            yield place, True
            return
        with TemporaryDirectory(prefix=f"{place.name}.", dir=place.parent) as scratch:
            made = Path(scratch) / "made"
            made.mkdir()
            yield made, False
            os.replace(made, place)
