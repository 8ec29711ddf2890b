"""Load kernels through PyCUDA's SourceModule, on request (TRITMARK_CUDA_LOADER=sourcemodule).

The source, options and nvcc are those of compile.py, and so is the code, byte for byte. PyCUDA's cache has no lock and
is not written atomically. So it gets a folder per kernel, which is filled under another name and then renamed.
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
from tritmark.kernels.cuda.driver import compile as compiler
from tritmark.kernels.cuda.driver.compile import Cubin
from tritmark.kernels.cuda.kernel import Kernel

REFUSED = (*compiler.FLAGS, "PYCUDA_DISABLE_CACHE")
"""Environment variables that PyCUDA follows, or passes to nvcc. The first ones would change the code without changing
its hash; without the cache the loaded code would be unknown."""

_REPORTED = ("ignore", re.compile("The CUDA compiler succeeded, but said", re.IGNORECASE), UserWarning, None, 0)
_LOCK = Lock()
_TARGET = re.compile(r"(?:-arch|--gpu-architecture)=(?P<arch>\w+)")
_TARGETS = re.compile(r"(?:-gencode|--generate-code)=arch=(?P<arch>\w+),code=(?P<code>\w+)")


def source_module(kernel: Kernel, arch: str) -> tuple[Any, Cubin]:
    """PyCUDA's module of the kernel, compiled for `arch` as in compile_kernel, and the loaded cubin.

    Needs a current PyCUDA context. Raises CompileError with nvcc's output, UsageError for an environment variable that
    would change the code undetected and for options that SourceModule cannot take, the errors of find_nvcc, and
    PyCUDA's Error if the driver refuses the code.
    """
    from pycuda.compiler import SourceModule
    from pycuda.driver import CompileError as Refused

    for name in REFUSED:
        if name in os.environ:
            raise UsageError(f"{name} is set, and {compiler.LOADER}={compiler.SOURCE_MODULE}; legal: only one of them")
    nvcc, sources = compiler.find_nvcc(), compiler.local_sources(kernel.path)
    options, target = _split(compiler.options_of(kernel, arch))
    # PyCUDA's cache key contains the folder of the source.
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
    """Silence the warning about ptxas's report. Filters belong to the process: none is removed, even briefly, because
    other threads would be affected."""
    with _LOCK:
        if _REPORTED not in warnings.filters:
            warnings.filterwarnings("ignore", _REPORTED[1].pattern, UserWarning)


def _split(options: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The options, and the architecture separately, because SourceModule adds the device's without one."""
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
    """PyCUDA's cache folder of one kernel, and whether it existed. A new one is renamed into place at the end; if
    nothing can be cached, it is temporary."""
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
