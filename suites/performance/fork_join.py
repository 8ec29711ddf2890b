"""Cost of distributing a call over two threads, on a quiet machine and beside spinning threads of another library.

    python suites/performance/fork_join.py [--before REVISION] [--rounds 30]

For calls of several lengths: the time on one thread, on two, and the time of two beyond half of one (fork, join, and
the time in which one thread works alone); each is the median over the rounds. Then, if onnxruntime is installed: calls
on two threads interleaved with a product of ONNX Runtime on two threads that spin afterwards, over the same with
threads that do not spin (allow_spinning): medians, and with spinning the mean and the 99th percentile. `--before`: the
same with that revision's parallel.h, interleaved, and its times over this tree's in percent; compiled with OpenMP if it
has no pool.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median, quantiles
from time import perf_counter, sleep
from typing import Any

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
SOURCES = Path("cython_ext") / "src"
LENGTHS = {
    "an empty body": (2, 0),
    "2 x 5 us": (2, 5000),
    "16 x 4 us": (16, 4000),
    "64 x 6 us": (64, 6000),
    "256 x 8 us": (256, 8000),
}
"""Items of a call, and the nanoseconds of each."""
_SAMPLE_NS = 400_000
_TURNS = 40
_SETTLE_S = 0.01
"""Seconds after which the threads of the other build and of ONNX Runtime no longer spin."""


class Built:
    """The calls of one tree's sources."""

    def __init__(self, name: str, tree: Path, folder: Path) -> None:
        self.name = name
        pool = sorted((tree / SOURCES / "pool").glob("*.c"))
        library = folder / f"{name.replace('/', '-')}.so"
        own = ["-DPOOL", *map(str, pool), "-pthread"] if pool else ["-fopenmp"]
        command = ["cc", "-std=gnu11", "-O3", "-shared", "-fPIC", f"-I{tree / SOURCES}", "-o", str(library)]
        subprocess.run([*command, str(HERE.with_suffix(".c")), *own], check=True)
        self._function = ctypes.CDLL(str(library)).fork_join
        self._function.restype = ctypes.c_int64
        self._function.argtypes = [*[ctypes.c_int64] * 3, ctypes.c_int32, ctypes.POINTER(ctypes.c_int64)]

    def sample(self, items: int, steps: int, threads: int, calls: int) -> tuple[float, float]:
        """Nanoseconds of a call, and the mean number of threads that took part."""
        used = ctypes.c_int64(0)
        taken = self._function(calls, items, steps, threads, ctypes.byref(used))
        return taken / calls, used.value / calls


def quiet(builts: list[Built], step_ns: float, rounds: int) -> None:
    """Print the first table."""
    print(f"{'call':<14}{'build':<12}{'1 thread us':>12}{'2 threads us':>13}{'beyond half us':>15}{'took part':>10}")
    for name, (items, item_ns) in LENGTHS.items():
        steps, calls = round(item_ns / step_ns), max(1, round(_SAMPLE_NS / max(200, items * item_ns)))
        times: dict[str, list[tuple[float, float, float]]] = {built.name: [] for built in builts}
        for _ in range(rounds):
            for built in builts:
                sleep(_SETTLE_S)
                one, _ = built.sample(items, steps, 1, calls)
                built.sample(items, steps, 2, max(1, calls // 4))  # wakes the threads
                two, used = built.sample(items, steps, 2, calls)
                times[built.name].append((one / 1e3, two / 1e3, used))
        for built in builts:
            one, two, used = (median(column) for column in zip(*times[built.name], strict=True))
            print(f"{name:<14}{built.name:<12}{one:12.2f}{two:13.2f}{two - one / 2:15.2f}{used:10.2f}")
        if len(builts) > 1:
            before, after = (median(two for _, two, _ in times[built.name]) for built in builts[::-1])
            print(f"{'':<14}two threads, before / now: {100 * before / after:.0f} %")


def session(spinning: bool) -> Callable[[], Any] | None:
    """A product of 64 x 512 x 512 of ONNX Runtime on two threads; None if it is not installed."""
    try:
        import numpy as np
        import onnxruntime
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        print(f"\nbeside ONNX Runtime: not measured ({error})")
        return None
    weights = np.random.default_rng(0).standard_normal((512, 512), dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 512])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 512])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spinning else "0")
    made = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    inputs = {"x": np.ones((64, 512), np.float32)}
    return lambda: made.run(None, inputs)


def beside(builts: list[Built], step_ns: float, rounds: int) -> None:
    """Print the second table."""
    if session(False) is None:
        return
    print("\ninterleaved with ONNX Runtime on two threads, without and with spinning")
    print(
        f"{'call':<14}{'build':<12}{'us':>8}{'us':>8}{'ratio':>7}{'mean':>8}{'99th':>8}"
        f"{'took part':>14}{'its own product us':>20}"
    )
    for name, (items, item_ns) in LENGTHS.items():
        if not item_ns:
            continue
        steps = round(item_ns / step_ns)
        for built in builts:
            found: list[list[tuple[float, float, float]]] = [[], []]
            for _ in range(rounds):
                for spinning, kept in enumerate(found):
                    run = session(bool(spinning))
                    assert run is not None
                    sleep(_SETTLE_S)
                    for turn in range(_TURNS):
                        begun = perf_counter()
                        run()
                        product = perf_counter() - begun
                        sample = built.sample(items, steps, 2, 1)
                        if turn >= _TURNS // 4:
                            kept.append((*sample, product * 1e6))
            own, with_it = (median(taken for taken, _, _ in kept) / 1e3 for kept in found)
            spun = [taken / 1e3 for taken, _, _ in found[1]]
            parts = "{:.2f}, {:.2f}".format(*(sum(part for _, part, _ in kept) / len(kept) for kept in found))
            theirs = "{:.0f}, {:.0f}".format(*(median(product for _, _, product in kept) for kept in found))
            print(
                f"{name:<14}{built.name:<12}{own:8.1f}{with_it:8.1f}{with_it / own:7.2f}"
                f"{mean(spun):8.1f}{quantiles(spun, n=100)[-1]:8.1f}{parts:>14}{theirs:>20}"
            )


def main() -> None:
    """Run the module's description."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="REVISION")
    parser.add_argument("--rounds", type=int, default=30)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        builts = [Built("this tree", ROOT, Path(folder))]
        if told.before:
            tree = Path(folder) / "before"
            tree.mkdir()
            archive = subprocess.run(
                ["git", "-C", str(ROOT), "archive", told.before, str(SOURCES)], check=True, capture_output=True
            )
            subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
            builts.append(Built(told.before, tree, Path(folder)))
        step_ns = min(builts[0].sample(1, 100_000, 1, 1)[0] for _ in range(50)) / 100_000
        quiet(builts, step_ns, told.rounds)
        beside(builts, step_ns, told.rounds)


if __name__ == "__main__":
    main()
