"""Options that several commands take, each with the same meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tritmark.harness.cli import completion
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import AMBIGUOUS, UNJUDGED

_MOST_THREADS = 4096
"""More than a host of today has cores: a slip of the finger."""


def checked_threads(context: typer.Context, threads: int | None) -> int | None:
    """The number, with a warning where threads would have to share cores."""
    if threads is None or context.resilient_parsing:
        return threads
    from tritmark.harness.machine.cpu import usable_cores

    cores = usable_cores()
    if threads > _MOST_THREADS:
        raise typer.BadParameter(f"{threads} is more than {_MOST_THREADS}; this process may keep {cores} cores busy.")
    if threads > cores:
        text = f"--threads {threads}: this process may keep {cores} cores busy"
        console(stderr=True).print(
            f"tritmark: {text}; threads that share cores say little of how fast a kernel is",
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
        help="Only these variants: a name, or an id as `list variants` shows it.",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        metavar="GLOB",
        autocompletion=completion.devices,
        help="Only these devices; unless told, every one that is there.",
    ),
]
Numbered = Annotated[
    str,
    typer.Option(
        metavar="GLOB",
        autocompletion=completion.devices,
        help="Only these devices, such as cuda:1, or 'cuda:*' for each GPU; unless told, the first of every type.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, callback=checked_threads, help="Threads; every physical core unless told.", show_default=False),
]
Seed = Annotated[
    int | None, typer.Option(min=0, help="Repeats the data of an earlier time; drawn unless told.", show_default=False)
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help=f"Status {AMBIGUOUS} where a verdict is AMBIGUOUS, {UNJUDGED} where one is missing."),
]
Timeout = Annotated[float, typer.Option(metavar="S", min=0.1, help="Seconds that one call of a kernel may take.")]
InProcess = Annotated[
    bool,
    typer.Option("--in-process", help="For debugging: kernels run in this process, and what crashes, crashes all."),
]
Peer = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=PATH",
        help="Judge a library of another project that you have built, on every workload: bitnet.cpp, ggml, ik_llama.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the Record and nothing else on standard output.")]
Out = Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Where Records and reports go.")]
Layout = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="How tensors lie whose file does not say: of I2_S x86, arm or x86_r4, x86 unless told; of GGUF type 42 "
        "g64 or g128, or of its STQ1_0 quads or stride16.",
        show_default=False,
    ),
]
WeightScale = Annotated[
    str,
    typer.Option(
        metavar="multiply|divide",
        help="What weight_scale beside packed rows does; as the file or the config.json beside it says unless told.",
        show_default=False,
    ),
]
