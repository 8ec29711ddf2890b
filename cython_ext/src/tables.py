"""Writes tables.h: for each table of kernels, the instruction sets with a file beside its scalar.c.

python cython_ext/src/tables.py; the build does it too.
"""

from __future__ import annotations

import re
from pathlib import Path

SOURCES = Path(__file__).parent
HEADER = "tables.h"
_TABLE = re.compile(r"^TM_TABLE\((\w+)\)", re.MULTILINE)
_SET = re.compile(r"^#define TM_ISA_(\w+)[\s\\]+(\d+),", re.MULTILINE)
_OF_ARM = re.compile(r'^#define TM_TARGET_(\w+) "arch=armv', re.MULTILINE)


def sets(sources: Path = SOURCES) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The instruction sets of isas.h, of x86-64 and of aarch64, by rank; both begin with scalar."""
    text = (sources / "isas.h").read_text(encoding="utf-8")
    rising = [name for name, _ in sorted(_SET.findall(text), key=lambda found: int(found[1]))]
    of_arm = set(_OF_ARM.findall(text))
    return (
        tuple(name for name in rising if name not in of_arm),
        ("scalar", *(name for name in rising if name in of_arm)),
    )


def tables(sources: Path = SOURCES) -> dict[str, tuple[str, ...]]:
    """The instruction sets of each table, of both architectures: those with a file beside the scalar.c that defines
    it. Raises ValueError for a folder with such files and without a table."""
    x86, arm = sets(sources)
    found: dict[str, tuple[str, ...]] = {}
    for path in sorted(sources.rglob("scalar.c")):
        names = _TABLE.findall(path.read_text(encoding="utf-8"))
        if len(names) != 1:
            raise ValueError(f"{path}: {len(names)} lines TM_TABLE(NAME); legal: 1")
        found[names[0]] = tuple(name for name in dict.fromkeys((*x86, *arm)) if (path.parent / f"{name}.c").is_file())
    return dict(sorted(found.items()))


def text(sources: Path = SOURCES) -> str:
    """The text of tables.h."""
    x86, arm = sets(sources)
    lines = [
        "/* Written by tables.py from the files that are there. */",
        "#ifndef TM_TABLES_H",
        "#define TM_TABLES_H",
        "",
    ]
    for name, of_table in tables(sources).items():
        parts = ["X(op, scalar)"]
        for macro, of_architecture in (("TM_X86_64", x86[1:]), ("TM_AARCH64", arm[1:])):
            entries = " ".join(f"X(op, {each})" for each in of_table if each in of_architecture)
            parts += [f"{macro}({entries})"] if entries else []
        lines.append(f"#define TM_KERNELS_{name}(X, op) " + " ".join(parts))
    lines += ["", "#define TM_OPS(X) " + " ".join(f"X({name})" for name in tables(sources)), "", "#endif", ""]
    return "\n".join(lines)


def write(sources: Path = SOURCES) -> None:
    """Write tables.h unless it has this text: files that include it would be compiled anew."""
    path, made = sources / HEADER, text(sources)
    if not path.is_file() or path.read_text(encoding="utf-8") != made:
        path.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    write()
