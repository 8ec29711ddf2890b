"""The machine room: facts from planted trees, probes that do what they say, and a clock that runs what it is given."""

from __future__ import annotations

import copy
import ctypes
import os
import pickle
import platform
import runpy
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from sys import executable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.cython_ext import ceilings, clock, masking  # type: ignore[attr-defined]
from tritmark.cython_ext import cpu as native  # type: ignore[attr-defined]
from tritmark.harness.advise.ladder import bare
from tritmark.harness.machine import cpu, memory
from tritmark.harness.measure.buffers import empty
from tritmark.harness.measure.clocks import PythonClock
from tritmark.harness.record import versions
from tritmark.harness.record.facts import machine_facts
from tritmark.harness.record.versions import environment
from tritmark.harness.spec import ArrayChange
from tritmark.kernels import PROVIDER
from tritmark.kernels.native.cpu import DEVICE as CPU
from tritmark.kernels.native.cpu import ISAS, KERNELS
from tritmark.kernels.ternary_matmul.cpu import FORMATS as PRODUCTS

TABLES = runpy.run_path(str(Path(__file__).parents[3] / "cython_ext" / "src" / "tables.py"))

# The native questions

PROC_NAMES = {
    "sse4.1": "sse4_1",
    "avx512vnni": "avx512_vnni",
    "avxvnni": "avx_vnni",
    "amx-tile": "amx_tile",
    "amx-int8": "amx_int8",
}
"""CPUID's names as /proc/cpuinfo spells them, where that differs."""


def proc_flags() -> set[str]:
    for row in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, flags = row.partition(":")
        if name.strip() == "flags":
            return set(flags.split())
    return set()


LOOKED_FOR = set(TABLES["features"]())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="CPUID is x86's")
def test_features_are_those_that_the_kernel_reports() -> None:
    flags = proc_flags()
    assert set(native.features()) == {name for name in LOOKED_FOR if PROC_NAMES.get(name, name) in flags}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="CPUID is x86's")
def test_every_feature_that_is_looked_for_has_its_bit() -> None:
    bits = {bare(name) for step in masking.steps().values() for name, _ in step}
    assert {feature for isa in ISAS.values() for feature in isa.features} <= LOOKED_FOR
    assert {name for name in LOOKED_FOR if bare(name) not in bits} == set()


def test_better_instruction_sets_are_in_no_lower_tier() -> None:
    sets = list(ISAS.values())
    assert [isa.name for isa in sets] == list(ISAS)
    assert [isa.rank for isa in sets] == sorted({isa.rank for isa in sets})
    assert [isa.tier for isa in sets] == sorted(isa.tier for isa in sets)
    assert sets[0].features == frozenset()
    assert all(kernels[0] is sets[0] for kernels in KERNELS.values())


@pytest.mark.parametrize("table", sorted(set(KERNELS) - {"probe", "rms_norm"}))  # which are of no op
def test_an_op_has_variants_for_the_sets_in_its_table(table: str) -> None:
    """ternary_matmul has a table for each format."""
    names = {
        key: [each.name for each in PROVIDER.variants if each.key == key]
        for key in {each.key for each in PROVIDER.variants}
    }
    tables = {
        key: PRODUCTS[key.format][0] if key.op == "ternary_matmul" else key.op for key in names if key.device == "cpu"
    }
    found = [names[key] for key in tables if tables[key] == table]
    assert found
    assert all(each == [isa.name for isa in KERNELS[table]] for each in found)


def test_a_set_without_a_kernel_is_refused_by_the_boundary() -> None:
    with pytest.raises(ValueError, match="no kernel for neon is compiled in"):
        ceilings.Probe("neon", "read", empty((64,), np.uint8), 1)


