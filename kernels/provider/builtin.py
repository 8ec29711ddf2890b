"""What tritmark's own kernels bring to the harness: OPS and PROVIDER.

`tritmark.kernels` imports this module at their first use. The variants of all ops, and the peers, take a fifth of the
import of `tritmark.kernels`, and a program that only packs weights needs none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tritmark.harness.spec import (
    Axes,
    Decoding,
    EquivalentMutants,
    FormatMutant,
    Mutant,
    Op,
    PortableCall,
    Provider,
    PublicCall,
    Unsupported,
    Variant,
)
from tritmark.kernels.absmean_quantize.api import ternarize
from tritmark.kernels.cuda.device import DEVICE as CUDA
from tritmark.kernels.formats import BUILT_IN, WEIGHT_TYPES
from tritmark.kernels.native import cpu
from tritmark.kernels.ops import contracts, files, modules
from tritmark.kernels.peers import ORACLES, PEERS
from tritmark.kernels.provider.golden import vectors

if TYPE_CHECKING:
    from tritmark.harness.precision import Precisions
    from tritmark.harness.providers import PeerLibrary

OPS: tuple[Op, ...] = tuple(op for op, _ in contracts())
"""Every op, in the order in which reports show them."""


def _evaluate_matrix(*args: Any, **kwargs: Any) -> Any:
    from tritmark.kernels.provider.evaluate_matrix import evaluate_matrix

    return evaluate_matrix(*args, **kwargs)


def _adapters(name: str, path: str) -> Sequence[Variant]:
    from tritmark.kernels.peers import adapters

    return adapters.variants(name, path)


def _evaluate_stored(*args: Any, **kwargs: Any) -> Any:
    from tritmark.kernels.provider.evaluate_stored import evaluate_stored

    return evaluate_stored(*args, **kwargs)


def _mutants() -> Sequence[Mutant | EquivalentMutants | Decoding]:
    from tritmark.kernels.provider.mutants import MUTANTS

    return MUTANTS


def _format_mutants() -> Iterable[FormatMutant]:
    from tritmark.kernels.provider.format_mutants import mutants

    return mutants()


def _calls() -> Sequence[PublicCall]:
    from tritmark.kernels.provider.calls import CALLS

    return CALLS


def _unsupported() -> Sequence[Unsupported]:
    from tritmark.kernels.peers.unsupported import UNSUPPORTED

    return UNSUPPORTED


def _portable(op: str, axes: Axes, threads: int | None) -> Sequence[PortableCall]:
    from tritmark.kernels.provider.portable_calls import portable

    return portable(op, axes, threads)


def _precisions(shapes: Iterable[tuple[int, int, int]], seed: int) -> Precisions:
    from tritmark.kernels.matmul.benchmark import precisions

    return precisions(shapes, seed)


def _libraries() -> Sequence[PeerLibrary]:
    from tritmark.kernels.peers.reference import LIBRARY

    return (LIBRARY,)


PROVIDER = Provider(
    ops=OPS,
    variants=tuple(
        variant
        for module in modules("cpu", "cuda", "cuda_gpu_int2", "cuda_scaled", "cuda_grouped")
        for variant in module.VARIANTS
    ),
    devices=(cpu.DEVICE, CUDA),
    formats=BUILT_IN,
    workloads="tritmark.workloads",
    op_workloads=partial(files, "workloads.toml"),
    bugs="tritmark.bugs",
    evaluate_matrix=_evaluate_matrix,
    peers=PEERS,
    libraries=_libraries,
    unsupported=_unsupported,
    calls=_calls,
    portable=_portable,
    precisions=_precisions,
    templates="tritmark.kernels",
    mutants=_mutants,
    format_mutants=_format_mutants,
    golden=vectors,
    oracles=ORACLES,
    adapters=_adapters,
    functions=("i2s_gpu_", "ternary_gpu_", "gemm_", "wmma_", "convert_gpu_"),
    weight_types=WEIGHT_TYPES,
    ternarize=ternarize,
    evaluate_stored=_evaluate_stored,
)
"""What tritmark's own kernels bring to the harness."""
