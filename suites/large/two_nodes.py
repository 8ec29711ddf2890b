"""Placement and the thread pool on a machine of two NUMA nodes: Linux in qemu, which emulates 2 x 2 cores.

    python suites/large/two_nodes.py --kernel VMLINUZ [--timeout 600]

Needs qemu-system-x86_64 and the kernel of a Linux with NUMA and initramfs, such as Debian's:

    apt install qemu-system-x86
    apt download linux-image-6.1.0-56-cloud-amd64    # what linux-image-cloud-amd64 depends on
    dpkg-deb -x linux-image-*.deb kernel             # kernel/boot/vmlinuz-*

Without KVM: qemu's TCG emulates every instruction, including AVX2, so times inside are meaningless. It takes some
minutes. This Python, NumPy and the installed tritmark run inside, with this script as the first process; the initramfs
contains the files that a rehearsal on the host opens. Exits with status 1 if a page, a thread or a product is
incorrect.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, BinaryIO

NODE_MB = 448
DISTANCE = 21
RIGHT = "two nodes: all right"


def command(kernel: str, initrd: Path) -> list[str]:
    """qemu with two nodes."""
    nodes = [
        part
        for node, cores in ((0, "0-1"), (1, "2-3"))
        for part in (
            *("-object", f"memory-backend-ram,id=m{node},size={NODE_MB}M"),
            *("-numa", f"node,nodeid={node},cpus={cores},memdev=m{node}"),
        )
    ]
    distances = [part for way in ("src=0,dst=1", "src=1,dst=0") for part in ("-numa", f"dist,{way},val={DISTANCE}")]
    here = os.path.realpath(sys.executable)
    path = os.pathsep.join(each for each in sys.path if each.endswith("site-packages"))
    arguments = f"rdinit={here} PYTHONPATH={path} PYTHONUNBUFFERED=1 -- {Path(__file__).resolve()} --inside"
    return [
        *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max,vendor=GenuineIntel"),
        *("-m", str(2 * NODE_MB), "-smp", "4,sockets=2,cores=2,threads=1", *nodes, *distances),
        *("-display", "none", "-serial", "stdio", "-monitor", "none", "-no-reboot"),
        *("-kernel", kernel, "-initrd", str(initrd), "-append", f"console=ttyS0 panic=-1 quiet {arguments}"),
    ]


# Files for the initramfs


def used() -> Iterator[str]:
    """Files that this process has opened: modules and mapped files. Call it at the end."""
    for module in list(sys.modules.values()):
        for name in ("__file__", "__cached__"):
            yield getattr(module, name, None) or ""
    for mapping in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        yield mapping.partition("/")[1] + mapping.partition("/")[2]


def archive(files: set[str], out: BinaryIO) -> None:
    """An initramfs of those files, in cpio's "newc" format (Linux's Documentation/driver-api/early-userspace)."""
    number = 0

    def entry(name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        nonlocal number
        number += 1
        encoded = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
        out.write(head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4))

    folders = {str(parent)[1:] for file in files for parent in Path(file).parents} - {""}
    for folder in sorted(folders | {"dev", "proc", "sys", "tmp"}):
        entry(folder, 0o040755)
    entry("dev/console", 0o020600, device=(5, 1))
    for file in sorted(files):
        entry(file[1:], 0o100755, Path(file).read_bytes())
    entry("TRAILER!!!", 0)


def needed() -> set[str]:
    """All files that the process inside opens, by the paths that it uses."""
    code = f"import runpy; runpy.run_path({__file__!r})['rehearse']()"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    found = {file for file in done.stdout.splitlines() if file.startswith("/")}
    found |= {str(path) for path in Path("/lib64").glob("ld-linux*")}  # the kernel starts linked programs by it
    found |= {os.path.realpath(sys.executable), str(Path(__file__).resolve())}
    linked = subprocess.run(
        ["ldconfig", "-p"], check=True, capture_output=True, text=True, env={"PATH": "/sbin:/usr/sbin"}
    )
    told = importlib.metadata.distribution("tritmark")  # packages with kernels are found by it
    found |= {str(told.locate_file(file)) for file in told.files or () if ".dist-info" in str(file)}
    real = {os.path.realpath(file): file for file in found}
    for each in linked.stdout.splitlines():
        library = each.rpartition(" => ")[2]
        if os.path.realpath(library) in real:  # also by the link's name, which the loader searches
            found.add(library)
    return {file for file in found if Path(file).is_file()}


def rehearse() -> None:
    """Run on the host the steps that work on any machine, and print the opened files."""
    layers(None)
    import traceback  # noqa: F401 -- needed to report an error

    from tritmark.harness.doctor import host
    from tritmark.harness.measure import buffers, nodes
    from tritmark.kernels.native.cpu import native

    native("numa")
    buffers.rotation()
    host.nodes()
    nodes.NodeWatch().seen([])
    bandwidths()
    print("\n".join(used()))


# Steps inside


def layers(there: Any) -> dict[Any, Any]:
    """A product from weights in each placement; True if its bits equal those of a product from unplaced weights."""
    import numpy as np

    from tritmark.harness.machine.numa import topology
    from tritmark.kernels import QuantizedLinear, pack_weights

    codes = np.random.default_rng(1).integers(-1, 2, (1024, 1024), np.int8)
    x = np.random.default_rng(2).standard_normal((2, 1024), np.float32)
    weights = pack_weights(codes, np.float32(0.5))
    expected = QuantizedLinear(weights)(x)
    ways: list[Any] = ["first-touch", "interleave", *(there or topology()).storing]
    return {way: np.array_equal(QuantizedLinear(weights.placed(way), threads=4)(x), expected) for way in ways}


def bandwidths() -> list[str]:
    """Reads of each node's memory from each node's cores: checks that they are measured; the rates are the
    emulator's."""
    from tritmark.harness.measure.nodes import measure_nodes
    from tritmark.kernels.native.cpu import DEVICE

    probe = next(iter(DEVICE.ceilings().values()))
    assert probe.name == "read"
    return [
        f"cores of node {each.cores}, memory of node {each.memory}: {each.rate / 1e9:.2f} GB/s, {each.threads} threads"
        for each in measure_nodes(DEVICE)
    ]


