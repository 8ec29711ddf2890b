"""Finds the packages, and builds one extension module for each .pyx of cython_ext/: an op's is in src/<op>/, those of
shared parts are beside src/. Its C files are in src/ under its name."""

import logging
import os
import runpy
import shlex
import shutil
import subprocess
import sys
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

import Cython
from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

# -ffp-contract=off: fused multiply-adds would make results depend on the instruction set.
# -g0: Python's flags request debug information, which takes compile time and most of the wheel.
# -fno-stack-clash-protection: some distributions' Python enables stack probes, which touch the whole frame in every
# thread. Kernels have frames of 24 to 57 KiB, most of which most shapes do not use.
FLAGS = ["-std=gnu11", "-O3", "-g0", "-ffp-contract=off", "-pthread", "-Wall", "-Wextra", "-Wno-unknown-pragmas"]
FLAGS += ["-fno-stack-clash-protection"]
# For builds with a sanitizer; passed to the compiler and the linker.
EXTRA = shlex.split(os.environ.get("TRITMARK_CFLAGS", ""))
# Objects are reused by date only, so other flags need another folder.
BUILD = "build" if not EXTRA else f"build/flags-{zlib.crc32(' '.join(EXTRA).encode()):08x}"

# No contraction: the C++ reference computes exactly as written. It is not timed.
CXX_FLAGS = ["-std=c++17", "-O1", "-g0", "-ffp-contract=off", "-pthread", "-Wall", "-Wextra"]

ROOM = Path("cython_ext")
SOURCES = ROOM / "src"
runpy.run_path(str(SOURCES / "tables.py"))["write"]()
runpy.run_path("kernels/stubs.py")["write"]()
compiled = runpy.run_path(str(SOURCES / "c_files.py"))["compiled"]
# The C that Cython writes: beside the sources it would be taken for kernels. It is the same for all flags and Pythons,
# and writing it takes a quarter of a build.
GENERATED = Path("build", "cython")
SHARED = "tritmark.cython_ext._cyutility"
HEADERS = sorted(str(path) for pattern in ("*.h", "*.pxi") for path in ROOM.rglob(pattern))


# Cython boundaries check arguments once per call and then run C. -O3 takes three times the compile time, and made a
# small call of a plan 3 % slower.
QUICK = ["-O1"]


def last_flags(source: str) -> list[str]:
    """Flags after those of the extension, for one of its sources. Those of TRITMARK_CFLAGS come last."""
    return [*QUICK, *EXTRA] if Path(source).is_relative_to(GENERATED) else []


INTRINSICS = SOURCES / "intrinsics.h"


def is_vector_code(source: str) -> bool:
    """Whether a C file of this package includes the intrinsics. Generated files do not count: they list their
    sources."""
    path = Path(source)
    return path.is_relative_to(INTRINSICS.parent) and f'/{INTRINSICS.name}"' in path.read_text(encoding="utf-8")


def caches(command: list[str]) -> bool:
    """Whether a compiler is ccache, which does not cache objects with a precompiled header, and not switched off."""
    return "CCACHE_DISABLE" not in os.environ and any(
        "ccache" in os.path.realpath(shutil.which(word) or word) for word in command[:2]
    )


