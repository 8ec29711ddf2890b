"""Kernels from users' C and C++ files and libraries: those that run, and the errors for others."""

from __future__ import annotations

import errno
import platform
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from candidate_files import INSTALLED, MANIFEST, SOURCE, bound, native, python, variants, verdict
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.caches import CACHE
from tritmark.harness.candidate import compiling
from tritmark.harness.candidate.elf import NotALibraryError, exported
from tritmark.harness.candidate.native import NativeFile
from tritmark.harness.candidate.opening import open_candidate
from tritmark.harness.errors import BadEnvironmentError, CompileError, UsageError
from tritmark.harness.record import Status

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
    pytest.mark.usefixtures("compiled_files"),
]


@pytest.mark.parametrize("layout", ["aligned", "unaligned"])
@pytest.mark.parametrize("suffix", [".c", ".cpp"])
def test_a_c_function_is_a_kernel(tmp_path: Path, suffix: str, layout: str) -> None:
    source = SOURCE if suffix == ".c" else SOURCE.replace("void f", 'extern "C" void f')
    (variant,) = variants(native(tmp_path, source, suffix=suffix))
    assert str(variant.id) == "cpu/i2s_dequantize/none/float32/my.f"
    assert verdict(variant, layout=layout) == (Status.PASS, "")
    launch, outputs = bound(variant)
    launch.run()
    launch.run()
    assert (launch.ran, launch.runs, launch.threads_used, launch.bad) == ("my.f", 2, 1, -1)
    assert launch.pointer is not None
    np.testing.assert_array_equal(outputs["x"], [0, 2, 4, 6, 8])


def test_a_library_is_taken_as_it_is_and_its_hash_is_told(tmp_path: Path) -> None:
    import subprocess
    from hashlib import sha256

    source = native(tmp_path)
    library = tmp_path / "lib.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    library.with_suffix(".toml").write_text(MANIFEST, encoding="utf-8")
    (variant,) = variants(library)
    assert verdict(variant)[0] is Status.PASS
    assert variant.code_hash == sha256(library.read_bytes()).hexdigest()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="instruction sets of x86-64")
@pytest.mark.parametrize(
    "exported_so",
    [
        '__attribute__((target_clones("avx2", "default")))\nvoid f',
        "static void g(const int8_t *q, float scale, float *x, int64_t n);\n"
        "static void *chosen(void) { return (void *)g; }\n"
        'void f(const int8_t *q, float scale, float *x, int64_t n) __attribute__((ifunc("chosen")));\nstatic void g',
    ],
    ids=["clones", "ifunc"],
)
def test_a_function_whose_address_a_resolver_gives_has_its_own_name(tmp_path: Path, exported_so: str) -> None:
    (variant,) = variants(native(tmp_path, SOURCE.replace("void f", exported_so)))
    assert verdict(variant) == (Status.PASS, "")
    launch, _ = bound(variant)
    launch.run()
    assert launch.ran == "my.f"


def test_a_wrong_function_is_failed(tmp_path: Path) -> None:
    (variant,) = variants(native(tmp_path, SOURCE.replace("i < n", "i < n - 1")))
    status, reason = verdict(variant)
    assert status is Status.FAIL
    assert "never written" in reason


def test_a_function_may_tell_of_bad_inputs_or_leave_that_to_the_harness(tmp_path: Path) -> None:
    source = """
#include <math.h>
#include <stdint.h>
void f(const float *x, float scale, int8_t *q, int64_t n, int64_t *bad)
{
    for (int64_t i = 0; i < n; i++) {
        if (REPORT && !isfinite(x[i]) && *bad < 0) *bad = i;
        q[i] = (int8_t)rintf(fmaxf(-2, fminf(1, x[i] / scale)));
    }
}
"""
    manifest = (
        MANIFEST.replace("i2s_de", "i2s_")
        .replace("float32", "int8")
        .replace('["q", "scale", "x", "n"]', '["x", "scale", "q", "n", "bad"]')
    )
    (tells,) = variants(native(tmp_path, source.replace("REPORT", "1"), manifest))
    assert verdict(tells, family="normal") == (Status.PASS, "")
    (silent,) = variants(native(tmp_path, source.replace("REPORT", "0"), manifest))
    status, reason = verdict(silent, family="normal")
    assert status is Status.FAIL
    assert "is reported as at -1" in reason
    asked = source.replace(", int64_t *bad", "").replace("if (REPORT && !isfinite(x[i]) && *bad < 0) *bad = i;", "")
    (looked_after,) = variants(native(tmp_path, asked, manifest.replace(', "bad"', "")))
    assert verdict(looked_after, family="normal") == (Status.PASS, "")


