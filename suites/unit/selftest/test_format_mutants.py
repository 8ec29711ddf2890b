"""Faults of packers and unpackers: each is detected, and a format without vectors is not judged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tritmark.harness.cli.selftest_formats import document
from tritmark.harness.providers import Installed, installed
from tritmark.harness.selftest.format_mutants import execute
from tritmark.harness.spec import FormatMutant, GoldenVector

NEW = (
    *("pq2_0", "ptq1_0", "stq1_0", "stq1_0_quads", "mlx_q2", "compressed_tensors_2", "gptq_2", "ort_q2", "ort_q2_sm80"),
    *(f"{kind}_g{size}" for kind in ("tile64", "row16") for size in (32, 64, 128, 256)),
)


@dataclass
class One:
    """A provider with mutants of one format."""

    vectors: tuple[GoldenVector, ...]
    changes: tuple[Callable[[Any], Any], ...]
    format: str = "pq2_0"
    name: str = field(default="", init=False)

    def golden(self) -> Iterable[GoldenVector]:
        return self.vectors

    def format_mutants(self) -> Iterable[FormatMutant]:
        return [FormatMutant(format=self.format, name=str(n), make=each) for n, each in enumerate(self.changes)]


def of(provider: One) -> Any:
    formats = {provider.format: installed().formats[provider.format]}
    made: Installed = type("Made", (), {"formats": formats, "providers": {"one": provider}})()
    return execute(made)


def vectors_of(*files: str) -> tuple[GoldenVector, ...]:
    everything = (each for provider in installed().providers.values() for each in provider.golden())
    return tuple(each for each in everything if each.file in files)


def test_every_fault_is_detected() -> None:
    result = execute(installed())
    assert result.alarms == ()
    assert result.survivors == ()
    counts = result.counts()
    assert all(counts[name][0] == counts[name][1] > 20 for name in NEW)
    names = {(each.format, each.mutant) for each in result.fates}
    assert {
        ("ptq1_0", "pack and unpack: digits of a byte taken for neighbours"),
        ("mlx_q2", "values: bias left out"),
        ("pq2_0", "read and written as q2_0"),
        ("q2_0", "read and written as stq1_0_quads"),
        ("tile64_g64", "read and written as tile64_g128"),
        ("ort_q2", "values: zero points left out"),
        ("stq1_0", "pack and unpack: members of a group of the other layout"),
    } <= names
    json.dumps(document(result))


def test_a_correct_format_is_no_mutant_and_without_vectors_there_are_none() -> None:
    right = One(vectors_of("pq2_0_tern.npz"), (lambda form: form,))
    result = of(right)
    assert [each.equivalent for each in result.fates] == [True]
    assert result.passed
    result = of(One((), (lambda form: form,)))
    assert result.fates == ()
    assert result.without_vectors == ("pq2_0",)


def test_a_vector_that_cannot_show_a_fault_lets_it_survive() -> None:
    (fault,) = (
        each.make
        for each in installed().providers["builtin"].format_mutants()
        if (each.format, each.name) == ("pq2_0", "pack and unpack: codes -1 and 1 swapped")
    )
    result = of(One(vectors_of("pq2_0_zero.npz"), (fault,)))
    assert [each.mutant for each in result.survivors] == ["0"]
    assert not result.passed
    assert of(One(vectors_of("pq2_0_tern.npz"), (fault,))).passed


def test_a_false_alarm_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = One(vectors_of("pq2_0_tern.npz"), ())
    monkeypatch.setattr(type(installed().formats["pq2_0"]), "_unpack", lambda self, packed, shape: 1 / 0)
    assert not of(provider).passed
