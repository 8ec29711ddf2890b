"""Commands that refuse a repeated option, which the parser accepts without a message."""

from __future__ import annotations

from collections import Counter
from typing import Any

import typer
from typer.core import TyperCommand, TyperOption


class Once(TyperCommand):
    """Refuses a repeated option of one value; the parser would take the last value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click.Command."""
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            for param, times in Counter(order).items():
                if times > 1 and isinstance(param, TyperOption) and not param.multiple and not param.is_flag:
                    raise typer.BadParameter(f"given {times} times; legal: once", ctx=ctx, param=param)
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed
