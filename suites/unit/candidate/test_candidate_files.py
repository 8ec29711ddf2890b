"""Kernels from users' files: what can be taken, what runs, and what is said of what cannot."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from tritmark.harness.candidate.elf import NotALibraryError, exported
from tritmark.harness.candidate.functions import PythonFunctions
from tritmark.harness.candidate.native import NativeFile
from tritmark.harness.candidate.opening import open_candidate
from tritmark.harness.candidate.python_file import PythonFile
from tritmark.harness.errors import CompileError, InvalidArgumentError, UsageError
from tritmark.harness.providers import Installed, load
from tritmark.harness.record import Status
from tritmark.harness.spec import Launch, Variant, Workload
from tritmark.harness.validate.accuracy import judge
from tritmark.harness.validate.cases import Material

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

INSTALLED = load()
MANIFEST = """\
op = "i2s_dequantize"
dtype = "float32"
function = "f"
arguments = ["q", "scale", "x", "n"]
"""
SOURCE = """
#include <stdint.h>
void f(const int8_t *q, float scale, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)q[i] * scale;
}
"""
FUNCTION = """
import numpy as np
from tritmark.harness.candidate import kernel

@kernel(op="i2s_dequantize", dtype="float32")
def f(q, scale, x):
    with np.errstate(over="ignore"):
        np.multiply(q.astype(np.float32), np.float32(scale), out=x)
