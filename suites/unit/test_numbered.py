"""Devices of a kind that are chosen by their number: TYPE:0, TYPE:1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.errors import NoCompatibleKernelError
from tritmark.harness.numbered import numbered, same_device
from tritmark.harness.registry import Registry
from tritmark.harness.spec import Ceiling, Device, Instances, KernelKey, Numbering, Tier, Variant, Workload
from tritmark.harness.suite import SelectedWorkload

KEY = KernelKey("box", "add", "none", "float32")
CURRENT = [0]


@contextmanager
def at(index: int) -> Iterator[None]:
    before, CURRENT[0] = CURRENT[0], index
    try:
        yield
    finally:
        CURRENT[0] = before


def variant(name: str, tier: Tier = Tier.OPTIMIZED, device: str = "box") -> Variant:
    return Variant(
        key=replace(KEY, device=device),
        name=name,
        tier=tier,
        summary="",
        bind=lambda inputs, outputs, axes, threads: CURRENT[0],  # type: ignore[arg-type, return-value]
        missing=lambda: None,
    )


def box(count: int = 3) -> Device:
    numbering = Numbering(
        count=lambda: count, title=lambda index: f"Box {index}", at=at, alone=lambda index: {"BOX": str(index)}
    )

    def probe(buffer: Any, threads: int) -> Any:
        return CURRENT[0]

    return Device(
        type="box",
        summary="",
        features=lambda: frozenset({f"number {CURRENT[0]}"}),
        cores=lambda: 1,
        missing=lambda: None if count else "there are no boxes",
        code_hash=lambda variant_id: f"{CURRENT[0]} {variant_id}",
        ceilings=lambda: {"read": Ceiling(name="read", unit="", summary="", bind=probe, work=int)},
        numbering=numbering,
    )


def registry(count: int = 3) -> Registry:
    plain = Device(type="plain", summary="", features=frozenset, cores=lambda: 1)
    return Registry((plain, box(count)), (variant("fast"), variant("other's", Tier.PEER)))


@given(st.text(st.characters(exclude_characters=":"), min_size=1), st.integers(0, 10**6))
def test_a_name_is_a_kind_and_a_number(kind: str, index: int) -> None:
    assert numbered(f"{kind}:{index}") == (kind, index)
    assert numbered(kind) is None
    assert numbered(f"{kind}:0{index}") is None, "one device has one name"
    assert same_device(kind, f"{kind}:{index}") == (index == 0)


@pytest.mark.parametrize("name", ["", ":", ":1", "box:", "box:-1", "box:1.0", "box:²", "box: 1"])
def test_what_is_no_number_is_no_device_of_a_number(name: str) -> None:
    assert numbered(name) is None


def test_everything_that_is_asked_of_a_numbered_device_is_asked_there() -> None:
    known = registry()
    key = replace(KEY, device="box:2")
    chosen = known.select_best(key, {})
    assert chosen.id == "box:2/add/none/float32/fast"
    assert chosen.bind({}, {}, {}, 1) == 2  # type: ignore[comparison-overlap]
    device = known.devices["box:2"]
    assert device.type == "box:2"
    assert device.features() == {"number 2"}
    assert device.code_hash(chosen.id) == "2 box/add/none/float32/fast"
    assert device.ceilings()["read"].bind(None, 1) == 2  # type: ignore[comparison-overlap]
    assert device.environment() == {"BOX": "2"}
    assert CURRENT == [0]
    assert known.select_best(KEY, {}).bind({}, {}, {}, 1) == 0  # type: ignore[comparison-overlap]


def test_what_autotune_measures_runs_there_too() -> None:
    known = registry()
    plain = variant("fast")
    tuned = replace(
        variant("tuned", Tier.EXTREMELY_OPTIMIZED),
        instances=lambda axes: Instances(each={"a": plain}, identity={"device": str(CURRENT[0])}),
    )
    known.register(tuned)
    chosen = known.select_best(replace(KEY, device="box:2"), {})
    assert chosen.instances is not None
    found = chosen.instances({})
    assert found.identity == {"device": "2"}
    assert found.each["a"].key.device == "box:2"
    assert found.each["a"].bind({}, {}, {}, 1) == 2  # type: ignore[comparison-overlap]


def test_kernels_that_are_registered_later_are_there_too_and_other_projects_are_not() -> None:
    known = registry()
    known.number("box:1")
    known.register(variant("faster", Tier.HIGHLY_OPTIMIZED), variant("another's", Tier.PEER))
    names = {each.name for each, why in known.candidates(replace(KEY, device="box:1")) if why is None}
    assert names == {"fast", "faster"}
    assert known.select_best(replace(KEY, device="box:1"), {}).bind({}, {}, {}, 1) == 1  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(
    ("name", "count", "words"),
    [
        ("box:3", 3, r"there is no box:3; legal: box:0 \(Box 0\), box:1 \(Box 1\), box:2 \(Box 2\)"),
        ("box:0", 0, "there are no boxes"),
        ("plain:0", 3, "devices of type plain have no numbers; legal: plain"),
        ("bax:1", 3, "unknown device type"),
        ("box:01", 3, "unknown device type"),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_those_that_are(name: str, count: int, words: str) -> None:
    known = registry(count)
    with pytest.raises(NoCompatibleKernelError, match=words):
        known.select_best(replace(KEY, device=name), {})
    assert name not in known.devices


def test_all_that_there_are() -> None:
    known = registry()
    known.number_all()
    assert list(known.devices) == ["plain", "box", "box:0", "box:1", "box:2"]
    version = known.version
    known.number_all()
    assert known.version == version


@pytest.mark.parametrize(
    ("count", "names"), [(0, ["plain", "box"]), (1, ["plain", "box"]), (2, ["plain", "box:0", "box:1"])]
)
def test_every_device_of_a_machine_once(count: int, names: list[str]) -> None:
    known = registry(count)
    for _ in range(2):
        assert [each.type for each in known.every()] == names


def test_a_workload_for_a_kind_is_for_each_of_its_devices() -> None:
    item = SelectedWorkload(Workload(op="add", axes={}), (), (), ("box",))
    assert item.admits("none", "float32", "box:1")
    assert not item.admits("none", "float32", "plain")
    assert not item.admits("none", "float32", "bo:1")
