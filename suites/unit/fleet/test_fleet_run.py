"""`tritmark fleet run` on clusters of processes on this host, whose workers are killed, stopped and refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import psutil
import pytest
from dask_cluster import OPS, DaskCluster, dask_cluster, jobs_of, local_cluster, until

import tritmark
from tritmark.harness.record import Record
from tritmark.harness.store import read

pytest.importorskip("distributed", reason="distributed is not installed; tox -e py has it")
pytestmark = pytest.mark.long
KIND = "tritmark/cpu/here"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DaskCluster]:
    with dask_cluster(tmp_path) as made:
        yield made


def records(cluster: DaskCluster) -> list[Record]:
    (folder,) = (cluster.folder / "results" / "fleet").iterdir()
    return [read(path) for path in sorted((folder / "runs").iterdir())]


def only_set(cluster: DaskCluster) -> dict[str, Any]:
    (folder,) = (cluster.folder / "results" / "fleet").iterdir()
    found: dict[str, Any] = json.loads((folder / "set.json").read_text())
    return found


def parent_of(job: psutil.Process) -> psutil.Process:
    """The worker that runs a job."""
    found = job.parent()
    assert found is not None
    return found


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_the_job_of_a_killed_worker_is_run_by_the_other(cluster: DaskCluster) -> None:
    local_cluster(cluster, KIND)
    command = cluster.begin("--op", "i2s_quantize", "--seed", "5", "--json")
    job = cluster.job()
    killed = parent_of(job)
    killed.kill()
    until(lambda: gone(job), "a job outlives its worker")
    status, out, errors = cluster.end(command)
    assert status == 0, errors
    found = json.loads(out)
    assert [(each["op"], each["state"]) for each in found["jobs"]] == [("i2s_quantize", "done")]
    (record,) = records(cluster)
    assert record.id == found["jobs"][0]["record"]
    assert record.environment.seed == found["seed"] == 5
    assert {run.op for run in record.runs} == {"i2s_quantize"}
    assert "OMP_NUM_THREADS" not in record.environment.variables, "it is Dask's, not the user's"
    assert {each["code"]["tritmark"] for each in found["workers"]} == {tritmark.__version__}
    assert all(each["machine"]["id"] == record.machine.id and each["packages"]["numpy"] for each in found["workers"])


@pytest.mark.nightly
def test_two_kinds_whose_workers_are_both_killed(cluster: DaskCluster) -> None:
    cluster.scheduler()
    nannies = [cluster.worker(name, f"tritmark/cpu/{name}") for name in ("alice", "bob")]
    command = cluster.begin("--seed", "5")
    for nanny in nannies:
        (worker,) = psutil.Process(nanny.pid).children()[-1:]
        until(lambda nanny=nanny: jobs_of(nanny.pid) or command.poll() is not None, "a job")  # type: ignore[misc]
        for each in psutil.Process(nanny.pid).children():
            each.kill()
        until(lambda worker=worker: gone(worker), "the worker is killed")  # type: ignore[misc]
    status, out, errors = cluster.end(command)
    assert status == 0, errors
    assert out.startswith("PASS: 4 of 4 jobs done on 2 kinds")
    found = only_set(cluster)
    kept = {each.id: each for each in records(cluster)}
    assert sorted((each["kind"], each["op"]) for each in found["jobs"]) == sorted(
        (kind, op) for kind in ("cpu/alice", "cpu/bob") for op in OPS
    )
    assert sorted(each["record"] for each in found["jobs"]) == sorted(kept), "nothing is lost, nothing is doubled"
    for each in found["jobs"]:
        assert {run.op for run in kept[each["record"]].runs} == {each["op"]}
        assert each["worker"] == each["kind"].removeprefix("cpu/")


@pytest.mark.nightly
def test_one_machine_times_one_job_at_a_time(cluster: DaskCluster) -> None:
    cluster.scheduler()
    for name in ("alice", "bob"):
        cluster.worker(name, f"tritmark/cpu/{name}")
    command = cluster.begin()
    most = 0
    while command.poll() is None:
        most = max(most, sum(len(jobs_of(each.pid)) for each in cluster.processes if each is not command))
    assert most == 1
    assert cluster.end(command)[0] == 0


@pytest.mark.nightly
def test_a_kind_whose_workers_do_not_return_is_listed_as_not_run(cluster: DaskCluster) -> None:
    cluster.scheduler()
    lost = cluster.worker("alice", "tritmark/cpu/alice", nanny=False)
    cluster.worker("bob", "tritmark/cpu/bob", nanny=False)
    command = cluster.begin("--wait", "3")
    until(lambda: bool(jobs_of(lost.pid)) or only_done(cluster) >= 1, "a job")
    lost.kill()
    status, out, errors = cluster.end(command)
    assert status == 6, errors
    assert out.startswith("INCOMPLETE: ")
    assert "Not run: " in out
    assert "no worker of kind cpu/alice was left for 3 s" in out
    states = {(each["kind"], each["op"]): each["state"] for each in only_set(cluster)["jobs"]}
    assert [states["cpu/bob", op] for op in OPS] == ["done", "done"]
    assert "lost" in {states["cpu/alice", op] for op in OPS}
    assert len(records(cluster)) == list(states.values()).count("done")


def only_done(cluster: DaskCluster) -> int:
    try:
        return len(records(cluster))
    except (ValueError, FileNotFoundError):
        return 0


@pytest.mark.nightly
def test_ctrl_c_keeps_what_is_finished_and_ends_the_job(cluster: DaskCluster) -> None:
    cluster.scheduler()
    nanny = cluster.worker("alice", KIND)
    command = cluster.begin()
    until(lambda: only_done(cluster) >= 1, "a Record")
    (job,) = until(lambda: jobs_of(nanny.pid), "the second job")
    job.suspend()
    os.kill(command.pid, signal.SIGINT)
    status, out, errors = cluster.end(command)
    assert status == 130, errors
    assert out.startswith("INTERRUPTED: 1 of 2 jobs done")
    assert "Traceback" not in errors
    until(lambda: gone(job), "the job goes on")
    assert len(records(cluster)) == 1
    assert [each["state"] for each in only_set(cluster)["jobs"]] == ["done", "waiting"]
    status, _, errors = cluster.run("--op", "i2s_quantize")
    assert status == 0, f"the worker is not usable any more: {errors}"


@pytest.mark.nightly
def test_the_scheduler_is_killed(cluster: DaskCluster) -> None:
    cluster.scheduler()
    cluster.worker("alice", KIND)
    command = cluster.begin()
    until(lambda: only_done(cluster) >= 1, "a Record")
    cluster.processes[0].kill()
    status, out, errors = cluster.end(command)
    assert status == 6, errors
    assert "the scheduler is lost" in errors
    assert "Traceback" not in errors
    assert "INCOMPLETE: 1 of 2 jobs done" in out
    assert len(records(cluster)) == 1


def of_another_version(folder: Path) -> dict[str, str]:
    """The environment of a process in which tritmark has another version."""
    info = folder / "other" / "tritmark-9.9.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tritmark\nVersion: 9.9.9\n")
    (info / "entry_points.txt").write_text(str(distribution("tritmark").read_text("entry_points.txt")))
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(info.parent), os.environ.get("PYTHONPATH", ""))))}


@pytest.mark.nightly
def test_a_worker_with_another_version_that_joins_later_ends_the_command(cluster: DaskCluster) -> None:
    cluster.scheduler()
    cluster.worker("alice", KIND)
    command = cluster.begin()
    until(lambda: only_done(cluster) >= 1, "a Record")
    cluster.worker("mallory", KIND, env=of_another_version(cluster.folder))
    status, out, errors = cluster.end(command)
    kept = records(cluster)
    assert {each.environment.tritmark for each in kept} == {tritmark.__version__}
    if len(kept) == len(OPS):  # alice was faster
        return
    assert status == 6, errors
    assert "worker mallory" in errors
    assert out.startswith(f"INCOMPLETE: {len(kept)} of 2 jobs done")


@pytest.mark.nightly
def test_a_worker_with_another_version_is_refused_by_name(cluster: DaskCluster) -> None:
    cluster.scheduler()
    cluster.worker("alice", KIND)
    cluster.worker("mallory", KIND, env=of_another_version(cluster.folder))
    status, out, errors = cluster.run()
    assert status == 6
    assert out == ""
    assert "worker mallory" in errors
    assert f"has tritmark 9.9.9, and this command has {tritmark.__version__}" in errors
    assert "worker alice" not in errors
    assert not (cluster.folder / "results").exists(), "something was run"


@pytest.mark.nightly
def test_a_worker_with_other_sources_or_without_tritmark_is_refused_by_name(cluster: DaskCluster) -> None:
    cluster.scheduler()
    other = cluster.folder / "other" / "tritmark"
    other.mkdir(parents=True)
    for each in (each for place in tritmark.__path__ for each in Path(place).iterdir()):
        if (other / each.name).exists():
            continue
        if each.name in {"harness", "kernels"}:
            shutil.copytree(each, other / each.name)
        else:
            (other / each.name).symlink_to(each)
    with (other / "kernels" / "ops.py").open("a") as file:
        file.write("# changed\n")
    path = os.pathsep.join(filter(None, (str(other.parent), os.environ.get("PYTHONPATH", ""))))
    cluster.worker("mallory", KIND, env={"PYTHONPATH": path})
    empty = cluster.folder / "empty"
    empty.mkdir()
    (empty / "sitecustomize.py").write_text("import sys\nsys.modules['tritmark'] = None\n")
    path = os.pathsep.join(filter(None, (str(empty), os.environ.get("PYTHONPATH", ""))))
    cluster.worker("trent", KIND, env={"PYTHONPATH": path})
    status, _, errors = cluster.run()
    assert status == 6
    assert "worker mallory" in errors
    assert "has other sources of tritmark" in errors
    assert "worker trent" in errors
    assert "has no tritmark" in errors


@pytest.mark.nightly
def test_without_a_worker_that_names_a_kind(cluster: DaskCluster) -> None:
    cluster.scheduler()
    cluster.worker("alice")
    status, out, errors = cluster.run()
    assert (status, out) == (6, "")
    assert "none of 1 workers of" in errors
    assert "--resources tritmark/DEVICE/NAME=1" in errors


@pytest.mark.nightly
def test_without_a_scheduler(cluster: DaskCluster) -> None:
    cluster.address = "tcp://127.0.0.1:9"
    status, out, errors = cluster.run()
    assert (status, out) == (6, "")
    assert "no Dask scheduler answers" in errors
    assert "start one with `dask scheduler`" in errors


def test_an_invalid_request_needs_no_cluster(cluster: DaskCluster) -> None:
    cluster.address = "tcp://127.0.0.1:9"
    status, out, errors = cluster.run("--op", "i2s_quantise")
    assert (status, out) == (2, "")
    assert "did you mean 'i2s_quantize'?" in errors
    assert sys.executable not in errors
