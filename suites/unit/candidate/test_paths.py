"""A candidate with paths for other processors is judged on these paths too; for other candidates, nothing more runs."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from candidate_files import FUNCTION, INSTALLED, MANIFEST, SOURCE, native, python
from dispatchers import OFF_BY_ONE, WAYS, dispatcher

from tritmark.harness.candidate.native import NativeFile
from tritmark.harness.candidate.opening import open_candidate
from tritmark.harness.disassembly import linked
from tritmark.harness.judge.judges import Limits, Task, judged
from tritmark.harness.judge.judging import Judging, ListedWorkload
from tritmark.harness.providers import Candidate, load
from tritmark.harness.record import Accuracy, Status
from tritmark.harness.spec import CodeFile, HeldTo, KernelKey, Workload
from tritmark.harness.validate.accuracy import Judged
from tritmark.harness.validate.drawn import Draw
from tritmark.harness.worker import Workers, process
from tritmark.kernels.native import masking

KEY = KernelKey("cpu", "i2s_dequantize", "none", "float32")
SMALL = Workload(op="i2s_dequantize", axes={"n": 1001}, family="uniform")
CPU = INSTALLED.registry.devices["cpu"]
assert CPU.masking is not None
MISSING = CPU.masking.missing()
STEPS = CPU.masking.steps()
TRAPPED = masking._untrapped()
TOOLS = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
    pytest.mark.skipif(shutil.which("objdump") is None, reason="no objdump"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86-64"),
]
pytestmark = [*TOOLS, pytest.mark.usefixtures("compiled_files"), pytest.mark.long]
MASKED = pytest.mark.skipif(
    MISSING is not None or "avx" not in STEPS, reason=f"no lower set can be forced: {MISSING or 'no AVX2'}"
)
PORTABLE = f'{MANIFEST}options = ["-O2", "-ffp-contract=fast"]\n'
EACH = pytest.mark.parametrize("way", WAYS)


def opened(path: Path) -> Candidate:
    found = open_candidate(path)
    return found.compiled(INSTALLED) if isinstance(found, NativeFile) else found


def verdict(path: Path, *, isolated: bool = True, dimensions: frozenset[str] = frozenset({"accuracy"})) -> Accuracy:
    """The accuracy as `tritmark check` judges a listed workload."""
    candidate = opened(path)
    installed = load((candidate,))
    (variant,) = candidate.variants(installed)
    with Workers(installed, (candidate,), isolated=isolated, timeout_s=60.0, memory_bytes=2 << 30) as workers:
        return Judging(workers, ListedWorkload(KEY, SMALL, 7, 1, dimensions)).judge(variant).accuracy


def buildable(way: str) -> None:
    if way == "libc" and not Path("/usr/include/x86_64-linux-gnu/sys/platform/x86.h").exists():
        pytest.skip("no <sys/platform/x86.h> (glibc 2.33 or newer)")


@MASKED
@EACH
def test_an_honest_dispatcher_passes_on_all_its_paths(tmp_path: Path, way: str) -> None:
    buildable(way)
    found = verdict(native(tmp_path, dispatcher(way), PORTABLE))
    assert found.status is Status.PASS, found.reason
    assert found.held_to == tuple(STEPS)
    limit, *_ = found.limits
    assert f"no more than {', '.join(STEPS)}" in limit
    assert "other vendors and models were not tested" in limit


@MASKED
@EACH
def test_a_wrong_path_for_less_fails_and_the_set_is_named(tmp_path: Path, way: str) -> None:
    buildable(way)
    found = verdict(native(tmp_path, dispatcher(way, plain=OFF_BY_ONE), PORTABLE))
    assert found.status is Status.FAIL, found.limits
    assert found.caught_by == ("values",)
    assert f"on a processor with no more than avx (without {' and '.join(STEPS['avx'])})" in found.reason


@MASKED
@pytest.mark.skipif("avx512f" not in CPU.features(), reason="no AVX-512, so AVX2 is the path taken anyway")
@pytest.mark.parametrize("way", ["builtin", "ifunc", "cpuinfo"])
def test_a_wrong_path_in_the_middle_fails(tmp_path: Path, way: str) -> None:
    buildable(way)
    found = verdict(native(tmp_path, dispatcher(way, avx2=OFF_BY_ONE), PORTABLE))
    assert found.status is Status.FAIL, found.limits
    step = next((step for step, above in STEPS.items() if "avx512" in above), "avx2")
    assert f"on a processor with no more than {step} (without" in found.reason


@pytest.mark.nightly
@MASKED
def test_drawn_cases_are_judged_there_too(tmp_path: Path) -> None:
    """A fault for some sizes only, detected in the judges' processes."""
    rare = "if (n % 8 == 5 && n > 40) x[n - 1] += 1"
    found = {}
    for name, fault in (("honest", ""), ("wrong", rare)):
        folder = tmp_path / name
        folder.mkdir()
        candidate = opened(native(folder, dispatcher("builtin", plain=fault)))
        installed = load((candidate,))
        (variant,) = candidate.variants(installed)
        limits = Limits((candidate,), True, 60.0, 4 << 30)
        ((_, _, one),) = judged(installed, [Task((variant.id,), Draw(KEY, 40, (), 7, 2))], limits)
        assert isinstance(one, Judged)
        found[name] = one.accuracy
    assert found["honest"].status is Status.PASS
    assert found["honest"].held_to == tuple(STEPS)
    assert found["wrong"].status is Status.FAIL
    assert "on a processor with no more than avx (without" in found["wrong"].reason
    assert "with --seed 7" in found["wrong"].reason


