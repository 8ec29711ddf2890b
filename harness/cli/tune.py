"""`tritmark tune`, with a module for each of its commands."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from tritmark.harness.cli import completion
from tritmark.harness.cli.deprecated import alias
from tritmark.harness.cli.examples import epilog
from tritmark.harness.cli.once import Once
from tritmark.harness.cli.tune_instances import instances
from tritmark.harness.cli.tune_prefetch import prefetch
from tritmark.harness.cli.tune_variants import variants


class _Tune(TyperGroup):
    """Also accepts the deprecated `tritmark tune [OPTIONS] DEVICE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click.Group."""
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            devices = set(completion.devices(""))
            place = next((place for place, word in enumerate(args) if word in devices), None)
            if place is not None:
                args = ["cpu", "--device", args[place], *args[:place], *args[place + 1 :]]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed


tune = typer.Typer(
    name="tune",
    cls=_Tune,
    help="Measure the fastest variants, instances or prefetch distances on this machine; later calls use them.",
    epilog=epilog("tune"),
    no_args_is_help=True,
)
for _command in (variants, instances, prefetch):
    tune.command(_command.__name__, cls=Once, epilog=epilog(f"tune {_command.__name__}"))(_command)
alias(tune, "tune cpu", "tune prefetch", prefetch)
