"""`tritmark verify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli import completion
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import FAILED, PASSED, UNTRUSTED

if TYPE_CHECKING:
    from tritmark.harness.signing import SignatureFinding, TrustedKeys
    from tritmark.harness.verify import Verification


def verify(
    record: Annotated[
        str,
        typer.Argument(metavar="RECORD", autocompletion=completion.records, help="Path or id; by default the newest."),
    ] = "",
    trusted: Annotated[
        Path | None,
        typer.Option(
            metavar="KEYS",
            dir_okay=False,
            help="Require a signature by one of these keys: an allowed_signers file of ssh-keygen.",
            show_default=False,
        ),
    ] = None,
    allow_simulated: Annotated[
        bool,
        typer.Option("--allow-simulated", help="Accept simulated devices, which prove correctness and claim no speed."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the checks, as JSON.")] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Folder of Records.")] = Path("results"),
) -> None:
    """Check a Record: it is unchanged, its figures follow from its samples, and receipts prove its GPU claims."""
    from tritmark.harness import verify as verification
    from tritmark.harness.signing import TrustedKeys
    from tritmark.harness.store import Store

    store = Store(out)
    path = store.find(record) if record else store.latest()
    if trusted is None:
        found, signature = verification.verify(path, allow_simulated=allow_simulated), None
    else:
        found, signature = _signed(path, TrustedKeys(trusted), allow_simulated=allow_simulated)
    if as_json:
        import json

        checks = [
            {"name": each.name, "status": each.status.lower(), "told": each.detail, "faults": each.faults}
            for each in found.checks
        ]
        document: dict[str, object] = {"record": found.id, "passed": found.passed, "checks": checks}
        if signature is not None:
            document["signature"] = {
                "signer": signature.signer,
                "key": signature.key,
                "fault": None if signature.fault is None else signature.fault.value,
            }
        typer.echo(json.dumps(document, indent=1))
    else:
        from tritmark.harness.text.visible import visible

        screen = console()
        for each in found.checks:
            for line in each.lines:
                screen.print(visible(line), style="bold red" if each.faults else None, soft_wrap=True)
    raise typer.Exit(_status(found, signature))


def _signed(path: Path, keys: TrustedKeys, *, allow_simulated: bool) -> tuple[Verification, SignatureFinding]:
    """All checks, with that of the signature. A signed file that can no longer be read as a Record fails a check."""
    from dataclasses import replace

    from tritmark.harness import verify as verification
    from tritmark.harness.errors import RecordError

    try:
        found = verification.verify(path, allow_simulated=allow_simulated)
    except RecordError as error:
        if not path.is_file():
            raise
        found = verification.Verification("", (verification.RecordCheck("contents", "", (error.found,)),))
    signature = keys.check(path)
    check = verification.RecordCheck(
        "signature", signature.detail, () if signature.fault is None else (f"{signature.fault}: {signature.detail}",)
    )
    return replace(found, checks=(*found.checks, check)), signature


def _status(found: Verification, signature: SignatureFinding | None) -> int:
    """FAILED if anything but trust is missing: a fault of the Record, or a signature of other bytes."""
    from tritmark.harness.signing import SignatureFault

    if found.passed:
        return PASSED
    untrusted = signature is not None and signature.fault not in {None, SignatureFault.CHANGED}
    only = [each.name for each in found.checks if each.faults] == ["signature"]
    return UNTRUSTED if untrusted and only else FAILED