def test_importing_kernels_loads_no_openmp() -> None:
    code = "import tritmark.kernels; print('libgomp' in open('/proc/self/maps').read())"
    assert subprocess.run([executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_cache_sizes_and_compiler() -> None:
    sizes = native.cache_bytes()
    assert set(sizes) == {"l1d", "l2", "l3"}
    assert all(size >= 0 for size in sizes.values())
    assert native.l2_bytes() == sizes["l2"]
    assert native.compiler().split()[0] in {"gcc", "clang"}
    assert any(character.isdigit() for character in native.compiler())


# The host


def allow(monkeypatch: pytest.MonkeyPatch, cores: set[int]) -> None:
    """Have this process run on those cores only; what `affinity` remembers goes before and after."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: cores)
    monkeypatch.setattr(cpu, "affinity", cache(cpu.affinity.__wrapped__))


@pytest.fixture
def sys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree like /sys of a host with four logical cores on two physical ones, of which three are ours."""
    allow(monkeypatch, {1, 2, 3})
    files: dict[str, str] = {
        "kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "devices/system/node/node0/cpulist": "0-1",
        "devices/system/node/node1/cpulist": "2-3",
        "devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave",
        "class/dmi/id/sys_vendor": "QEMU",
    }
    for core, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        files[f"devices/system/cpu/cpu{core}/topology/thread_siblings_list"] = siblings
    levels = (("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M"), ("3", "Unified", "260M"))
    for index, (level, kind, size) in enumerate(levels):
        for name, text in (("level", level), ("type", kind), ("size", size)):
            files[f"devices/system/cpu/cpu1/cache/index{index}/{name}"] = text
    for path, text in files.items():
        plant(tmp_path, path, text)
    return tmp_path


def plant(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text + "\n")


def test_cores_are_counted_once_and_only_those_allowed(sys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cpu.usable_cores(sys) == 3
    assert cpu.physical_cores(sys) == 2
    allow(monkeypatch, {1, 3})
    assert cpu.physical_cores(sys) == 1


def test_cores_whose_siblings_are_not_told_count_for_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, {5, 6, 7})
    assert cpu.physical_cores(tmp_path) == 3


@pytest.mark.parametrize(
    ("limit", "cores"),
    [("max 100000", 2), ("100000 100000", 1), ("50000 100000", 1), ("250000 100000", 2), ("900000 100000", 2), ("", 2)],
)
def test_a_quota_of_the_control_group_limits_the_cores(sys: Path, limit: str, cores: int) -> None:
    plant(sys, "fs/cgroup/cpu.max", limit)
    assert cpu.physical_cores(sys) == cores


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/a/b", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"}, 2),
        ("0::/a/b", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "100000 100000"}, 1),
        ("0::/a/b", {"c/cpu.max": "100000 100000"}, None),
        ("0::/../../host/only", {"cpu.max": "300000 100000"}, 3),
        ("2:cpu,cpuacct:/a\n0::/", {"cpu,cpuacct/a/cpu.cfs_quota_us": "150000"}, 1),
        ("1:cpu:/a\n2:cpuset:/b", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_quota_us": "400000"}, 4),
        ("1:cpuset:/a", {"cpu/a/cpu.cfs_quota_us": "100000"}, None),
    ],
)
def test_the_quotas_of_all_groups_around_the_process(
    tmp_path: Path, groups: str, files: dict[str, str], cores: int | None
) -> None:
    plant(tmp_path, "proc/self/cgroup", groups)
    for name, text in files.items():
        plant(tmp_path, f"fs/cgroup/{name}", text)
        if name.endswith("quota_us"):
            plant(tmp_path, f"fs/cgroup/{name.replace('quota', 'period')}", "100000")
    assert cpu.quota(tmp_path, tmp_path / "proc") == cores


