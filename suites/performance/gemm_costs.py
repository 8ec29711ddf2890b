"""Times of the instances of ternary_matmul's gemm_mma.cu and gemm_wgmma.cu on this GPU, or those of ternary_matmul_a16
with bfloat16 activations; the costs of their predictions; and the quality of the choice.

    python suites/performance/gemm_costs.py [--shapes 2560x2560 13824x2560] [--rows 16 64 512] [--fit]
                                            [--activations bfloat16]

For each N x K and each M a line with the times of all instances in us; the fastest is marked with *, the launched one
with >. Weights are cold in L2, outputs are bfloat16, launches are replayed from a CUDA graph; a time is the median of
seven. Then every M at which the launched instance takes more than 1.1 times its time for the next larger M of the same
N x K. With --fit, for each instance that counts its costs: the costs that fit its times best (least squares of the
relative errors, none below 0), the largest relative error, and the costs adjusted for the best choice, within a third
of each.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from tritmark.harness.dtypes import named_dtype
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.context import CudaContext
from tritmark.kernels.cuda.kernel import Step
from tritmark.kernels.cuda.launch.launch import Call, CudaLaunch
from tritmark.kernels.cuda.measure.clock import GraphClock, timeable
from tritmark.kernels.cuda.tiles.wgmma_tiles import WgmmaTiles
from tritmark.kernels.formats.row16 import row_bytes
from tritmark.kernels.ternary_matmul import cuda_gemm
from tritmark.kernels.ternary_matmul.cuda_arguments import KINDS
from tritmark.kernels.ternary_matmul_a16 import cuda as cuda_a16

INT8, BFLOAT16 = "int8", "bfloat16"
"""Activations."""
Instance = Any
INSTANCES: dict[str, tuple[Instance, ...]] = {
    INT8: (*cuda_gemm.MMA, *cuda_gemm.WGMMA),
    BFLOAT16: (*cuda_a16.GEMV, *cuda_a16.MMA, *cuda_a16.WGMMA),
}
SHAPES = ("2560x2560", "13824x2560", "2560x6912", "14336x4096", "640x2560", "3840x2560")
ROWS = (9, 16, 17, 24, 32, 33, 48, 64, 65, 80, 96, 112, 128, 129, 160, 192, 256, 257, 320, 384, 512, 768, 1024, 2048)
COLD = 150 << 20
"""Bytes of weights through which launches rotate: more than an L2 holds."""
CALLS, SAMPLES = 24, 7
SLOW = 1.6
"""Instances with a predicted time of this many times the fastest are not timed."""
MOVED, MOVES, WEIGHT = 1 / 3, 4000, 0.3
"""The largest relative adjustment of a cost, the number of adjustments, and the weight of the worst choice relative to
the mean."""
Costs = tuple[float, ...]
Times = dict[tuple[int, int, int], dict[Instance, float]]
Predicted = Mapping[Instance, Mapping[tuple[int, int, int], float]]


def name(instance: Instance) -> str:
    """Its kind and its tile."""
    tile = "{}x{}".format(*instance.tile)
    if not isinstance(instance, WgmmaTiles):
        return f"{type(instance).__name__.removeprefix('A16').removeprefix('Gemm').lower()}-{tile}"
    shared = f"/{instance.split}" if instance.split > 1 else ""
    return f"wgmma-{tile}" + (f"-{instance.tail}" if instance.last else shared)


def steps(instance: Instance, call: Call) -> tuple[Step, ...]:
    """Its launch."""
    if instance in INSTANCES[INT8]:
        return cuda_gemm.launched((instance,), KINDS[BFLOAT16], call)
    return cuda_a16.launched((instance,), BFLOAT16, cuda_a16.KINDS[BFLOAT16], call)


def rows_of(context: CudaContext, activations: str, M: int, K: int, rng: np.random.Generator) -> dict[str, Any]:
    """Inputs other than the weights."""
    if activations == BFLOAT16:
        drawn = rng.standard_normal((M, K), np.float32).astype(named_dtype(BFLOAT16))
        return {"activations": context.upload(drawn), "weight_scale": np.float32(0.5)}
    return {
        "activations": context.upload(rng.integers(-128, 128, (M, K), dtype=np.int8)),
        "weight_scale": np.float32(0.5),
        "act_scale": context.upload(rng.uniform(1, 100, M).astype(np.float32)),
    }


def weights(context: CudaContext, N: int, K: int) -> list[DeviceArray]:
    """Copies of drawn row16 weights: fields 0, 1 and 2."""
    rng = np.random.default_rng(0)
    high = rng.integers(0, 256, N * row_bytes(K) + 64, dtype=np.uint8) & 0xAA
    drawn = high | (rng.integers(0, 256, high.size, dtype=np.uint8) & 0x55 & ~(high >> 1))
    return [context.upload(drawn) for _ in range(max(2, -(-COLD // high.size)))]


def measured(context: CudaContext, activations: str, N: int, K: int, rows: list[int], every: bool) -> Times:
    """The times in us for each M; only of the launched instance unless `every`."""
    info, copies, rng, found = context.backend.info, weights(context, N, K), np.random.default_rng(1), {}
    bad, instances = context.array((1,), np.uint64), INSTANCES[activations]
    for M in rows:
        axes = {"M": M, "N": N, "K": K}
        shared = rows_of(context, activations, M, K, rng)
        out = context.array((M, N), named_dtype(BFLOAT16))
        space = cuda_gemm.workspace(axes) if activations == INT8 else 0
        workspace = context.array((space,), np.uint8) if space else None
        predicted = {each: each.predicted_us(M, N, K, info.sms) for each in instances}
        near = {each for each, us in predicted.items() if us <= SLOW * min(predicted.values())}
        times = {}
        for instance in instances if every else (min(predicted, key=predicted.__getitem__),):
            if instance in near:
                calls = [
                    Call(
                        inputs={**shared, "weights": copy},
                        outputs={"out": out},
                        axes=axes,
                        info=info,
                        bad=bad,
                        workspace=workspace,
                        function=context.function,
                    )
                    for copy in copies
                ]
                launches = [CudaLaunch("gemm", call, steps(instance, call)) for call in calls]
                clock, number = GraphClock(), max(CALLS, len(copies))
                samples = [clock.sample(launches, 0, number) / number / 1e3 for _ in range(SAMPLES + 2)]
                times[instance] = median(samples[2:])
        found[M, N, K] = times
    return found


def fitted(instance: Instance, times: Times, sms: int) -> tuple[Costs, float]:
    """Its costs, and their largest relative error."""
    told = [(shape, by[instance]) for shape, by in times.items() if instance in by]
    terms = np.array([[count / us for count in instance.counts(*shape, sms)] for shape, us in told])
    used = list(range(terms.shape[1]))
    while True:
        costs = np.zeros(terms.shape[1])
        costs[used] = np.linalg.lstsq(terms[:, used], np.ones(len(told)), rcond=None)[0]
        if costs.min() >= 0:
            return tuple(float(cost) for cost in costs), float(np.abs(terms @ costs - 1).max())
        used.remove(int(costs.argmin()))


def chosen_over_fastest(predicted: Predicted, times: Times) -> tuple[float, float]:
    """Mean and maximum over all shapes of the time of the instance that is predicted as fastest, over the fastest."""
    over = []
    for shape, by in times.items():
        chosen = min(predicted, key=lambda instance: predicted[instance][shape])
        fastest = min(by.values())
        over.append(by.get(chosen, SLOW * fastest) / fastest)
    return sum(over) / len(over), max(over)


def moved(fit: Mapping[Instance, Costs], times: Times, sms: int) -> tuple[dict[Instance, Costs], float, float]:
    """Costs near the fitted ones with the best choice, and its quality (see chosen_over_fastest). One cost of an
    instance is changed at a time; the change is kept if it improves the choice."""
    rng, costs = np.random.default_rng(0), dict(fit)

    def predict(instance: Instance) -> dict[tuple[int, int, int], float]:
        made = replace(instance, costs=costs[instance]) if instance in costs else instance
        if isinstance(instance, WgmmaTiles) and instance.last is not None:
            last: Any = instance.last
            made = replace(made, last=replace(last, costs=costs[last]))
        return {shape: made.predicted_us(*shape, sms) for shape in times}

    def value(predicted: Predicted) -> float:
        mean, largest = chosen_over_fastest(predicted, times)
        return mean + WEIGHT * largest

    instances = INSTANCES[INT8 if any(each in INSTANCES[INT8] for each in fit) else BFLOAT16]
    predicted = {each: predict(each) for each in instances}
    best, movable = value(predicted), list(fit)
    for _ in range(MOVES):
        instance = movable[rng.integers(len(movable))]
        place, before = int(rng.integers(len(costs[instance]))), costs[instance]
        to = fit[instance][place] * rng.uniform(1 - MOVED, 1 + MOVED)
        costs[instance] = (*before[:place], to, *before[place + 1 :])
        hang = [instance, *(each for each in instances if getattr(each, "last", None) == instance)]
        tried = {**predicted, **{each: predict(each) for each in hang}}
        if (found := value(tried)) < best:
            best, predicted = found, tried
        else:
            costs[instance] = before
    return costs, *chosen_over_fastest(predicted, times)


def main() -> int:
    """0, or 1 if a larger M takes less time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="NxK")
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS, metavar="M")
    parser.add_argument("--activations", choices=tuple(INSTANCES), default=INT8)
    parser.add_argument("--launched", action="store_true", help="time only the launched instance")
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args()
    context = timeable(0)
    sms, times, cliffs = context.backend.info.sms, Times(), []
    instances = INSTANCES[options.activations]
    for shape in options.shapes:
        N, K = map(int, shape.split("x"))
        here = measured(context, options.activations, N, K, sorted(options.rows), not options.launched)
        times |= here
        taken = {}
        for (M, _, _), by in here.items():
            chosen = min(instances, key=lambda each: each.predicted_us(M, N, K, sms))
            best = min(by, key=by.__getitem__)
            taken[M] = by[chosen]
            marks = (
                f"{'>' if each == chosen else ''}{'*' if each == best else ''}{name(each)} {us:.2f}"
                for each, us in by.items()
            )
            print(f"{M:5} x {N} x {K}: {by[chosen] / by[best]:.2f}  {'  '.join(marks)}", flush=True)
        cliffs += [
            f"{M} x {N} x {K}: {us:.2f} us, M = {larger}: {less:.2f}"
            for (M, us), (larger, less) in pairwise(taken.items())
            if us > 1.1 * less
        ]
    print("cliffs:", *cliffs or ["none"], sep="\n  ")
    if options.fit:
        print_fit(instances, times, sms)
    return bool(cliffs)


