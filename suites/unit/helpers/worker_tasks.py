"""Tasks for the tests of workers: in a module of their own, for what a worker imports is not the tests."""

from __future__ import annotations

import builtins
import ctypes
import decimal
import gc
import io
import locale
import logging
import mmap
import os
import random
import resource
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Any

import numpy as np
import psutil

from tritmark.harness.candidate.frameworks import Numpy
from tritmark.harness.errors import CandidateError
from tritmark.harness.worker import Site, tasks
from tritmark.harness.worker.tasks import Handle, resolve


def identify(site: Site) -> tuple[int, str]:
    return os.getpid(), site.variant.id


def address_space(site: Site) -> int:
    return resource.getrlimit(resource.RLIMIT_AS)[0]


def threads_at_once(site: Site, count: int) -> None:
    """Threads that all live at the same time and take some memory."""
    there = threading.Barrier(count)

    def work() -> None:
        assert len(bytes(1 << 16)) == 1 << 16
        there.wait(10)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def its_cores(site: Site) -> frozenset[int]:
    return frozenset(os.sched_getaffinity(0))


def summed(site: Site, arrays: dict[str, Any]) -> dict[str, tuple[float, bool]]:
    return {name: (float(array.sum()), array.flags.writeable) for name, array in arrays.items()}


def forged(site: Site) -> Any:
    class Evil:
        def __reduce__(self) -> Any:
            return os.system, ("true",)

    return Evil()


def hoard(site: Site, nbytes: int) -> int:
    """Takes memory piece by piece, as a leak does."""
    kept = []
    for _ in range(nbytes >> 20):
        kept.append(np.ones(1 << 20, np.uint8))
        time.sleep(0.001)
    return len(kept)


def open_descriptors(site: Site) -> None:
    """Opens descriptors and closes none."""
    while True:
        os.dup(0)


def raise_as(site: Site, kind: Any) -> None:
    raise CandidateError(kind, "Forged", "whatever", "")


