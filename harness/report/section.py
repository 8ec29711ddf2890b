"""What a part of the report is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tritmark.harness.record import Record


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the page, under a heading of its own.

    `context(record)` gives the variables of `templates/<template>`, or None where the Record has nothing for this section, which then
    does not appear. Text in the context may be hostile: the page escapes it. `id` is the anchor.
    """

    id: str
    title: str
    template: str
    context: Callable[[Record], dict[str, Any] | None]