def test_caches_of_a_core(sys: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert cpu.caches(sys) == {"L1d": 48 << 10, "L1i": 32 << 10, "L2": 2 << 20, "L3": 260 << 20}
    assert cpu.last_level(sys) == 260 << 20
    nothing = tmp_path_factory.mktemp("empty")
    assert cpu.caches(nothing) == {}
    assert cpu.last_level(nothing) is None


def test_what_is_not_told_is_none(sys: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert (cpu.governor(sys), cpu.numa_nodes(sys), memory.huge_pages(sys)) == ("powersave", 2, "madvise")
    nothing = tmp_path_factory.mktemp("empty")
    assert (cpu.governor(nothing), cpu.numa_nodes(nothing), memory.huge_pages(nothing)) == (None, 1, None)


def test_clocks_of_the_cores_that_are_ours(sys: Path, tmp_path: Path) -> None:
    """The frequency driver's, or else those of /proc/cpuinfo."""
    told = "".join(f"processor\t: {core}\ncpu MHz\t\t: {2000 + core}.5\n\n" for core in range(4))
    plant(tmp_path, "proc/cpuinfo", told)
    assert cpu.clocks(sys, tmp_path / "proc") == [2_001_500_000, 2_002_500_000, 2_003_500_000]
    for core in (0, 3):
        plant(sys, f"devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq", f"{1_200_000 + core}")
    assert cpu.clocks(sys, tmp_path / "proc") == [1_200_003_000]
    assert cpu.clocks(tmp_path / "nothing", tmp_path / "nothing") == []
    plant(tmp_path, "proc/cpuinfo", "processor\t: 1\ncpu MHz\t\t: unknown")
    assert cpu.clocks(tmp_path / "nothing", tmp_path / "proc") == []


def test_hypervisor_is_named_where_there_is_one(sys: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    guest = frozenset({"hypervisor"})
    assert cpu.hypervisor(frozenset(), sys) is None
    assert cpu.hypervisor(guest, sys) == "QEMU"
    plant(sys, "hypervisor/type", "xen")
    assert cpu.hypervisor(guest, sys) == "xen"
    assert cpu.hypervisor(guest, tmp_path_factory.mktemp("empty")) == "unnamed"


def test_memory_of_the_control_group_counts(sys: Path) -> None:
    free = memory.available(sys)
    assert 0 < free <= memory.total()
    plant(sys, "fs/cgroup/memory.max", str(1 << 20))
    plant(sys, "fs/cgroup/memory.current", str(1 << 19))
    assert memory.available(sys) == 1 << 19
    plant(sys, "fs/cgroup/memory.max", "max")
    assert memory.available(sys) > 1 << 19


def test_facts_of_this_host() -> None:
    facts = machine_facts()
    assert facts.cpu
    assert facts.kernel == platform.release()
    assert 1 <= facts.physical_cores <= facts.logical_cores
    assert 1 <= facts.usable_cores <= facts.logical_cores
    assert facts.memory == memory.total()
    assert facts.page_size & (facts.page_size - 1) == 0
    assert set(facts.features) >= proc_flags() & {"sse2", "avx2", "avx512f"}
    assert machine_facts() == facts


def test_the_id_tells_machines_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine_facts().id
    monkeypatch.setattr(cpu, "caches", lambda: {"L1d": 1})
    assert machine_facts().id != here


# What runs


def test_environment_keeps_the_variables_that_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRITMARK_FORCE_ISA", "OMP_WAIT_POLICY", "SECRET_TOKEN"):
        monkeypatch.setenv(name, "set")
    found = environment(["tritmark", "run"], 7, compiler="gcc 1")
    assert found.variables["TRITMARK_FORCE_ISA"] == found.variables["OMP_WAIT_POLICY"] == "set"
    assert "SECRET_TOKEN" not in found.variables
    assert found.packages["numpy"] == np.__version__
    assert (found.command, found.seed, found.python, found.compiler) == (
        ("tritmark", "run"),
        7,
        platform.python_version(),
        "gcc 1",
    )


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def checkout(folder: Path, name: str) -> str:
    git(folder, "init")
    (folder / "pyproject.toml").write_text(f'[project]\nname = "{name}"\n')
    git(folder, "add", ".")
    git(folder, "commit", "-m", "first")
    git(folder, "tag", "v1")
    return git(folder, "rev-parse", "HEAD")


def test_commit_of_a_checkout_and_of_a_changed_one(tmp_path: Path) -> None:
    commit = checkout(tmp_path, "tritmark")
    (tmp_path / "sub").mkdir()
    assert versions.commit(tmp_path / "sub") == commit
    with (tmp_path / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    assert versions.commit(tmp_path) == f"{commit}-dirty"


def test_no_commit_of_somebody_elses_checkout_or_of_none(tmp_path: Path) -> None:
    assert versions.commit(tmp_path) is None
    checkout(tmp_path, "other")
    assert versions.commit(tmp_path) is None


# The probes

RUNNABLE = [isa.name for isa in KERNELS["probe"] if isa.features <= set(native.features())]
SIZES = st.sampled_from([64, 65, 127, 4096, 5000, 65536, 100_003, 262_144, 300_007])


def filled(nbytes: int, seed: int) -> npt.NDArray[np.uint8]:
    buffer = empty((nbytes,), np.uint8)
    buffer[...] = np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)
    return buffer


def words(buffer: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    padded = np.zeros(-(-buffer.nbytes // 8) * 8, np.uint8)
    padded[: buffer.nbytes] = buffer
    return padded.view(np.uint64)


@given(
    SIZES,
    st.sampled_from(RUNNABLE),
    st.sampled_from([kind for kind in ceilings.KINDS if kind.startswith("read")]),
    st.integers(1, 4),
    st.data(),
)
def test_read_probes_read_every_byte(nbytes: int, isa: str, kind: str, threads: int, data: st.DataObject) -> None:
    buffer = filled(nbytes, nbytes)
    probe = ceilings.Probe(isa, kind, buffer, threads)
    probe.run()
    assert probe.ran == isa
    assert probe.checksum == int(np.bitwise_xor.reduce(words(buffer)))
    at = data.draw(st.integers(0, nbytes - 1))
    buffer[at] ^= 0x40
    before = probe.checksum
    probe.run()
    assert probe.checksum == before ^ (0x40 << 8 * (at % 8))
    assert probe.runs == 2


@given(
    SIZES,
    st.sampled_from(RUNNABLE),
    st.sampled_from([kind for kind in ceilings.KINDS if kind.startswith("write")]),
    st.integers(1, 4),
)
def test_write_probes_write_every_byte_each_time(nbytes: int, isa: str, kind: str, threads: int) -> None:
    whole = filled(nbytes + 64, 1)
    beyond = whole[nbytes:].copy()
    probe = ceilings.Probe(isa, kind, whole[:nbytes], threads)
    for run in (1, 2, 3):
        probe.run()
        assert (whole[:nbytes] == run).all()
    assert np.array_equal(whole[nbytes:], beyond)


@given(
    st.sampled_from([128, 384, 8192, 131_072, 300_032]),
    st.sampled_from(RUNNABLE),
    st.sampled_from(["copy", "copy around"]),
    st.integers(1, 4),
)
def test_copy_probes_copy_the_first_half_to_the_second(nbytes: int, isa: str, kind: str, threads: int) -> None:
    buffer = filled(nbytes, 2)
    first = buffer[: nbytes // 2].copy()
    ceilings.Probe(isa, kind, buffer, threads).run()
    assert np.array_equal(buffer[: nbytes // 2], first)
    assert np.array_equal(buffer[nbytes // 2 :], first)


@pytest.mark.parametrize("kernel", RUNNABLE)
@pytest.mark.parametrize("nbytes", [64, 100, 4096, 4097])
def test_compute_probes_do_every_dot_product(kernel: str, nbytes: int) -> None:
    buffer = filled(nbytes, 3)
    probe = ceilings.Probe(kernel, "compute", buffer, 1)
    probe.run()
    left = (buffer[:64] & 127).astype(np.int64)
    dots = nbytes * ceilings.DOT_OPERATIONS // 128
    assert probe.checksum == dots * int(left @ np.arange(1, 65)) % 65536


def test_compute_probes_share_the_work_over_threads() -> None:
    buffer = filled(1 << 16, 4)
    buffer[...] = np.tile(buffer[:4096], 16)  # every thread's first bytes are the same
    sums = set()
    for threads in (1, 2, 4):
        probe = ceilings.Probe(RUNNABLE[-1], "compute", buffer, threads)
        probe.run()
        assert 1 <= probe.threads_used <= threads
        sums.add(probe.checksum)
    assert len(sums) == 1


def test_probes_refuse_buffers_that_they_cannot_work_on() -> None:
    buffer = empty((4096,), np.uint8)
    for kind, view in (("read", buffer[:0]), ("read", buffer[1:]), ("copy", buffer[:192]), ("compute", buffer[:63])):
        with pytest.raises(ValueError, match=kind):
            ceilings.Probe(RUNNABLE[-1], kind, view, 1)
    with pytest.raises(ValueError, match="flight"):
        ceilings.Probe(RUNNABLE[-1], "flight", buffer, 1)


@pytest.mark.parametrize("name", list(CPU.ceilings()))
def test_ceilings_take_any_buffer_and_the_best_instruction_set(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_FORCE_ISA", "scalar")
    ceiling = CPU.ceilings()[name]
    probe = ceiling.bind(filled(4096 + 65, 5), 1)
    probe.run()
    kind, _, isa = ceiling.name.partition(" ")
    assert probe.ran == (isa or RUNNABLE[-1])
    assert probe.pointer
    assert kind in {"read", "write", "copy", "compute"}
    assert not isa or (kind == "compute" and isa in RUNNABLE[:-1])
    assert ceiling.work(1 << 20) > 0


# The native clock


def probes(count: int) -> list[Any]:
    return [ceilings.Probe(RUNNABLE[-1], "write", empty((64,), np.uint8), 1) for _ in range(count)]


def test_the_clock_runs_each_launch_in_its_turn() -> None:
    launches, native_clock = probes(3), clock.NativeClock()
    assert native_clock.name == "native loop"
    assert native_clock.sample(launches, 2, 7) > 0
    assert [launch.runs for launch in launches] == [2, 2, 3]
    native_clock.sample(launches, 4, 1)
    assert [launch.runs for launch in launches] == [2, 3, 3]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_holds_addresses_is_not_copied(copied: Callable[[Any], Any]) -> None:
    for each in (clock.NativeClock(), *probes(1)):
        with pytest.raises(TypeError, match="cannot pickle"):
            copied(each)


def test_the_clock_tells_sequences_apart() -> None:
    native_clock = clock.NativeClock()
    rows = [probes(1) for _ in range(9)]
    for turn in (1, 2):
        for row in rows:
            native_clock.sample(row, 0, 1)
            assert row[0].runs == turn


def test_the_clock_keeps_what_it_times_alive() -> None:
    native_clock = clock.NativeClock()
    launches = probes(2)
    native_clock.sample(launches, 0, 2)
    launches.clear()
    assert native_clock.sample(launches, 0, 2) > 0


@pytest.mark.timing
def test_the_clock_measures_time_that_passes() -> None:
    launches = [ceilings.Probe(RUNNABLE[-1], "read", filled(1 << 20, 6), 1)]
    native_clock = clock.NativeClock()
    few, many = (min(native_clock.sample(launches, 0, calls) for _ in range(5)) for calls in (1, 100))
    assert 20 * few < many < 500 * few


def test_the_clock_refuses_what_it_cannot_time() -> None:
    class OnlyPython:
        pointer = None

    native_clock = clock.NativeClock()
    for launches, calls, why in (
        ([], 1, "no launches"),
        ([OnlyPython()], 1, "no native call"),
        (probes(1), 0, "at least 1"),
    ):
        with pytest.raises(ValueError, match=why):
            native_clock.sample(launches, 0, calls)


CLOCKS = [clock.NativeClock, PythonClock]


@pytest.mark.parametrize("make", CLOCKS)
@given(data=st.data())
def test_arrays_are_changed_before_the_call_that_was_asked_for(make: Callable[[], Any], data: st.DataObject) -> None:
    """What each call finds there tells whether the change was made before or behind it."""
    count, calls, warm = (data.draw(st.integers(*limits)) for limits in ((1, 4), (1, 9), (0, 2)))
    first, before = data.draw(st.integers(0, count - 1)), data.draw(st.integers(0, calls))
    made, wide = list[tuple[int, bytes]](), np.zeros((3, 8), np.uint8)
    to, source = wide[:, 2:5], np.arange(9, dtype=np.uint8).reshape(3, 3)

    def note(number: int | None) -> int:
        made.append((number or 0, to.tobytes()))
        return 0

    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(note)

    class Call(ctypes.Structure):
        _fields_ = (("function", ctypes.c_void_p), ("number", ctypes.c_void_p))

    class Noting:
        def __init__(self, number: int) -> None:
            self.number = number
            self.call = Call(ctypes.cast(function, ctypes.c_void_p).value, number)
            self.pointer = ctypes.addressof(self.call)

        def run(self) -> None:
            function(self.number)

    launches = [Noting(number) for number in range(count)]
    change = ArrayChange(to, source)
    assert (
        make().sample_around(launches, first, calls, before, [change, ArrayChange(to[:0], source[:0])], warm=warm) >= 0
    )
    assert [number for number, _ in made] == [(first + call) % count for call in range(warm + calls)]
    old = bytes(9)
    assert [seen for _, seen in made] == [old] * (warm + before) + [source.tobytes()] * (calls - before)
    np.testing.assert_array_equal(to, source)
    assert not wide[:, :2].any()
    assert not wide[:, 5:].any()


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"calls": 0}, "calls is 0"),
        ({"before": 3}, "before 3"),
        ({"before": -1}, "before -1"),
        ({"warm": -1}, "warm -1"),
        ({"changes": [ArrayChange(np.zeros((1, 4), np.uint8), np.zeros((1, 3), np.uint8))]}, "the same shape"),
        ({"changes": [ArrayChange(np.zeros((1, 8), np.uint8)[:, ::2], np.zeros((1, 4), np.uint8))]}, "without gaps"),
    ],
)
def test_the_clock_refuses_changes_that_it_cannot_make(asked: dict[str, Any], why: str) -> None:
    launches = probes(1)
    with pytest.raises(ValueError, match=why):
        clock.NativeClock().sample_around(launches, 0, **({"calls": 2, "before": 1, "changes": []} | asked))
    assert launches[0].runs == 0


def test_where_caches_lie_is_not_in_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path of this machine, which changes nothing; what does is there."""
    monkeypatch.setenv("TRITMARK_CACHE", "/somewhere")
    monkeypatch.setenv("TRITMARK_FORCE_ISA", "avx2")
    found = environment((), 0).variables
    assert "TRITMARK_CACHE" not in found
    assert found["TRITMARK_FORCE_ISA"] == "avx2"