def test_a_stride_is_that_of_the_rows(tmp_path: Path) -> None:
    from importlib import resources

    folder = resources.files("tritmark.kernels") / "activation_quantize" / "templates"
    source = (folder / "activation_quantize.c").read_text(encoding="utf-8")
    manifest = (folder / "activation_quantize.c.toml").read_text(encoding="utf-8")
    (variant,) = variants(native(tmp_path, source, manifest))
    assert verdict(variant, layout="unaligned", family="normal") == (Status.PASS, "")
    (wrong,) = variants(native(tmp_path, source.replace("m * stride", "m * K"), manifest))
    assert verdict(wrong, layout="unaligned", family="normal")[0] is Status.FAIL


@pytest.mark.parametrize(
    ("source", "manifest", "told"),
    [
        (SOURCE.replace("void f", "void g"), MANIFEST, "my.toml:3:13: my.c has no function 'f'; legal: g"),
        (SOURCE.replace("void f", "static void f"), MANIFEST, "my.c has no function 'f'"),
    ],
)
def test_a_function_that_is_not_there(tmp_path: Path, source: str, manifest: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        variants(native(tmp_path, source, manifest))
    assert told in str(caught.value)


def test_a_cpp_function_needs_cs_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'as a C\+\+ function \(_Z1f.*legal: extern "C"'):
        variants(native(tmp_path, suffix=".cpp"))


