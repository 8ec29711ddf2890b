"""tables.h lists the kernels whose files are there."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tritmark.kernels.native import cpu

SOURCES = Path(__file__).parents[2] / "cython_ext" / "src"
TABLES = runpy.run_path(str(SOURCES / "tables.py"))
ISAS = """
#define TM_ISA_scalar 0, "", "BASELINE", "plain C"
#define TM_ISA_avx512 \\
    40, "avx512f", "EXTREMELY_OPTIMIZED", "wide"
#define TM_ISA_avx2 20, "avx2", "HIGHLY_OPTIMIZED", "AVX2"
#define TM_ISA_neon 15, "asimd", "OPTIMIZED", "NEON"
#define TM_TARGET_neon "arch=armv8-a"
"""


def made(folder: Path, *files: str) -> Path:
    (folder / "isas.h").write_text(ISAS)
    for each in files:
        path = folder / each
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"TM_TABLE({path.parent.name});\n" if path.name == "scalar.c" else "")
    return folder


def test_a_table_has_the_sets_with_a_file(tmp_path: Path) -> None:
    made(tmp_path, "add/scalar.c", "add/avx512.c", "add/avx2.c", "add/neon.c", "add/avx2.h", "add/few/scalar.c")
    assert TABLES["tables"](tmp_path) == {"add": ("scalar", "avx2", "avx512", "neon"), "few": ("scalar",)}
    text = TABLES["text"](tmp_path)
    line = "#define TM_KERNELS_add(X, op) X(op, scalar) TM_X86_64(X(op, avx2) X(op, avx512)) TM_AARCH64(X(op, neon))"
    assert line in text
    assert "#define TM_OPS(X) X(add) X(few)" in text
    assert "#define TM_TABLES_add(X) X(add) X(few)" in text


def test_features_are_those_of_the_sets_and_of_libraries_once(tmp_path: Path) -> None:
    made(tmp_path)
    with (tmp_path / "isas.h").open("a") as isas:
        isas.write('#define TM_FEATURES_OF_LIBRARIES "fma,avx2"\n')
    assert TABLES["features"](tmp_path) == ("avx512f", "avx2", "fma")


@pytest.mark.parametrize("text", ["", "TM_TABLE(one);\nTM_TABLE(two);\n"])
def test_a_folder_has_one_table(tmp_path: Path, text: str) -> None:
    made(tmp_path, "add/scalar.c")
    (tmp_path / "add" / "scalar.c").write_text(text)
    with pytest.raises(ValueError, match=r"add.scalar.c: \d lines TM_TABLE"):
        TABLES["tables"](tmp_path)


def test_the_header_is_written_only_if_it_changes(tmp_path: Path) -> None:
    made(tmp_path, "add/scalar.c")
    TABLES["write"](tmp_path)
    written = (tmp_path / "tables.h").stat().st_mtime_ns
    TABLES["write"](tmp_path)
    assert (tmp_path / "tables.h").stat().st_mtime_ns == written
    made(tmp_path, "add/avx2.c")
    TABLES["write"](tmp_path)
    assert "avx2" in (tmp_path / "tables.h").read_text()


def test_the_package_has_what_the_files_say() -> None:
    x86, arm = TABLES["sets"]()
    here = x86 if "avx2" in cpu.ISAS else arm if "neon" in cpu.ISAS else ("scalar",)
    for name, sets in TABLES["tables"]().items():
        assert {isa.name for isa in cpu.KERNELS[name]} == set(sets) & set(here)