class BuildInOnePool(build_ext):
    """Compiles the sources of all extensions in one pool, one compiler per core. Most sources belong to one extension,
    and setuptools would compile them in sequence."""

    def build_extensions(self) -> None:
        self.parallel = len(self.extensions)  # one thread each, which waits for its objects and links
        self.header: Future[str] | None = None
        self.lock = Lock()
        self.begun = self.done = 0
        with ThreadPoolExecutor(os.cpu_count()) as self.pool:
            self.compiler.compile = self.compile_in_pool
            super().build_extensions()

    def compile_in_pool(
        self,
        sources: list[str],
        output_dir: str | None = None,
        macros: Any = None,
        include_dirs: Any = None,
        debug: bool = False,
        extra_preargs: Any = None,
        extra_postargs: Any = None,
        depends: Any = None,
    ) -> list[str]:
        """`Compiler.compile` of distutils, with its loop over objects in the pool."""
        compiler = self.compiler
        _, objects, postargs, pp_opts, build = compiler._setup_compile(
            output_dir, macros, include_dirs, sources, depends, extra_postargs
        )
        cc_args = compiler._get_cc_args(pp_opts, debug, extra_preargs)

        def compile_one(obj: str, source: str, suffix: str) -> None:
            first = ["-include", header.result()] if header and is_vector_code(source) else []
            compiler._compile(obj, source, suffix, cc_args, [*first, *postargs, *last_flags(source)], pp_opts)
            with self.lock:
                self.done += 1
                self.announce(f"compiled {self.done} of {self.begun}: {source}", logging.INFO)

        with self.lock:
            self.begun += len(build)
        header = self.intrinsics(cc_args, postargs, pp_opts) if any(map(is_vector_code, sources)) else None
        compiled = [self.pool.submit(compile_one, each, *build[each]) for each in build]
        for each in compiled:
            each.result()
        return list(objects)

    def intrinsics(self, cc_args: list[str], postargs: list[str], pp_opts: list[str]) -> Future[str] | None:
        """A copy of the intrinsics header with its precompiled form beside it, where GCC and clang search for it. It is
        valid only for files with the same flags, which all kernels have."""
        if caches(self.compiler.compiler_so):
            return None

        def precompile() -> str:
            header = Path(self.build_temp, INTRINSICS.name)
            header.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(INTRINSICS, header)
            self.compiler._compile(f"{header}.gch", str(header), header.suffix, cc_args, postargs, pp_opts)
            return str(header)

        with self.lock:
            if self.header is None:  # it starts before the tasks in the same pool that wait for it
                self.header = self.pool.submit(precompile)
            return self.header


def extension(pyx: Path) -> Extension:
    """The module of one .pyx; its C files are in src/<name>/ and below."""
    return Extension(
        f"tritmark.cython_ext.{pyx.stem}",
        [str(pyx), *map(str, compiled(SOURCES / pyx.stem))],
        include_dirs=[str(ROOM)],
        depends=HEADERS,
        extra_compile_args=FLAGS + EXTRA,
        extra_link_args=["-pthread", *EXTRA],
    )


def largest_first(extensions: list[Extension]) -> list[Extension]:
    """Modules are built in parallel, one process each: the longest must not start last."""
    return sorted(extensions, key=lambda each: -sum(Path(source).stat().st_size for source in each.sources))


def shared() -> Extension:
    """The module with the shared memoryview code of all boundaries, compiled once."""
    path = GENERATED / "_cyutility.c"
    mark = f"/* Generated by Cython {Cython.__version__} */"
    if not path.exists() or not path.read_text().startswith(mark):
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "cython", f"--generate-shared={path}"], check=True)
    return Extension(SHARED, [str(path)], extra_compile_args=["-g0", *QUICK, *EXTRA], extra_link_args=EXTRA)


def reference() -> Extension:
    """The C++ reference of all ops: a library that ctypes opens, built like an extension module."""
    return Extension(
        "tritmark.kernels.peers.reference.library",
        sorted(map(str, Path("kernels").glob("*/reference.cpp"))),
        depends=["kernels/peers/reference/reference.h"],
        extra_compile_args=CXX_FLAGS + EXTRA,
        extra_link_args=["-pthread", *EXTRA],
    )


if __name__ == "__main__":  # build backends run it as __main__ too; tests import its names
    setup(
        # harness/toplevel is the package tritmark itself.
        packages=[
            f"tritmark.{name}"
            for name in find_packages(include=["harness*", "kernels*", "cython_ext*"], exclude=["harness.toplevel"])
        ]
        + [f"tritmark.torch.{name}" for name in find_packages("pytorch")]
        + ["tritmark", "tritmark.bugs", "tritmark.golden", "tritmark.torch", "tritmark.workloads"],
        options={"build": {"build_base": BUILD}},
        cmdclass={"build_ext": BuildInOnePool},
        ext_modules=cythonize(
            largest_first([shared(), reference(), *(extension(pyx) for pyx in sorted(ROOM.rglob("*.pyx")))]),
            build_dir=str(GENERATED),
            include_path=[str(ROOM)],
            nthreads=os.cpu_count() or 1,
            shared_utility_qualified_name=SHARED,
            # Boundary objects hold addresses and cannot be pickled; auto_pickle would only add code.
            compiler_directives={"language_level": 3, "boundscheck": False, "wraparound": False, "auto_pickle": False},
        ),
    )