def test_the_compilers_words_are_told(tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        variants(native(tmp_path, SOURCE.replace("int64_t i", "int65_t i")))
    assert "int65_t" in str(caught.value)
    with pytest.raises(CompileError, match="stdfloat_not_there"):
        variants(native(tmp_path, '#include "stdfloat_not_there.h"\n' + SOURCE))


@pytest.mark.parametrize(
    ("before", "call", "options", "name"),
    [
        ("int helper(void);", "(void)helper();", [], "helper"),
        ("extern int table[4];", "if (table[n & 3]) return;", [], "table"),
        ("int omp_get_max_threads(void);", "if (omp_get_max_threads() < 0) return;", [], "omp_get_max_threads"),
        (
            "double cblas_ddot(int, const double *, int, const double *, int);",
            "(void)cblas_ddot(0, 0, 1, 0, 1);",
            ["-O0"],
            "cblas_ddot",
        ),
        ("inline int twice(int a) { return 2 * a; }", "if (twice((int)n) < 0) return;", ["-O0"], "twice"),
    ],
)
def test_what_nobody_defines_does_not_compile(
    tmp_path: Path, before: str, call: str, options: list[str], name: str
) -> None:
    """Without this check, the first call of the kernel would crash its process."""
    source = f"{before}\n{SOURCE}".replace("for (", f"{call} for (", 1)
    assert call in source
    with pytest.raises(CompileError, match=rf"undefined (reference|symbol).*{name}"):
        variants(native(tmp_path, source, MANIFEST + (f"options = {options}" if options else "")))


@pytest.mark.parametrize(
    ("before", "call", "options"),
    [
        ("#include <math.h>", "if (lgamma((double)n) < 0) return;", []),
        ("#include <omp.h>", "if (omp_get_max_threads() < 0) return;", ["-O2", "-fopenmp"]),
        ("#include <pthread.h>", "if (!pthread_self()) return;", ["-O2", "-lpthread"]),
        ("#include <dlfcn.h>", 'if (dlsym(0, "nothing")) return;', ["-O2", "-ldl"]),
        ("int hook(void) __attribute__((weak));", "if (hook) hook();", []),
        ("int helper(void);", "if (n < 0) (void)helper();", ["-O0", "-Wl,-z,undefs"]),
        ("#include <zlib.h>" if Path("/usr/include/zlib.h").exists() else "", "", ["-O2", "-fsanitize=undefined"]),
    ],
)
def test_what_somebody_defines_compiles(tmp_path: Path, before: str, call: str, options: list[str]) -> None:
    source = f"{before}\n{SOURCE}".replace("for (", f"{call} for (", 1)
    assert variants(native(tmp_path, source, MANIFEST + (f"options = {options}" if options else "")))


def test_warnings_are_told_each_time_and_are_no_errors(tmp_path: Path) -> None:
    path = native(tmp_path, SOURCE.replace("for (", "int never_used; for (", 1))
    for _ in range(2):
        assert variants(path)
        found = open_candidate(path)
        assert isinstance(found, NativeFile)
        assert "never_used" in found.compiled(INSTALLED).warnings
    plain = open_candidate(native(tmp_path))
    assert isinstance(plain, NativeFile)
    assert plain.compiled(INSTALLED).warnings == ""
    strict = native(tmp_path, SOURCE.replace("for (", "int never_used; for (", 1), MANIFEST + 'options = ["-Werror"]')
    assert variants(strict), "what the options make an error is theirs to say"


def test_a_compiler_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(BadEnvironmentError, match=r"no-such-compiler not found; next: install one .*, or set CC"):
        variants(native(tmp_path))


def test_what_was_compiled_is_kept_and_what_was_tampered_with_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITMARK_CACHE", str(tmp_path / "cache"))
    path = native(tmp_path)
    variants(path)
    (kept,) = (tmp_path / "cache" / "native").glob("*.so")
    before = kept.stat().st_mtime_ns
    variants(path)
    assert kept.stat().st_mtime_ns == before
    kept.write_bytes(kept.read_bytes() + b"\0")
    variants(path)
    assert kept.stat().st_mtime_ns != before
    other = native(tmp_path, manifest=MANIFEST + 'options = ["-O1"]')
    variants(other)
    assert len(list((tmp_path / "cache" / "native").glob("*.so"))) == 2
    (tmp_path / "cache" / "native").chmod(0o777)
    with pytest.raises(UsageError, match="can be written by, others"):
        variants(path)


def test_a_header_that_changed_is_compiled_anew(tmp_path: Path) -> None:
    header = tmp_path / "factor.h"
    path = native(tmp_path, '#include "factor.h"\n' + SOURCE.replace("* scale", "* scale * FACTOR"))
    header.write_text("#define FACTOR 1.0f\n", encoding="utf-8")
    assert verdict(*variants(path))[0] is Status.PASS  # type: ignore[arg-type]
    header.write_text("#define FACTOR 2.0f\n", encoding="utf-8")
    assert verdict(*variants(path))[0] is Status.FAIL  # type: ignore[arg-type]


def test_a_file_must_stay_as_it_was_opened(tmp_path: Path) -> None:
    for path in (native(tmp_path), python(tmp_path)):
        candidate = open_candidate(path)
        path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
        with pytest.raises(UsageError, match="changed while it was checked"):
            candidate.variants(INSTALLED)


def test_nothing_of_a_library_runs_where_it_is_looked_at(tmp_path: Path) -> None:
    source = SOURCE + "\n#include <stdlib.h>\n__attribute__((constructor)) static void begin(void) { abort(); }\n"
    (variant,) = variants(native(tmp_path, source))
    assert variant.name == "my.f"


def test_what_is_no_library_is_told(tmp_path: Path) -> None:
    for data, told in (
        (b"", "not an ELF file"),
        (b"#!/bin/sh\n", "not an ELF file"),
        (b"\x7fELF\x01\x01" + bytes(60), "not 64-bit"),
        (Path(sys.executable).resolve().read_bytes()[:64], "not a shared library|damaged"),
    ):
        library = tmp_path / "lib.so"
        library.write_bytes(data)
        library.with_suffix(".toml").write_text(MANIFEST, encoding="utf-8")
        with pytest.raises(UsageError, match=told):
            variants(library)


@pytest.mark.parametrize("kept", [0, 100, -1])
def test_a_damaged_library_in_the_cache_is_compiled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kept: int
) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    source = native(tmp_path)
    made = compiling.compiled(source, ())
    whole = made.read_bytes()
    assert compiling.compiled(source, ()) == made
    assert not caplog.text
    made.write_bytes(whole[:kept])
    assert compiling.compiled(source, ()) == made
    assert made.read_bytes() == whole
    assert f"{made} is damaged, so it is compiled anew" in caplog.text


def test_a_full_disk_is_no_fault_of_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(BadEnvironmentError, match="No space left on device; next: free some space"):
        compiling.compiled(native(tmp_path), ())
    assert not list((tmp_path / "cache" / "native").glob("*.tmp"))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import subprocess

    folder = tmp_path_factory.mktemp("elf")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "lib.so", native(folder)], check=True)
    return folder / "lib.so"  # not its bytes: hypothesis prints what a test is given


@given(cut=st.integers(0, 1 << 15), changes=st.lists(st.tuples(st.integers(0, 63), st.integers(0, 255)), max_size=4))
def test_a_damaged_library_is_never_more_than_an_error(library: Path, cut: int, changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(library.read_bytes()[:cut])
    for at, value in changes:
        if at < len(damaged):
            damaged[at] = value
    try:
        names = exported(bytes(damaged))
    except NotALibraryError:
        return
    assert all(isinstance(name, str) for name in names)
