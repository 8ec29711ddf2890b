"""`tritmark schema`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class SchemaName(StrEnum):
    """An object that commands print."""

    RECORD = "record"
    VERDICT = "verdict"


def schema(
    of: Annotated[
        SchemaName, typer.Argument(metavar="[record|verdict]", help="A Record, or what `check --json=verdict` prints.")
    ] = SchemaName.RECORD,
) -> None:
    """Print the JSON Schema of a Record or of a verdict."""
    import json

    from tritmark.harness.check.verdict import CheckVerdict
    from tritmark.harness.record import Record

    model = Record if of is SchemaName.RECORD else CheckVerdict
    typer.echo(json.dumps(model.model_json_schema(mode="serialization"), indent=1))
