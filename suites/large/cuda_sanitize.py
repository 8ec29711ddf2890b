"""Launches every instance of every CUDA kernel a few times on ragged shapes, for compute-sanitizer.

    compute-sanitizer --tool racecheck python suites/large/cuda_sanitize.py [--op GLOB] [--variant GLOB]

Also with initcheck, synccheck, and `memcheck --report-api-errors no`. Outputs are compared with the op's reference.
Prints the number of launches of each variant. Exits with status 1 if an output is incorrect or nothing was launched.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from fnmatch import fnmatchcase

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.measure.buffers import Rotation, memory_of
from tritmark.harness.providers import Installed, load
from tritmark.harness.spec import Axes, Op, Tier, Variant, Workload
from tritmark.harness.validate.cases import Case, Material
from tritmark.harness.validate.compare import compare
from tritmark.harness.validate.sets import Sets

PRODUCTS = (
    (1, 35, 768),
    (1, 640, 2560),
    (5, 130, 1536),
    (17, 96, 1040),
    (17, 128, 1024),
    (70, 288, 1280),
    (300, 257, 800),
)
ROWS = ((1, 2560), (3, 100), (5, 6912))
FLAT = (1, 257, 4096, 70_001)
BLOCKS = (32, 256)

ONE = Rotation(nbytes=0, wanted=0)
"""One set of arrays."""


def shapes(op: Op) -> Iterator[Axes]:
    """Small shapes, and shapes with a remainder in every axis."""
    if op.axes == ("M", "N", "K"):
        yield from (dict(zip(op.axes, shape, strict=True)) for shape in PRODUCTS)
    elif op.axes == ("M", "K"):
        yield from (dict(zip(op.axes, shape, strict=True)) for shape in ROWS)
    elif op.axes == ("N", "K"):
        yield from ({"N": N, "K": K} for _, N, K in PRODUCTS)
    else:
        for n in FLAT:
            yield from ({"n": n, "block": block} for block in BLOCKS) if "block" in op.axes else ({"n": n},)


def launched(installed: Installed, variant: Variant) -> Iterator[tuple[str, Axes, Case]]:
    """Each instance of a variant at each shape that it takes, with its data."""
    op = installed.ops[variant.key.op]
    for axes in shapes(op):
        if any(why is not None for each, why in installed.registry.candidates(variant.key, axes) if each is variant):
            continue
        try:
            material = Material(op, Workload(op=op.name, axes=axes, family=op.input_families[0]), 0)
            case = material.cases(variant.key, by_turns=True).first
        except InvalidArgumentError:  # a shape that the format does not hold
            continue
        each = {variant.name: variant} if variant.instances is None else variant.instances(axes).each
        for name, instance in each.items():
            sets = Sets(
                op, variant.key, axes, (case.inputs,), memory_of(installed.registry.devices["cuda"]), "aligned", ONE
            )
            sets.poison(0)
            launch = instance.bind(sets.each[0].inputs, sets.each[0].outputs, axes, 1)
            launch.run()
            like, outputs = op.outputs_like(axes, variant.key), sets.written(0)
            for expected in case.expected:
                shape, dtype = like[expected.name]
                found = outputs[expected.name].view(named_dtype(dtype)).reshape(shape)
                if compare(expected, found).first is not None:
                    print(f"WRONG {variant.id} {name} {axes}: {expected.name}", flush=True)
                    yield "wrong", axes, case
            yield name, axes, case


def main() -> int:
    """0, or 1 if an output is incorrect or nothing was launched."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", default="*")
    parser.add_argument("--variant", default="*")
    options = parser.parse_args()
    installed, total, wrong = load(()), 0, 0
    for variant in installed.registry.variants:
        chosen = fnmatchcase(variant.key.op, options.op) and fnmatchcase(variant.id, options.variant)
        if variant.key.device != "cuda" or variant.missing() is not None or not chosen or variant.tier is Tier.PEER:
            continue
        names = [name for name, _, _ in launched(installed, variant)]
        bad = names.count("wrong")
        print(f"{variant.id}: {len(names) - bad} launches of {len(set(names) - {'wrong'})} instances", flush=True)
        total, wrong = total + len(names) - bad, wrong + bad
    print(f"{total} launches, {wrong} incorrect outputs")
    return wrong > 0 or not total


if __name__ == "__main__":
    raise SystemExit(main())
