"""What is asked of workers before anything is timed: their kinds, code and machines."""

from __future__ import annotations

import json
from typing import Any

import pytest
from made_up_records import MACHINE

from tritmark.harness.errors import BadEnvironmentError, UsageError
from tritmark.harness.fleet.code import CodeFacts, code_facts
from tritmark.harness.fleet.kinds import MachineKind, Offer, kinds_of, of_kinds, offers
from tritmark.harness.fleet.spread import checked

DEVICES = ("cpu", "cuda")
HERE = CodeFacts(tritmark="0.1.0", sources="a" * 64, native="b" * 64, platform="cpython-312-x86_64-linux-gnu")
ZEN4 = MachineKind("cpu", "zen4")


class Workers:
    """Stands in for a Dask client: each worker has the facts, or raises the error."""

    def __init__(self, **facts: CodeFacts | Exception | tuple[CodeFacts, str]) -> None:
        self.facts = facts

    def run(self, function: Any, source: str, *, workers: list[str], on_error: str) -> dict[str, Any]:
        (address,) = workers
        found = self.facts[address]
        if isinstance(found, Exception):
            return {address: found}
        code, machine = found if isinstance(found, tuple) else (found, "m")
        told = {
            "code": code.model_dump(),
            "python": "3.12.1",
            "packages": {"numpy": "2.4.0"},
            "machine": MACHINE.model_copy(update={"id": machine}).model_dump(mode="json"),
        }
        return {address: json.dumps(told)}


def offered(*names: str, kind: MachineKind = ZEN4) -> list[Offer]:
    return [Offer(address=name, name=name, host=name, kinds=(kind,)) for name in names]


def info(**resources: dict[str, float]) -> dict[str, dict[str, Any]]:
    return {f"tcp://{name}": {"name": name, "host": name, "resources": of} for name, of in resources.items()}


def test_kinds_are_read_and_other_resources_left_alone() -> None:
    found = offers(
        info(bob={"tritmark/cpu/zen4": 1, "tritmark/cuda/h200": 1.0, "GPU": 2}, alice={"MEMORY": 1e9}, carol={}),
        DEVICES,
    )
    assert [each.name for each in found] == ["bob"]
    assert list(map(str, kinds_of(found))) == ["cpu/zen4", "cuda/h200"]
    assert [each.kinds for each in of_kinds(found, [ZEN4])] == [(ZEN4,)]
    assert of_kinds(found, [MachineKind("cpu", "spr")]) == []
    assert MachineKind.of("cpu/zen4") == ZEN4
    assert ZEN4.resource == "tritmark/cpu/zen4"


@pytest.mark.parametrize(
    ("resource", "amount", "message"),
    [
        ("tritmark/zen4", 1, "legal: tritmark/DEVICE/NAME=1"),
        ("tritmark/cpu/", 1, "legal: tritmark/DEVICE/NAME=1"),
        ("tritmark/cpu/a/b", 1, "legal: tritmark/DEVICE/NAME=1"),
        ("tritmark/cdua/h200", 1, "did you mean 'cuda'"),
        ("tritmark/cpu/zen4", 2, "has the amount 2; legal: 1"),
        ("tritmark/cpu/zen4", 0.5, "has the amount 0.5; legal: 1"),
    ],
)
def test_a_misspelt_kind_is_refused_with_its_worker(resource: str, amount: float, message: str) -> None:
    with pytest.raises(UsageError, match="worker alice: resource") as caught:
        offers(info(alice={resource: amount}), DEVICES)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"tritmark": "0.2.0"}, "worker bob .* has tritmark 0.2.0, and this command has 0.1.0"),
        ({"sources": "c" * 64}, "worker bob .* has other sources of tritmark 0.1.0: SHA-256 cccccccccccc"),
        ({"native": "c" * 64}, "worker bob .* has other compiled modules"),
    ],
)
def test_a_worker_with_other_code_is_refused_by_name(other: dict[str, str], message: str) -> None:
    workers = Workers(alice=HERE, bob=HERE.model_copy(update=other))
    with pytest.raises(BadEnvironmentError, match=message) as caught:
        checked(workers, offered("alice", "bob"), HERE)
    assert "alice" not in str(caught.value)
    assert "install the same wheel" in caught.value.next_step


def test_every_refused_worker_is_named() -> None:
    workers = Workers(
        alice=ModuleNotFoundError("No module named 'tritmark'"),
        bob=HERE.model_copy(update={"tritmark": "0.2.0"}),
        carol=OSError("no space"),
        dave=HERE,
    )
    with pytest.raises(BadEnvironmentError) as caught:
        checked(workers, offered("alice", "bob", "carol", "dave"), HERE)
    for text in ("alice) has no tritmark", "bob) has tritmark 0.2.0", "carol) does not answer"):
        assert text in str(caught.value)
    assert "dave" not in str(caught.value)


def test_a_version_that_states_its_environment_in_another_form_is_refused() -> None:
    class Later(Workers):
        def run(self, *arguments: Any, **options: Any) -> dict[str, Any]:
            ((address, text),) = super().run(*arguments, **options).items()
            return {address: json.dumps({**json.loads(text), "colour": "blue"})}

    with pytest.raises(BadEnvironmentError, match=r"worker bob \(bob\) has another version of tritmark: colour"):
        checked(Later(bob=HERE), offered("bob"), HERE)


ARM = HERE.model_copy(update={"platform": "cpython-312-aarch64-linux-gnu", "native": "c" * 64})


def test_workers_of_another_platform_have_other_compiled_modules() -> None:
    found = checked(Workers(alice=HERE, bob=(ARM, "n")), [*offered("alice"), *_grace("bob")], HERE)
    assert [each.name for each in found] == ["alice", "bob"]


def test_but_the_same_ones_within_a_platform() -> None:
    other = ARM.model_copy(update={"native": "d" * 64})
    with pytest.raises(BadEnvironmentError, match=r"worker bob .* has other compiled modules .*aarch64"):
        checked(Workers(alice=ARM, bob=other), _grace("alice", "bob"), HERE)


def test_compilers_and_packages_may_differ() -> None:
    other = HERE.model_copy(update={"compiler": "gcc 15"})
    assert len(checked(Workers(alice=HERE, bob=other), offered("alice", "bob"), HERE)) == 2


def test_different_machines_under_one_name_are_refused() -> None:
    with pytest.raises(BadEnvironmentError, match=r"kind cpu/zen4 has different machines.*alice has c, machine m, bob"):
        checked(Workers(alice=HERE, bob=(HERE, "n")), offered("alice", "bob"), HERE)


def test_a_late_worker_is_compared_with_those_that_are_known() -> None:
    known = checked(Workers(alice=HERE), offered("alice"), HERE)
    with pytest.raises(BadEnvironmentError, match="kind cpu/zen4 has different machines"):
        checked(Workers(bob=(HERE, "n")), offered("bob"), HERE, known)
    assert checked(Workers(bob=HERE), offered("bob"), HERE, known)[0].name == "bob"
    assert checked(Workers(bob=OSError("gone")), offered("bob"), HERE, known) == []


def test_the_code_of_this_process() -> None:
    found = code_facts()
    assert len(found.sources) == len(found.native) == 64
    assert found.refusal(found) == ""


def _grace(*names: str) -> list[Offer]:
    return offered(*names, kind=MachineKind("cpu", "grace"))
