"""What the doctor says of machines that are made up, and of this one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import outcome_of
from recorded_topologies import NAMES, planted

from tritmark.harness.disassembly.tools import find
from tritmark.harness.doctor import examine, gpu, host, noise, tools
from tritmark.harness.doctor.check import Check, State
from tritmark.harness.errors import DeviceUnavailableError
from tritmark.harness.machine import cpu
from tritmark.harness.machine import gpu as machine_gpu
from tritmark.harness.measure.alternate import Alternation
from tritmark.harness.providers import load


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("text", "state", "mend"),
    [
        ("always [madvise] never", State.OK, ""),
        ("[always] madvise never", State.OK, ""),
        ("always madvise [never]", State.BETTER, "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"),
        (None, State.BETTER, "use a Linux kernel with transparent huge pages, if possible"),
    ],
)
def test_huge_pages(tmp_path: Path, text: str | None, state: State, mend: str) -> None:
    if text is not None:
        write(tmp_path / "kernel/mm/transparent_hugepage/enabled", text)
    found = host.huge_pages(tmp_path)
    assert (found.state, found.mend) == (state, mend)


EVERY = frozenset(range(8))


@pytest.mark.parametrize("name", NAMES)
def test_recorded_nodes(tmp_path: Path, name: str) -> None:
    """Linux's default is to move pages after the threads, of which nothing comes on one node."""
    sys, proc = planted(name, tmp_path)
    found = host.nodes(sys, proc, EVERY)
    if name == "one_node":
        assert (found.state, found.found) == (State.OK, "one node")
    elif name == "memoryless":
        assert (found.state, "cores of node 1 have all" in found.means) == (State.BETTER, True)
    else:
        assert (found.state, found.mend) == (State.BETTER, "sudo sysctl kernel.numa_balancing=0")
        write(proc / "sys/kernel/numa_balancing", "0")
        assert host.nodes(sys, proc, EVERY).state is State.OK


@pytest.mark.parametrize(
    ("cores", "status", "maps", "far"),
    [
        ({4, 5}, "0", "default", "1"),
        ({0, 5}, "0", "default", "1"),
        ({4, 5}, "0-1", "bind:0", "1"),
        ({4, 5}, "1", "default", None),
        ({0, 5}, "0-1", "bind:0-1", None),
        ({0, 5}, "0-1", "interleave:0-1", None),
    ],
)
def test_cores_whose_memory_is_elsewhere(
    tmp_path: Path, cores: set[int], status: str, maps: str, far: str | None
) -> None:
    """By a cpuset, and by a policy of numactl's."""
    sys, proc = planted("two_sockets", tmp_path)
    write(proc / "sys/kernel/numa_balancing", "0")
    write(proc / "self/status", f"Mems_allowed_list:\t{status}\n")
    write(proc / "self/numa_maps", f"00400000 default file=/bin/x N0=1\n7fff00000000 {maps} stack anon=3 N0=3\n")
    found = host.nodes(sys, proc, frozenset(cores))
    if far is None:
        assert found.state is State.OK
    else:
        assert (found.state, f"cores of node {far} have" in found.means) == (State.BETTER, True)
        assert "numactl --cpunodebind=0 --membind=0" in found.mend


@pytest.mark.parametrize(
    ("text", "state", "mend"),
    [
        ("performance", State.OK, ""),
        ("powersave", State.BETTER, "sudo cpupower frequency-set -g performance"),
        (None, State.ABSENT, ""),
    ],
)
def test_the_governor(tmp_path: Path, text: str | None, state: State, mend: str) -> None:
    if text is not None:
        write(tmp_path / f"devices/system/cpu/cpu{min(cpu.affinity())}/cpufreq/scaling_governor", text)
    found = host.governor(tmp_path)
    assert (found.state, found.mend) == (state, mend)


def test_a_quota_below_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "affinity", lambda: frozenset(range(8)))
    assert host.cores(tmp_path).state is State.OK
    write(tmp_path / "fs/cgroup/cpu.max", "200000 100000")
    found = host.cores(tmp_path)
    assert found.state is State.BETTER
    assert found.found.endswith("a quota of 2")
    assert "taskset -c 0-1 tritmark run" in found.mend


