"""The pytest plugin, by pytest runs in a project of their own."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.long

MODULE = "tritmark.harness.pytest_plugin"
LOADED = () if any(each.value == MODULE for each in entry_points(group="pytest11")) else ("-p", MODULE)
"""An installation without the entry point is one of before it, or a source tree beside one."""
KERNELS = """
import numpy as np
import pytest

options = {"op": "i2s_dequantize", "dtype": "float32", "dimension": "accuracy"}


def wrong(q, scale, x):
    with np.errstate(over="ignore"):
        np.multiply(q, np.float32(scale), out=x, dtype=np.float32)
    x[40:41] = 7
"""


def test_shapes_properties_and_the_difference(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it=KERNELS
        + """
@pytest.mark.tritmark(wrong, shapes=[{"n": 40}, {"n": 41}], **options)
def test_wrong(tritmark_check):
    assert tritmark_check()
"""
    )
    done = pytester.runpytest_subprocess(*LOADED, "--strict-markers", "--junitxml=junit.xml", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(
        [
            "*assert <FAIL (accuracy.values)*",
            "*- tritmark verdict -*",
            "*x[[]40] is 7.0*",
            "*smallest failing input: n=41*",
        ]
    )
    cases = {each.get("name"): each for each in ElementTree.parse(Path("junit.xml")).iter("testcase")}
    assert set(cases) == {"test_wrong[n=40]", "test_wrong[n=41]"}
    told = {each.get("name"): each.get("value") for each in cases["test_wrong[n=41]"].iter("property")}
    assert told["tritmark_code"] == "accuracy.values"
    assert (told["tritmark_replay"] or "").startswith("tritmark check ")
    passed = {each.get("name"): each.get("value") for each in cases["test_wrong[n=40]"].iter("property")}
    assert passed["tritmark_code"] == "pass"


def test_what_is_missing_is_told_and_other_tests_are_left_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it=KERNELS
        + """
def test_no_kernel(tritmark_check):
    tritmark_check()


@pytest.mark.tritmark(shapes=[{"n": 40}])
def test_another():
    pass
"""
    )
    done = pytester.runpytest_subprocess(*LOADED, "-p", "no:cacheprovider")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*test_no_kernel: no kernel; legal: a path or a function*"])


@pytest.mark.parametrize("shapes", ["[]", "[{}]", "[3]"])
def test_shapes_that_are_none_are_a_usage_error(shapes: str, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it=f"import pytest\n\n\n@pytest.mark.tritmark(shapes={shapes})\ndef test_it(tritmark_check): ...\n"
    )
    done = pytester.runpytest_inprocess(*LOADED, "-p", "no:cacheprovider", "--collect-only")
    assert "legal: a list of dicts of axes" in done.stdout.str() + done.stderr.str()


def test_the_plugin_imports_nothing_costly(pytester: pytest.Pytester) -> None:
    code = f"import sys, pytest, {MODULE}; print({{'numpy', 'pydantic'}} & set(sys.modules))"
    path = pytester.makepyfile(show=code)
    done = pytester.runpython(path)
    done.stdout.fnmatch_lines(["set()"])
