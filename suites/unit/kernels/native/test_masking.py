"""A process that is held to a step finds the features of no higher one, whatever it asks, and all others."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tritmark.harness.advise.ladder import bare
from tritmark.harness.errors import DeviceUnavailableError
from tritmark.harness.spec import HeldTo
from tritmark.kernels.native import masking
from tritmark.kernels.native.cpu import ISAS
from tritmark.kernels.native.extensions import native

X86 = platform.machine() == "x86_64"
pytestmark = pytest.mark.skipif(not X86, reason="CPUID is x86's")
_FAULTING = pytest.mark.skipif(masking._untrapped() is not None, reason=f"CPUID does not trap: {masking._untrapped()}")
_MOUNTS = pytest.mark.skipif(shutil.which("objdump") is None, reason="no objdump")
WAYS = pytest.mark.parametrize("way", [pytest.param("traps", marks=_FAULTING), pytest.param("in place", marks=_MOUNTS)])
STEPS = masking.steps()
ASK = """
#include <cpuid.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
#include <sys/platform/x86.h>
#define LIBC(name) CPU_FEATURE_PRESENT(name) != 0
#else
#define LIBC(name) -1
#endif
static int constructed;
__attribute__((constructor)) static void begin(void) { constructed = __builtin_cpu_supports("avx2") != 0; }
static unsigned inlined(unsigned leaf)
{
    unsigned a = leaf, b, c = 0, d;
    __asm__ volatile(".byte 0x66\\n cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return b;
}
static int listed(const char *name)
{
    char line[1 << 16], wanted[64];
    int found = 0;
    FILE *file = fopen("/proc/cpuinfo", "r");
    snprintf(wanted, sizeof wanted, " %s", name);
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "flags", 5)) {
            char *at = line;
            while ((at = strstr(at, wanted)) && !strchr(" \\n", at[strlen(wanted)]))
                at++;
            found |= at != 0;
        }
    if (file)
        fclose(file);
    return found;
}
void trap(void) { __builtin_trap(); }
void ask(int *said)
{
    unsigned a, b, c, d;
    said[0] = inlined(7) >> 5 & 1;
    said[1] = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 5 & 1);
    said[2] = __builtin_cpu_supports("avx2") != 0;
    said[3] = constructed;
    said[4] = listed("avx2");
    said[5] = LIBC(AVX2);
    said[6] = __builtin_cpu_supports("avx512f") != 0;
    said[7] = listed("avx512f");
    said[8] = LIBC(AVX512F);
    said[9] = __builtin_cpu_supports("sse4.1") != 0;
    said[10] = (int)(getauxval(AT_HWCAP2) >> 1 & 1);
    said[12] = __builtin_cpu_is("haswell") ? 2 : __builtin_cpu_is("sandybridge") ? 1 : 0;
    said[13] = __builtin_cpu_is("intel") != 0;
    said[11] = getauxval(AT_HWCAP) == 0 || getauxval(AT_PAGESZ) != 4096;
}
"""
HELD = """
import ctypes, json, sys, threading
from tritmark.harness.spec import HeldTo
from tritmark.kernels.native import masking
if sys.argv[3] == "in place":
    masking._untrapped = lambda: "made up"
unmasked = masking.begin(HeldTo(sys.argv[2], (sys.argv[1],)))
library, said, other = ctypes.CDLL(sys.argv[1]), (ctypes.c_int * 14)(), (ctypes.c_int * 14)()
thread = threading.Thread(target=library.ask, args=(other,))
thread.start(), thread.join(), library.ask(said)
print(json.dumps([list(said), list(other), dict(unmasked)]))
"""


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("asking") / "asking.c"
    path.write_text(ASK)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(path.with_suffix(".so")), str(path)], check=True)
    return path.with_suffix(".so")


def held(library: Path, step: str, way: str) -> tuple[list[int], dict[str, str]]:
    done = subprocess.run(
        [sys.executable, "-c", HELD, str(library), step, way], capture_output=True, text=True, check=False
    )
    if way == "in place" and "Operation not permitted" in done.stderr:
        pytest.skip("nothing may be mounted here")
    assert done.returncode == 0, done.stderr
    first, other, unmasked = json.loads(done.stdout)
    assert first == other, "a thread finds something else"
    return first, unmasked


@WAYS
@pytest.mark.parametrize("step", STEPS)
def test_everything_that_tells_of_features_agrees(asking: Path, step: str, way: str) -> None:
    """Where CPUID traps, and where something else stands in its place in the library."""
    here = (ctypes.c_int * 14)()
    ctypes.CDLL(str(asking)).ask(here)
    said, unmasked = held(asking, step, way)
    files = {4, 7} if "/proc/cpuinfo" in unmasked else set()
    for places, feature in (((0, 1, 2, 3, 4, 5), "avx2"), ((6, 7, 8), "avx512"), ((9,), "sse41")):
        for place in set(places) - files:
            expected = 0 if feature in STEPS[step] and here[place] >= 0 else here[place]
            assert said[place] == expected, (step, feature, place)
    assert said[10] == (0 if "avx2" in STEPS[step] else here[10])
    assert said[11] == 0
    assert said[13] == here[13]
    if here[13]:  # by its model too it is a processor that has no more
        assert said[12] == {"avx2": 2, "avx": 1}.get(step, 0)
    assert unmasked.keys() - {"/proc/cpuinfo"} == ({"CPUID outside of asking.so"} if way == "in place" else set())


def test_each_set_of_the_kernels_is_a_step_with_its_features() -> None:
    """The list of bits agrees with isas.h: below a set none of what sets it apart is left. A set whose features are
    those of other steps needs none of its own."""
    bits = native("masking").steps()
    step_of = {bare(name): step for step, features in bits.items() for name, _ in features}
    sets = [isa for isa in ISAS.values() if isa.name in bits]
    assert [name for name in bits if name in ISAS] == [isa.name for isa in reversed(sets)]
    assert {step_of[bare(name)] for isa in ISAS.values() for name in isa.features} <= bits.keys()
    for isa in sets:
        steps = list(bits)[list(bits).index(isa.name) :]
        assert {step_of[bare(name)] for name in isa.features} <= {*steps}, isa.name


def test_steps_are_those_that_the_processor_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as Skylake-SP: AVX-512, and neither AMX nor AVX-VNNI."""
    bits = {"amx": [("a", False)], "avx512": [("b", True), ("c", False)], "avxvnni": [("d", False)]}
    bits |= {"avx2": [("e", True)], "scalar": []}
    monkeypatch.setattr("tritmark.kernels.native.extensions.native", lambda name: SimpleNamespace(steps=lambda: bits))
    assert masking.steps() == {"avx2": ("avx512",), "scalar": ("avx512", "avx2")}