def halves(pool: Any, core: int) -> list[set[int]]:
    """The cores that ran the first piece of each half of a call's items, with the caller on that core."""
    pool.set_cores(range(4))  # independent of the caller's core
    os.sched_setaffinity(0, {core})
    libc, found = ctypes.CDLL(None), {0: set[int](), 32: set[int]()}
    body_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
    sizes = [ctypes.c_size_t] * 3
    run = ctypes.CFUNCTYPE(ctypes.c_int32, *sizes, ctypes.c_int32, body_type, ctypes.c_void_p)(pool.address())

    def piece(_: object, begin: int, end: int) -> None:
        if begin in found:
            found[begin].add(libc.sched_getcpu())
        sleep(0.01 * (end - begin))

    for _ in range(5):
        run(64, 1, 1, 4, body_type(piece), None)
    os.sched_setaffinity(0, range(4))
    pool.set_cores(None)
    return list(found.values())


def workers() -> dict[str, int]:
    """The number of threads of this process for each set of allowed cores."""
    found: dict[str, int] = {}
    for task in Path("/proc/self/task").iterdir():
        if task.name != str(os.getpid()):
            lines = (task / "status").read_text().splitlines()
            cores = next(each.partition(":")[2].strip() for each in lines if each.startswith("Cpus_allowed_list"))
            found[cores] = found.get(cores, 0) + 1
    return found


def far_away() -> str:
    """The doctor's report for a process on node 1 with memory that a policy binds to node 0."""
    from tritmark.harness.doctor import host

    libc, mask = ctypes.CDLL(None, use_errno=True), ctypes.c_ulong(1)
    assert not libc.syscall(238, 2, ctypes.byref(mask), 64), "set_mempolicy(MPOL_BIND)"
    found = host.nodes(usable=frozenset({2, 3}))
    libc.syscall(238, 0, None, 0)
    return f"{found.state}: {found.means}; {found.mend}"


def inside() -> None:
    """The first process of the machine."""
    libc = ctypes.CDLL(None)
    libc.mount(b"none", b"/proc", b"proc", 0, None)
    libc.mount(b"none", b"/sys", b"sysfs", 0, None)
    try:
        check()
        print(RIGHT)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        libc.sync()
        libc.reboot(0x4321FEDC)