@pytest.mark.parametrize(
    ("level", "state"), [("-1", State.OK), ("2", State.OK), ("3", State.ABSENT), (None, State.ABSENT)]
)
def test_counters(tmp_path: Path, level: str | None, state: State) -> None:
    if level is not None:
        write(tmp_path / "sys/kernel/perf_event_paranoid", level)
    assert host.counters(tmp_path).state is state


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    found = host.compiler()
    assert found.state is State.ABSENT
    assert "no-such-compiler not found" in found.found
    assert "apt install g++" in found.mend


def test_a_disk_that_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.disk(tmp_path / "not" / "yet").state is State.OK

    def refuse(**_: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(host.tempfile, "TemporaryFile", refuse)  # type: ignore[attr-defined]
    found = host.disk(tmp_path)
    assert found.state is State.MEND
    assert found.found == f"{tmp_path}: Read-only file system"
    assert "--out DIR" in found.mend


def test_a_disk_that_is_almost_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1 << 20})
    monkeypatch.setattr(host.shutil, "disk_usage", lambda path: usage)  # type: ignore[attr-defined]
    assert host.disk(tmp_path).state is State.BETTER


# The GPU


def test_whether_there_is_a_gpu(tmp_path: Path) -> None:
    sys, dev = tmp_path / "sys", tmp_path / "dev"
    assert not gpu.present(sys, dev)
    write(sys / "bus/pci/devices/0000:00:01.0/vendor", "0x10de\n")
    write(sys / "bus/pci/devices/0000:00:01.0/class", "0x040300\n")
    assert not gpu.present(sys, dev), "a sound card"
    write(sys / "bus/pci/devices/0000:00:01.0/class", "0x030200\n")
    assert gpu.present(sys, dev)
    write(dev / "nvidia0", "")
    assert gpu.present(tmp_path, dev), "a container sees no PCI"


def test_a_gpu_without_its_software_has_to_be_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = DeviceUnavailableError("no NVIDIA driver", next_step="install it")
    monkeypatch.setattr(machine_gpu, "driver_problem", lambda: problem)
    monkeypatch.setattr(machine_gpu, "package_problem", lambda: problem)
    assert [each(True).state for each in (gpu.driver, gpu.packages)] == [State.MEND] * 2
    assert [each(True).mend for each in (gpu.driver, gpu.packages)] == ["install it"] * 2
    assert [each(False).state for each in (gpu.driver, gpu.packages)] == [State.ABSENT] * 2


def test_pycuda_is_not_blamed_for_a_driver_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_gpu, "package_problem", lambda: None)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "2025.1")
    problem = DeviceUnavailableError("PyCUDA cannot be imported", next_step="install it again")
    monkeypatch.setattr(machine_gpu, "_import_problem", lambda: problem)
    monkeypatch.setattr(
        machine_gpu, "driver_problem", lambda: DeviceUnavailableError("no driver", next_step="install it")
    )
    assert gpu.packages(False).state is State.OK
    monkeypatch.setattr(machine_gpu, "driver_problem", lambda: None)
    assert gpu.packages(True).found == "PyCUDA cannot be imported"


def test_the_compiler_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = load()
    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    (found,) = gpu.toolkits(installed, there=False)
    assert found.state is State.OK
    assert found.found.endswith("(simulator)")
    monkeypatch.delenv("TRITMARK_CUDA")
    monkeypatch.setenv("TRITMARK_NVCC", "/nowhere/nvcc")
    from tritmark.kernels.cuda.driver import compile as compiling

    compiling.find_nvcc.cache_clear()
    (found,) = gpu.toolkits(installed, there=False)
    assert found.state is State.MEND, "a variable that names a missing thing is a mistake"
    assert "TRITMARK_NVCC is '/nowhere/nvcc'" in found.found


def test_counters_of_the_gpu(tmp_path: Path) -> None:
    assert gpu.counters(tmp_path) == []
    write(tmp_path / "driver/nvidia/params", "X: 1\nRmProfilingAdminOnly: 1\n")
    (found,) = gpu.counters(tmp_path)
    assert found.state is State.ABSENT
    assert "NVreg_RestrictProfilingToAdminUsers=0" in found.mend
    write(tmp_path / "driver/nvidia/params", "RmProfilingAdminOnly: 0\n")
    assert gpu.counters(tmp_path)[0].state is State.OK


