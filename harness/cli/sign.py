"""`tritmark sign`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tritmark.harness.cli import completion


def sign(
    record: Annotated[
        str, typer.Argument(metavar="RECORD", autocompletion=completion.records, help="Path or id of the Record.")
    ],
    key: Annotated[
        Path,
        typer.Option(
            metavar="FILE", dir_okay=False, help="A private SSH key, or the public key of one that ssh-agent holds."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Folder of Records.")] = Path("results"),
) -> None:
    """Sign a Record with an SSH key, so that others can check that you vouch for it; write RECORD.sig beside it."""
    from tritmark.harness import signing
    from tritmark.harness.store import Store

    typer.echo(signing.sign(Store(out).find(record), key))
