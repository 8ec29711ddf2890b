"""The package tritmark itself: its version, its parts, `python -m tritmark`, and parts that others bring."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import tritmark

pytestmark = pytest.mark.interpreter


def told(code: str, *folders: Path) -> str:
    """What a fresh Python prints that finds these folders before the installation."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    path = os.pathsep.join(map(str, folders))
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**kept, **({"PYTHONPATH": path} if path else {})},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def part(folder: Path, name: str, text: str) -> Path:
    """A folder as a distribution leaves it that brings a part of tritmark, and no `__init__.py` of tritmark."""
    package = folder / "tritmark" / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(text)
    return folder


def test_the_version_is_that_of_the_distribution() -> None:
    assert tritmark.__version__ == version("tritmark")


def test_parts_are_there_after_import_tritmark() -> None:
    code = "import tritmark\nprint(tritmark.kernels.ternary_matmul.__name__, tritmark.harness.errors.__name__)"
    assert told(code) == "ternary_matmul tritmark.harness.errors"


def test_import_tritmark_imports_no_part() -> None:
    code = "import sys, tritmark\nprint([each for each in sys.modules if each.startswith('tritmark.')])"
    assert told(code) == "[]"


def test_import_of_kernels_leaves_out_what_its_functions_need_later_or_never() -> None:
    loaded = set(told("import sys, tritmark.kernels\nprint(*sys.modules)").split())
    assert not loaded & {"importlib.metadata", "email", "subprocess", "pydantic", "scipy", "gguf", "onnx"}
    own = {each.removeprefix("tritmark.") for each in loaded if each.startswith("tritmark.")}
    late = ("kernels.peers", "kernels.provider", "kernels.linear", "kernels.spreading")
    elsewhere = ("harness.weights.source", "harness.record", "harness.machine.gpu")
    assert not [each for each in own if each.startswith((*late, *elsewhere))]
    assert {each for each in own if each.startswith("kernels.cuda")} == {"kernels.cuda", "kernels.cuda.device_type"}
    assert len(own) < 185, "113 fewer than with the GPU, variants and peers"


def test_each_public_name_is_listed_before_its_first_use_and_is_there() -> None:
    code = (
        "import tritmark.kernels as k\nlisted = set(dir(k))\nlate = [each for each in k.__all__ if each not in vars(k)]"
    )
    code += "\nprint(sorted(set(k.__all__) - listed), [each for each in k.__all__ if getattr(k, each) is None], *late)"
    missing, none, *late = told(code).split()
    assert (missing, none) == ("[]", "[]")
    assert {"MemoryHealth", "QuantizedLinear", "spread", "warm_up"} <= set(late)


@pytest.mark.timing
@pytest.mark.nightly
def test_import_of_kernels_takes_less_than_a_third_of_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU seconds of a whole process with compiled bytecode, as after pip. The least of several: other processes
    cannot add to them."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))

    def cpu_s() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        told("import tritmark.kernels")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    taken = [cpu_s() for _ in range(8)]
    assert min(taken) < 0.35, taken


def test_what_kernels_bring_to_the_harness_is_there_at_its_first_use() -> None:
    code = "import tritmark.kernels as k\nprint(k.OPS is k.PROVIDER.ops, 'PROVIDER' in vars(k))"
    assert told(code) == "True True"
    with pytest.raises(AttributeError, match="no attribute 'PROVIDERS'"):
        _ = tritmark.kernels.PROVIDERS


def test_what_is_not_there_is_an_attribute_error_that_names_the_parts() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'kernel'; its parts are .*harness, kernels, .*torch"):
        _ = tritmark.kernel
    assert not hasattr(tritmark, "_kernels")
    assert {"__version__", "check", "kernels", "monitor", "sweep", "torch"} <= set(dir(tritmark))


@pytest.mark.parametrize(("arguments", "status"), [(["--version"], 0), (["frame", "--to", "parquet"], 2)])
def test_the_command_line_is_a_module(arguments: list[str], status: int) -> None:
    done = subprocess.run([sys.executable, "-m", "tritmark", *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, "tritmark" in done.stdout + done.stderr) == (status, True)


def test_another_distribution_may_bring_a_part(tmp_path: Path) -> None:
    found = part(tmp_path, "made_up_part", "from tritmark.harness.errors import UsageError\nHERE = True")
    assert told("import tritmark.made_up_part as m\nprint(m.HERE, m.UsageError.__name__)", found) == "True UsageError"
    assert told("import tritmark\nprint(tritmark.made_up_part.HERE)", found) == "True"


@pytest.mark.parametrize("whole", [False, True], ids=["a build of before the package", "a build of today"])
def test_of_two_installations_the_first_in_the_path_is_used(tmp_path: Path, whole: bool) -> None:
    first = part(tmp_path, "kernels", "FIRST = True")
    if whole:
        assert tritmark.__file__ is not None
        shutil.copy(tritmark.__file__, first / "tritmark")
    assert told("import tritmark\nprint(tritmark.kernels.FIRST)", first) == "True"