"""


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITMARK_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def native(folder: Path, source: str = SOURCE, manifest: str = MANIFEST, suffix: str = ".c") -> Path:
    path = folder / f"my{suffix}"
    path.write_text(source, encoding="utf-8")
    path.with_suffix(".toml").write_text(manifest, encoding="utf-8")
    return path


def python(folder: Path, text: str = FUNCTION) -> Path:
    path = folder / "my.py"
    path.write_text(text, encoding="utf-8")
    return path


def variants(path: Path, installed: Installed = INSTALLED) -> Sequence[Variant]:
    """After a way through pickle, as to a worker."""
    return pickle.loads(pickle.dumps(open_candidate(path))).variants(installed)  # type: ignore[no-any-return]


def verdict(variant: Variant, n: int = 129, layout: str = "aligned", family: str = "extremes") -> tuple[Status, str]:
    op = INSTALLED.ops[variant.key.op]
    axes = {"n": n} if "n" in op.axes else {"M": 3, "K": n}
    cases = Material(op, Workload(op=op.name, axes=axes, family=family, layout=layout), 0).cases(variant.key)
    found = judge(op, variant, cases, axes, layout=layout, threads=1, seed=0).accuracy
    return found.status, found.reason


def bound(variant: Variant, n: int = 5) -> tuple[Launch, dict[str, Any]]:
    outputs = {"x": np.zeros(n, np.float32)}
    return variant.bind({"q": np.arange(n, dtype=np.int8), "scale": np.float32(2)}, outputs, {"n": n}, 1), outputs


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
    assert (launch.ran, launch.runs, launch.threads_used, launch.bad, launch.pointer) == ("my.f", 2, 1, -1, None)
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

    folder = resources.files("tritmark.kernels.templates")
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
    """It would else be found out when the kernel is called, as a crash of its process."""
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
    with pytest.raises(CompileError, match="no-such-compiler not found; next: install one, or set CC"):
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
        (b"", "no ELF file"),
        (b"#!/bin/sh\n", "no ELF file"),
        (b"\x7fELF\x01\x01" + bytes(60), "not 64-bit"),
        (Path(sys.executable).resolve().read_bytes()[:64], "no shared library|damaged"),
    ):
        library = tmp_path / "lib.so"
        library.write_bytes(data)
        library.with_suffix(".toml").write_text(MANIFEST, encoding="utf-8")
        with pytest.raises(UsageError, match=told):
            variants(library)


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


# --- Python
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["aligned", "unaligned"])
def test_a_function_under_the_decorator_is_a_kernel(tmp_path: Path, layout: str) -> None:
    candidate = open_candidate(python(tmp_path))
    assert isinstance(candidate, PythonFunctions)
    (variant,) = variants(tmp_path / "my.py")
    assert variant.id == "cpu/i2s_dequantize/none/float32/my.f"
    assert verdict(variant, layout=layout) == (Status.PASS, "")


def test_what_is_returned_is_copied_in(tmp_path: Path) -> None:
    text = FUNCTION.replace("scale, x)", "scale)").replace(
        "np.multiply(q.astype(np.float32), np.float32(scale), out=x)", "RETURN"
    )
    product = "q.astype(np.float32) * np.float32(scale)"
    for returned in (product, f"({product},)", f"{{'x': {product}}}"):
        (variant,) = variants(python(tmp_path, text.replace("RETURN", f"return {returned}")))
        assert verdict(variant) == (Status.PASS, "")


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        ("None", "returned as a builtins.NoneType; legal: a NumPy array"),
        ("[]", "0 values; legal: 1: x"),
        ("(q, q)", "2 values; legal: 1: x"),
        ("{'y': q}", "a dict of y; legal: x"),
        ("3.5", "returned as a builtins.float"),
        ("(i for i in q)", "returned as a builtins.generator"),
        ("np.ma.array(q)", "returned as a numpy.ma.MaskedArray"),
        ("q.astype(np.float64)", "returned as float64 of shape (5,); legal: float32 of shape (5,)"),
        ("q.astype(np.float32)[:3]", "returned as float32 of shape (3,); legal: float32 of shape (5,)"),
        ("q.astype(np.float32).reshape(1, 5)", "of shape (1, 5)"),
    ],
)
def test_what_is_no_such_array_is_told(tmp_path: Path, returned: str, told: str) -> None:
    text = FUNCTION.replace("scale, x)", "scale)").replace(
        "np.multiply(q.astype(np.float32), np.float32(scale), out=x)", f"return {returned}"
    )
    launch, _ = bound(*variants(python(tmp_path, text)))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError) as caught:
        launch.run()
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "at", "told"),
    [
        ("def f(", "def f(:", "6:7", "no Python"),
        ('"i2s_dequantize"', '"i2s_dequantise"', "5:12", "unknown op 'i2s_dequantise'; did you mean 'i2s_dequantize'?"),
        ('dtype="float32"', 'dtype="float23"', "5:36", "no output dtype 'float23'; did you mean 'float32'?"),
        ('dtype="float32"', "dtype=np.float32", "5:36", "dtype is computed"),
        ('dtype="float32"', "dtype=32", "5:36", "dtype is 32; legal: a string"),
        (', dtype="float32"', "", "5:2", "dtype is missing"),
        ('dtype="float32"', 'dtype="float32", formt="none"', "5:53", "unknown key 'formt'; did you mean 'format'?"),
        ('dtype="float32"', 'dtype="float32", format="tile"', "5:54", "no format 'tile'"),
        (
            'dtype="float32"',
            'dtype="float32", framework="pytorch"',
            "5:57",
            "unknown framework 'pytorch'; did you mean 'torch'?",
        ),
        ('dtype="float32"', 'dtype="float32", device="gpu"', "5:54", "unknown device 'gpu'"),
        ('dtype="float32"', 'dtype="float32", max={"N": 4}', "5:51", "no axis 'N'"),
        ('dtype="float32"', 'dtype="float32", min=4', "5:51", "min is 4; legal: a dict"),
        ('dtype="float32"', 'dtype="float32", alignment=3', "5:57", "a power of two"),
        ('dtype="float32"', 'dtype="float32", workspace=-1', "5:57", "bytes, as a number or an expression"),
        ('dtype="float32"', 'dtype="float32", workspace="4 * m"', "5:57", "unknown name 'm'"),
        ("q, scale, x", "q, scales, x", "6:10", "unknown parameter 'scales'; did you mean 'scale'?"),
        ("q, scale, x", "q, scale, *x", "6:18", "*x takes whatever comes"),
        ("q, scale, x", "q, /, scale, x", "6:7", "before '/'"),
        ('op="i2s', '"i2s', "5:9", "a value without a name"),
    ],
)
def test_a_decorators_error_has_line_and_column(tmp_path: Path, old: str, new: str, at: str, told: str) -> None:
    assert old in FUNCTION
    path = python(tmp_path, FUNCTION.replace(old, new))
    with pytest.raises(UsageError) as caught:
        variants(path)
    assert str(caught.value).startswith(f"{path}:{at}: "), caught.value
    assert told in str(caught.value)


def test_the_decorator_is_known_by_any_name(tmp_path: Path) -> None:
    for line, name in (
        ("import tritmark.harness.candidate", "tritmark.harness.candidate.kernel"),
        ("from tritmark.harness import candidate as mine", "mine.kernel"),
        ("from tritmark.harness.candidate import kernel as k", "k"),
    ):
        text = FUNCTION.replace("from tritmark.harness.candidate import kernel", line).replace("@kernel", f"@{name}")
        assert verdict(*variants(python(tmp_path, text)))[0] is Status.PASS  # type: ignore[arg-type]


def test_nothing_of_a_python_file_runs_before_it_is_bound(tmp_path: Path) -> None:
    path = python(tmp_path, FUNCTION + f"\nopen({str(tmp_path / 'ran')!r}, 'w').close()\n")
    (variant,) = variants(path)
    assert not (tmp_path / "ran").exists()
    bound(variant)
    assert (tmp_path / "ran").exists()


def test_a_file_that_cannot_be_run_is_told_when_it_is(tmp_path: Path) -> None:
    (variant,) = variants(python(tmp_path, FUNCTION + "\n1 / 0\n"))
    with pytest.raises(UsageError, match="cannot be run: ZeroDivisionError"):
        bound(variant)


def test_another_function_under_the_name_is_told(tmp_path: Path) -> None:
    """What the file does with the name once it runs is its own affair; what then runs is not."""
    (variant,) = variants(python(tmp_path, FUNCTION + "\ndef g(q, scale, x): x[...] = q * scale\nf = g\n"))
    status, reason = verdict(variant, family="uniform")
    assert status is Status.FAIL
    assert "my.g ran in place of my.f" in reason
    (gone,) = variants(python(tmp_path, FUNCTION + "\nf = 3\n"))
    with pytest.raises(UsageError, match="f is 3 once the file has run"):
        bound(gone)


def test_torch_gets_tensors_over_the_same_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch where it is installed, or else with a stand-in that has what is used of it."""
    try:
        import torch
    except ImportError:
        torch = _stand_in()
        monkeypatch.setitem(sys.modules, "torch", torch)
    text = FUNCTION.replace('"float32")', '"float32", framework="torch")').replace(
        "import numpy as np", "import numpy as np\nimport torch"
    )
    body = text.split("    with")[0]
    (variant,) = variants(
        python(
            tmp_path,
            body + "    assert type(q) is torch.Tensor and type(x) is torch.Tensor\n    x[...] = q * float(scale)\n",
        )
    )
    launch, outputs = bound(variant)
    launch.run()
    np.testing.assert_array_equal(outputs["x"], [0, 2, 4, 6, 8])
    (lazy,) = variants(python(tmp_path, body.replace(", x)", ")") + "    return np.zeros(5, np.float32)\n"))
    launch, _ = bound(lazy)
    with pytest.raises(InvalidArgumentError, match=r"returned as a numpy.ndarray; legal: a torch.Tensor"):
        launch.run()