def check() -> None:
    """Run all steps and print the results."""
    from tritmark.harness.doctor import host
    from tritmark.harness.machine import numa

    print(f"inside after {Path('/proc/uptime').read_text().split()[0]} s", flush=True)
    there = numa.topology()
    print(*there.nodes, sep="\n")
    assert (there.physical, there.storing, there.distance(0, 1)) == ({0: 2, 1: 2}, (0, 1), DISTANCE)
    print("doctor:", host.nodes().found)
    assert host.nodes().mend == "sudo sysctl kernel.numa_balancing=0"
    Path("/proc/sys/kernel/numa_balancing").write_text("0")  # it moves pages, and hides them from `pages`
    print("doctor:", host.nodes().found)
    assert not host.nodes().mend
    check_pages()
    same = layers(there)
    print("products with the same bits:", same)
    assert all(same.values())
    assert len(same) == 4
    check_threads()
    print(*bandwidths(), sep="\n")
    far = far_away()
    print("doctor, bound to the wrong node:", far)
    assert far.startswith("could be better: the cores of node 1 have all their memory on other nodes")


def check_pages() -> None:
    """The nodes of placed and of moved memory."""
    import numpy as np

    from tritmark.harness.errors import PlacementError
    from tritmark.harness.machine import numa
    from tritmark.harness.measure.nodes import NodeWatch
    from tritmark.kernels.native.cpu import native
    from tritmark.kernels.native.placement import pages, placed

    for nbytes in (1 << 20, 64 << 20):
        values, page = np.full(nbytes, 7, np.uint8), nbytes // 4096
        for way, expected in (
            (0, {0: page}),
            (1, {1: page}),
            ("first-touch", {0: page // 2, 1: page // 2}),
            ("interleave", {0: page // 2, 1: page // 2}),
        ):
            found = placed(values, way)  # type: ignore[arg-type]
            print(f"{nbytes >> 20} MiB, {way}: pages {pages(found)}, numa_maps {numa.lying([found.ctypes.data])}")
            assert pages(found) == expected
            assert np.array_equal(found, values)
        del found
    on_first = placed(np.full(1 << 20, 7, np.uint8), 0)
    watch = NodeWatch()
    native("numa").bind(on_first, (1,))
    moved = watch.seen([on_first.ctypes.data])
    print(f"moved to node 1: pages {pages(on_first)}, {moved}")
    assert pages(on_first) == {1: 256}
    assert moved.pages_moved is not None
    assert moved.pages_moved >= 256
    try:
        placed(np.zeros(NODE_MB << 20, np.uint8), 0)
    except PlacementError as error:
        print("more than node 0 has left:", error)
    else:
        raise AssertionError("a node accepted as much as its whole memory, although the system uses a part")


def check_threads() -> None:
    """The nodes with the cores that run a call's items."""
    from tritmark.kernels.native.cpu import native

    pool = native("pool")
    for core in (0, 3):
        first, second = halves(pool, core)
        print(f"caller on core {core}: the first half's first piece ran on cores {first}, the second's on {second}")
        assert first
        assert first <= {0, 1}
        assert second
        assert second <= {2, 3}
    print("cores that the pool's threads may run on:", workers())


def main() -> None:
    """Run the module's description."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", metavar="VMLINUZ", required=True)
    parser.add_argument("--timeout", type=float, default=600)
    told = parser.parse_args()
    begun = perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        initrd = Path(folder) / "initrd.cpio"
        with initrd.open("wb") as out:
            archive(needed(), out)
        print(f"initramfs of {initrd.stat().st_size >> 20} MiB after {perf_counter() - begun:.0f} s", flush=True)
        done = subprocess.run(
            command(told.kernel, initrd),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=told.timeout,
            check=False,
        )
    print(done.stdout.replace("\r", ""), done.stderr, sep="")
    print(f"{perf_counter() - begun:.0f} s in all")
    sys.exit(0 if RIGHT in done.stdout else 1)


if __name__ == "__main__":
    inside() if sys.argv[1:] == ["--inside"] else main()
