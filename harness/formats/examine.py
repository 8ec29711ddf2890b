"""Runs all checks on the installed formats, and reports faults."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from tritmark.harness.formats.pairs import Repacked, Repacking, pairs
from tritmark.harness.originals import Golden, OracleCheck, asked, golden, without_originals
from tritmark.harness.providers import Installed


@dataclass(frozen=True)
class Examined:
    """The results of all checks."""

    formats: tuple[str, ...]
    pairs: tuple[Repacking, ...]
    golden: tuple[Golden, ...]
    asked: tuple[OracleCheck, ...]

    def wrong(self) -> list[str]:
        """The faults, one sentence each; empty if there are none."""
        return [
            *(f"{each.source} into {each.target}: {each.why}" for each in self.pairs if each.outcome is Repacked.WRONG),
            *(f"{each.format}, golden vector {each.file}: {each.why}" for each in self.golden if each.why),
            *(f"{each.format}, asked {each.oracle}: {each.why}" for each in self.asked if each.why),
        ]

    def unchecked(self) -> tuple[str, ...]:
        """Formats whose byte order was not compared with an original. A pass shows only that packer and unpacker
        agree."""
        return without_originals(self.formats, self.golden, self.asked)

    def outcomes(self) -> Counter[Repacked]:
        """Number of pairs for each outcome."""
        return Counter(each.outcome for each in self.pairs)

    def as_json(self) -> dict[str, Any]:
        """The results as JSON values."""
        return {
            "well": not self.wrong(),
            "formats": list(self.formats),
            "unchecked": list(self.unchecked()),
            "pairs": [asdict(each) for each in self.pairs],
            "golden": [asdict(each) for each in self.golden],
            "oracles": [asdict(each) for each in self.asked],
        }


def examined(installed: Installed) -> Examined:
    """Check the formats of all providers against each other, and against the providers' golden vectors and oracles."""
    formats, providers = installed.formats, installed.providers.values()
    return Examined(
        tuple(formats),
        tuple(pairs(formats)),
        tuple(golden(formats, (vector for provider in providers for vector in provider.golden()))),
        tuple(asked(formats, (oracle for provider in providers for oracle in provider.oracles))),
    )