@pytest.fixture
def uncached() -> Iterator[None]:
    """What was found under another PATH is forgotten, before and after."""
    find.cache_clear()
    yield
    find.cache_clear()


@pytest.mark.usefixtures("uncached")
def test_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("google-chrome", "objdump", "git"):
        write(tmp_path / name, "")
        (tmp_path / name).chmod(0o644 if name == "git" else 0o755)
    found = {each.name: each for each in tools.tools()}
    assert found["chromium"].found == str(tmp_path / "google-chrome")
    assert found["objdump"].found == str(tmp_path / "objdump")
    assert found["git"].state is State.ABSENT, "it cannot be run"
    assert found["git"].mend == "sudo apt install git"
    assert all(each.mend for each in found.values() if each.state is State.ABSENT)


# Noise


def pairs(spread: float) -> Alternation:
    rng = np.random.default_rng(3)
    a, b = (tuple(1000 * np.exp(rng.normal(0, spread, 200))) for _ in range(2))
    return Alternation(a, b, "time")


@pytest.mark.parametrize(("spread", "state"), [(0.001, State.OK), (0.06, State.BETTER), (0.5, State.MEND)])
def test_how_much_noise_is_too_much(spread: float, state: State) -> None:
    found = noise.judged(pairs(spread))
    assert found.state is state
    assert (found.mend == "") == (state is State.OK)


@pytest.mark.parametrize(("taken", "state"), [(None, State.OK), (0.0, State.OK), (0.5, State.MEND)])
def test_other_load(taken: float | None, state: State) -> None:
    assert noise.load(taken, 2, 2).state is state
    assert noise.load(taken, 1, 2).state is State.OK, "a core is free for that"


def test_noise_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "SECONDS", 0.1)
    found = noise.against_itself(load().registry.devices["cpu"], 1)
    assert len(found.a_ns) >= 30
    assert min(found.a_ns) > 0


# The command


@pytest.fixture
def tritmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(noise, "SECONDS", 0.05)

    def run(*arguments: str) -> tuple[int, str]:
        status, out, err = outcome_of(monkeypatch, capsys, "doctor", *arguments)
        assert err == ""
        return status, out

    return run


def test_this_machine(tritmark: Callable[..., tuple[int, str]]) -> None:
    status, out = tritmark("--json")
    told = json.loads(out)
    names = [each["name"] for each in told["checks"]]
    for name in (
        "kernels",
        "compiler",
        "GPU driver",
        "PyCUDA",
        "cuda compiler",
        "huge pages",
        "governor",
        "noise",
        "other load",
        "disk",
    ):
        assert name in names
    assert len(set(names)) == len(names)
    assert all(each["found"] and each["means"] for each in told["checks"])
    assert all(each["mend"] for each in told["checks"] if each["state"] in ("mend", "could be better"))
    assert status == (0 if told["well"] else 1)
    assert told["well"] == all(each["state"] != "mend" for each in told["checks"])


@pytest.mark.parametrize(
    ("state", "status", "last"), [(State.MEND, 1, "To be fixed: disk"), (State.BETTER, 0, "Fit for measuring.")]
)
def test_what_it_ends_with(
    tritmark: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch, state: State, status: int, last: str
) -> None:
    bad = Check("disk", state, "full\x1b[31m", "nothing can be kept", "free some space")
    monkeypatch.setattr(examine, "examined", lambda out: iter([Check("cores", State.OK, "2", "enough"), bad]))
    found, out = tritmark()
    assert found == status
    assert out.splitlines()[-1] == last
    assert f"{state.value:<15} disk: full\\x1b[31m" in out
    assert "-> free some space" in out


def test_kernels_that_cannot_be_loaded(
    tritmark: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tritmark.harness.errors import UsageError

    def broken() -> None:
        raise UsageError("provider 'builtin' cannot be loaded")

    monkeypatch.setattr(examine, "load", broken)
    status, out = tritmark("--json")
    first = json.loads(out)["checks"][0]
    assert (status, first["name"], first["state"]) == (1, "kernels", "mend")


def test_a_forced_kernel_is_told(tritmark: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_FORCE_ISA", "scalar")
    _, out = tritmark("--json")
    first = json.loads(out)["checks"][0]
    assert first["state"] == "could be better"
    assert "the environment forces scalar" in first["found"]
