"""Writes the reference pages that come from the code: commands, exit statuses, environment variables, ops, Python API.

conf.py calls it before each build. The pages are not committed.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer.main

from tritmark import kernels
from tritmark.harness.cli import app
from tritmark.harness.cli.examples import EXAMPLES
from tritmark.harness.cli.exit_status import MEANINGS
from tritmark.kernels import aio

sys.path.insert(0, str(Path(__file__).parent))
import op_pages

ROOT = Path(__file__).parents[1]
FOLDER = Path(__file__).with_name("reference")
PACKAGES = ("harness", "kernels", "pytorch")

VARIABLES = {
    "TRITMARK_FORCE_ISA": (
        "instruction set",
        "`tritmark run` and calls use its kernels, or those of the next lower set",
    ),
    "TRITMARK_FORCE_CUDA": ("CUDA variant", "only this variant runs on a GPU"),
    "TRITMARK_PEER_ISA": ("instruction set", "the highest one that peers may use; `--peer-isa` sets it"),
    "TRITMARK_TUNED": (
        "`on` (default), `off`",
        "`off` ignores what `tritmark tune` chose",
    ),
    "TRITMARK_MONITOR": (
        "`1`, `0`, or the path of a file",
        "watches a program that uses the kernels, and keeps its session in the state folder or in that file",
    ),
    "TRITMARK_CUDA": ("`driver` (default), `simulator`", "`simulator` runs CUDA kernels on the CPU"),
    "TRITMARK_CUDA_LOADER": (
        "`nvcc` (default), `sourcemodule`",
        "what compiles and loads CUDA kernels: tritmark, or PyCUDA's `SourceModule`",
    ),
    "TRITMARK_NVCC": ("path", "the nvcc to use"),
    "TRITMARK_GGML": ("folder", "where libggml-base and libggml-cpu are"),
    "TRITMARK_CACHE": ("folder", "where caches are kept; default: the user's cache folder"),
    "TRITMARK_STATE": ("folder", "where the history of `tritmark health` is kept; default: the user's state folder"),
    "TRITMARK_RECOVER_SECONDS": ("seconds", 'time limit of an attempt with `on_error="recover"`; default 120'),
    "TRITMARK_CFLAGS": ("compiler options", "added when tritmark itself is compiled, such as `-g`"),
}
"""For users: values, and what each does."""

TESTING = {
    "TRITMARK_GPU_FAKE": ("`cuda`, `gpu` or other", "whether tests see a GPU; Records that were made with it say so"),
    "TRITMARK_SIMULATOR_CAPABILITY": ("such as `7.5`", "compute capability of the simulated GPU; default 9.0"),
    "TRITMARK_SIMULATOR_MEMORY": ("bytes", "memory of the simulated GPU; one number per GPU, between commas"),
    "TRITMARK_SIMULATOR_SEED": ("integer", "order of blocks and threads, and the initial content of memory"),
    "TRITMARK_SIMULATOR_SECONDS": ("seconds", "time limit of one launch; default 120"),
    "TRITMARK_SIMULATOR_GPUS": ("integer", "number of simulated GPUs; default 1"),
    "TRITMARK_SIMULATOR_PEERS": ("`0`, `1` (default)", "`0`: no GPU can access the memory of another GPU"),
    "TRITMARK_SIMULATOR_FAILS": ("such as `1@3`", "GPU 1 is lost at its third launch"),
}
"""For tests."""

INTERNAL = frozenset(
    {"TRITMARK_CUDA_ALONE", "TRITMARK_DRAWN", "TRITMARK_SANDBOX", "TRITMARK_SOAK_CLOCK", "TRITMARK_SOAK_DISK"}
)
"""Set by tritmark for its own processes."""

OTHERS = {
    "CC, CXX": "compilers of your C and C++ kernels",
    "CUDA_HOME, CUDA_PATH": "where nvcc is looked for, after `TRITMARK_NVCC`",
    "CUDA_VISIBLE_DEVICES": "the GPUs that a process can access",
    "CUDA_LAUNCH_BLOCKING": "with `1`, a launch returns when the kernel has finished",
    "NO_COLOR, FORCE_COLOR, TERM=dumb": "whether output is colored",
}
"""Of other projects, obeyed here."""


def write() -> None:
    """Write every page; a page that did not change is left alone, so that Sphinx does not read it again."""
    made = dict(pages())
    for old in FOLDER.rglob("*.md"):
        if str(old.relative_to(FOLDER)) not in made:
            old.unlink()
    for name, text in made.items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def pages() -> Iterator[tuple[str, str]]:
    """Each page: its name, and its text in Markdown."""
    group: Any = typer.main.get_command(app)
    context = group.make_context("tritmark", [], resilient_parsing=True)
    yield "commands/index.md", overview(group, context)
    yield from command_pages(group, context)
    yield "exit_statuses.md", exit_statuses()
    yield "environment.md", environment()
    yield from op_pages.pages(table, plain)
    yield "kernels.md", kernels_page()
    yield "torch.md", torch_page()


def overview(group: Any, context: Any) -> str:
    """All commands, and the options of `tritmark` itself."""
    return "\n\n".join(
        [
            "# Commands",
            "Results go to standard output, messages and progress to the error stream. "
            "[Exit statuses](../exit_statuses.md) and [environment variables](../environment.md) are the same for all.",
            command_table(group, context),
            "## Options of `tritmark`",
            table("option", "what it does", rows=parameters(group, context, arguments=False)),
            toctree(group, context),
        ]
    )


def commands_of(group: Any, context: Any) -> dict[str, Any]:
    """The commands of a group that its help lists, by their whole names, such as "tune prefetch"."""
    before = f"{context.command_path} ".removeprefix("tritmark ")
    found = {before + name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: each for name, each in found.items() if not each.hidden}


def command_pages(group: Any, context: Any) -> Iterator[tuple[str, str]]:
    """The page of each command of a group, and of each command below it."""
    for name, command in commands_of(group, context).items():
        inner = command.make_context(name.rpartition(" ")[2], [], parent=context, resilient_parsing=True)
        yield f"commands/{page_name(name)}.md", command_page(name, command, inner)
        if is_group(command):
            yield from command_pages(command, inner)


def is_group(command: Any) -> bool:
    """Whether it has commands of its own."""
    return hasattr(command, "commands")


def page_name(name: str) -> str:
    """The file of a command's page, without its suffix."""
    return name.replace(" ", "_")


