"""`tritmark schema`."""

from __future__ import annotations

import typer


def schema() -> None:
    """Print the JSON Schema of a Record."""
    import json

    from tritmark.harness.record import Record

    typer.echo(json.dumps(Record.model_json_schema(mode="serialization"), indent=1))
