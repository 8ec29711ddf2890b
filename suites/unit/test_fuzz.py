"""A smoke of every fuzz target of suites/fuzz: its seeds, and some mutants of them. `tox -e fuzz -- --minutes 30` is
the real thing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark import cython_ext

pytestmark = pytest.mark.long

FUZZ = Path(__file__).parents[1] / "fuzz"
sys.path.append(str(FUZZ))
mutants, native, targets = map(import_module, ("mutants", "native", "targets"))
TARGETS = {target.name: target for target in targets.targets()}
CALLS = 12
# Drivers find their op's kernels in the installed extension modules. In a process of its own: a driver that objects
# aborts.
DRIVE = """
import ctypes, importlib, pathlib, random, sys
draw = random.Random(7)
for driver, module in zip(sys.argv[2::2], sys.argv[3::2]):
    importlib.import_module("tritmark.cython_ext." + pathlib.Path(module).name.partition(".")[0])  # finds its pool
    ctypes.CDLL(module, mode=ctypes.RTLD_GLOBAL)
    one = ctypes.CDLL(driver).LLVMFuzzerTestOneInput
    for _ in range(int(sys.argv[1])):
        data = draw.randbytes(draw.randrange(64))
        assert one(data, ctypes.c_size_t(len(data))) == 0
    print(driver)
"""


@pytest.mark.parametrize("name", TARGETS)
def test_seeds(name: str) -> None:
    for seed in TARGETS[name].seeds():
        TARGETS[name].check(seed)


@given(data=st.data())
@pytest.mark.parametrize("name", TARGETS)
def test_mutants(name: str, data: st.DataObject) -> None:
    TARGETS[name].check(data.draw(mutants.mutants(TARGETS[name].seeds())))


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_native_drivers(tmp_path: Path) -> None:
    """Without sanitizers, which fuzz.py has: each driver against the kernels that are installed."""
    pairs = []
    for name in native.targets():
        source, cpu, *_ = native.sources(name)
        (module,) = Path(next(iter(cython_ext.__path__))).glob(f"{source.parent.name}.*.so")
        driver = tmp_path / f"{name}.so"
        flags = ["-std=gnu11", "-shared", "-fPIC", "-Wno-unknown-pragmas"]
        subprocess.run(["cc", *flags, "-o", driver, source, cpu], check=True)
        pairs += [str(driver), str(module)]
    done = subprocess.run(
        [sys.executable, "-c", DRIVE, str(CALLS), *pairs], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == pairs[::2]
