"""Finds the packages in the rooms, and builds one extension module for each cython_ext/*.pyx with the C files in src/ under its name."""

import os
import shlex
import zlib
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup

# Contraction into fused multiply-adds would give each instruction set its own bits.
FLAGS = ["-std=gnu11", "-O3", "-ffp-contract=off", "-fopenmp", "-Wall", "-Wextra", "-Wno-unknown-pragmas"]
# For builds with a sanitizer; given to the compiler and to the linker.
EXTRA = shlex.split(os.environ.get("TRITMARK_CFLAGS", ""))
# Objects are reused by their dates alone, so other flags need a folder of their own.
BUILD = "build" if not EXTRA else f"build/flags-{zlib.crc32(' '.join(EXTRA).encode()):08x}"

ROOM = Path("cython_ext")
HEADERS = sorted(str(path) for pattern in ("*.h", "*.pxi") for path in ROOM.rglob(pattern))


def extension(pyx: Path) -> Extension:
    """The module of one .pyx; its C files lie in src/<name>/."""
    sources = sorted(str(path) for path in (ROOM / "src" / pyx.stem).glob("*.c"))
    return Extension(
        f"tritmark.cython_ext.{pyx.stem}",
        [str(pyx), *sources],
        include_dirs=[str(ROOM)],
        depends=HEADERS,
        extra_compile_args=FLAGS + EXTRA,
        extra_link_args=["-fopenmp", *EXTRA],
    )


setup(
    packages=[f"tritmark.{name}" for name in find_packages(include=["harness*", "kernels*", "cython_ext*"])] + ["tritmark.workloads"],
    options={"build": {"build_base": BUILD}, "build_ext": {"parallel": os.cpu_count()}},
    ext_modules=cythonize(
        [extension(pyx) for pyx in sorted(ROOM.glob("*.pyx"))],
        compiler_directives={"language_level": 3, "boundscheck": False, "wraparound": False},
    ),
)
