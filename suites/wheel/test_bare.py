"""An installed wheel where no compiler is in PATH: what works, and what says that it needs one.

tox -e wheel and cibuildwheel run this file. It imports nothing of the clone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

import tritmark
from tritmark.kernels import i2s_dequantize, i2s_quantize, pack_weights, ternary_matmul

HERE = Path(sys.executable).parent
COMPILERS = ("cc", "gcc", "clang", "c++", "g++", "clang++", "nvcc")
EXAMPLES = Path(__file__).parents[1] / "examples"
CORRECT = (EXAMPLES / "numpy_dequantize.py").read_text()
ENVIRONMENT, UNAVAILABLE = 6, 3


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which programs of this environment are all that PATH leads to."""
    for name in ("CC", "CXX", "CUDA_HOME", "CUDA_PATH", "TRITMARK_NVCC", "TRITMARK_CUDA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(HERE))
    monkeypatch.setenv("TRITMARK_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def ended(*words: str, status: int = 0) -> str:
    """Both outputs of a command, which must end with that status and without a traceback."""
    command = [sys.executable, "-m", "tritmark", *words]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    assert done.returncode == status, said
    return re.sub(r"\s+", " ", said)


def test_there_is_no_compiler(bare: Path) -> None:
    assert [name for name in COMPILERS if shutil.which(name)] == []


def test_the_wheel_is_what_is_tested(bare: Path) -> None:
    places = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    assert str(tritmark.__file__).startswith(places)
    assert tritmark.__version__ == version("tritmark")
    assert version("tritmark") in ended("--version")
    done = subprocess.run([str(HERE / "tritmark"), "--version"], capture_output=True, text=True, check=True)
    assert version("tritmark") in done.stdout


def test_kernels_compute_what_numpy_does(bare: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=1000).astype(np.float32)
    q = i2s_quantize(x, 0.5)
    np.testing.assert_array_equal(q, np.rint(np.clip(x / np.float32(0.5), -2, 1)).astype(np.int8))
    np.testing.assert_array_equal(i2s_dequantize(q, 0.5), q.astype(np.float32) * np.float32(0.5))
    codes = rng.integers(-1, 2, (48, 160)).astype(np.int8)
    a = rng.integers(-128, 128, (3, 160)).astype(np.int8)
    product = ternary_matmul(a, pack_weights(codes, 1.0))
    np.testing.assert_array_equal(product, a.astype(np.int64) @ codes.astype(np.int64).T)


def test_list(bare: Path) -> None:
    assert "ternary_matmul" in ended("list", "ops")


def test_run_judges_a_kernel_and_writes_a_record_and_a_report(bare: Path) -> None:
    assert "PASS" in ended("run", "--suite", "smoke", "--op", "i2s_dequantize", "--variant", "*scalar*")
    (record,) = Path("results/runs").glob("*.json")
    assert {each["accuracy"]["status"] for each in json.loads(record.read_text())["runs"]} == {"pass"}
    assert [*Path("results/html").glob("*.html")]


@pytest.mark.parametrize(
    ("source", "status"), [(CORRECT, 0), (CORRECT.replace("np.float32(scale)", "np.float32(scale * 2)"), 1)]
)
def test_check_judges_a_kernel_in_python(bare: Path, source: str, status: int) -> None:
    assert (source == CORRECT) == (status == 0)
    Path("mine.py").write_text(source)
    said = ended("check", "mine.py", "--suite", "smoke", "--dimension", "accuracy", "--json=verdict", status=status)
    assert ('"passed": true' in said) == (status == 0)


@pytest.mark.parametrize("suffix", ["c", "cpp"])
def test_check_of_c_says_what_to_install(bare: Path, suffix: str) -> None:
    ended("new", "i2s_quantize", "--kind", "c")
    source = Path("my_i2s_quantize.c").rename(f"mine.{suffix}")
    Path("my_i2s_quantize.toml").rename("mine.toml")
    said = ended("check", str(source), "--suite", "smoke", status=ENVIRONMENT)
    assert f"no compiler for .{suffix}" in said
    assert "apt install g++" in said
    with pytest.raises(RuntimeError, match="apt install g") as error:
        tritmark.check(source, suite="smoke")
    assert type(error.value).__name__ == "BadEnvironmentError"


def test_check_of_cuda_says_what_to_install(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    ended("new", "i2s_quantize", "--kind", "cu")
    said = ended("check", "my_i2s_quantize.cu", "--suite", "smoke", status=UNAVAILABLE)
    assert "the CUDA simulator needs g++; next: install g++ (Debian and Ubuntu: apt install g++)" in said


def test_selftest_of_bugs_says_what_to_install(bare: Path) -> None:
    assert "apt install g++" in ended("selftest", "--bugs", status=ENVIRONMENT)


def test_the_gate_says_what_to_install_before_it_builds(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = bare.parent / "tools"
    tools.mkdir()
    for name in ("git", "tar"):
        found = shutil.which(name, path=os.defpath)
        if found is None:
            pytest.skip(f"{name} is not installed; tox -e wheel runs this where it is")
        (tools / name).symlink_to(found)
    monkeypatch.setenv("PATH", f"{HERE}:{tools}")
    assert [name for name in COMPILERS if shutil.which(name)] == []
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run([*git, "init", "-q"], check=True)
    for text in ("first", "second"):
        Path("kernel.pyx").write_text(f"# {text}\n")
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", text], check=True)
    said = ended("gate", "HEAD~1", "HEAD", status=ENVIRONMENT)
    assert "must be compiled, and the compiler" in said
    assert "apt install g++" in said


def test_the_doctor_reports_the_compiler_as_absent(bare: Path) -> None:
    command = [sys.executable, "-m", "tritmark", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (found,) = [each for each in json.loads(done.stdout)["checks"] if each["name"] == "compiler"]
    assert found["state"] == "absent"
    assert "apt install g++" in found["mend"]