@pytest.mark.nightly
@MASKED
def test_a_crash_on_another_path_is_one(tmp_path: Path) -> None:
    found = verdict(native(tmp_path, dispatcher("builtin", plain="*(volatile int *)8 = 1")))
    assert found.status is Status.ERROR
    assert found.caught_by == ("crash",)
    assert "SIGSEGV" in found.reason
    assert "no more than avx (" in found.reason


@pytest.mark.nightly
@MASKED
@pytest.mark.parametrize("end", ["abort()", "exit(3)"])
def test_one_that_needs_a_feature_and_says_so_is_not_wrong(tmp_path: Path, end: str) -> None:
    found = verdict(native(tmp_path, dispatcher("builtin", plain=end)))
    assert found.status is Status.PASS, found.reason
    assert found.held_to == tuple(step for step in STEPS if "avx2" not in STEPS[step])
    refused = [limit for limit in found.limits if "it does not run" in limit]
    assert len(refused) == len(STEPS) - len(found.held_to)


@MASKED
@pytest.mark.skipif(TRAPPED is not None, reason=f"in code out of sight CPUID has to trap: {TRAPPED}")
def test_what_is_loaded_out_of_sight_is_held_too(tmp_path: Path) -> None:
    """A Python file whose library queries the processor on import, and a library that is opened at the first call."""
    inner = native(tmp_path, dispatcher("constructor", plain=OFF_BY_ONE), PORTABLE)
    library = opened(inner).library  # type: ignore[attr-defined]
    loads = FUNCTION.replace("@kernel", f"import ctypes\nF = ctypes.CDLL({library!r}).f\n@kernel")
    pointers = "ctypes.c_void_p(q.ctypes.data), ctypes.c_float(scale), ctypes.c_void_p(x.ctypes.data)"
    call = f"F({pointers}, ctypes.c_int64(q.size))"
    body = loads.replace("        np.multiply(q.astype(np.float32), np.float32(scale), out=x)", f"        {call}")
    found = verdict(python(tmp_path, body))
    assert found.status is Status.FAIL, found.limits
    assert "no more than avx (" in found.reason
    opens = f"""
#include <dlfcn.h>
#include <stdint.h>
void f(const int8_t *q, float scale, float *x, int64_t n)
{{
    static void (*g)(const int8_t *, float, float *, int64_t);
    if (!g) *(void **)&g = dlsym(dlopen("{library}", RTLD_NOW), "f");
    g(q, scale, x, n);
}}
"""
    folder = tmp_path / "opens"
    folder.mkdir()
    found = verdict(native(folder, opens))
    assert found.status is Status.FAIL, found.limits
    assert "no more than avx (" in found.reason


IN_PLACE = """
import sys
from pathlib import Path
import numpy as np
from tritmark.harness.candidate.opening import open_candidate
from tritmark.harness.spec import HeldTo
from tritmark.harness.worker.site import site
from tritmark.kernels.native import masking
masking._untrapped = lambda: "made up"
source, library, step = sys.argv[1:]
candidate = open_candidate(Path(source))
there = site((candidate,), f"cpu/i2s_dequantize/none/float32/{Path(source).stem}.f", HeldTo(step, (library,)))
q, x = np.ones(40, np.int8), np.zeros(40, np.float32)
launch = there.variant.bind({"q": q, "scale": np.float32(2)}, {"x": x}, {"n": 40}, 1)
launch.run()
print(there.variant.code_hash, launch.ran, x[-1], *there.kept.values())
"""


