"""The pytest plugin: the fixture `tritmark_check`, the marker `tritmark`, and verdicts in reports.

The fixture is `tritmark.check` with the arguments of the test's marker, and keeps Records in the test's temporary
folder. A marker with `shapes` runs the test once for each. A verdict that failed is shown whole below the assertion.

pytest imports this module in every session beside an installed tritmark, so it imports nothing else at its top.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tritmark.harness.check import CheckVerdict
    from tritmark.harness.providers import Installed

MARKER = "tritmark"
_SHAPE = "tritmark_shape"
_VERDICTS: pytest.StashKey[list[CheckVerdict]] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(kernel=None, *, shapes=None, **options): arguments of tritmark_check; with shapes, a list of dicts "
        "of axes, the test runs once for each",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each shape of the marker."""
    marker = metafunc.definition.get_closest_marker(MARKER)
    shapes = None if marker is None else marker.kwargs.get("shapes")
    if shapes is None or "tritmark_check" not in metafunc.fixturenames:
        return
    if not shapes or not all(isinstance(each, Mapping) and each for each in shapes):
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid}: shapes is {shapes!r}; legal: a list of dicts of axes, such as [{{'n': 65}}]"
        )
    ids = ["-".join(f"{axis}={size}" for axis, size in each.items()) for each in shapes]
    metafunc.fixturenames.append(_SHAPE)
    metafunc.parametrize(_SHAPE, shapes, ids=ids, indirect=True)


@pytest.fixture
def tritmark_shape(request: pytest.FixtureRequest) -> Mapping[str, int] | None:
    """The shape of this run of a test whose marker has `shapes`; None for other tests."""
    shape: Mapping[str, int] | None = getattr(request, "param", None)
    return shape


@pytest.fixture
def tritmark_check(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    tritmark_shape: Mapping[str, int] | None,
) -> Callable[..., CheckVerdict]:
    """Judge a kernel: `tritmark.check` with the marker's arguments beneath those of the call.

    The verdict's code, score and seed are properties of the test in a junit file.
    """
    marker = request.node.get_closest_marker(MARKER)

    def check(*kernel: Any, **options: Any) -> CheckVerdict:
        import tritmark

        told = {} if marker is None else {name: value for name, value in marker.kwargs.items() if name != "shapes"}
        told |= {"out": tmp_path / "tritmark", **options}
        named = told.pop("kernel", None)
        chosen = kernel[0] if kernel else marker.args[0] if marker is not None and marker.args else named
        if chosen is None:
            raise pytest.UsageError(
                f"{request.node.nodeid}: no kernel; legal: a path or a function, here or in the marker"
            )
        if tritmark_shape is not None:
            told["suite"] = _suite(tmp_path, told, chosen, tritmark_shape)
        found = tritmark.check(chosen, **told)
        request.node.stash.setdefault(_VERDICTS, []).append(found)
        # The fixture record_property warns of the default form of the file, which takes properties all the same.
        request.node.user_properties += [(f"tritmark_{name}", value) for name, value in _properties(found)]
        return found

    return check


def _suite(folder: Path, options: Mapping[str, Any], kernel: Any, shape: Mapping[str, int]) -> Path:
    """A suite of one shape, for the op of the options or the ops of the kernel: judged on every family of inputs, and
    measured on the first."""
    from tritmark.harness.errors import UsageError
    from tritmark.harness.nearest import nearest
    from tritmark.harness.providers import load

    installed = load()
    axes = ", ".join(f"{axis} = {int(size)}" for axis, size in shape.items())
    parts = ['title = "one shape"']
    for name in [options["op"]] if "op" in options else _ops(kernel, installed):
        if name not in installed.ops:
            raise UsageError(f"tritmark_check: unknown op {name!r}; {nearest(name, installed.ops)}")
        parts.append(f'[[workloads]]\nop = "{name}"\nshapes = [{{ {axes} }}]\nfamilies = "all"')
        if options.get("dimension") != "accuracy":
            family = installed.ops[name].input_families[0]
            parts.append(
                f'[[workloads]]\nop = "{name}"\nshapes = [{{ {axes} }}]\nfamilies = ["{family}"]\nmeasure = true'
            )
    path = folder / "shape.toml"
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")
    return path


def _ops(kernel: Any, installed: Installed) -> list[str]:
    from tritmark.harness.candidate.opening import open_candidate
    from tritmark.harness.errors import UsageError

    if callable(kernel):
        raise UsageError("tritmark_check: op is missing; legal for a function with shapes: the op's name in the marker")
    return list(dict.fromkeys(variant.key.op for variant in open_candidate(Path(kernel)).variants(installed)))


def _properties(verdict: CheckVerdict) -> Iterator[tuple[str, object]]:
    yield "code", verdict.code
    yield "kernel", verdict.kernel.kernel
    yield "seed", verdict.seed
    yield "seconds", verdict.seconds
    for name, value in (("score", verdict.score), ("ceiling_percent", verdict.ceiling_percent)):
        if value is not None:
            yield name, round(value, 4)
    if verdict.failing is not None:
        yield "replay", verdict.failing.command


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the verdicts that failed below the assertion, whole."""
    report = yield
    if report.when == "call" and report.failed:
        report.sections += [("tritmark verdict", str(each)) for each in item.stash.get(_VERDICTS, []) if not each]
    return report
