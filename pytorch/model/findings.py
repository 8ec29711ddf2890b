"""The findings about the parts of a graph, merged over passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tritmark.harness.models import JudgedPart
from tritmark.harness.record import Status
from tritmark.torch.model.reference.rounding import Bounded
from tritmark.torch.model.reference.tensors import Floats


class Findings:
    """Collects what is found about each part; `rows` are the tokens of a pass that are judged."""

    def __init__(self) -> None:
        self._parts: dict[str, JudgedPart] = {}
        self.rows = torch.ones((0, 0), dtype=torch.bool)
        """bool (B, T): not padding."""

    def floats(self, values: torch.Tensor) -> Floats:
        """The judged rows (n, ...) of values (B, T, ...) or (B * T, ...), in float64."""
        found: Floats = self.of(values).detach().double().cpu().numpy()
        return found

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """The judged rows of values, which begin with (B, T) or (B * T)."""
        lead = 2 if values.shape[:2] == self.rows.shape else 1
        return values.reshape(self.rows.numel(), *values.shape[lead:])[self.rows.reshape(-1).to(values.device)]

    def close(self, part: str, found: torch.Tensor, expected: Bounded) -> None:
        """The rows of `found` are the expected values within their bound."""
        values = self.floats(found)
        if values.size != expected.values.size:
            self.wrong(part, f"returns {values.size} values in place of {expected.values.size}")
        else:
            off = np.abs(values.reshape(expected.values.shape) - expected.values)
            self.ratios(part, off, expected.bound)

    def fits(self, part: str, given: torch.Tensor, size: int) -> bool:
        """Whether a part gets rows of so many values."""
        if given.shape[-1] != size:
            self.wrong(part, f"gets rows of {given.shape[-1]} values in place of {size}")
        return bool(given.shape[-1] == size)

    def ratios(self, part: str, off: Floats, bound: Floats, why: str = "") -> None:
        """Differences, and how large they may be."""
        with np.errstate(all="ignore"):
            worst = float(np.max(off / bound, initial=0))
        if worst <= 1:
            self._add(part, Status.PASS, worst)
        elif np.isfinite(worst):
            self._add(part, Status.FAIL, worst, why)
        else:
            self._add(part, Status.FAIL, None, why or "has a NaN or infinity")

    def same(self, part: str, given: Any, source: torch.Tensor | None, what: str) -> None:
        """What a part gets is exactly what an earlier part returned; None for a source that was not seen."""
        if source is None:
            return
        alike = isinstance(given, torch.Tensor) and given.numel() == source.numel()
        if not alike or not torch.equal(self.of(given).flatten(), self.of(source).flatten().to(given.device)):
            self.wrong(part, f"gets other values than {what}")

    def wrong(self, part: str, why: str) -> None:
        self._add(part, Status.FAIL, None, why)

    def unseen(self, part: str, why: str) -> None:
        self._add(part, Status.NOT_RUN, None, why)

    def _add(self, part: str, status: Status, largest: float | None, why: str = "") -> None:
        before = self._parts.get(part)
        if before is not None:
            order = (Status.PASS, Status.NOT_RUN, Status.FAIL)
            if order.index(before.status) > order.index(status):
                status, why = before.status, before.why
            elif before.status is status and before.why:
                why = before.why
            numbers = [each for each in (before.largest, largest) if each is not None]
            largest = max(numbers, default=None)
        self._parts[part] = JudgedPart(name=part, status=status, largest=largest, why=why)

    def found(self) -> tuple[JudgedPart, ...]:
        return tuple(self._parts.values())
