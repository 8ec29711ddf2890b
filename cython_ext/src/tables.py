"""Writes tables.h: for each table of kernels, the instruction sets with a file beside its scalar.c; the tables of each
op; the features of x86-64 to look for.

python cython_ext/src/tables.py; the build does it too.
"""

from __future__ import annotations

import re
from pathlib import Path

SOURCES = Path(__file__).parent
HEADER = "tables.h"
_TABLE = re.compile(r"^TM_TABLE\((\w+)\)", re.MULTILINE)
_SET = re.compile(r"^#define TM_ISA_(\w+)[\s\\]+(\d+),", re.MULTILINE)
_FEATURES = re.compile(r'^#define TM_(?:ISA_(\w+)[\s\\]+\d+|FEATURES_OF_LIBRARIES),?[\s\\]+"([^"]*)"', re.MULTILINE)
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


def folders(sources: Path = SOURCES) -> dict[str, Path]:
    """The folder of each table, that of the scalar.c which defines it. Raises ValueError for a folder with a scalar.c
    and without a table."""
    found: dict[str, Path] = {}
    for path in sorted(sources.rglob("scalar.c")):
        names = _TABLE.findall(path.read_text(encoding="utf-8"))
        if len(names) != 1:
            raise ValueError(f"{path}: {len(names)} lines TM_TABLE(NAME); legal: 1")
        found[names[0]] = path.parent
    return dict(sorted(found.items()))


def tables(sources: Path = SOURCES) -> dict[str, tuple[str, ...]]:
    """The instruction sets of each table, of both architectures: those with a file in its folder."""
    every = dict.fromkeys(name for of_architecture in sets(sources) for name in of_architecture)
    return {
        table: tuple(name for name in every if (folder / f"{name}.c").is_file())
        for table, folder in folders(sources).items()
    }


def of_ops(sources: Path = SOURCES) -> dict[str, tuple[str, ...]]:
    """The tables of each folder of `sources`: of an op, and of the folders in it."""
    found: dict[str, tuple[str, ...]] = {}
    for table, folder in folders(sources).items():
        op = folder.relative_to(sources).parts[0]
        found[op] = (*found.get(op, ()), table)
    return found


def features(sources: Path = SOURCES) -> tuple[str, ...]:
    """The features of x86-64 that isas.h names, each once."""
    x86, _ = sets(sources)
    named = _FEATURES.findall((sources / "isas.h").read_text(encoding="utf-8"))
    lists = (listed for of_set, listed in named if of_set in ("", *x86))
    return tuple(dict.fromkeys(name for listed in lists for name in listed.split(",") if name))


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
    for op, names in of_ops(sources).items():
        lines.append(f"#define TM_TABLES_{op}(X) " + " ".join(f"X({name})" for name in names))
    lines.append("#define TM_FEATURES_X86_64(X) " + " ".join(f'X("{name}")' for name in features(sources)))
    lines += ["", "#define TM_OPS(X) " + " ".join(f"X({name})" for name in tables(sources)), "", "#endif", ""]
    return "\n".join(lines)


def write(sources: Path = SOURCES) -> None:
    """Write tables.h unless it has this text: files that include it would be compiled anew."""
    path, made = sources / HEADER, text(sources)
    if not path.is_file() or path.read_text(encoding="utf-8") != made:
        path.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    write()
