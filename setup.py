"""Finds the packages in the rooms, and builds one extension module for each cython_ext/*.pyx with the C files in
src/ under its name."""

import logging
import os
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

# Contraction into fused multiply-adds would give each instruction set its own bits. Python asks for debug information,
# which takes the compiler time and most of the wheel.
# Some distributions' Python asks for probes of the stack (clash protection), which touch all of a frame in every
# thread: kernels have rooms of 24 to 57 KiB there, most of which most shapes do not use.
FLAGS = ["-std=gnu11", "-O3", "-g0", "-ffp-contract=off", "-pthread", "-Wall", "-Wextra", "-Wno-unknown-pragmas"]
FLAGS += ["-fno-stack-clash-protection"]
# For builds with a sanitizer; given to the compiler and to the linker.
EXTRA = shlex.split(os.environ.get("TRITMARK_CFLAGS", ""))
# Objects are reused by their dates alone, so other flags need a folder of their own.
BUILD = "build" if not EXTRA else f"build/flags-{zlib.crc32(' '.join(EXTRA).encode()):08x}"

# No contraction here either: the values of the C++ reference are those of its text. It is not timed.
CXX_FLAGS = ["-std=c++17", "-O1", "-g0", "-ffp-contract=off", "-pthread", "-Wall", "-Wextra"]

ROOM = Path("cython_ext")
SHARED = "tritmark.cython_ext._cyutility"
HEADERS = sorted(str(path) for pattern in ("*.h", "*.pxi") for path in ROOM.rglob(pattern))


# Boundaries check arguments once a call and then run C: to optimize them further takes the compiler three times as
# long, and a small call of a plan was 3 % slower with -O3.
QUICK = ["-O1"]


def last_flags(source: str) -> list[str]:
    """What comes behind an extension's flags for one of its sources."""
    return QUICK if Path(source).parent == ROOM else []


INTRINSICS = ROOM / "src" / "intrinsics.h"


def is_vector_code(source: str) -> bool:
    """Whether a C file of ours includes the intrinsics; boundaries' list the files that they are made from."""
    path = Path(source)
    return path.is_relative_to(INTRINSICS.parent) and f'/{INTRINSICS.name}"' in path.read_text(encoding="utf-8")


def caches(command: list[str]) -> bool:
    """Whether a compiler is ccache: it keeps no object that a precompiled header went into."""
    return any("ccache" in os.path.realpath(shutil.which(word) or word) for word in command[:2])


class BuildInOnePool(build_ext):
    """Compiles the sources of all extensions in one pool, a compiler a core: most sources are of one extension, which
    setuptools would compile one after the other."""

    def build_extensions(self) -> None:
        self.parallel = len(self.extensions)  # a thread for each, which waits for its objects and links
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
        """What `Compiler.compile` of distutils does, with its loop over objects in the pool."""
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
        """A copy of the header of the intrinsics, with itself compiled beside it, where GCC and clang look for it. It
        serves files with the flags that it has, which are those of all kernels."""
        if caches(self.compiler.compiler_so):
            return None

        def precompile() -> str:
            header = Path(self.build_temp, INTRINSICS.name)
            header.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(INTRINSICS, header)
            self.compiler._compile(f"{header}.gch", str(header), header.suffix, cc_args, postargs, pp_opts)
            return str(header)

        with self.lock:
            if self.header is None:  # it begins before what waits for it in the same pool
                self.header = self.pool.submit(precompile)
            return self.header


def extension(pyx: Path) -> Extension:
    """The module of one .pyx; its C files lie in src/<name>/ and below."""
    sources = sorted(str(path) for path in (ROOM / "src" / pyx.stem).rglob("*.c"))
    return Extension(
        f"tritmark.cython_ext.{pyx.stem}",
        [str(pyx), *sources],
        include_dirs=[str(ROOM)],
        depends=HEADERS,
        extra_compile_args=FLAGS + EXTRA,
        extra_link_args=["-pthread", *EXTRA],
    )


def largest_first(extensions: list[Extension]) -> list[Extension]:
    """Modules are built side by side, each by one process: one that takes long and begins last would be alone."""
    return sorted(extensions, key=lambda each: -sum(Path(source).stat().st_size for source in each.sources))


def shared() -> Extension:
    """The module with what all boundaries need for their memoryviews, compiled once."""
    path = ROOM / "_cyutility.c"
    mark = f"/* Generated by Cython {Cython.__version__} */"
    if not path.exists() or not path.read_text().startswith(mark):
        subprocess.run([sys.executable, "-m", "cython", f"--generate-shared={path}"], check=True)
    return Extension(SHARED, [str(path)], extra_compile_args=["-g0", *QUICK, *EXTRA], extra_link_args=EXTRA)


def reference() -> Extension:
    """The C++ reference: a library that ctypes opens, built like an extension module."""
    folder = Path("kernels/peers/reference")
    return Extension(
        "tritmark.kernels.peers.reference.library",
        [str(folder / "reference.cpp")],
        extra_compile_args=CXX_FLAGS + EXTRA,
        extra_link_args=["-pthread", *EXTRA],
    )


if __name__ == "__main__":  # as backends run it too; tests read its names
    setup(
        # harness/toplevel is the package tritmark itself.
        packages=[
            f"tritmark.{name}"
            for name in find_packages(include=["harness*", "kernels*", "cython_ext*"], exclude=["harness.toplevel"])
        ]
        + ["tritmark", "tritmark.bugs", "tritmark.golden", "tritmark.torch", "tritmark.workloads"],
        options={"build": {"build_base": BUILD}},
        cmdclass={"build_ext": BuildInOnePool},
        ext_modules=cythonize(
            largest_first([shared(), reference(), *(extension(pyx) for pyx in sorted(ROOM.glob("*.pyx")))]),
            nthreads=os.cpu_count() or 1,
            shared_utility_qualified_name=SHARED,
            # No object of a boundary can be pickled: it holds addresses. Without auto_pickle that costs no code.
            compiler_directives={"language_level": 3, "boundscheck": False, "wraparound": False, "auto_pickle": False},
        ),
    )
