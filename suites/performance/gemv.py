"""Products of one row of activations, or of few, with weights in tile64, or another format, cold and hot, compared with
the read and compute ceilings of this machine, with peers, and with another build.

    python suites/performance/gemv.py [--models 'bitnet-b1.58-2B*'] [--shapes 2560x2560] [--rows 1 16] [--threads 1 2]
                                      [--format tq2_0] [--no-peers] [--variant avx2] [--beside tile80]
                                      [--before ternary_matmul.SUFFIX.so]

For each N x K, number of rows and thread count two lines. Shapes are layers of the matching models of
suites/workloads/models.toml, by default 'bitnet-b1.58-2B-4T'; `--shapes ragged` are small shapes that are multiples of
nothing. Cold, weights come from memory: us of a call, and its percent of the fastest read probe. Hot, all data are in
the caches: the same, and the percent of the compute probe. Then the time of each installed peer over tritmark's, with
activations quantized and weights packed beforehand; with `--beside` the time of tritmark's kernels for other formats;
with `--before` the time of the other build, an extension module. Each is interleaved with tritmark's kernel in pairs; a
ratio is the median over its pairs, a time the median over all of them. Outputs are float32.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from dataclasses import replace
from fnmatch import fnmatch
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tritmark.harness.machine.cpu import bind_threads
from tritmark.harness.machine.memory import rss_bytes
from tritmark.harness.measure.alternate import Timed, alternate, calibrate
from tritmark.harness.measure.buffers import HOST, rotation
from tritmark.harness.measure.clocks import clock_for
from tritmark.harness.measure.statistics import median
from tritmark.harness.measure.stopping import MinimumSamples, TimeLimit
from tritmark.harness.measure.survey import Field, bind, compute_bytes, survey
from tritmark.harness.providers import load
from tritmark.harness.spec import KernelKey, Launch, Tier, Variant
from tritmark.harness.suite import ModelShapes
from tritmark.harness.validate.sets import Set, Sets
from tritmark.kernels import OPS
from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_matmul.cpu import FORMATS
from tritmark.kernels.ternary_matmul.tables import tiles

DEVICE, OP, DTYPE = "cpu", "ternary_matmul", "float32"
MODELS = Path(__file__).parents[1] / "workloads" / "models.toml"
RAGGED = ((1, 1), (7, 33), (64, 64), (65, 130), (100, 500), (129, 257), (200, 310), (333, 111), (511, 511))
NAMED = "cython_ext.ternary_matmul"
COLD_CALLS = 4
"""Least seconds of a sample."""


def other_build(path: Path) -> Any:
    """The extension module in that file, beside the installed one; both share the thread pool."""
    spec = spec_from_loader(f"tritmark.{NAMED}", ExtensionFileLoader(f"tritmark.{NAMED}", str(path)))
    assert spec is not None
    assert spec.loader is not None
    installed = cpu.native(OP)
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    sys.modules[spec.name] = installed
    return made


def best(name: str | None, key: KernelKey) -> Variant:
    """tritmark's kernel of that name; None: the one that is selected on this machine."""
    own = [each for each in load().registry.variants if each.key == key and each.tier is not Tier.PEER]
    fitting = [each for each in own if each.features <= cpu.features() and name in {None, each.name}]
    return max(fitting, key=lambda each: each.precedence)


def bound_before(module: Any, own: Variant, one: Any, axes: dict[str, int], threads: int) -> Launch:
    """A call of the other build."""
    given = one.inputs
    launch: Launch = module.TernaryMatmul(
        own.key.format, own.name, given["activations"], given["weights"].reshape(-1), axes["N"], given["weight_scale"],
        given["act_scale"], one.outputs["out"], threads, tiles(own.key.format, axes) or (0, 0, 0),
    )  # fmt: skip
    return launch


class Sides:
    """The timed kernels at a shape and thread count, cold or hot; the first is tritmark's."""

    def __init__(self, cold: bool, rng: np.random.Generator) -> None:
        self._cold, self._rng = cold, rng
        self._sides: dict[str, tuple[Timed, float]] = {}

    def add(self, name: str, timed: Timed, scale: float = 1.0) -> None:
        """`scale`: factor of the side's time. An untimed call before each sample wakes the threads."""
        timed.warm = True
        calibrate(timed)
        if self._cold:
            timed.calls = max(COLD_CALLS, timed.calls)
        self._sides[name] = timed, scale

    def launches(self, name: str, made: list[Launch]) -> None:
        """Consecutive cold calls, or one hot call."""
        row = [made[index] for index in self._rng.permutation(len(made))]
        self.add(name, Timed(row, clock_for(cpu.DEVICE, row)))

    def taken(self, pairs: int) -> tuple[float, dict[str, float]]:
        """us of tritmark's call, and the time of each other side over it."""
        (own, _), *_ = self._sides.values()
        ns: list[float] = []
        over: dict[str, float] = {}
        for name, (timed, scale) in list(self._sides.items())[1:]:
            found = alternate(own, timed, self._rng, MinimumSamples(pairs, TimeLimit(0)))
            ns += found.a_ns
            over[name] = found.ratio(scale).median
        return median(ns) / 1e3, over