def last_words(site: Site) -> None:
    sys.stderr.write("my last words\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def hang(site: Site) -> None:
    while True:
        pass


def bytes_of(site: Site, handle: Handle) -> tuple[bytes, bool]:
    array = resolve(site, handle)
    return array.tobytes(), array.flags.writeable


def overwrite(site: Site, handle: Handle) -> None:
    resolve(site, handle)[...] = 0


def poke(site: Site, handle: Handle) -> None:
    """Write the byte, as native code does, which knows no flags."""
    ctypes.memset(resolve(site, handle).ctypes.data, 0, 1)


def peek(site: Site, handle: Handle, beyond: int) -> bytes:
    """Read the byte so far from there."""
    return ctypes.string_at(resolve(site, handle).ctypes.data + beyond, 1)


def make_writable(site: Site, handle: Handle) -> None:
    address = resolve(site, handle).ctypes.data
    library = ctypes.CDLL(None, use_errno=True)
    page = os.sysconf("SC_PAGE_SIZE")
    if library.mprotect(ctypes.c_void_p(address & -page), ctypes.c_size_t(page), 3):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    ctypes.memset(address, 0, 1)


def leave(site: Site, what: str) -> None:
    """Leave something behind in the process."""
    kept = site.kept.setdefault("left", [])
    if what == "thread":
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    elif what == "timer":
        signal.setitimer(signal.ITIMER_REAL, 100, 100)
    elif what == "handler":
        signal.signal(signal.SIGUSR2, lambda number, frame: None)
    elif what == "environment":
        os.environ["TRITMARK_LEFT"] = "yes"
    elif what == "folder":
        os.chdir("/")
    elif what == "file":
        kept.append(os.open("/dev/null", os.O_RDONLY))
    elif what == "closed":
        os.close(2)
    elif what == "mapping":
        file = os.memfd_create("mine")
        os.ftruncate(file, 4096)
        library = ctypes.CDLL(None)
        library.mmap.restype = ctypes.c_void_p
        library.mmap(None, ctypes.c_size_t(4096), 3, mmap.MAP_SHARED, file, ctypes.c_long(0))
        os.close(file)
    elif what == "executable":
        kept.append(mmap.mmap(-1, 4096, prot=7, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    elif what == "locale":
        now = locale.setlocale(locale.LC_ALL)
        locale.setlocale(locale.LC_ALL, "C.UTF-8" if now == "C" else "C")
    elif what in _SETTINGS:
        _SETTINGS[what]()


_KEPT: list[mmap.mmap] = []


def alternate_stack() -> None:
    """Have signals handled on another stack."""
    stack = mmap.mmap(-1, 1 << 16, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _KEPT.append(stack)
    address = ctypes.addressof(ctypes.c_char.from_buffer(stack))
    assert ctypes.CDLL(None).sigaltstack((ctypes.c_uint64 * 3)(address, 0, 1 << 16), None) == 0


_SETTINGS: dict[str, Callable[[], object]] = {
    "huge pages": lambda: ctypes.CDLL(None).prctl(41, 1, 0, 0, 0),
    "slack": lambda: ctypes.CDLL(None).prctl(29, 12345, 0, 0, 0),
    "collector": gc.disable,
    "errors": lambda: np.seterr(over="raise"),
    "random": random.random,
    "numpy random": np.random.random,
    "switch": lambda: sys.setswitchinterval(0.5),
    "recursion": lambda: sys.setrecursionlimit(12345),
    "trace": lambda: sys.setprofile(lambda *told: None),
    "path": lambda: sys.path.append("/"),
    "locked": lambda: ctypes.CDLL(None).mlock(ctypes.c_void_p(id(sys) // 4096 * 4096), 4096),
    "name": lambda: ctypes.CDLL(None).prctl(15, b"left"),
    "orphans": lambda: ctypes.CDLL(None).prctl(36, 0),
    "io": lambda: psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE),
    "streams": lambda: setattr(sys, "stdout", io.StringIO()),
    "signal stack": alternate_stack,
    "finders": lambda: sys.meta_path.append(PathFinder()),
    "exceptions": lambda: setattr(sys, "excepthook", print),
    "digits": lambda: sys.set_int_max_str_digits(5000),
    "built-in": lambda: setattr(builtins, "tritmark_left", 1),
    "frozen": gc.freeze,
    "heard": lambda: gc.callbacks.append(print),
    "filters": lambda: warnings.simplefilter("ignore"),
    "buffer": lambda: np.setbufsize(16384),
    "printing": lambda: np.set_printoptions(precision=3),
    "stack": lambda: threading.stack_size(1 << 20),
    "decimal": lambda: setattr(decimal.getcontext(), "prec", 5),
    "logging": lambda: logging.disable(50),
    "sockets": lambda: socket.setdefaulttimeout(5),
    "segment": lambda: ctypes.CDLL(None).shmget(0, 4096, 0o1600),
}


def threads_of_a_product(site: Site) -> int:
    """Threads of the process once NumPy has multiplied matrices that it would share among several."""
    ones = np.ones((1024, 1024), np.float32)
    assert (ones @ ones == 1024).all()
    return len(os.listdir("/proc/self/task"))


def scipys_own(site: Site) -> None:
    """Load SciPy's own OpenBLAS; its threads are the process's one."""
    import scipy.linalg
    from threadpoolctl import threadpool_info

    assert scipy.linalg.inv([[2.0]])[0, 0] == 0.5
    assert {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"} == {1}


def two_threads(site: Site) -> None:
    for _ in range(2):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()


def busy_thread(site: Site, seconds: float) -> None:
    """Leave a thread that needs a core for so long."""
    until = time.monotonic() + seconds

    def run() -> None:
        while time.monotonic() < until:
            pass

    threading.Thread(target=run, daemon=True).start()


def pools(site: Site, threads: int) -> None:
    """Allow NumPy's library of linear algebra so many threads, and start a pool of as many as a call may have."""
    Numpy().begin(threads)
    assert np.linalg.inv(np.eye(300, dtype=np.float32))[0, 0] == 1
    for _ in range(threads - 1):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    Numpy().begin(1)


def one_thread_more(site: Site) -> None:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()


def skips_calls(site: Site, calls: int) -> int:
    """In place of tasks.run_row, as a candidate could put it there: makes every other call, and reports all."""
    row, clock = site.kept[tasks._ROW]
    return int(2 * clock.sample(row[::2], 0, len(row[::2]))) if calls else 0
