"""Products on the CPU from weights with a scale for each group, beside those from weights with one scale and beside
peers, all interleaved in one process.

    python suites/performance/grouped_on_cpu.py [--shapes 2560x2560 17408x5120] [--rows 1 2 16] [--groups 64 128 256]
                                                [--experts 16] [--variant avx512] [--threads 2] [--seconds 0.3]
                                                [--no-peers]

For each N x K and number of rows, cold and hot: the time of tile64 in us; then for each group the time of tile64_gG
over that of tile64; then of each other format with such scales, and of each peer, over that of tile64_gG. Peers are
those of ternary_matmul, or with `--experts` those of ternary_matmul_experts; rows are then pairs of a token and an
expert. `--variant` is the instruction set of tritmark's kernels, by default the best here. A ratio is the median over
rounds in which both had a sample, by way of the fastest kernel; `?` marks one with an interval wider than 10 %.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

import numpy as np

from tritmark.harness.league.together import TimedTogether, Together, together_task
from tritmark.harness.machine.cpu import bind_threads
from tritmark.harness.providers import Installed, load
from tritmark.harness.record import Ratio
from tritmark.harness.spec import KernelKey, Tier, Variant
from tritmark.harness.worker.site import Site
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.native import cpu

DEVICE, DTYPE, ONE = "cpu", "float32", "tile64"
WIDE = 0.1
SELF = Ratio(median=1.0, low=1.0, high=1.0, pairs=0)


def own(installed: Installed, op: str, format: str, name: str | None) -> Variant | None:
    """tritmark's kernel of that name or, for None, the best here; None if there is none."""
    key = KernelKey(DEVICE, op, format, DTYPE)
    known = [each for each in installed.registry.variants if each.key == key and each.tier is not Tier.PEER]
    fitting = [each for each in known if each.features <= cpu.features() and name in {None, each.name}]
    return max(fitting, key=lambda each: each.precedence, default=None)


def of_group(
    installed: Installed, op: str, group: int, axes: Mapping[str, int], told: argparse.Namespace
) -> list[Variant]:
    """Kernels and peers for weights with a scale for each group; that of tile64_gG comes first."""
    scales = BUILT_IN[f"{ONE}_g{group}"].scales
    formats = [name for name, form in BUILT_IN.items() if form.scales == scales and name != f"{ONE}_g{group}"]
    kernels = [own(installed, op, format, told.variant) for format in (f"{ONE}_g{group}", *formats)]
    found = [each for each in kernels if each is not None]
    if told.peers:
        found += [
            each
            for each in installed.registry.variants
            if each.tier is Tier.PEER and (each.key.device, each.key.op, each.key.dtype) == (DEVICE, op, DTYPE)
            if installed.scales_of(each.key.format) == scales and each.missing() is None
            if all(limit.refusal(axes) is None for limit in each.constraints)
        ]
    return found


def over(found: Together, temperature: str, id: str, base: str) -> str:
    """The time of one kernel over that of another."""
    a, b = (_behind(found.kernels[each], temperature) for each in (id, base))
    if a is None or b is None:
        return "-"
    wide = any(each.pairs and (each.high - each.low) / each.median > WIDE for each in (a, b))
    return f"{a.median / b.median:.2f}{'?' if wide else ''}"


def _behind(kernel: TimedTogether, temperature: str) -> Ratio | None:
    """Its time over that of the fastest; None if it was not timed."""
    if kernel.error or getattr(kernel, temperature) is None:
        return None
    return next((ratio for name, ratio in kernel.ratios.items() if name == temperature), SELF)


def lines(installed: Installed, N: int, K: int, M: int, told: argparse.Namespace) -> Iterator[str]:
    """The lines of a size."""
    op = installed.ops["ternary_matmul_experts" if told.experts else "ternary_matmul"]
    axes = {"M": M, "N": N, "K": K, **({"E": told.experts} if told.experts else {})}
    first = own(installed, op.name, ONE, told.variant)
    assert first is not None, f"no kernel {told.variant}"
    groups = {group: of_group(installed, op.name, group, axes, told) for group in told.groups}
    logical = op.generate(axes, "uniform", np.random.default_rng([N, K, M]))
    everyone = (first, *(one for many in groups.values() for one in many))
    encoded = {format: op.encode(logical, axes, format) for format in {each.key.format for each in everyone}}
    sides = {each.id: encoded[each.key.format] for each in everyone}
    found = together_task(Site(installed, first), op.name, sides, axes, told.threads, 0, {}, told.seconds)
    for temperature in ("cold", "hot"):
        figure = getattr(found.kernels[first.id], temperature)
        if figure is None:
            continue
        yield f"{N}x{K}, M = {M}, {temperature}: {ONE} {first.name} {figure.timing.median_ns / 1e3:.1f} us"
        for group, (base, *others) in groups.items():
            beside = [f"g{group} {over(found, temperature, base.id, first.id)} x {ONE}"]
            for each in others:
                name = each.name if each.tier is Tier.PEER else each.key.format
                beside.append(f"{name} {over(found, temperature, each.id, base.id)}")
            yield f"  {', '.join(beside)}"
    yield from (f"  {id}: {each.error}" for id, each in found.kernels.items() if each.error)


def main() -> int:
    """0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = [isa.name for isa in cpu.KERNELS["ternary_matmul"] if isa.features <= cpu.features()]
    parser.add_argument("--shapes", nargs="+", default=("2560x2560", "17408x5120"), metavar="NxK")
    parser.add_argument("--rows", nargs="+", type=int, default=(1, 2, 16), metavar="M")
    parser.add_argument("--groups", nargs="+", type=int, default=(64, 128, 256))
    parser.add_argument("--experts", type=int, default=0, metavar="E")
    parser.add_argument("--variant", choices=here)
    parser.add_argument("--threads", type=int, default=cpu.cores())
    parser.add_argument("--seconds", type=float, default=0.3, help="samples of a kernel at each temperature")
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    told = parser.parse_args()
    bind_threads()
    installed = load()
    for N, K in (map(int, shape.split("x")) for shape in told.shapes):
        for M in told.rows:
            for line in lines(installed, N, K, M, told):
                print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
