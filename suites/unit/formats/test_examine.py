"""`tritmark formats`: formats with a planted fault are detected by the check for it, and correct ones pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from command_line import outcome_of

from tritmark.harness import providers
from tritmark.harness.formats.examine import Examined, examined
from tritmark.harness.formats.pairs import Repacked
from tritmark.harness.providers import Installed
from tritmark.harness.spec import FormatOracle, GoldenVector, Provider
from tritmark.kernels import PROVIDER
from tritmark.kernels.formats import BUILT_IN, Format
from tritmark.kernels.peers.oracles import ORACLES

TOGETHER = ("i2_s_x86", "tile64", "tq2_0")
"""The formats with which the format under test is paired."""


def changed(name: str, called: str = "", **methods: Any) -> Format:
    """A format of FORMATS with some methods replaced; each takes the original method first, then its arguments."""
    form = BUILT_IN[name]

    def bound(attribute: str, made: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, *args, **kwargs: made(getattr(super(broken, self), attribute), *args, **kwargs)

    broken: Any = type(type(form).__name__, (type(form),), {key: bound(key, made) for key, made in methods.items()})
    values = {each.name: getattr(form, each.name) for each in fields(form)}
    made: Format = broken(**{**values, "name": called or name})
    return made


def installed(form: Format, **provider: Any) -> Installed:
    formats = {**{name: BUILT_IN[name] for name in TOGETHER if name != form.name}, form.name: form}
    golden: Callable[[], Iterable[GoldenVector]] = lambda: [v for v in PROVIDER.golden() if v.format in formats]  # noqa: E731
    only = Provider(ops=(), variants=(), devices=(), formats=formats, golden=golden, oracles=PROVIDER.oracles)
    return Installed({"one": replace(only, **provider)})


def found(form: Format, **provider: Any) -> Examined:
    return examined(installed(form, **provider))


def negated(unpack: Callable[..., Any], *args: Any) -> Any:
    codes, scale = unpack(*args)
    return -codes, scale


def unscaled(unpack: Callable[..., Any], *args: Any) -> Any:
    codes, scale = unpack(*args)
    return codes, np.ones_like(scale)


def last_row_lost(unpack: Callable[..., Any], packed: Any, shape: tuple[int, int]) -> Any:
    codes, scale = unpack(packed, shape)
    if shape[0] % 4:
        codes[-1] = 0
    return codes, scale


def raising(pack: Callable[..., Any], *args: Any) -> Any:
    raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize(
    ("name", "methods", "told"),
    [
        ("row16", {"_unpack": negated}, "codes incorrectly"),
        ("tq1_0", {"_unpack": negated}, "codes incorrectly"),
        ("row16", {"_unpack": unscaled}, "another scale"),
        ("iq2_bn", {"_unpack": unscaled}, "another scale"),
        ("hf_pack", {"_unpack": last_row_lost}, "codes incorrectly"),
        ("gpu_int2", {"_pack": raising}, "ZeroDivisionError: division by zero"),
        (
            "row16",
            {"refusal": lambda refusal, other, shape: None},
            "cannot store the scales of tq2_0, and does not refuse them",
        ),
        ("i2_s_arm", {"holds": lambda holds, shape: True}, "drops the last"),
        ("row16", {"holds": lambda holds, shape: not shape[0] % 2}, "packs weights that its refusal excludes"),
    ],
)
def test_a_wrong_format_is_seen_in_its_row_and_column(name: str, methods: dict[str, Any], told: str) -> None:
    told_of = found(changed(name, **methods), golden=tuple, oracles=())
    wrong = [each for each in told_of.pairs if each.outcome is Repacked.WRONG]
    assert wrong
    assert all(name in (each.source, each.target) for each in wrong)
    assert any(told in each.why for each in wrong)
    assert len(told_of.wrong()) == len(wrong)


def test_a_format_that_is_wrong_both_ways_is_seen_by_its_golden_vectors() -> None:
    """Only golden vectors and oracles detect a byte order that packer and unpacker share."""

    def packed(pack: Callable[..., Any], codes: Any, scale: Any) -> Any:
        return pack(codes[::-1], scale)

    def unpacked(unpack: Callable[..., Any], *args: Any) -> Any:
        codes, scale = unpack(*args)
        return codes[::-1], scale

    told = found(changed("hf_pack", _pack=packed, _unpack=unpacked))
    assert all(each.outcome is not Repacked.WRONG for each in told.pairs)
    assert {each.file for each in told.golden if each.why} == {"hf_a.npz", "hf_n5.npz", "hf_wide.npz"}
    assert len(told.wrong()) == 3


def test_an_order_of_its_own_is_unchecked() -> None:
    """Packer and unpacker agree only with each other: the format passes, and is listed as unchecked."""

    def reordered(pack: Callable[..., Any], codes: Any, scale: Any) -> Any:
        return pack(codes[::-1], scale)

    def restored(unpack: Callable[..., Any], *args: Any) -> Any:
        codes, scale = unpack(*args)
        return codes[::-1], scale

    strange = changed("hf_pack", "strange", _pack=reordered, _unpack=restored)
    told = found(strange)
    assert told.wrong() == []
    assert told.unchecked() == ("strange",)
    assert told.as_json()["unchecked"] == ["strange"]
    assert found(BUILT_IN["hf_pack"]).unchecked() == (), "it has golden vectors"


def test_only_agreement_with_an_original_checks_an_order() -> None:
    """A golden vector that the format fails is no comparison, nor is an oracle that is missing or disagrees."""
    (vector, *_) = (each for each in PROVIDER.golden() if each.format == "hf_pack")
    wrong = replace(vector, format="strange", packed=255 - vector.packed)
    strange = changed("hf_pack", "strange")
    oracle = FormatOracle(
        name="another",
        formats=frozenset({"strange"}),
        version=lambda: "another 1",
        missing=lambda: None,
        complaint=lambda form, rng: None,
    )
    absent, disagreeing = (
        replace(oracle, missing=lambda: "not installed"),
        replace(oracle, complaint=lambda form, rng: "other bytes"),
    )
    assert "strange" in found(strange, golden=lambda: [wrong], oracles=(absent, disagreeing)).unchecked()
    assert "strange" not in found(strange, golden=tuple, oracles=(oracle,)).unchecked()
    right = replace(vector, format="strange")
    assert "strange" not in found(strange, golden=lambda: [right], oracles=()).unchecked()


@pytest.mark.parametrize("name", ["tq1_0", "tq2_0", "iq1_bn"])
def test_a_wrong_rule_is_seen_by_golden_vectors_and_other_packers(name: str) -> None:
    right = BUILT_IN[name].rule
    assert right is not None
    told = found(replace(BUILT_IN[name], rule=lambda x: right(x * np.float32(1.0625))))
    assert all(each.outcome is not Repacked.WRONG for each in told.pairs)
    assert any(each.why == "quantize gives other bytes" for each in told.golden if each.format == name)
    asked = [each for each in told.asked if each.format == name and not each.missing]
    assert all(each.why and "bytes" in each.why for each in asked)
    assert name not in ("tq1_0", "tq2_0") or any(each.oracle == "gguf" for each in asked)


@pytest.mark.parametrize("name", ["i2_s_arm", "tq1_0", "hf_pack", "qk256", "iq2_bn", "ort_q2", "gpu_int2"])
def test_a_right_format_passes(name: str) -> None:
    told = found(BUILT_IN[name])
    assert told.wrong() == []
    assert told.outcomes()[Repacked.SAME] >= 5
    again = found(changed(name, "theirs", _unpack=lambda unpack, *args: unpack(*args)))
    assert again.wrong() == []
    assert {each.format for each in again.golden} <= set(TOGETHER)


def test_vectors_of_a_format_that_is_not_there_are_told() -> None:
    vector = next(iter(PROVIDER.golden()))
    told = found(BUILT_IN["row16"], golden=lambda: [replace(vector, format="none_such")])
    assert [each.why for each in told.golden] == ["no format none_such is installed"]
    assert told.wrong()


def test_other_packers_that_are_not_there_are_told_and_not_asked() -> None:
    def never(*args: Any) -> str:
        raise AssertionError("asked")

    absent = FormatOracle(
        name="absent", formats=frozenset({"row16"}), version=never, missing=lambda: "not installed", complaint=never
    )
    told = found(BUILT_IN["row16"], oracles=(absent,))
    assert [(each.format, each.oracle, each.missing) for each in told.asked] == [("row16", "absent", "not installed")]
    assert told.wrong() == []
    broken = replace(absent, missing=lambda: None, version=lambda: "1")
    assert found(BUILT_IN["row16"], oracles=(broken,)).wrong() == ["row16, asked absent: AssertionError: asked"]


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)
def test_each_other_packer_agrees_or_says_why_it_cannot_be_asked(oracle: FormatOracle) -> None:
    why = oracle.missing()
    if why is not None:
        pytest.skip(why)
    for name in oracle.formats:
        assert oracle.complaint(BUILT_IN[name], np.random.default_rng(1)) is None
        assert oracle.version()


def test_all_that_is_installed_is_right_and_every_golden_file_is_used() -> None:
    told = examined(providers.load())
    assert len(told.pairs) == len(told.formats) ** 2
    assert told.wrong() == []


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Runs `tritmark formats` with a format in a terminal of this width; a width of 0 is a pipe."""

    def run(form: Format, width: int, *options: str) -> tuple[int, str]:
        monkeypatch.setattr(providers, "load", lambda: installed(form))
        monkeypatch.setenv("COLUMNS", str(width)) if width else monkeypatch.delenv("COLUMNS", raising=False)
        return outcome_of(monkeypatch, capsys, "formats", *options)[:2]

    return run


