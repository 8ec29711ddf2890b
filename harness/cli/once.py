"""Commands that refuse a repeated option, which the parser accepts without a message, and take `--json` with or
without a form."""

from __future__ import annotations

from collections import Counter
from typing import Any

import typer
from typer.core import TyperCommand, TyperOption

FORM = "json_form"
"""Name of the parameter of `--json=FORM`. Without a form it is RECORD."""
RECORD = "record"


class Once(TyperCommand):
    """Refuses a repeated option of one value; the parser would take the last value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click.Command."""
        if any(param.name == FORM for param in self.params):
            # The parser would take the next word as the form.
            end = args.index("--") if "--" in args else len(args)
            args = [*(f"--json={RECORD}" if word == "--json" else word for word in args[:end]), *args[end:]]
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            for param, times in Counter(order).items():
                if times > 1 and isinstance(param, TyperOption) and not param.multiple and not param.is_flag:
                    raise typer.BadParameter(f"given {times} times; legal: once", ctx=ctx, param=param)
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed
