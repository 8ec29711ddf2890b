"""Suite files: what they expand to, and how what is wrong in them is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tritmark.harness.errors import UsageError
from tritmark.harness.providers import load
from tritmark.harness.spec import Op, Tensor, ToleranceKind, Traffic
from tritmark.harness.suite import KnownNames, Suite, part_suites, read_suite


def op(name: str, *axes: str) -> Op:
    return Op(
        name=name,
        summary="",
        source="",
        axes=axes,
        inputs=(),
        outputs=(Tensor("y", axes, "key", ""),),
        tolerance_kind=ToleranceKind.EXACT,
        input_families=("normal", "zero", "ties"),
        generate=lambda axes, family, rng: {},
        encode=lambda inputs, axes, format: {},
        outputs_like=lambda axes, key: {},
        reference=lambda inputs, axes, key: {},
        traffic=lambda axes, key: Traffic(0, 0, 0),
    )


KNOWN = KnownNames(
    [op("add", "n"), op("matmul", "M", "N", "K")],
    {"add": ["none"], "matmul": ["tile64", "tq2_0"]},
    {"add": ["float32"], "matmul": ["float32", "int32"]},
    ["cpu", "npu"],
)
MODELS = """
[small]
linears = [[8, 4, 2], [4, 8, 1]]
fused = [[16, 4]]
[big]
shapes = [[80, 40]]
"""


def suite(tmp_path: Path, text: str) -> Suite:
    (tmp_path / "models.toml").write_text(MODELS)
    path = tmp_path / "suite.toml"
    path.write_text('title = "t"\n' + text)
    return read_suite(path, "suite", KNOWN)


def ids(found: Suite) -> list[str]:
    return [item.workload.id for item in found.selected]


def test_lists_are_multiplied(tmp_path: Path) -> None:
    found = suite(
        tmp_path,
        """
[shapes]
tails = [{ n = 1 }, { n = 65 }]
[[workloads]]
op = "add"
shapes = ["tails", { n = 3 }]
families = ["normal", "zero"]
layouts = ["aligned", "unaligned"]
""",
    )
    assert len(found.selected) == 3 * 2 * 2
    assert ids(found)[:5] == [
        "add[n=1]/normal/aligned",
        "add[n=1]/normal/unaligned",
        "add[n=1]/zero/aligned",
        "add[n=1]/zero/unaligned",
        "add[n=65]/normal/aligned",
    ]
    assert not any(item.workload.measure for item in found.selected)


def test_models_give_shapes_and_titles(tmp_path: Path) -> None:
    found = suite(
        tmp_path,
        """
models = "models.toml"
[[workloads]]
op = "matmul"
models = ["s*", "big"]
axes = { M = [1, 5] }
measure = true
""",
    )
    assert ids(found)[:3] == [
        f"matmul[M={m},N={n},K={k}]/normal/aligned" for m, n, k in ((1, 8, 4), (5, 8, 4), (1, 4, 8))
    ]
    assert [item.workload.title for item in found.selected] == ["small"] * 6 + ["big"] * 2
    assert all(item.workload.measure for item in found.selected)


def test_all_families_formats_and_dtypes(tmp_path: Path) -> None:
    found = suite(
        tmp_path,
        """
[[workloads]]
op = "matmul"
shapes = [{ M = 1, N = 2, K = 3 }]
families = "all"
dtypes = ["int32"]
""",
    )
    assert [item.workload.family for item in found.selected] == ["normal", "zero", "ties"]
    assert found.selected[0].admits("tile64", "int32")
    assert found.selected[0].admits("tq2_0", "int32")
    assert not found.selected[0].admits("tile64", "float32")


def test_workloads_of_some_devices_only(tmp_path: Path) -> None:
    text = """
