"""`tritmark model`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli import options
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import FAILED
from tritmark.harness.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from tritmark.harness.models import ModelResult, TimeSplit

_NEXT = 3
"""The most proposals that are printed."""
_SHOWN = 8
"""The most layers, hidden states and reasons that are listed."""


def model(
    source: Annotated[
        str, typer.Argument(metavar="FOLDER|FILE", help="A folder of transformers, a .gguf file, or OWNER/NAME.")
    ],
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu or cuda.")] = "cpu",
    dtype: Annotated[
        str, typer.Option(metavar="NAME", help="Of the model: bfloat16, float16, float32, or auto, the checkpoint's.")
    ] = "auto",
    prompt: Annotated[list[int] | None, typer.Option(min=1, help="Length of a prompt to time; 128.")] = None,
    batch: Annotated[list[int] | None, typer.Option(min=1, help="Number of sequences to time; 1.")] = None,
    activation_bits: Annotated[
        int | None,
        typer.Option(help="8 or 16 for all layers; by default those of each.", show_default=False, min=8, max=16),
    ] = None,
    keep: Annotated[list[str] | None, typer.Option(metavar="GLOB", help="Names of layers that stay.")] = None,
    logits: Annotated[
        str,
        typer.Option(metavar="FILE.npz", help="Another engine's tokens and logits of the same file, to judge."),
    ] = "",
    text: Annotated[
        str, typer.Option(help="The text on which outputs are compared; by default random tokens.", show_default=False)
    ] = "",
    engine: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Time this engine, too: llama-bench=PATH, llama-cpp-python, ik-llama-cpp-python or vllm.",
        ),
    ] = None,
    gguf: Annotated[
        str, typer.Option(metavar="FILE", help="The same model for engines that read GGUF.", show_default=False)
    ] = "",
    layout: Annotated[
        str, typer.Option(help="Layout of types of GGUF that have several, such as g64 or g128.", show_default=False)
    ] = "",
    threads: options.Threads = None,
    seed: options.Seed = None,
    seconds: Annotated[float, typer.Option(metavar="S", min=0.1, help="Time for each comparison of rates.")] = 5.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print only the result, as JSON, on standard output.")
    ] = False,
    out: options.Out = Path("results"),
) -> None:
    """Run a whole model of transformers on tritmark's layers: judge them, compare its outputs, and time its tokens."""
    from datetime import UTC, datetime

    from tritmark.harness.cli.progress import ProgressCallback, ProgressLine
    from tritmark.harness.models import evaluator
    from tritmark.harness.report.model_page import write

    with ProgressLine(console(stderr=True)) as line:
        following = ProgressCallback(line)
        found = evaluator()(
            source,
            device=device,
            dtype=dtype,
            activation_bits=activation_bits,
            keep=keep or (),
            prompts=prompt or (128,),
            batches=batch or (1,),
            text=text or None,
            logits=logits,
            threads=threads,
            seconds=seconds,
            seed=seed or 0,
            layout=layout,
            engines=engine or (),
            gguf=gguf,
            report=lambda text: following(text, 0),
        )
    try:
        paths = write(found, out / "models", f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    except OSError as problem:
        raise UsageError(f"{out / 'models'}: the result cannot be written: {problem}") from problem
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
    else:
        _print(found)
    console(stderr=as_json).print(f"Result: {paths['json']}\nReport: {paths['html']}", soft_wrap=True)
    if found.failed:
        raise typer.Exit(FAILED)


def _print(found: ModelResult) -> None:
    from tritmark.harness.model_advice import proposals
    from tritmark.harness.record import Status
    from tritmark.harness.report.model_judgement import lines, verdict
    from tritmark.harness.text import units
    from tritmark.harness.text.units import counted, size

    def put(text: str) -> None:
        console().print(text, soft_wrap=True, markup=False)

    wrong = [each for each in found.layers if each.status is Status.FAIL]
    put(verdict(found))
    for each in wrong[:_SHOWN]:
        put(f"  FAIL {each.name} ({each.was}): {each.largest:.3g} times its bound")
    for line in lines(found, _SHOWN):
        put(f"  {line}")
    for why in found.kept[:_SHOWN]:
        put(f"  {why}")
    if len(found.kept) > _SHOWN:
        put(f"  and {len(found.kept) - _SHOWN} more kept")
    changed = sorted({each.changed for each in found.layers if each.changed})
    for how in changed:
        put(f"  changed: {how}")
    a = found.agreement
    put(
        f"outputs beside the model before, {counted(a.tokens, 'token')}: the same next token for "
        f"{units.percent(a.top1)}, KL divergence {a.kl:.3g} nats, greedy continuation the same for {a.greedy} of "
        f"{a.greedy_of} tokens"
    )
    most = max(a.drift, key=lambda each: each.relative)
    put(f"drift of hidden states: at most {most.relative:.3g} ({most.name}); logits {a.drift[-1].relative:.3g}")
    for note in found.notes:
        put(f"note: {note}")
    put(
        f"memory: {size(found.nbytes_before)} before, {size(found.nbytes)} with the kernels' weights; at most "
        f"{size(found.peak_nbytes)} at a time, with both"
    )
    for name, ms in found.first_token_ms.items():
        put(f"first token of {name}: {ms:.3g} ms")
    console().print(_rates(found))
    for engine in found.engines:
        put(f"{engine.name} {engine.version}: {engine.settings or f'not timed: {engine.failed}'}")
        for why in engine.missing:
            put(f"  not timed: {why}")
    for split in found.splits:
        console().print(_parts(split))
    for proposal in proposals(found)[:_NEXT]:
        put(f"next: {proposal}")


def _rates(found: ModelResult) -> Table:
    from tritmark.harness.text import units
    from tritmark.harness.text.table import plain_table

    heads = ("engine", "work", "batch", "prompt", "tokens/s", "tritmark is faster")
    title = f"{found.architecture}, {found.device}, {found.dtype}, {units.counted(found.threads, 'thread')}"
    shown = plain_table(title, *heads, right=heads[2:])
    for each in found.rates:
        speed = "" if each.speed is None else f"{units.times(each.speed)}"
        shown.add_row(each.engine, each.work, str(each.batch), str(each.prompt), f"{each.tokens_per_s:.4g}", speed)
    return shown


def _parts(split: TimeSplit) -> Table:
    from tritmark.harness.text import units
    from tritmark.harness.text.table import plain_table

    least = split.least_ms
    of = "" if least is None else f"; its bytes and operations take {least:.3g} ms, {units.percent(least / split.ms)}"
    heads = ("part", "ms", "share", "least ms", "of the ceiling")
    what = "A decoded token" if split.work == "decode" else "The prompt"
    title = f"{what}, {split.batch} x {split.prompt}: {split.ms:.3g} ms{of}"
    shown = plain_table(title, *heads, right=heads[1:])
    for each in split.parts:
        least_of = each.least_ms
        own = ("", "") if least_of is None or not each.ms else (f"{least_of:.3g}", units.percent(least_of / each.ms))
        shown.add_row(each.name, f"{each.ms:.3g}", units.percent(each.share), *own)
    return shown
