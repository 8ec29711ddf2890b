"""Kernels from users' Python files: those that run, and the errors for others."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from candidate_files import FUNCTION, INSTALLED, bound, python, variants, verdict
from threadpoolctl import threadpool_info, threadpool_limits

from tritmark.harness.candidate.functions import PythonFunctions
from tritmark.harness.candidate.opening import open_candidate
from tritmark.harness.candidate.python_file import PythonFile
from tritmark.harness.errors import InvalidArgumentError, UsageError
from tritmark.harness.record import Status

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
    pytest.mark.usefixtures("compiled_files"),
]


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
        ("def f(", "def f(:", "6:7", "not Python"),
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
        ("q, scale, x", "q, scale, *x", "6:18", "*x takes any arguments"),
        ("q, scale, x", "q, /, scale, x", "6:7", "before '/'"),
        ('op="i2s', '"i2s', "5:9", "a positional argument"),
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
    """A file may rebind the function's name when it runs. The function that then runs is checked."""
    (variant,) = variants(python(tmp_path, FUNCTION + "\ndef g(q, scale, x): x[...] = q * scale\nf = g\n"))
    status, reason = verdict(variant, family="uniform")
    assert status is Status.FAIL
    assert "my.g ran in place of my.f" in reason
    (gone,) = variants(python(tmp_path, FUNCTION + "\nf = 3\n"))
    with pytest.raises(UsageError, match="f is 3 after the file has run"):
        bound(gone)


def test_torch_gets_tensors_over_the_same_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch if it is installed, otherwise with a stand-in for the parts that are used."""
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