def test_bits_agree_with_the_kernel() -> None:
    """Every bit of a feature that Linux lists here is where it says."""
    found = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    assert found is not None
    listed = set(found[1].split())
    # Linux does not list what it was told to leave alone (clearcpuid=), nor what it does not know yet.
    wrong = [name for step in native("masking").steps().values() for name, here in step if name in listed and not here]
    assert not wrong
    assert listed & {name for step in native("masking").steps().values() for name, here in step if here}


@WAYS
@pytest.mark.parametrize("enabled", ["", "import faulthandler; faulthandler.enable(2)"], ids=["plain", "faulthandler"])
@pytest.mark.parametrize(("fault", "number"), [("ctypes.string_at(8)", signal.SIGSEGV), ("trap()", signal.SIGILL)])
def test_a_fault_of_the_code_itself_is_one_still(
    asking: Path, way: str, enabled: str, fault: str, number: signal.Signals
) -> None:
    code = (
        f"{enabled}\nimport ctypes\nfrom tritmark.cython_ext import masking\nmasking.begin('sse41', {way == 'traps'})\n"
        f"trap = ctypes.CDLL({str(asking)!r}).trap\n{fault}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -number
    assert ("Fatal Python error" in done.stderr) == bool(enabled)


def test_a_process_is_held_once_and_to_a_step_that_there_is() -> None:
    code = (
        "from tritmark.cython_ext import masking\nmasking.begin('sse41', False)\n"
        "try: masking.begin('scalar', False)\nexcept OSError: print('once')\n"
        "try: masking.begin('sse5', False)\nexcept ValueError: print('unknown')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["once", "unknown"]


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can become another user; all other tests are of one then")
def test_who_may_not_mount_may_in_a_namespace_of_its_own() -> None:
    code = """
import os
import tempfile
from tritmark.harness.candidate import located
from tritmark.harness.disassembly import tools
from tritmark.harness.spec import HeldTo
from tritmark.kernels.native import masking
masking.steps(), tempfile.gettempdir()
if os.fork():
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
os.setgroups([]), os.setgid(65534), os.setuid(65534)
__import__("ctypes").CDLL(None).prctl(4, 1, 0, 0, 0)  # or /proc/self is root's
print(masking.begin(HeldTo("sse41")), os.getuid(), " avx " in open("/proc/cpuinfo").read(), flush=True)
os._exit(0)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    if "Operation not permitted" in done.stdout + done.stderr:
        pytest.skip("no namespace of users is allowed here")
    # Where CPUID does not trap, the process says that it is masked in no file.
    unmasked = {} if masking._untrapped() is None else {"CPUID outside of its files": masking._untrapped()}
    assert done.stdout.split() == f"{unmasked} 65534 False".split(), done.stderr


@pytest.mark.parametrize("traps", [True, False])
def test_where_nothing_can_be_mounted_it_is_said(monkeypatch: pytest.MonkeyPatch, traps: bool) -> None:
    class NoMounts:
        def __getattr__(self, name: str) -> Any:
            return lambda *args: ctypes.set_errno(1) or -1

    class Here:
        steps = staticmethod(native("masking").steps)
        begun: ClassVar[list[object]] = []

        @staticmethod
        def possible() -> None:
            if not traps:
                raise OSError(19, "No such device")

        @classmethod
        def begin(cls, *args: object) -> None:
            cls.begun.append(args)

    monkeypatch.setattr("ctypes.CDLL", lambda *args, **options: NoMounts())
    monkeypatch.setattr("tritmark.kernels.native.extensions.native", lambda name: Here)
    if traps:
        assert masking.begin(HeldTo("sse41")) == {
            "/proc/cpuinfo": "nothing can be mounted over it (Operation not permitted)"
        }
        assert Here.begun == [("sse41", True)]
        return
    with pytest.raises(DeviceUnavailableError, match=r"cannot be held to sse41: .*No such device.*not permitted"):
        masking.begin(HeldTo("sse41", ("/a/library.so",)))
    assert not Here.begun
