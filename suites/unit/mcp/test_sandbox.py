"""The sandbox: no network, a private /tmp, and files that cannot be written."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
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

    for name in ("limit", "enter_namespaces", "private_temporary", "read_only_except", "landlock"):
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


def test_a_command_that_takes_too_long_ends(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        sandboxed([sys.executable, "-c", "import time; time.sleep(60)"], writable=[tmp_path], timeout_s=1)