def _stand_in() -> ModuleType:
    class Tensor:
        def __init__(self, array: Any) -> None:
            self.array = array

        def __mul__(self, other: float) -> Any:
            return self.array * other

        def __setitem__(self, at: Any, value: Any) -> None:
            self.array[at] = value

    torch: Any = ModuleType("torch")
    torch.Tensor = Tensor
    torch.from_dlpack = Tensor
    torch.set_num_threads = lambda threads: None
    found: ModuleType = torch
    return found


def test_a_framework_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    (variant,) = variants(python(tmp_path, FUNCTION.replace('"float32")', '"float32", framework="cupy")')))
    with pytest.raises(UsageError, match=r"cupy cannot be imported.*pip install cupy"):
        bound(variant)


@pytest.mark.parametrize(("parameters", "expected"), [("q, scale, x", 1), ("q, scale, x, threads", 2)])
def test_products_of_numpy_take_the_threads_that_a_function_may_use(
    tmp_path: Path, parameters: str, expected: int
) -> None:
    (variant,) = variants(python(tmp_path, FUNCTION.replace("q, scale, x)", f"{parameters})", 1)))
    inputs = {"q": np.zeros(5, np.int8), "scale": np.float32(1)}
    with threadpool_limits(3, user_api="blas"):
        launch = variant.bind(inputs, {"x": np.zeros(5, np.float32)}, {"n": 5}, 2)
        assert launch.threads_used == expected
        assert {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"} == {expected}


def test_bfloat16_and_float16_reach_functions(tmp_path: Path) -> None:
    text = """
import numpy as np
from tritmark.harness.candidate import kernel

@kernel(op="float_widen", format="{0}", dtype="float32")
def f(h):
    assert h.dtype.name == "{0}"
    return h.astype(np.float32)
"""
    for dtype in ("float16", "bfloat16"):
        (variant,) = variants(python(tmp_path, text.format(dtype)))
        assert verdict(variant, family="normal") == (Status.PASS, "")


def test_variants_of_their_own_are_taken_too(tmp_path: Path) -> None:
    path = python(tmp_path, "VARIANTS = 3\n")
    candidate = open_candidate(path)
    assert isinstance(candidate, PythonFile)
    with pytest.raises(UsageError, match="VARIANTS is 3"):
        candidate.variants(INSTALLED)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("my.c", None, "no such file"),
        ("my.rs", "", "ends in '.rs'"),
        ("my", "", "ends in 'nothing'"),
        ("my.cpu", "", "did you mean '.cu'?"),
        ("my.c", "", "my.toml: no such file; legal: a manifest"),
        ("my.py", "x = 1", "holds no kernel"),
        ("my.py", "\udcff", "not UTF-8"),
        ("my.py", "x" * (1 << 21), "over 1048576 bytes"),
    ],
)
def test_a_file_that_cannot_be_taken_is_told(tmp_path: Path, name: str, text: str | None, told: str) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_bytes(os.fsencode(text))
    with pytest.raises(UsageError) as caught:
        open_candidate(path)
    assert told in str(caught.value)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "my.c").mkdir()
    with pytest.raises(UsageError, match="is no file"):
        open_candidate(tmp_path / "my.c")


def test_candidates_are_loaded_beside_what_is_installed(tmp_path: Path) -> None:
    candidate = open_candidate(native(tmp_path))
    assert isinstance(candidate, NativeFile)
    installed = load((candidate,))
    assert "cpu/i2s_dequantize/none/float32/my.f" in {variant.id for variant in installed.registry.variants}
    best = installed.registry.select_best(installed.keys("i2s_dequantize")[0], {"n": 5})
    assert best.name != "my.f"
