"""Code that queries its processor at run time is detected, for every kind of query; other code is not."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from candidate_files import FUNCTION, INSTALLED, python, variants

from tritmark.harness.disassembly import asks, of_features, tools
from tritmark.harness.judge.limits import accuracy_limits
from tritmark.harness.record import Accuracy, Status
from tritmark.harness.spec import CodeFile

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
    pytest.mark.skipif(shutil.which("objdump") is None, reason="no objdump"),
]
X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86-64")

KERNEL = """
#include <stdint.h>
%s
void f(const int8_t *q, float scale, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = (%s) ? (float)q[i] * scale : 0.0f;
}
"""
ASKING = {
    "cpuid": (
        'static int has(void) { unsigned a = 7, b, c = 0, d; __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), '
        '"=d"(d)); return b >> 5 & 1; }',
        "has()",
        "cpuid",
    ),
    "xgetbv": (
        'static int has(void) { unsigned a, d; __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0)); return a & 4; }',
        "has()",
        "xgetbv",
    ),
    "builtin": ("", '__builtin_cpu_supports("avx2")', "cpuid"),
    "constructor": (
        'static int k; __attribute__((constructor)) static void begin(void) { k = __builtin_cpu_supports("avx2"); }',
        "k",
        "cpuid",
    ),
    "clones": ('__attribute__((target_clones("avx2", "default"))) int has(void) { return 1; }', "has()", "indirect"),
    "getauxval": ("#include <sys/auxv.h>", "getauxval(16)", "getauxval"),
    "libc": (
        "extern const void *__x86_get_cpuid_feature_leaf(unsigned);",
        "__x86_get_cpuid_feature_leaf(1) != 0",
        "__x86_get_cpuid_feature_leaf",
    ),
    "cpuinfo": (
        '#include <stdio.h>\nstatic int has(void) { FILE *f = fopen("/proc/cpuinfo", "r"); return f && !fclose(f); }',
        "has()",
        "/proc/cpuinfo",
    ),
    "getenv": ("#include <stdlib.h>", 'getenv("KERNEL_PATH") == 0', "getenv"),
    "process": ("#include <unistd.h>", "getpid() % 2 == 0", "getpid"),
    "moment": ("#include <time.h>", "time(0) > 0", "time"),
    "maps": (
        '#include <stdio.h>\nstatic int has(void) { FILE *f = fopen("/proc/self/maps", "r"); return f && !fclose(f); }',
        "has()",
        "/proc/self/maps",
    ),
    "dlsym": ("#include <dlfcn.h>", 'dlsym(0, "cblas_sgemm") != 0', "dlsym"),
    "dlopen": ("#include <dlfcn.h>", 'dlopen("libfast.so", 1) != 0', "dlopen"),
}


def built(folder: Path, name: str, source: str, *options: str) -> CodeFile:
    path = folder / f"{name}.so"
    path.with_suffix(".c").write_text(source)
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(path), str(path.with_suffix(".c")), *options]
    subprocess.run(command, check=True, capture_output=True)
    return CodeFile(kind="native", name=path.name, entries=("f",), target="", path=str(path))


@X86
@pytest.mark.parametrize("stripped", [False, True])
@pytest.mark.parametrize("name", ASKING)
def test_what_asks_is_found(tmp_path: Path, name: str, stripped: bool) -> None:
    declared, expression, said = ASKING[name]
    file = built(tmp_path, name, KERNEL % (declared, expression), *(["-s"] if stripped else []))
    found = asks(file)
    assert any(said in each for each in found) or (name == "clones" and "cpuid" in found), found
    # dlopen: of code that was not examined
    assert bool(of_features(found)) == (name not in {"getenv", "xgetbv", "process", "moment", "maps"}), found


def test_what_asks_for_features_is_told_before_the_rest(tmp_path: Path) -> None:
    """Only a few findings of a file are reported, and they decide whether other paths are judged."""
    others = "#include <unistd.h>\n#include <stdlib.h>\n#include <sched.h>\n#include <sys/utsname.h>\n"
    asked = 'getenv("A") || sched_getcpu() || uname(0) || gethostname(0, 0)'
    file = built(
        tmp_path, "many", "#define _GNU_SOURCE\n" + KERNEL % (f"{others}{ASKING['cpuinfo'][0]}", f"has() || {asked}")
    )
    assert of_features(asks(file)) == ("/proc/cpuinfo",)
    path = python(tmp_path, "import os, platform\nos.environ, os.uname, platform.processor, open('/proc/cpuinfo')\n")
    script = CodeFile(kind="python", name="my.py", entries=("f",), target="", path=str(path))
    assert of_features(asks(script)) == ("/proc/cpuinfo",)


@pytest.mark.parametrize("found", ["__cpu_features__", "__cpu_dispatch__", "get_cpu_info", "xgetbv", "sched_getcpu"])
def test_what_cannot_be_masked_is_no_reason_to_try(found: str) -> None:
    assert of_features((found, "getenv")) == ()


def test_what_does_not_ask_is_not_accused(tmp_path: Path) -> None:
    own = "#include <math.h>\n#include <stdlib.h>\n__attribute__((noinline)) int time(int x) { return x; }"
    plain = built(tmp_path, "plain", KERNEL % (own, "fabsf(scale) >= time(0)"), "-lm")
    assert asks(plain) == ()


@X86
def test_a_library_beside_it_is_looked_at(tmp_path: Path) -> None:
    built(tmp_path, "libfast", 'int has(void) { return __builtin_cpu_supports("avx2") != 0; }')
    linked = [f"-L{tmp_path}", "-l:libfast.so", "-Wl,-rpath,$ORIGIN"]
    file = built(tmp_path, "user", KERNEL % ("int has(void);", "has()"), *linked)
    assert any("cpuid in libfast.so" in each for each in asks(file))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = Path(shutil.move(file.path, elsewhere))
    found = asks(CodeFile(kind="native", name="user.so", entries=("f",), target="", path=str(moved)))
    assert found == ("libfast.so, whose code was not examined",)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("open('/proc/cpuinfo').read()", "/proc/cpuinfo"),
        ("from cpuinfo import get_cpu_info", "cpuinfo"),
        ("import os; os.environ.get('KERNEL_PATH')", "os.environ"),
        ("import platform; platform.processor()", "platform.processor"),
        ("import os; os.getpid()", "os.getpid"),
        ("import time; time.time()", "time.time"),
        ("np._core._multiarray_umath.__cpu_features__['AVX2']", "__cpu_features__"),
        ("import ctypes; ctypes.CDLL('libfast.so')", "CDLL"),
    ],
)
def test_a_python_file_that_asks_is_found(tmp_path: Path, line: str, said: str) -> None:
    text = FUNCTION.replace("    with np", f"    if False: {line}\n    with np")
    (variant,) = variants(python(tmp_path, text))
    (limit,) = accuracy_limits(
        Accuracy(status=Status.PASS), INSTALLED.ops["i2s_dequantize"], variant, INSTALLED.registry.devices["cpu"]
    )
    assert said in limit
    assert "other paths were not judged" in limit
    assert all(each in limit for each in INSTALLED.registry.devices["cpu"].features())


def test_the_limit_is_that_of_what_was_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (variant,) = variants(python(tmp_path))
    op, device = INSTALLED.ops["i2s_dequantize"], INSTALLED.registry.devices["cpu"]
    passed = Accuracy(status=Status.PASS)
    assert accuracy_limits(passed, op, variant, device) == ()
    quantize = INSTALLED.ops["i2s_quantize"]
    (limit,) = accuracy_limits(passed, quantize, variant, device)
    assert "NaN or infinity in x was not tested" in limit
    assert accuracy_limits(passed.model_copy(update={"guards": ("nonfinite",)}), quantize, variant, device) == ()
    left_out = Accuracy(status=Status.NOT_RUN, reason="not requested")
    assert accuracy_limits(left_out, quantize, variant, device) == ()
    own = next(each for each in INSTALLED.registry.variants if each.id == "cpu/i2s_dequantize/none/float32/scalar")
    assert accuracy_limits(passed, op, own, device) == ()


def test_without_a_tool_it_is_said_to_be_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    file = built(tmp_path, "plain", KERNEL % ("", "1"))
    (variant,) = variants(python(tmp_path))
    native = replace(variant, code=lambda target, binaries: (file,))

    def missing(tool: str) -> Path:
        raise tools.ToolError(f"{tool} was not found; next: {tools.NEXT[tool]}")

    monkeypatch.setattr(tools, "find", missing)
    (limit,) = accuracy_limits(
        Accuracy(status=Status.PASS), INSTALLED.ops["i2s_dequantize"], native, INSTALLED.registry.devices["cpu"]
    )
    assert "takes other paths elsewhere: objdump was not found; next: install binutils" in limit
