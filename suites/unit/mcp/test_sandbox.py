"""The sandbox: no network, a private /tmp, and files that cannot be written."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from inspect import isfunction
from pathlib import Path

import pytest

from tritmark.harness.sandbox import protections, sandboxed
from tritmark.harness.sandbox.launch import protect

PROBE = """
import json, os, resource, socket, sys
def tried(path):
    try:
        with open(path, "a") as file:
            file.write("x")
    except OSError as error:
        return type(error).__name__
    return "written"
found = {path: tried(path) for path in sys.argv[1:]}
try:
    socket.create_connection(("127.0.0.1", PORT), 2).close()
    found["net"] = "connected"
except OSError:
    found["net"] = "refused"
found["core"] = resource.getrlimit(resource.RLIMIT_CORE)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def listening() -> Iterator[int]:
    """A port of this machine that accepts connections."""
    server = socket.create_server(("127.0.0.1", 0))
    yield server.getsockname()[1]
    server.close()


def test_only_the_named_folder_can_be_written_and_nothing_is_reached(tmp_path: Path, listening: int) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    out.mkdir()
    other.mkdir()
    paths = [str(out / "a"), str(other / "a"), "/tmp/tritmark_sandbox_probe", "/dev/null"]
    command = [sys.executable, "-c", PROBE.replace("PORT", str(listening)), *paths]
    done, missing = sandboxed(command, writable=[out], readable=[other])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["core"] == [0, 0]
    assert found[str(out / "a")] == found["/dev/null"] == "written"
    if missing:
        pytest.skip(f"this system lacks: {missing}")
    assert found[str(other / "a")] == "OSError", "it is there, and read-only"
    assert found["/tmp/tritmark_sandbox_probe"] == "written"
    assert not Path("/tmp/tritmark_sandbox_probe").exists(), "it was a private /tmp"
    assert found["net"] == "refused"


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (("enter_namespaces", "landlock"), ["own namespaces (no), so no private /tmp", "no network and no read-only"]),
        (("enter_namespaces",), ["own namespaces (no), so no private /tmp"]),
        (("limit", "read_only_except"), ["limits of resources", "read-only files (no)"]),
    ],
)
def test_what_a_system_lacks_is_told(
    refused: tuple[str, ...], told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no(*_: object) -> bool:
        raise OSError(1, "no")

    # all of them: a real one would change this process, and outside of namespaces the machine
    takes = [name for name, each in vars(protections).items() if isfunction(each) and not name.startswith("_")]
    assert {"limit", "enter_namespaces", "landlock", "hide_disks", "drop_capabilities"} <= set(takes)
    for name in takes:
        monkeypatch.setattr(protections, name, no if name in refused else lambda *_: True)
    found = [*protect([], [])]
    assert len(found) == len(told)
    assert all(each.startswith(start) for each, start in zip(found, told, strict=True)), found


def test_landlock_alone_keeps_files(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from tritmark.harness.sandbox import protections
try:
    protections.landlock([Path(sys.argv[1])])
except OSError:
    print("none")
    raise SystemExit
(Path(sys.argv[1]) / "a").write_text("x")
try:
    Path("/var/tmp/tritmark_landlock_probe").touch()
except PermissionError:
    print("kept")
"""
    out = tmp_path / "out"
    out.mkdir()
    done = subprocess.run([sys.executable, "-c", code, str(out)], capture_output=True, text=True, check=True)
    if done.stdout == "none\n":
        pytest.skip("this Linux has no Landlock")
    assert done.stdout == "kept\n"


ATTACK = """
import ctypes, json, os, sys
library, found = ctypes.CDLL(None, use_errno=True), {}
found["capabilities"] = [line.split()[1] for line in open("/proc/self/status") if line[:6] in ("CapPrm", "CapBnd")]
REMOUNT, BIND, USER, MOUNTS = 32, 4096, 0x10000000, 0x20000
found["remounted"] = library.mount(b"none", b"/", None, REMOUNT | BIND, None) == 0
if library.unshare(USER | MOUNTS) == 0:
    found["remounted in namespaces of its own"] = library.mount(b"none", b"/", None, REMOUNT | BIND, None) == 0
found["written"] = []
for path in (f"/proc/{os.getppid()}/mem", *sys.argv[1:]):
    try:
        os.close(os.open(path, os.O_WRONLY))
        if not os.path.samefile(path, "/dev/null"):
            found["written"].append(path)
    except OSError:
        pass
print(json.dumps(found))
"""


def test_what_runs_there_cannot_leave_it(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.touch()
    disks = [str(each) for each in Path("/dev").iterdir() if each.is_block_device()]
    command = [sys.executable, "-c", ATTACK, str(kept), *disks]
    done, missing = sandboxed(command, writable=[], readable=[tmp_path])
    assert done.returncode == 0, done.stderr
    if missing:
        pytest.skip(f"this system lacks: {missing}")
    found = json.loads(done.stdout)
    assert {int(each, 16) for each in found.pop("capabilities")} == {0}, "also those that root gets by execve"
    assert not any(found.values()), found


JUDGE = """
import ctypes, os, subprocess, sys
from tritmark.harness.sandbox.inside import hide_memory, show_memory
hide_memory()
if sys.argv[1] == "shown":
    show_memory()
code = f"open('/proc/{os.getpid()}/mem', 'rb').close()"
sys.exit(subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode)
"""


@pytest.mark.parametrize(("what", "status"), [("hidden", 1), ("shown", 0)])
def test_a_child_cannot_open_the_memory_of_what_judges_it(tmp_path: Path, what: str, status: int) -> None:
    done, missing = sandboxed([sys.executable, "-c", JUDGE, what], writable=[], readable=[*map(Path, sys.path)])
    if missing:
        pytest.skip(f"this system lacks: {missing}")
    assert done.returncode == status, done.stderr


LEAVES = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1], "w") as file:
            file.write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
while not os.path.exists(sys.argv[1]) or not os.path.getsize(sys.argv[1]):
    time.sleep(0.01)
time.sleep(float(sys.argv[2]))
sys.exit(7)
"""


@pytest.mark.parametrize(("seconds", "limit"), [("0", None), pytest.param("600", 5.0, marks=pytest.mark.nightly)])
def test_no_process_outlives_the_command(tmp_path: Path, seconds: str, limit: float | None) -> None:
    pid = tmp_path / "pid"
    command = [sys.executable, "-c", LEAVES, str(pid), seconds]
    if limit is None:
        done, _ = sandboxed(command, writable=[tmp_path])
        assert done.returncode == 7
    else:
        with pytest.raises(subprocess.TimeoutExpired):
            sandboxed(command, writable=[tmp_path], timeout_s=limit)
    assert not Path("/proc", pid.read_text(encoding="ascii")).exists(), "it was detached, and holds the pipes"


def test_a_signal_is_a_status(tmp_path: Path) -> None:
    done, _ = sandboxed([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], writable=[tmp_path])
    assert done.returncode == 128 + 9
