"""Resources of kernels on each architecture, as the compiler reported them. kept_resources.json stores them by a digest
of the compiler's inputs: sources, options, version. So a machine compiles only what changed, and a few for a check.

    python suites/unit/helpers/kept_resources.py     # compile what is not stored, drop what no longer exists
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import tritmark.kernels
from tritmark.kernels.cuda.driver import compile as compiler
from tritmark.kernels.cuda.kernel import Kernel
from tritmark.kernels.cuda.launch import resources
from tritmark.kernels.cuda.launch.launch import KERNELS
from tritmark.kernels.cuda.launch.resources import Resources
from tritmark.kernels.cuda.measure.ceilings import PROBES

ROOM = Path(str(tritmark.kernels.__file__)).parent
KEPT = Path(__file__).with_suffix(".json")
Case = tuple[Kernel, str]
"""And its architecture."""


def every_kernel() -> list[Kernel]:
    """The kernels of all registered variants, and the probes of the ceilings."""
    for path in sorted(ROOM.glob("*/cuda*.py")):
        import_module(f"tritmark.kernels.{path.parent.name}.{path.stem}")
    return list(dict.fromkeys([*(kernel for kernels in KERNELS.values() for kernel in kernels), *PROBES]))


def cases(kernels: Iterable[Kernel]) -> list[Case]:
    """Each kernel with the architectures that it is checked on."""
    archs = resources.checked_architectures()
    return [(kernel, arch) for arch in archs for kernel in kernels if resources.runs_on(kernel, arch)]


def key(kernel: Kernel, arch: str) -> str:
    """Digest of all inputs of the compiler, and of the kernel in them."""
    sources, options = compiler.local_sources(kernel.path), compiler.options_of(kernel, arch)
    return f"{compiler.stored_as(compiler.find_nvcc(), sources, options).stem} {kernel.name}"


def load() -> tuple[str, dict[str, Resources]]:
    """The compiler that reported, and its report."""
    told = json.loads(KEPT.read_text(encoding="utf-8"))
    return told["compiler"], {each: Resources(**use) for each, use in told["kernels"].items()}


def used(kept: dict[str, Resources]) -> dict[Case, Resources]:
    """The resources of every kernel on every architecture: stored, or compiled in parallel."""
    names = {case: key(*case) for case in cases(every_kernel())}
    found = {case: kept[name] for case, name in names.items() if name in kept}
    for arch in resources.checked_architectures():
        left = [kernel for kernel, on in names if on == arch and (kernel, on) not in found]
        found |= resources.survey(left, [arch])
    return found


def main() -> None:
    kept = load()[1] if KEPT.exists() else {}
    kernels = {key(*case): asdict(use) for case, use in used(kept).items()}
    # One line per entry, so that a diff shows which one changed.
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(kernels[name])}" for name in sorted(kernels))
    text = f'{{"compiler": {json.dumps(compiler.compiler())}, "kernels": {{\n{lines}\n}}}}\n'
    KEPT.write_text(text, encoding="utf-8")
    print(f"{len(kernels)} kernels, {len(kernels.keys() - kept.keys())} of them compiled now")


if __name__ == "__main__":
    main()