@pytest.mark.parametrize("width", [60, 80, 140, 0])
def test_the_matrix_is_readable_at_any_width(command: Callable[..., tuple[int, str]], width: int) -> None:
    status, told = command(BUILT_IN["hf_pack"], width)
    assert status == 0
    assert max(len(line.rstrip()) for line in told.splitlines()) <= (width or 200)
    words = told.split()
    assert all(words.count(name) == 2 for name in (*TOGETHER, "hf_pack"))
    (row,) = (line.split() for line in told.splitlines() if line.startswith("d hf_pack"))
    assert row == ["d", "hf_pack", "=", "=", "s", "="]
    assert "PASS: of 16 pairs 10 are identical, 6 are refused (reasons: --json), 0 are incorrect." in " ".join(words)


def test_the_command_says_which_order_is_unchecked(command: Callable[..., tuple[int, str]]) -> None:
    status, told = command(BUILT_IN["qk256"], 100)
    assert status == 0
    (row,) = (line.split() for line in told.splitlines() if line.startswith("qk256"))
    assert row == ["qk256", "unchecked", "none"]
    assert "so the byte order is not judged" in " ".join(told.split())
    assert "The byte order of 1 of 4 formats is unchecked." in " ".join(told.split())
    assert "unchecked:" not in command(BUILT_IN["hf_pack"], 100)[1]


def test_a_planted_fault_fails_the_command(command: Callable[..., tuple[int, str]]) -> None:
    status, told = command(changed("hf_pack", _unpack=negated), 140)
    assert status == 1
    (row,) = (line.split() for line in told.splitlines() if line.startswith("d hf_pack"))
    assert row == ["d", "hf_pack", "X", "X", "X", "X"]
    assert "INCORRECT: hf_pack into i2_s_x86: hf_pack unpacks" in told
    assert "0 of 3 correct" in told
    assert "FAIL: of 16 pairs" in told


@pytest.mark.parametrize(("methods", "status"), [({}, 0), ({"_unpack": negated}, 1)])
def test_json_has_every_cell_with_its_reason(
    command: Callable[..., tuple[int, str]], methods: dict[str, Any], status: int
) -> None:
    ended, told = command(changed("hf_pack", **methods), 80, "--json")
    content = json.loads(told)
    assert (ended, content["well"]) == (status, not status)
    assert len(content["pairs"]) == len(content["formats"]) ** 2
    assert all(each["why"] for each in content["pairs"] if each["outcome"] != "same")
    assert {each["format"] for each in content["golden"]} == {*TOGETHER, "hf_pack"}
