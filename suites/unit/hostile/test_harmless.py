"""Sessions that are odd, and in which an honest kernel passes all the same."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hostile_session import AS_USER, PLAIN, RUN, USER, as_root, session

from tritmark.harness.candidate.new import write
from tritmark.harness.providers import load

pytestmark = pytest.mark.long

SHADOWS = ("random", "queue", "select", "numpy", "socket", "json", "tempfile")


@pytest.mark.nightly
def test_a_hard_limit_of_addresses(tmp_path: Path) -> None:
    session(tmp_path, *RUN, before="ulimit -v 12000000", under=PLAIN).must_pass()


def shadowing(folder: Path, *names: str) -> Path:
    """Files that would take the place of modules, and write a line where they are imported; the file with those."""
    for name in names:
        (folder / f"{name}.py").write_text(f"open({str(folder / 'ran')!r}, 'a').write('{name} ')\n")
    return folder / "ran"


@pytest.mark.parametrize("path", ["", ":/nonexistent"])
def test_files_in_the_current_folder_are_not_imported(tmp_path: Path, path: str) -> None:
    # Nothing of ours runs before Python has looked for tritmark itself.
    ran = shadowing(tmp_path, *SHADOWS, *(() if path else ("tritmark",)))
    session(tmp_path, *RUN, PYTHONPATH=path).must_pass()
    assert not ran.exists()


@pytest.mark.nightly
def test_nor_are_they_where_the_module_is_run(tmp_path: Path) -> None:
    ran = shadowing(tmp_path, *SHADOWS)
    command = [sys.executable, "-m", "tritmark.harness", *RUN]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not ran.exists()


@pytest.mark.nightly
def test_odd_variables_and_streams(tmp_path: Path) -> None:
    """Each alone would do; together they take one run."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(
        "import threading, time\n"
        "print('welcome')\n"
        "threading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n"
    )
    before = """
    export NOTE="$(printf 'caf\\351')" TRITMARK_NOTE="$(printf 'caf\\351')"
    taskset -cp "$(taskset -cp $$ | sed 's/.*[: ]\\([0-9]*\\).*/\\1/')" $$ >/dev/null
    """
    odd = {
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONIOENCODING": "ascii",
        "PYTHONWARNINGS": "error",
        "PYTHONOPTIMIZE": "2",
        "PYTHONSTARTUP": "/nonexistent",
        "TZ": "Nonsense/Nowhere",
        "OMP_NUM_THREADS": "0",
        "OMP_PROC_BIND": "nonsense",
        "LD_PRELOAD": "/nonexistent.so",
        "TERM": "nonsense",
        "PYTHONPATH": str(tmp_path / "site"),
    }
    ended = session(tmp_path, *RUN, before=before, after="<&- 2>&-", **odd)
    ended.must_pass()
    assert "PASS" in ended.out
    assert ended.record.environment.variables["TRITMARK_NOTE"] == r"caf\xe9"


@pytest.mark.nightly
def test_names_of_files_that_are_no_utf8(tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    ended = session(odd, *RUN)
    ended.must_pass()
    assert rf"{tmp_path}/caf\xe9/out" in ended.record.environment.command
    (page,) = (odd / "out/html").glob("*.html")
    page.unlink()
    again = session(odd, "report")
    assert (again.status, again.err) == (0, ""), again.err
    assert page.stat().st_size


@pytest.mark.nightly
@as_root
def test_a_user_without_a_home(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    under = f"{AS_USER} env -u HOME -u XDG_CACHE_HOME TMPDIR={tmp_path}"
    session(tmp_path, *RUN, under=under, TRITMARK_CACHE="").must_pass()
    code = "from tritmark.harness.caches import cache_folder; print(cache_folder('native'))"
    told = subprocess.run(
        ["bash", "-c", f'{under} {sys.executable} -c "$0"', code],
        env={name: value for name, value in os.environ.items() if name != "TRITMARK_CACHE"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == str(tmp_path / f"tritmark-{USER}/native")


@pytest.mark.nightly
def test_a_file_system_without_locks(tmp_path: Path) -> None:
    """As FUSE and NFS answer without; see test_locks for other answers."""
    number = errno.EOPNOTSUPP
    source = f"#include <errno.h>\nint flock(int fd, int how) {{ (void)fd; (void)how; errno = {number}; return -1; }}\n"
    (tmp_path / "shim.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "shim.so", "shim.c"], cwd=tmp_path, check=True)
    write(load(), "i2s_dequantize", "c", tmp_path)
    words = ("check", "my_i2s_dequantize.c", "--suite", "smoke", "--dimension", "accuracy")
    session(tmp_path, *words, LD_PRELOAD=str(tmp_path / "shim.so")).must_pass()
    assert list((tmp_path / "cache/native").glob("*.so"))


@pytest.mark.nightly
def test_a_compiler_of_several_words(tmp_path: Path) -> None:
    write(load(), "i2s_dequantize", "c", tmp_path)
    words = ("check", "my_i2s_dequantize.c", "--suite", "smoke", "--dimension", "accuracy")
    session(tmp_path, *words, CC="env LANG=C 'cc' -O1").must_pass()
