"""A launch that is wrong: it writes one number everywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tritmark.harness.spec import Arrays, Axes, Launch, Variant


class ConstantLaunch:
    """Says what the launch of a right kernel would, and writes the number over what that wrote."""

    def __init__(self, launch: Launch, outputs: Arrays, number: int) -> None:
        self._launch, self._outputs, self._number = launch, outputs, number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launch, name)

    def run(self) -> None:
        self._launch.run()
        for output in self._outputs.values():
            output[...] = self._number


def writing(number: int, variant: Variant) -> Variant:
    """The variant with such launches."""

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        return ConstantLaunch(variant.bind(inputs, outputs, axes, threads), outputs, number)

    return replace(variant, bind=bind)