def print_fit(instances: Sequence[Instance], times: Times, sms: int) -> None:
    """Print the fitted costs, and those with the best choice."""
    fit: dict[Instance, Costs] = {}
    for instance in instances:
        if not hasattr(instance, "counts"):
            continue
        if isinstance(instance, WgmmaTiles) and instance.last is not None:
            # A mixed instance is predicted from two others: its own tiles are those of the first without a tail.
            alike = next(each for each in fit if each.tile == instance.tile and each.split == 1)
            fit[instance] = fit[alike]
            continue
        if sum(instance in by for by in times.values()) < len(instance.costs):
            print(f"{name(instance)}: measured at too few shapes; its costs are unchanged")
            fit[instance] = instance.costs
            continue
        fit[instance], error = fitted(instance, times, sms)
        print(f"{name(instance)}: {told(fit[instance])}, within {100 * error:.0f} %")
    costs, mean, largest = moved(fit, times, sms)
    print(f"adjusted, the choice takes {mean:.4f} times the fastest's time in the mean, {largest:.3f} at most:")
    for instance, each in costs.items():
        print(f"{name(instance)}: {told(each)}")


def told(costs: Costs) -> str:
    """The costs in the notation of cuda_gemm.py."""
    return f"({', '.join(f'{cost:.3f}' for cost in costs)})"


if __name__ == "__main__":
    raise SystemExit(main())