[[workloads]]
op = "add"
shapes = [{ n = 1 }]
devices = ["npu"]
[[workloads]]
op = "add"
shapes = [{ n = 1 }]
"""
    own, any_device = suite(tmp_path, text).selected
    assert own.admits("none", "float32", "npu")
    assert not own.admits("none", "float32", "cpu")
    assert any_device.admits("none", "float32", "cpu")
    with pytest.raises(UsageError, match=r"workloads\[0\].devices: unknown device type 'gpu'.*legal: cpu, npu"):
        suite(tmp_path, text.replace('"npu"', '"gpu"'))


def test_what_is_asked_for_twice_is_done_once_and_measured_if_either_asks(tmp_path: Path) -> None:
    found = suite(
        tmp_path,
        """
[[workloads]]
op = "add"
shapes = [{ n = 1 }, { n = 2 }, { n = 1 }]
[[workloads]]
op = "add"
shapes = [{ n = 2 }]
measure = true
""",
    )
    assert ids(found) == ["add[n=1]/normal/aligned", "add[n=2]/normal/aligned"]
    assert [item.workload.measure for item in found.selected] == [False, True]


def test_what_is_measured_without_a_clock_gives_way_to_what_is_timed(tmp_path: Path) -> None:
    text = """
[[workloads]]
op = "add"
shapes = [{ n = 1 }, { n = 2 }]
measure = true
timed = false
[[workloads]]
op = "add"
shapes = [{ n = 2 }]
measure = true
"""
    assert [item.workload.timed for item in suite(tmp_path, text).selected] == [False, True]
    with pytest.raises(UsageError, match=r"workloads\[0\].timed: false, and nothing is measured"):
        suite(tmp_path, text.replace("measure = true", "measure = false", 1))


def test_the_digest_covers_the_models(tmp_path: Path) -> None:
    text = 'models = "models.toml"\n[[workloads]]\nop = "matmul"\nmodels = ["big"]\naxes = { M = 1 }\n'
    before = suite(tmp_path, text).digest
    assert suite(tmp_path, text).digest == before
    assert suite(tmp_path, text + "\n").digest != before
    (tmp_path / "models.toml").write_text(MODELS.replace("80", "81"))
    assert read_suite(tmp_path / "suite.toml", "suite", KNOWN).digest != before


ADD = '[[workloads]]\nop = "add"\nshapes = [{ n = 1 }]\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[workloads]\n", "not TOML"),
        ("", "key workloads is missing"),
        ("workloads = []\n", "workloads is []"),
        ("[[worklods]]\n", "unknown key worklods; did you mean 'workloads'?"),
        ("[[workloads]]\nopp = 'add'\n", "unknown key workloads[0].opp; did you mean 'op'?"),
        ('tittle = "x"\n' + ADD, "unknown key tittle; did you mean 'title'?"),
        (ADD + 'familes = ["zero"]\n', "unknown key workloads[0].familes; did you mean 'families'?"),
        ("[[workloads]]\nshapes = []\n", "key workloads[0].op is missing"),
        ('[[workloads]]\nop = "ad"\n', "workloads[0].op: unknown op 'ad'; did you mean 'add'? legal: add, matmul"),
        (
            ADD + 'families = ["norml"]\n',
            "workloads[0].families: add has no input family 'norml'; did you mean 'normal'?",
        ),
        (ADD + "families = []\n", "workloads[0].families"),
        (ADD + 'layouts = ["sideways"]\n', "workloads[0].layouts[0] is 'sideways'"),
        (ADD + 'formats = ["nne"]\n', "workloads[0].formats: add has no kernels for 'nne'; did you mean 'none'?"),
        (ADD + 'dtypes = ["float64"]\n', "did you mean 'float32'?"),
        (ADD + 'measure = "yes please"\n', "workloads[0].measure is 'yes please'"),
        (ADD + "axes = { m = 1 }\n", "workloads[0].axes: add has no axis 'm'"),
        (ADD + "axes = { n = 0 }\n", "workloads[0].axes.n is 0"),
        (ADD + "axes = { n = [4, -4] }\n", "workloads[0].axes.n"),
        (ADD + "axes = { n = 1.5 }\n", "workloads[0].axes.n is 1.5"),
        ('[[workloads]]\nop = "matmul"\naxes = { M = 1, N = 2 }\n', "matmul needs the axis 'K'; given: M, N"),
        ('[[workloads]]\nop = "add"\n', "add needs the axis 'n'; given: none"),
        (
            '[shapes]\ntails = []\n[[workloads]]\nop = "add"\nshapes = ["tials"]\n',
            "unknown list 'tials'; did you mean 'tails'?",
        ),
        ('[[workloads]]\nop = "add"\nshapes = [{ n = 0 }]\n', "workloads[0].shapes[0]"),
        ('[[workloads]]\nop = "matmul"\nmodels = ["none*"]\n', "no model matches 'none*'"),
        ('models = "../models.toml"\n' + ADD, "the name of a file in the same folder"),
        ('models = "missing.toml"\n' + ADD, "missing.toml: no such file"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_key(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        suite(tmp_path, text)
    assert told in str(caught.value)
    assert ".toml: " in str(caught.value)


@pytest.mark.parametrize(
    ("models", "told"),
    [
        ("[big]\nshapes = [[80]]\n", "models.toml: key big.shapes[0][1] is missing"),
        ("[big]\nliners = []\n", "models.toml: unknown key big.liners; did you mean 'linears'?"),
        ("[big]\nlinears = [[1, 2, 0]]\n", "models.toml: big.linears[0][2] is 0"),
        ("big = 7\n", "models.toml: big is 7"),
    ],
)
def test_models_are_checked_too(tmp_path: Path, models: str, told: str) -> None:
    path = tmp_path / "suite.toml"
    path.write_text('title = "t"\nmodels = "models.toml"\n' + ADD)
    (tmp_path / "models.toml").write_text(models)
    with pytest.raises(UsageError) as caught:
        read_suite(path, "suite", KNOWN)
    assert told in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_suite(tmp_path / "none.toml", "none", KNOWN)
    with pytest.raises(UsageError, match="cannot be read"):
        read_suite(tmp_path, "folder", KNOWN)
    (tmp_path / "latin.toml").write_bytes(b"title = '\xe9'")
    with pytest.raises(UsageError, match="cannot be read"):
        read_suite(tmp_path / "latin.toml", "latin", KNOWN)


@pytest.fixture(scope="module")
def named() -> dict[str, Suite]:
    installed = load()
    return {name: installed.suite(name) for name in installed.suites()}


def test_the_suites_that_come_with_it(named: dict[str, Suite]) -> None:
    assert set(named) == {"full", "gpu", "league", "quick", "smoke", "speed"}
    with pytest.raises(UsageError, match="did you mean 'quick'"):
        load().suite("quik")


@pytest.mark.parametrize("name", ["full", "quick", "smoke"])
def test_every_op_is_in_every_suite(named: dict[str, Suite], name: str) -> None:
    assert {item.workload.op for item in named[name].selected} == set(load().ops)


def axes_of(found: Suite, op: str, **where: Any) -> list[tuple[int, ...]]:
    chosen = [item.workload for item in found.selected if item.workload.op == op]
    return [
        tuple(workload.axes.values())
        for workload in chosen
        if all(getattr(workload, key, workload.axes.get(key)) == value for key, value in where.items())
    ]


def test_quick_has_the_edges(named: dict[str, Suite]) -> None:
    """Shapes, families and layouts are drawn; what only size shows stands beside that."""
    quick = named["quick"]
    assert {item.workload.op for item in quick.selected if item.workload.drawn} == set(load().ops)
    constant = axes_of(quick, "ternary_matmul", family="constant")
    assert {k for _, _, k in constant} >= {2176, 4096, 27648}


def test_an_op_adds_workloads_to_suites_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text(MODELS)
    path, add, matmul = (tmp_path / name for name in ("quick.toml", "add.toml", "matmul.toml"))
    path.write_text('title = "t"\nmodels = "models.toml"\n[shapes]\none = [{ n = 1 }]\n')
    add.write_text(
        'op = "add"\n[[quick]]\nshapes = ["one"]\n[[quick]]\nshapes = [{ n = 2 }]\n[[full]]\nshapes = ["no"]\n'
    )
    matmul.write_text('[[quick]]\nop = "matmul"\nmodels = ["big"]\naxes = { M = 1 }\n')
    found = read_suite(path, "quick", KNOWN, [add, matmul])
    assert ids(found) == [
        "add[n=1]/normal/aligned",
        "add[n=2]/normal/aligned",
        "matmul[M=1,N=80,K=40]/normal/aligned",
    ]
    assert part_suites(add) == ["quick", "full"]
    assert read_suite(path, "quick", KNOWN, [add]).digest != found.digest
    with pytest.raises(UsageError, match="key workloads is missing"):
        read_suite(path, "other", KNOWN, [add])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('op = "ad"\n[[quick]]\nshapes = [{ n = 1 }]\n', r"quick\[0\].op: unknown op 'ad'; did you mean 'add'"),
        ('op = "add"\n[[quick]]\nshpaes = [{ n = 1 }]\n', r"unknown key quick\[0\].shpaes; did you mean 'shapes'"),
        ("[[quick]]\nshapes = [{ n = 1 }]\n", r"key quick\[0\].op is missing"),
        ("[[quick]\n", "not TOML"),
    ],
)
def test_a_fault_in_the_file_of_an_op_is_named_with_the_file(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "quick.toml").write_text('title = "t"\n')
    path = tmp_path / "add.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=f"add.toml: {words}"):
        read_suite(tmp_path / "quick.toml", "quick", KNOWN, [path])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[quick]\nshapes = []\n", "quick is {'shapes': \\[\\]}; legal: op, and tables"),
        ('title = "t"\n', "title is 't'; legal: op, and tables"),
        ("[[qiuck]]\nop = 'add'\n", "unknown suite 'qiuck'; did you mean 'quick'"),
    ],
)
def test_the_file_of_an_op_has_tables_for_suites_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    path = tmp_path / "add.toml"
    path.write_text(text)
    installed = load()
    provider = replace(installed.providers["builtin"], op_workloads=lambda: (path,))
    monkeypatch.setitem(installed.providers, "builtin", provider)
    with pytest.raises(UsageError, match=f"add.toml: {words}"):
        installed.suite("quick")


def test_quick_measures_the_layers_of_one_model(named: dict[str, Suite]) -> None:
    measured = axes_of(named["quick"], "ternary_matmul", measure=True)
    assert set(measured) >= {
        (1, n, k) for n, k in ((2560, 2560), (640, 2560), (6912, 2560), (2560, 6912), (3840, 2560), (13824, 2560))
    }
    assert (32, 2560, 2560) in measured
    for name in set(load().ops) - {"ternary_matmul"}:
        assert axes_of(named["quick"], name, measure=True)


def test_full_measures_every_shape_of_every_model(named: dict[str, Suite]) -> None:
    import tomllib

    from tritmark import workloads

    text = (Path(workloads.__path__[0]) / "models.toml").read_text(encoding="utf-8")
    models = tomllib.loads(text)
    assert len(models) == 22
    shapes = {
        (1, *shape[:2])
        for model in models.values()
        for key in ("linears", "fused", "shapes")
        for shape in model.get(key, [])
    }
    assert len(shapes) == 70
    assert shapes <= set(axes_of(named["full"], "ternary_matmul", measure=True))


def test_quick_measures_every_key(named: dict[str, Suite]) -> None:
    """Only a kernel that is measured is cross-validated."""
    quick = [item for item in named["quick"].selected if item.workload.measure]
    for key in dict.fromkeys(variant.key for variant in load().registry.variants):
        assert any(item.workload.op == key.op and item.admits(key.format, key.dtype, key.device) for item in quick), key
