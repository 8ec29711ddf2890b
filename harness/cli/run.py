"""`tritmark run`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli import completion, options
from tritmark.harness.cli.console import console
from tritmark.harness.cli.execute import executed, seed_of
from tritmark.harness.cli.exit_status import UNAVAILABLE
from tritmark.harness.cli.show import show
from tritmark.harness.errors import UsageError
from tritmark.harness.nearest import nearest

if TYPE_CHECKING:
    from tritmark.harness.judge.request import Request
    from tritmark.harness.providers import Installed
    from tritmark.harness.record import Record


def run(
    partial: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            autocompletion=completion.interrupted,
            help="With --resume: the interrupted run, by id or folder; by default the newest.",
        ),
    ] = "",
    suite: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE.toml",
            help="The suite of workloads; by default 'quick', or none with --weights.",
            show_default=False,
            autocompletion=completion.suites,
        ),
    ] = "",
    op: options.Op = "*",
    variant: options.Variant = "*",
    device: options.Numbered = "*",
    weights: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Judge a model's weights: .safetensors, a folder of them, .gguf, .onnx, or hf:OWNER/NAME.",
        ),
    ] = "",
    layout: options.Layout = "",
    weight_scale: options.WeightScale = "",
    threads: options.Threads = None,
    seed: options.Seed = None,
    strict: options.Strict = False,
    table: Annotated[bool, typer.Option("--table", help="Print every variant at every shape.")] = False,
    as_json: options.Json = False,
    out: options.Out = Path("results"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the interrupted RUN, by default the newest.")
    ] = False,
    timeout: options.Timeout = 120.0,
    addresses: Annotated[
        str,
        typer.Option(metavar="RULE", help="The rule whose proposal you applied; the ledger stores the measured gain."),
    ] = "",
    cpp_lib: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIB.so[=FILE.toml]",
            help="Compare with the functions of this library, which the TOML describes.",
            show_default=False,
        ),
    ] = None,
    peer: options.Peer = None,
    peer_isa: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Limit peers to that instruction set, as TRITMARK_FORCE_ISA limits tritmark. Peers that cannot be "
            "limited are not run.",
            show_default=False,
        ),
    ] = "",
    in_process: options.InProcess = False,
) -> None:
    """Validate and measure every kernel; write a Record and a report."""
    began = monotonic()
    if partial and not resume:
        raise UsageError(f"unexpected argument {partial!r}; to continue that run, add --resume")
    from tritmark.harness.record.facts import ask
    from tritmark.harness.worker.process import prepare

    ask()
    if not in_process:
        prepare()  # the worker imports while this process imports
    from tritmark.harness.candidate.adapted import AdaptedLibrary
    from tritmark.harness.cross import CppLibrary
    from tritmark.harness.judge.request import Request
    from tritmark.harness.providers import load
    from tritmark.harness.spec import PEER_ISA
    from tritmark.harness.store import Store
    from tritmark.harness.weights import Conventions

    if (layout or weight_scale) and not weights:
        raise UsageError("--layout or --weight-scale without --weights; legal: with --weights")
    if addresses:
        from tritmark.harness.advise.rules import named

        rule = named(addresses, "--addresses")
        addresses = rule.name
        if not rule.figure:
            raise UsageError(
                f"--addresses {addresses}: its gain is that of the caller, which no figure of a Record shows; legal: a "
                "rule whose change makes the kernel itself faster"
            )
    adapted = tuple(AdaptedLibrary.named(each) for each in peer or ())
    installed = load(adapted)
    installed.choose(device)
    if peer_isa:
        os.environ[PEER_ISA] = _step(peer_isa, installed)
    # Weights alone keep memory small. With a suite, ops or variants, the user wants these, too.
    if not suite and (not weights or (op, variant) != ("*", "*")):
        suite = "quick"
    store = Store(out)
    request = Request(
        suite=installed.suite(suite) if suite else None,
        op=op,
        variant=variant,
        device=device,
        weights=weights,
        conventions=Conventions(layout, weight_scale),
        threads=threads,
        seed=seed_of(seed, store, partial if resume else None),
        command=("tritmark", *sys.argv[1:]),
        isolated=not in_process,
        timeout_s=timeout,
        addresses=addresses,
        candidates=adapted,
        peers=frozenset(each.id for library in adapted for each in library.variants(installed)),
        libraries=tuple(CppLibrary(path, toml) for path, _, toml in (each.partition("=") for each in cpp_lib or ())),
    )
    record = executed(installed, request, store, partial if resume else None)
    show(record, store, as_json, every=table, seconds=monotonic() - began)
    if addresses:
        from tritmark.harness.advise.outcome import settle

        for each in settle(store, record):
            text = "kept" if each.hit else "not kept"
            predicted, found = f"{each.predicted.low:.2f} to {each.predicted.high:.2f}", f"{each.measured.median:.2f}"
            console(stderr=True).print(
                f"{each.kernel} {each.workload}: predicted {predicted}x, measured {found}x: {text}", soft_wrap=True
            )
    raise typer.Exit(_status(record, installed, request, strict=strict))


def _step(name: str, installed: Installed) -> str:
    """Check the name of an instruction set of a host device."""
    hosts = [device for device in installed.registry.devices.values() if device.memory is None]
    steps = [step for device in hosts for step in device.ladder()]
    if name not in steps:
        raise UsageError(f"--peer-isa {name!r}; {nearest(name, steps)}")
    return name


def _status(record: Record, installed: Installed, request: Request, *, strict: bool) -> int:
    from tritmark.harness.cli.outcome import status_of
    from tritmark.harness.judge.planning import missing
    from tritmark.harness.record import Status

    absent = missing(installed, request)
    # Requested by name, or the only device with kernels to run.
    if request.device in absent or (absent and not record.runs and not record.layers):
        for name, why in absent.items():
            console(stderr=True).print(f"tritmark: {name} is missing: {why}", style="red", soft_wrap=True)
        return UNAVAILABLE
    if not record.layers and all(run.accuracy.status is Status.NOT_RUN for run in record.runs):
        reasons = "; ".join(dict.fromkeys(run.accuracy.reason for run in record.runs))
        raise UsageError(f"no kernel could be run: {reasons}")
    return status_of(record, strict=strict)