def measured(M: int, N: int, K: int, threads: int, told: argparse.Namespace, module: Any, field: Field) -> None:
    """Print the lines of a shape."""
    (op,) = (each for each in OPS if each.name == OP)
    key = KernelKey(DEVICE, OP, told.format, DTYPE)
    axes, rng = {"M": M, "N": N, "K": K}, np.random.default_rng([N, K, threads])
    drawn = op.generate(axes, "uniform", rng)
    inputs = op.encode(drawn, axes, key.format)
    sets, own = Sets(op, key, axes, (inputs,), HOST, "aligned", rotation()), best(told.variant, key)
    others = {
        format: Sets(
            op, replace(key, format=format), axes, (op.encode(drawn, axes, format),), HOST, "aligned", rotation()
        )
        for format in told.beside
    }
    traffic, known = op.traffic(axes, key), survey(cpu.DEVICE)
    for cold in (True, False) if sets.cold else (False,):
        sides, each = Sides(cold, rng), sets.each if cold else sets.each[:1]
        sides.launches("ours", [own.bind(one.inputs, one.outputs, axes, threads) for one in each])
        for format, other in others.items():
            kernel, those = best(told.variant, other.key), other.each if cold else other.each[:1]
            sides.launches(format, [kernel.bind(one.inputs, one.outputs, axes, threads) for one in those])
        if module is not None:
            sides.launches("before", [bound_before(module, own, one, axes, threads) for one in each])
        for name, nbytes, need in (
            ("read", traffic.read, traffic.read),
            ("compute", compute_bytes(cpu.DEVICE, threads), traffic.operations),
        ):
            if name == "read" or not cold:
                roof = known.roof(name, field, nbytes, threads=threads, cold=cold and name == "read")
                probe = bind(roof.ceiling, cpu.DEVICE, field, nbytes, threads=roof.threads, cold=cold, rng=rng)
                sides.add(name, probe, need / roof.ceiling.work(nbytes))
        for peer in peers(key, axes) if told.peers else ():
            peer.load()
            sides.launches(peer.name, packed(peer, each, axes, threads))
        us, over = sides.taken(told.pairs)
        place = f"{N}x{K}, {f'M = {M}, ' if M > 1 else ''}threads {threads}"
        words = [f"{place}, {'cold' if cold else 'hot'}: {us:.2f} us"]
        words += [f"{100 * over.pop(name):.0f} % of {name}" for name in ("read", "compute") if name in over]
        print(", ".join([*words, *(f"{name} {ratio:.2f}" for name, ratio in over.items())]), flush=True)


def packed(peer: Variant, each: list[Set], axes: dict[str, int], threads: int) -> list[Launch]:
    """A peer's calls, each with its own packed data: as many as fill the rotation."""
    made: list[Launch] = []
    before = rss_bytes()
    for one in each:
        made.append(peer.bind(one.inputs, one.outputs, axes, threads))
        if rss_bytes() - before > rotation().nbytes:
            break
    return made


def peers(key: KernelKey, axes: dict[str, int]) -> list[Variant]:
    """The installed peers that take these axes."""
    known = [each for each in load().registry.variants if each.key == key and each.tier is Tier.PEER]
    return [
        each
        for each in known
        if each.missing() is None and all(limit.refusal(axes) is None for limit in each.constraints)
    ]


def shapes(told: argparse.Namespace) -> list[tuple[int, int]]:
    """The requested shapes."""
    found: list[tuple[int, int]] = []
    for each in told.shapes:
        found += RAGGED if each == "ragged" else [tuple(map(int, each.split("x")))]  # type: ignore[list-item]
    if not found:
        tables = tomllib.loads(MODELS.read_text(encoding="utf-8"))
        for name, table in tables.items():
            if fnmatch(name, told.models):
                found += ModelShapes.model_validate(table).sizes()
    return list(dict.fromkeys(found))


def main() -> None:
    """Run the module's description."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = [isa.name for isa in cpu.KERNELS[OP] if isa.features <= cpu.features()]
    parser.add_argument("--models", default="bitnet-b1.58-2B-4T")
    parser.add_argument("--shapes", nargs="+", default=[])
    parser.add_argument("--rows", nargs="+", type=int, default=[1], metavar="M")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--variant", choices=here)
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    parser.add_argument("--format", choices=FORMATS, default="tile64")
    parser.add_argument("--beside", nargs="+", choices=FORMATS, default=[])
    parser.add_argument("--before", type=Path)
    told = parser.parse_args()
    bind_threads()
    module, field = (
        None if told.before is None else other_build(told.before),
        Field(compute_bytes(cpu.DEVICE, cpu.cores())),
    )
    for (N, K), M, threads in product(shapes(told), told.rows, told.threads):
        measured(M, N, K, threads, told, module, field)


if __name__ == "__main__":
    main()
