"""Options that several commands take, each with the same meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tritmark.harness.cli import completion
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import AMBIGUOUS, UNJUDGED

_MOST_THREADS = 4096
"""More threads than any host has cores: probably a typing error."""


def checked_threads(context: typer.Context, threads: int | None) -> int | None:
    """The thread count; warns if threads would share cores."""
    if threads is None or context.resilient_parsing:
        return threads
    from tritmark.harness.machine.cpu import usable_cores
    from tritmark.harness.text.units import counted

    cores = usable_cores()
    if threads > _MOST_THREADS:
        raise typer.BadParameter(
            f"{threads} is more than {_MOST_THREADS}; this process may use {counted(cores, 'core')}."
        )
    if threads > cores:
        text = f"--threads {threads}: this process may use {counted(cores, 'core')}"
        console(stderr=True).print(
            f"tritmark: {text}; times of threads that share cores do not show the speed of a kernel",
            style="yellow",
            soft_wrap=True,
        )
    return threads


Op = Annotated[str, typer.Option(metavar="GLOB", autocompletion=completion.ops, help="Only these ops.")]
Variant = Annotated[
    str,
    typer.Option(
        metavar="GLOB",
        autocompletion=completion.variants,
        help="Only these variants: a name, or an id from `tritmark list variants`.",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        metavar="GLOB",
        autocompletion=completion.devices,
        help="Only these devices; by default all that are present.",
    ),
]
Numbered = Annotated[
    str,
    typer.Option(
        metavar="GLOB",
        autocompletion=completion.devices,
        help="Only these devices: cuda:1, or 'cuda:*' for all GPUs; by default the first of each type.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1, callback=checked_threads, help="Number of threads; by default one per physical core.", show_default=False
    ),
]
Seed = Annotated[
    int | None, typer.Option(min=0, help="Repeat the data of an earlier run; drawn by default.", show_default=False)
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help=f"Exit with {AMBIGUOUS} if a verdict is AMBIGUOUS, {UNJUDGED} if one is missing."),
]
Timeout = Annotated[float, typer.Option(metavar="S", min=0.1, help="Time limit of one kernel call, in seconds.")]
InProcess = Annotated[
    bool,
    typer.Option("--in-process", help="For debugging: run kernels in this process; a crash ends the command."),
]
Peer = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=PATH",
        help="Judge a library that you built of another project, on every workload: bitnet.cpp, ggml, ik_llama.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print only the Record, as JSON, on standard output.")]
Out = Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Folder for Records and reports.")]
Layout = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Layout of tensors whose file does not state it. I2_S: x86 (default), arm or x86_r4; GGUF type 42: g64 "
        "or g128; its STQ1_0: quads or stride16.",
        show_default=False,
    ),
]
WeightScale = Annotated[
    str,
    typer.Option(
        metavar="multiply|divide",
        help="Effect of weight_scale on packed rows; by default as the file or its config.json states.",
        show_default=False,
    ),
]
