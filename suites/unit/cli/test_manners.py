"""How the command line behaves towards terminals, shells and scripts."""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import outcome_of
from known_commands import COMMAND, LISTED, is_group, parsed, split
from rich.console import Console

from tritmark.harness import cli
from tritmark.harness.cli import completion, exit_status, progress
from tritmark.harness.cli.examples import EXAMPLES, epilog
from tritmark.harness.cli.gate_progress import GateTerminal
from tritmark.harness.cli.progress import ProgressCallback, ProgressLine, Terminal
from tritmark.harness.errors import UsageError
from tritmark.harness.providers import load
from tritmark.harness.record import Performance, Record, Status

NAMES = sorted(LISTED)
MAIN = "import sys\nsys.argv[0] = 'tritmark'\nfrom tritmark.harness.cli import main\nmain()"
COLOUR = re.compile(r"\x1b\[[0-9;]*(?:3[0-7]|9[0-7]|38;[0-9;]+)m")


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_examples_and_they_parse(name: str) -> None:
    assert EXAMPLES[name], "examples.py has none"
    for line, meaning in EXAMPLES[name]:
        words = shlex.split(line, comments=True)
        if ">" in words:
            words = words[: words.index(">")]
        assert words[0] == "tritmark"
        command = split(words[1:])[0]
        assert command == name or (is_group(LISTED[name]) and command.startswith(f"{name} "))
        assert meaning
        parsed(words[1:])


def test_examples_are_of_commands_that_exist() -> None:
    assert sorted(EXAMPLES) == NAMES
    assert epilog("none") is None


@pytest.mark.parametrize("name", NAMES)
def test_help_ends_with_the_examples(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    told = outcome_of(monkeypatch, capsys, *name.split(), "--help")
    assert (told.status, told.err) == (0, "")
    end = told.out[told.out.index("Examples:") :]
    for line, meaning in EXAMPLES[name]:
        assert f"{line}  # {meaning}" in " ".join(end.split()).replace(f"{line} #", f"{line}  #")


# Colours


def in_terminal(*arguments: str, **variables: str) -> str:
    """What a command writes where both its streams are a terminal."""
    ours, theirs = pty.openpty()
    kept = {
        name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS"}
    }
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**kept, "TERM": "xterm-256color", **variables},
    )
    os.close(theirs)
    told = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux's error when the other end is closed
            break
        if not part:
            break
        told += part
    os.close(ours)
    assert process.wait(timeout=60) == 2
    return told.decode()


BAD = ("frame", "--to", "parquet")


@pytest.mark.parametrize("arguments", [BAD, ("list", "planets")], ids=["ours", "typer's"])
def test_colours_in_a_terminal(arguments: tuple[str, ...]) -> None:
    assert COLOUR.search(in_terminal(*arguments))
    assert not COLOUR.search(in_terminal(*arguments, NO_COLOR="1"))
    dumb = in_terminal(*arguments, TERM="dumb")
    assert "\x1b" not in dumb


