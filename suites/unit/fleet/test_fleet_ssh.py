"""A fleet whose workers are started over SSH, on this host, by a server of the test's own."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from dask_cluster import OPS, DaskCluster, dask_cluster, until

pytest.importorskip("distributed", reason="distributed is not installed; tox -e py has it")
pytest.importorskip("asyncssh", reason="asyncssh is not installed; tox -e nightly has it")
pytestmark = [pytest.mark.long, pytest.mark.nightly]

_CLUSTER = """\
import signal, sys
from distributed import SSHCluster
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
port, key, python, file = sys.argv[1:]
with SSHCluster(
    ["127.0.0.1", "127.0.0.1"],
    connect_options={"port": int(port), "known_hosts": None, "client_keys": [key]},
    scheduler_options={"host": "127.0.0.1", "dashboard": False},
    worker_options={"nthreads": 1, "resources": {"tritmark/cpu/remote": 1}},
    remote_python=python,
) as made:
    open(file, "w").write(made.scheduler_address)
    signal.pause()
"""


@dataclass(frozen=True)
class SshServer:
    port: int
    key: Path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    found = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        pytest.skip("sshd is not installed; apt-get install openssh-server")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    (tmp_path / "authorized").write_text((tmp_path / "user.pub").read_text())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nPidFile none\nStrictModes no\nUsePAM no\n"
        f"AuthorizedKeysFile {tmp_path}/authorized\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"
    )
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd of root refuses to start without it
    process = subprocess.Popen([found, "-D", "-e", "-f", str(config)], stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: _answers(port) or process.poll() is not None, "sshd answers")
        if process.poll() is not None:
            assert process.stderr is not None
            pytest.skip(f"sshd does not start here: {process.stderr.read().strip()}")
        yield SshServer(port, tmp_path / "user")
    finally:
        process.terminate()
        process.communicate()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DaskCluster]:
    with dask_cluster(tmp_path) as made:
        yield made


def test_runs_on_workers_that_ssh_started(server: SshServer, cluster: DaskCluster, tmp_path: Path) -> None:
    python = tmp_path / "python"
    # A remote shell has none of the variables of this process.
    python.write_text(
        f"#!/bin/sh\nPYTHONPATH='{os.environ.get('PYTHONPATH', '')}' TRITMARK_STATE='{tmp_path}/state' "
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    file = tmp_path / "address"
    made = cluster.start("-c", _CLUSTER, str(server.port), str(server.key), str(python), str(file))
    log = tmp_path / "log-0.txt"
    try:
        until(lambda: (file.is_file() and file.read_text()) or made.poll() is not None, "the cluster")
        assert made.poll() is None, f"{getpass.getuser()}: {log.read_text()}"
        cluster.address = file.read_text()
        status, out, errors = cluster.run()
        assert status == 0, errors
        assert out.startswith(f"PASS: {len(OPS)} of {len(OPS)} jobs done on 1 kind of machines")
    finally:
        made.terminate()  # ends what it started over SSH, too
        made.wait(60)