def command_table(group: Any, context: Any) -> str:
    """The commands of a group, with links to their pages."""
    every = commands_of(group, context).items()
    rows = [(f"[`tritmark {name}`]({page_name(name)}.md)", first_sentence(each.help)) for name, each in every]
    return table("command", "what it does", rows=rows)


def toctree(group: Any, context: Any) -> str:
    """The pages of a group's commands, for the site's navigation."""
    return ":::{toctree}\n:hidden:\n\n" + "\n".join(map(page_name, commands_of(group, context))) + "\n:::"


def command_page(name: str, command: Any, context: Any) -> str:
    """One command: usage, arguments, options, commands of its own and examples."""
    usage = " ".join([f"tritmark {name}", *command.collect_usage_pieces(context)])
    parts = [f"# tritmark {name}", plain(inspect.cleandoc(command.help or "")), f"```text\n{usage}\n```"]
    if is_group(command):
        parts += ["## Commands", command_table(command, context), toctree(command, context)]
    for title, arguments in (("Arguments", True), ("Options", False)):
        if rows := parameters(command, context, arguments=arguments):
            parts += [f"## {title}", table(title.lower()[:-1], "meaning", rows=rows)]
    if examples := EXAMPLES.get(name):
        lines = "\n".join(f"# {meaning}\n{line}\n" for line, meaning in examples)
        parts += ["## Examples", f"```sh\n{lines.rstrip()}\n```"]
    return "\n\n".join(parts) + "\n"


def parameters(command: Any, context: Any, *, arguments: bool) -> list[tuple[str, str]]:
    """What a command takes, as its help shows it: the name with what to write for a value, and its meaning."""
    found = []
    for each in command.get_params(context):
        record = each.get_help_record(context)
        if record is not None and arguments == (each.param_type_name == "argument"):
            name, meaning = record
            found.append((f"`{shown(name)}`", plain(meaning)))
    return found


def shown(name: str) -> str:
    """A parameter's name without Typer's names of types: N stands for a whole number, X for any."""
    for pattern, short in ((r" <int[^>]*>", " N"), (r" <float[^>]*>", " X"), (r" <\w+>", "")):
        name = re.sub(pattern, short, name)
    return name.strip()


def exit_statuses() -> str:
    """What each status means."""
    return "\n\n".join(
        [
            "# Exit statuses",
            "Every command uses the same statuses. AMBIGUOUS and NOT RUN change the status only with `--strict`.",
            table("exit status", "meaning", rows=[(str(status), meaning) for status, meaning in MEANINGS.items()]),
        ]
    )


def environment() -> str:
    """Every variable that the code reads. Raises ValueError if the tables and the code differ."""
    read = set(named_variables())
    described = {*VARIABLES, *TESTING, *INTERNAL}
    if read != described:
        raise ValueError(
            f"docs/reference_pages.py: not described: {sorted(read - described)}; "
            f"described and not read by the code: {sorted(described - read)}"
        )
    parts = [
        "# Environment variables",
        "A Record keeps the `TRITMARK_*` variables that were set, except `TRITMARK_CACHE`.",
    ]
    for title, described_here in (("For users", VARIABLES), ("For tests", TESTING)):
        rows = [(f"`{name}`", values, meaning) for name, (values, meaning) in described_here.items()]
        parts += [f"## {title}", table("variable", "values", "what it does", rows=rows)]
    rows_of_others = [
        (", ".join(f"`{each}`" for each in names.split(", ")), meaning) for names, meaning in OTHERS.items()
    ]
    parts += ["## Of other projects", table("variable", "what it does", rows=rows_of_others)]
    return "\n\n".join(parts)


def named_variables() -> Iterator[str]:
    """The names of tritmark's variables that are string constants in the code."""
    for path in (ROOT / "setup.py", *(path for each in PACKAGES for path in (ROOT / each).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Constant(value=str(text)) if re.fullmatch(r"TRITMARK_[A-Z_]*[A-Z]", text):
                    yield text


def kernels_page() -> str:
    """The public functions and classes of tritmark.kernels."""
    functions = [each for each in kernels.__all__ if inspect.isfunction(getattr(kernels, each))]
    classes = [each for each in kernels.__all__ if inspect.isclass(getattr(kernels, each))]
    parts = ["# tritmark.kernels", plain(inspect.getdoc(kernels) or "").partition("\n\n")[2], "## Functions"]
    parts += [directive("autofunction", f"tritmark.kernels.{each}") for each in functions]
    parts += ["## Classes"]
    parts += [directive("autoclass", f"tritmark.kernels.{each}", members=True) for each in classes]
    parts += ["## tritmark.kernels.aio", plain(inspect.getdoc(aio) or "")]
    awaited = [each for each in aio.__all__ if each not in {"awaitable", "call"}]
    parts += [directive("autofunction", f"tritmark.kernels.aio.{each}") for each in ("call", "awaitable")]
    parts += ["Awaitable, with the parameters of the functions above: " + ", ".join(f"`{each}`" for each in awaited)]
    return "\n\n".join(parts)


def torch_page() -> str:
    """The module and the ops of tritmark.torch; PyTorch need not be installed."""
    ops = ast.get_docstring(ast.parse((ROOT / "pytorch" / "ops.py").read_text(encoding="utf-8"))) or ""
    return "\n\n".join(
        [
            "# tritmark.torch",
            "[tritmark in PyTorch](../pytorch.md) has an example.",
            "## BitLinear",
            directive("autoclass", f"tritmark.torch.BitLinear({signature_of_bit_linear()})", members=True),
            "## torch.ops.tritmark",
            ops.partition("\n\n")[2],
        ]
    )


def signature_of_bit_linear() -> str:
    """The parameters of BitLinear, from the text: without PyTorch its class is only a stand-in."""
    module = ast.parse((ROOT / "pytorch" / "bit_linear.py").read_text(encoding="utf-8"))
    (made,) = (
        each
        for cls in module.body
        if isinstance(cls, ast.ClassDef) and cls.name == "BitLinear"
        for each in cls.body
        if isinstance(each, ast.FunctionDef) and each.name == "__init__"
    )
    for each in (*made.args.args, *made.args.kwonlyargs):
        each.annotation = None
    return ast.unparse(made.args).removeprefix("self, ")


def directive(name: str, what: str, *, members: bool = False) -> str:
    """A directive of autodoc, whose content is reStructuredText."""
    option = "\n   :members:" if members else ""
    return f"```{{eval-rst}}\n.. {name}:: {what}{option}\n```"


def table(*titles: str, rows: Iterable[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [titles, ("---",) * len(titles), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plain(text: str) -> str:
    """Text of the code, with what Markdown would take for emphasis or HTML escaped outside of `code`."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(each if each.startswith("`") else re.sub(r"([*_<\[])", r"\\\1", each) for each in parts)


def first_sentence(text: str | None) -> str:
    """The first sentence of a command's help, in one line."""
    line = " ".join((text or "").split())
    return plain(re.split(r"(?<=[a-z)])\. ", line, maxsplit=1)[0].removesuffix("."))


if __name__ == "__main__":
    write()
