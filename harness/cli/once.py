"""Commands that refuse what a parser would take in silence."""

from __future__ import annotations

from collections import Counter
from typing import Any

import typer
from typer.core import TyperCommand, TyperOption


class Once(TyperCommand):
    """Refuses an option of one value that is given several times, of which the parser takes the last."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click.Command."""
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            for param, times in Counter(order).items():
                if times > 1 and isinstance(param, TyperOption) and not param.multiple and not param.is_flag:
                    raise typer.BadParameter(f"it is given {times} times, and takes one value", ctx=ctx, param=param)
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed
