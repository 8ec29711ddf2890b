"""Sessions in which nothing can be judged: the message names what is at fault and the remedy, with a status of its own,
and no kernel is blamed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_session import AS_USER, PLAIN, RUN, Ended, as_root, mounts, session

from tritmark.harness.candidate.new import write
from tritmark.harness.providers import load
from tritmark.harness.text.outcome import outcome

pytestmark = pytest.mark.long

CHECK = ("check", "mine.c", "--suite", "smoke", "--dimension", "accuracy")


def kernel(folder: Path, before: str = "", first: str = "") -> None:
    """A correct kernel in C, with text before its function and a first statement."""
    write(load(), "i2s_dequantize", "c", folder)
    for suffix in (".c", ".toml"):
        (folder / f"my_i2s_dequantize{suffix}").rename(folder / f"mine{suffix}")
    text = (folder / "mine.c").read_text()
    at = text.index("{", text.index("void i2s_dequantize(")) + 1
    (folder / "mine.c").write_text(f"{before}\n{text[:at]}\n    {first}\n{text[at:]}")


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("ulimit -v 800000", ("bytes of address space is 819200000", "next: raise it: ulimit -v")),
        ("ulimit -d 500000", ("bytes of address space is 512000000", "next: raise it: ulimit -d")),
        ("ulimit -n 24", ("open files is 24", "next: raise it: ulimit -n")),
        ("ulimit -f 8", ("bytes of a file is 8192", "next: raise it: ulimit -f")),
        ("mkdir gone; cd gone; rmdir ../gone", ("current folder does not exist", "next: change to an existing folder")),
        (f"mkdir {'d' * 100}; export TMPDIR=$PWD/{'d' * 100}", ("AF_UNIX path too long", "next: ", "TMPDIR")),
    ],
    ids=["addresses", "data", "files", "size", "deleted", "long"],
)
def test_a_limit_of_the_session(tmp_path: Path, before: str, words: tuple[str, ...]) -> None:
    session(tmp_path, *RUN, before=before, under=PLAIN).must_name(*words)


@pytest.mark.nightly
def test_a_limit_of_seconds(tmp_path: Path) -> None:
    """Wherever it strikes: this process, the server of the workers, or one of them."""
    session(tmp_path, "run", "--device", "cpu", before="ulimit -t 3").must_name("next: ", "ulimit -")


@pytest.mark.nightly
@as_root
def test_a_limit_of_processes(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    ended = session(tmp_path, *RUN, before="ulimit -u 8", under=AS_USER, HOME=str(tmp_path))
    ended.must_name("processes and threads of this user", "ulimit -u")


@pytest.mark.nightly
@mounts
@pytest.mark.parametrize(
    ("mount", "words"),
    [
        ("mount -t tmpfs none /proc", ("/proc does not show this process", "next: mount it")),
        ("mount -t tmpfs -o size=4k none /dev/shm", ("No space left on device", "/dev/shm")),
        ("mount -t tmpfs -o ro none /dev/shm", ("Read-only file system", "/dev/shm")),
    ],
    ids=["proc", "tiny", "read-only"],
)
def test_what_a_container_lacks(tmp_path: Path, mount: str, words: tuple[str, ...]) -> None:
    under = f'unshare -m sh -c \'{mount} && exec "$0" "$@"\''
    session(tmp_path, *RUN, under=under).must_name(*words)


@mounts
@pytest.mark.parametrize("options", ["ro", "noexec"])
def test_a_cache_that_takes_nothing_or_runs_nothing(tmp_path: Path, options: str) -> None:
    kernel(tmp_path)
    (tmp_path / "cache").mkdir()
    under = f'unshare -m sh -c \'mount -t tmpfs -o {options} none {tmp_path}/cache && exec "$0" "$@"\''
    session(tmp_path, *CHECK, under=under).must_name(str(tmp_path / "cache/native"), "next: set TRITMARK_CACHE")


@pytest.mark.parametrize(
    ("cc", "words"),
    [
        (
            "no-such-compiler",
            "no-such-compiler not found; next: install one (Debian and Ubuntu: apt install g++), or set CC",
        ),
        ("cc --no-such-option", "does not compile a trivial function"),
    ],
)
def test_a_compiler_that_is_broken(tmp_path: Path, cc: str, words: str) -> None:
    kernel(tmp_path)
    session(tmp_path, *CHECK, CC=cc).must_name(words, "next: ")


GREEDY = """
#include <stdlib.h>
static void take(void) {
    volatile char *all = malloc((size_t)7 << 28);
    all[0] = 1;  /* as those do who never look what malloc gave */
    free((void *)all);
}
"""


@pytest.mark.nightly
def test_a_kernel_is_not_blamed_for_a_limit_and_is_without_one(tmp_path: Path) -> None:
    kernel(tmp_path, GREEDY, "take();")
    limited = session(tmp_path, *CHECK, before="ulimit -v 1900000", under=PLAIN)
    limited.must_name("under a limit of 1945600000 bytes of address space", "ulimit -v unlimited")
    session(tmp_path, *CHECK).must_pass()


@pytest.mark.nightly
def test_a_kernel_that_crashes_is_blamed_under_a_limit_that_is_far(tmp_path: Path) -> None:
    kernel(tmp_path, first="__builtin_trap();")
    ended = session(tmp_path, *CHECK, before=f"ulimit -v {1 << 32}", under=PLAIN)
    assert ended.status == 1, ended.err
    assert any("was killed by SIG" in run.accuracy.reason for run in ended.record.runs)


@pytest.mark.nightly
def test_an_output_that_is_refused_loses_no_record(tmp_path: Path) -> None:
    ended = session(tmp_path, *RUN, after=">&-")
    refused_output(ended)
    assert outcome(ended.record).passed
    assert f"Record: {tmp_path}/out/runs/" in ended.err
    refused_output(session(tmp_path, "report", after=">/dev/full"))
    refused_output(session(tmp_path, "report", "--format", "md", after=">/dev/full"))


def refused_output(ended: Ended) -> None:
    assert (ended.status, "Traceback" in ended.err) == (6, False), ended.err
    assert "standard output cannot be written" in ended.err
    assert "next: redirect it to a writable file" in ended.err


def test_a_reader_that_goes_is_not_told(tmp_path: Path) -> None:
    ended = session(tmp_path, "schema", after="| head -1; exit ${PIPESTATUS[0]}")
    assert ended.status in {0, 6}
    assert ended.err == ""
