"""Plants faults into the packers and unpackers of formats, and counts those that the golden vectors show.

A mutant counts if it changes the bytes or the codes of random weights. It is killed if the check of `tritmark formats`
finds a fault with the format's golden vectors. Formats without vectors have no mutants, because nothing can kill them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.originals import golden
from tritmark.harness.providers import Installed
from tritmark.harness.spec import FormatMutant, GoldenVector


@dataclass(frozen=True, slots=True)
class FormatFate:
    """The result for one mutant."""

    format: str
    mutant: str
    killed_by: str = ""
    """The vector, and what differs; "" if none shows it."""
    equivalent: bool = False
    """Whether it changes nothing on random weights."""


@dataclass(frozen=True, slots=True)
class FormatSelftest:
    """The results of all mutants."""

    fates: tuple[FormatFate, ...]
    alarms: tuple[str, ...]
    """Faults that are found without a mutant."""
    without_vectors: tuple[str, ...]
    """Formats without golden vectors."""

    @property
    def survivors(self) -> tuple[FormatFate, ...]:
        """Mutants that change something and that no vector shows."""
        return tuple(each for each in self.fates if not each.killed_by and not each.equivalent)

    @property
    def passed(self) -> bool:
        """Whether all mutants are killed, without a false alarm."""
        return not self.survivors and not self.alarms

    def counts(self) -> Mapping[str, tuple[int, int]]:
        """Killed and counted mutants of each format."""
        found: dict[str, tuple[int, int]] = {}
        for each in self.fates:
            if not each.equivalent:
                killed, count = found.get(each.format, (0, 0))
                found[each.format] = killed + bool(each.killed_by), count + 1
        return found


def execute(installed: Installed) -> FormatSelftest:
    """Plant every mutant of every provider."""
    providers = installed.providers.values()
    by_format: dict[str, list[GoldenVector]] = {}
    for vector in (vector for provider in providers for vector in provider.golden()):
        by_format.setdefault(vector.format, []).append(vector)
    alarms = [
        f"{each.format}, {each.file}: {each.why}"
        for name, vectors in by_format.items()
        for each in golden(installed.formats, vectors)
        if each.why and name in installed.formats
    ]
    planted = [each for provider in providers for each in provider.format_mutants()]
    fates = (
        _fate(mutant, installed.formats[mutant.format], by_format[mutant.format])
        for mutant in planted
        if mutant.format in by_format
    )
    without = tuple(name for name in installed.formats if name not in by_format)
    return FormatSelftest(tuple(fates), tuple(alarms), without)


def _fate(mutant: FormatMutant, form: Any, vectors: Iterable[GoldenVector]) -> FormatFate:
    faulty = mutant.make(form)
    for vector in vectors:
        (found,) = golden({mutant.format: faulty}, [vector])
        if found.why:
            return FormatFate(mutant.format, mutant.name, f"{found.file}: {found.why}")
    return FormatFate(mutant.format, mutant.name, equivalent=_is_equivalent(form, faulty))


def _is_equivalent(form: Any, faulty: Any) -> bool:
    """Whether random weights have the same bytes, codes, scales and values."""
    rng = np.random.default_rng(0)
    shape = max(128, form.row_multiple), 768
    codes = form.sample(shape, rng)
    scale = rng.integers(1, 1024, form.scale_shape(shape)).astype(np.float32) if form.scale_per != "tensor" else 1.0
    try:
        packed, other = form.pack(codes, scale), faulty.pack(codes, scale)
        found, again = form.unpack(packed, shape), faulty.unpack(packed, shape)
    except InvalidArgumentError:
        return False
    return np.array_equal(packed, other) and all(map(np.array_equal, found, again))