@pytest.mark.nightly
@MASKED
@pytest.mark.parametrize("kind", [".c", ".so"])
def test_where_cpuid_does_not_trap_its_stand_in_does(tmp_path: Path, kind: str) -> None:
    """The changed file counts as the original and takes the path of the step; other processes see the original."""
    source = native(tmp_path, dispatcher("constructor", plain=OFF_BY_ONE))
    candidate = opened(source)
    assert isinstance(candidate, NativeFile)
    library = Path(candidate.library)
    if kind == ".so":
        library = source = Path(shutil.copy(library, tmp_path / "my.so"))
    before = library.read_bytes()
    # The dispatcher's better path is AVX2, which the highest step has only on a processor with more.
    first = next(iter(STEPS))
    for step, last in (("avx", "3.0"), (first, "3.0" if "avx2" in STEPS[first] else "2.0")):
        command = [sys.executable, "-c", IN_PLACE, str(source), str(library), step]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if "Operation not permitted" in done.stderr:
            pytest.skip("nothing may be mounted here")
        assert done.returncode == 0, done.stderr
        code, ran, value, rest = done.stdout.split(maxsplit=3)
        assert (code, ran, value) == (sha256(before).hexdigest(), "my.f", last)
        assert f"CPUID outside of {library.name}" in rest
    assert library.read_bytes() == before


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[HeldTo | None]:
    """The steps to which new processes are limited."""
    found: list[HeldTo | None] = []
    real = process.WorkerProcess.__init__

    def begin(self: Any, *args: Any, held_to: HeldTo | None = None, **options: Any) -> None:
        found.append(held_to)
        real(self, *args, held_to=held_to, **options)

    monkeypatch.setattr(process.WorkerProcess, "__init__", begin)
    return found


def test_what_does_not_ask_begins_no_further_process(tmp_path: Path, begun: list[HeldTo | None]) -> None:
    plain = verdict(native(tmp_path, SOURCE))
    assert plain.status is Status.PASS
    assert plain.held_to == ()
    other = verdict(
        python(tmp_path, FUNCTION.replace("    with np", "    import os; os.environ.get('A')\n    with np"))
    )
    assert other.status is Status.PASS
    assert begun == [None, None]


@pytest.mark.nightly
def test_what_is_wrong_here_is_judged_nowhere_else(tmp_path: Path, begun: list[HeldTo | None]) -> None:
    wrong = "if (n > 16) x[n - 1] += 1;\n}\nvoid g(void) {"
    text = dispatcher("builtin").replace("(q, scale, x, n);\n}", f"(q, scale, x, n);\n{wrong}}}")
    assert verdict(native(tmp_path, text)).status is Status.FAIL
    assert set(begun) == {None}


@pytest.mark.nightly
def test_why_nothing_was_forced_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = verdict(native(tmp_path, dispatcher("builtin")), isolated=False)
    assert here.status is Status.PASS
    assert here.held_to == ()
    assert any("were not judged: it had no process of its own" in limit for limit in here.limits)
    monkeypatch.setattr("tritmark.kernels.native.extensions.native", lambda name: SimpleNamespace(steps=dict))
    found = verdict(native(tmp_path, dispatcher("builtin")))
    assert found.status is Status.PASS
    assert found.held_to == ()
    assert any("were not judged: the features of x86-64 alone can be masked" in each for each in found.limits)


def test_the_files_of_a_candidate_are_those_that_it_is_linked_with(tmp_path: Path) -> None:
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", tmp_path / "libinner.so"], input=b"int g;", check=True
    )
    linked_with = ["-Wl,--no-as-needed", f"-L{tmp_path}", "-l:libinner.so", "-Wl,-rpath,$ORIGIN", "-lm"]
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-x", "c", "-", *linked_with, "-o", tmp_path / "outer.so"],
        input=b"int f(void) { return 1; }",
        check=True,
    )
    file = CodeFile(kind="native", name="outer", entries=("f",), target="", path=str(tmp_path / "outer.so"))
    assert {Path(each).name for each in linked(file)} == {"outer.so", "libinner.so"}
    assert linked(CodeFile(kind="python", name="f", entries=("f",), target="", path="f.py")) == ()