@pytest.mark.nightly
def test_a_pipe_gets_colours_only_where_they_are_forced() -> None:
    for variables, coloured in (({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)):
        kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
        done = subprocess.run(
            [sys.executable, "-c", MAIN, *BAD], capture_output=True, text=True, env={**kept, **variables}, check=False
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert bool(COLOUR.search(done.stderr)) is coloured, variables


# Progress


@pytest.mark.parametrize("width", [80, 120])
def test_progress_tells_the_time_left(gpu_record: Record, width: int) -> None:
    stream = io.StringIO()
    untimed = gpu_record.runs[0].model_copy(update={"performance": Performance(status=Status.NOT_RUN, reason="no")})
    now = 0.0
    terminal = Terminal(Console(file=stream, force_terminal=True, width=width, color_system=None), lambda: now)
    with terminal:
        terminal.planned(10)
        for _ in range(5):
            now += 2.0
            terminal.finished(untimed)
            terminal.started("the next\x1b[31m" + " and so on" * 20)
        terminal._bar.refresh()
        told = re.sub(r"\x1b\[[0-9?;]*[a-zA-Z]", "", stream.getvalue())
    last = re.split(r"[\r\n]+", told.rstrip())[-1]
    assert len(last) <= width
    assert "5/10" in last
    assert re.search(r"left 0:00:(10|12)", last), last
    assert "the next\\x1b[31m" in last


def test_progress_where_lines_cannot_be_redrawn(gpu_record: Record) -> None:
    stream = io.StringIO()
    with Terminal(Console(file=stream, width=120)) as terminal:
        terminal.planned(2)
        for run in gpu_record.runs[:2]:
            terminal.started(run.id)
            terminal.finished(run)
    (line,) = stream.getvalue().strip().splitlines()
    assert "2/2" in line
    assert "\x1b" not in stream.getvalue()
    assert "\r" not in stream.getvalue()


def test_progress_is_told_each_minute_where_lines_cannot_be_redrawn(
    gpu_record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait_for(what: str) -> None:
        end = time.monotonic() + 30
        while what not in stream.getvalue():
            assert time.monotonic() < end, stream.getvalue()
            time.sleep(0.005)

    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    stream = io.StringIO()
    with Terminal(Console(file=stream, width=120)) as terminal:
        terminal.started("machine")
        wait_for("Z machine\n")
        terminal.planned(2)
        terminal.finished(gpu_record.runs[0])
        terminal.started("the next\x1b[31m [red]" + " and so on" * 20)
        wait_for("Z 1/2 the next\\x1b[31m [red]" + " and so on" * 20 + "\n")
    *told, last = stream.getvalue().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (machine$|[01]/2 )", line) for line in told), told
    assert "1/2" in last
    time.sleep(0.05)
    assert stream.getvalue().splitlines() == [*told, last]


@pytest.mark.parametrize(("terminal", "silent"), [(True, True), (False, False)])
def test_only_a_terminal_that_redraws_its_line_gets_no_other(
    terminal: bool, silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert (Terminal(Console(file=io.StringIO(), force_terminal=terminal))._log is None) is silent
    monkeypatch.setenv("TERM", "dumb")
    assert Terminal(Console(file=io.StringIO(), force_terminal=terminal))._log is not None


def test_the_time_left_is_that_of_the_work_left() -> None:
    """A league's: 15 of 122 need no work, the first result of the others takes minutes, and timed ones take longer."""
    now = 0.0
    line = ProgressLine(Console(file=io.StringIO()), lambda: now)
    line.planned(122, timed=60)
    for _ in range(15):
        line.advance()
    assert line._pace.left() is None
    line.started("accuracy and memory")
    now = 210.0
    assert line._pace.left() is None, "nothing is known of the pace"
    line.advance()
    work = 122 + 5 * 60
    assert line._pace.left() == pytest.approx(210 * (work - 16))
    now = 1000.0
    assert line._pace.left() == pytest.approx(1000 * (work - 16)), "what is waited for lowers the pace"
    for _ in range(46):
        line.advance()
    for _ in range(59):
        now += 6.0
        line.advance(timed=True)
    assert line._pace.left() == pytest.approx(now / (work - 15 - 6) * 6)
    now += 3600.0
    assert line._pace.left() == pytest.approx(max(3600, now / (work - 15 - 6) * 6)), "what was waited for, at least"
    line.advance(timed=True)
    assert line._pace.left() == 0


def test_nothing_past_the_end_is_left_or_counted_below_zero() -> None:
    now = 0.0
    line = ProgressLine(Console(file=io.StringIO()), lambda: now)
    line.planned(2)
    line.started("x")
    for _ in range(5):
        now += 1.0
        line.advance()
        assert (line._pace.left() or 0) >= 0
    (task,) = line._bar.tasks
    assert task.completed <= 2


@pytest.mark.parametrize("count", [1, 3])
def test_what_is_followed_is_complete_at_the_end(count: int) -> None:
    stream = io.StringIO()
    with ProgressLine(Console(file=stream, width=120)) as line:
        following = ProgressCallback(line)
        for number in range(count):
            following(f"piece {number}", count)
    assert f"{count}/{count}" in stream.getvalue()


def test_what_breaks_off_is_not_complete() -> None:
    def broken_off() -> None:
        with ProgressLine(Console(file=stream, width=120)) as line:
            ProgressCallback(line)("piece", 1)
            raise UsageError("x")

    stream = io.StringIO()
    with pytest.raises(UsageError):
        broken_off()
    assert "0/1" in stream.getvalue()


def test_a_phase_without_a_number_has_neither_a_count_nor_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    stream = io.StringIO()
    with GateTerminal(Console(file=stream, width=120)) as terminal:
        terminal.started("building main")
        time.sleep(0.1)
        terminal._bar.refresh()
    told = stream.getvalue()
    assert "Z building main\n" in told
    assert "0/" not in told
    assert "left" not in told


# Completion


def completed(line: str, cwd: Path) -> list[str]:
    """What bash is offered for the last word of the line."""
    words = line.split(" ")
    done = subprocess.run(
        [sys.executable, "-c", MAIN],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={
            **os.environ,
            "_TRITMARK_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.nightly
def test_bash_is_offered_what_there_is(tmp_path: Path) -> None:
    assert completed("tritmark run --op i2s_d", tmp_path) == ["i2s_dequantize"]
    assert completed("tritmark gate main HEAD --op i2s_d", tmp_path) == ["i2s_dequantize"]
    assert completed("tritmark tu", tmp_path) == ["tune"]
    assert not {"select", "autotune"} & set(completed("tritmark ", tmp_path))
    assert completed("tritmark tune ", tmp_path) == ["variants", "instances", "prefetch"]
    assert completed("tritmark tune variants i2s_d", tmp_path) == ["i2s_dequantize"]
    assert completed("tritmark tune prefetch --device cp", tmp_path) == ["cpu"]
    assert completed("tritmark select i2s_d", tmp_path) == ["i2s_dequantize"]
    assert "--threads" in completed("tritmark tune cpu --t", tmp_path)
    (tmp_path / "results/runs").mkdir(parents=True)
    (tmp_path / "results/runs/20250102T000000Z-00000002.json").touch()
    assert completed("tritmark verify 2025", tmp_path) == ["20250102T000000Z-00000002"]


def test_what_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = load()
    assert completion.ops("") == list(installed.ops)
    assert completion.suites("s") == [name for name in installed.suites() if name.startswith("s")]
    assert completion.formats("tq") == [name for name in installed.formats if name.startswith("tq")]
    assert set(completion.devices("")) == set(installed.registry.devices)
    assert "avx2" in completion.variants("")
    assert len(set(completion.variants(""))) == len(completion.variants(""))
    ids = completion.variants("cpu/i2s_q")
    assert ids
    assert all(each.startswith("cpu/i2s_quantize/") for each in ids)
    monkeypatch.chdir(tmp_path)
    assert completion.records("") == []
    (tmp_path / "results/runs/20250101T000000Z-00000001.partial").mkdir(parents=True)
    for day in (2, 3):
        (tmp_path / f"results/runs/2025010{day}T000000Z-00000002.json").touch()
    assert completion.interrupted("") == ["20250101T000000Z-00000001"]
    assert completion.records("2025") == ["20250103T000000Z-00000002", "20250102T000000Z-00000002"]
    assert completion.records("x") == []


def test_completion_says_nothing_where_kernels_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    from tritmark.harness import providers

    def broken() -> None:
        raise UsageError("provider 'builtin' cannot be loaded")

    monkeypatch.setattr(providers, "load", broken)
    assert completion.ops("") == completion.suites("") == completion.variants("") == []


def test_completion_is_quick() -> None:
    """By what it imports, which is the same on every machine."""
    code = (
        "import sys\nfrom tritmark.harness.cli import completion\ncompletion.ops(''), completion.variants(''), "
        "completion.suites(''), completion.formats(''), completion.records('')\ncostly = {'matplotlib', 'pandas', "
        "'scipy', 'jinja2', 'gguf', 'ml_dtypes', 'cpuinfo', 'pyarrow'}\ncostly |= {'tritmark.harness.record', "
        "'tritmark.harness.store', 'tritmark.harness.report.page'}\nprint(*sorted(costly & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MemoryError("Unable to allocate 1 GiB"), 6),
        (ImportError("lib.so: failed to map segment from shared object"), 6),
        (ImportError("lib.so: cannot allocate memory in static TLS block"), 6),
        (ImportError("No module named 'soak'"), None),
    ],
)
@pytest.mark.parametrize("nothing_left", [False, True])
def test_too_little_memory_for_an_import_is_named(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    error: Exception,
    status: int | None,
    nothing_left: bool,
) -> None:
    """Also if there is too little for the modules that print."""

    def fails(**_: object) -> None:
        raise error

    def no_console(**_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(cli, "app", fails)
    if nothing_left:
        monkeypatch.setattr(cli, "console", no_console)
    if status is None:
        with pytest.raises(ImportError):
            cli.main()
        return
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == status
    said = capfd.readouterr().err
    assert "tritmark: out of memory" in said
    assert "next: free memory" in said


def test_the_shell_gets_its_script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--install-completion", "--show-completion"):
        assert option in "".join(each for parameter in COMMAND.params for each in parameter.opts)
    monkeypatch.setenv("_TRITMARK_COMPLETE", "source_bash")
    told = outcome_of(monkeypatch, capsys)
    assert told.status == 0
    assert "complete -o default -F _tritmark_completion tritmark" in told.out


# Options


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        (["run", "--variant", "avx2", "--variant", "scalar"], "--variant"),
        (["check", "my.c", "--seed=1", "--suite", "smoke", "--seed=1"], "--seed"),
        (["gate", "a", "b", "--op", "x", "--op", "y"], "--op"),
        (["check", "my.c", "--dimension", "accuracy", "--dimension", "memory"], ""),
        (["tune", "prefetch", "--seed", "1", "--seed", "1"], "--seed"),
        (["tune", "instances", "--shape", "1,2,3", "--shape", "4,5,6"], ""),
        (["select", "matmul", "--shape", "M=1", "--seed", "1", "--seed", "1"], "--seed"),
        (["report", "--open", "--open", "--format", "md"], ""),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else each,
)
def test_an_option_of_one_value_is_given_once(arguments: list[str], refused: str) -> None:
    if not refused:
        parsed(arguments)
        return
    with pytest.raises(Exception, match="given 2 times; legal: once") as caught:
        parsed(arguments)
    assert caught.value.param.opts[0] == refused  # type: ignore[attr-defined]


# Files of users


def test_a_misspelt_key_that_is_needed_is_told_as_misspelt(tmp_path: Path) -> None:
    """It is missing as well, but that is not the clue."""
    from tritmark.harness.candidate.manifest import read_manifest

    text = 'op = "i2s_quantize"\ndtype = "int8"\nfuncton = "f"\narguments = ["x", "scale", "q", "n", "bad"]\n'
    with pytest.raises(UsageError, match=r"my\.toml:3:1: unknown key 'functon'; did you mean 'function'\?"):
        read_manifest(tmp_path / "my.c", Path("my.toml"), text, load(), launched=False)


# Exit status


def test_the_statuses_differ() -> None:
    assert list(exit_status.MEANINGS) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 130]


def test_ctrl_c_in_any_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from tritmark.harness.frame import table

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(table, "find", interrupt)
    told = outcome_of(monkeypatch, capsys, "frame")
    assert told.status == 130
    assert "Traceback" not in told.err


def test_a_program_that_imports_the_command_line_keeps_its_search_path() -> None:
    code = "import sys; before = list(sys.path); import tritmark.harness.cli; assert sys.path == before"
    subprocess.run([sys.executable, "-c", code], check=True)
