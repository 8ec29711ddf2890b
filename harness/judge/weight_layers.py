"""The matrices of a weight file, evaluated one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tritmark.harness.errors import BadEnvironmentError, TritmarkError, WeightFileError
from tritmark.harness.judge import stored
from tritmark.harness.judge.request import Observer, Request
from tritmark.harness.providers import Installed
from tritmark.harness.record import Layer, Status
from tritmark.harness.store import Partial
from tritmark.harness.weights import TensorInfo, TernaryWeights, WeightSource


def float_layers(
    installed: Installed,
    source: WeightSource,
    infos: Sequence[TensorInfo],
    request: Request,
    partial: Partial,
    observer: Observer,
) -> Iterator[Layer]:
    """Each float matrix, quantized by the provider and multiplied."""
    done = partial.finished_layers()
    evaluate_matrix = next(
        provider.evaluate_matrix for provider in installed.providers.values() if provider.evaluate_matrix
    )
    threads = request.threads or next(iter(installed.registry.devices.values())).cores()
    for info in infos:
        layer = done.get(info.name)
        if layer is None:
            observer.started(info.name)
            try:
                layer = evaluate_matrix(source, info, threads=threads, seed=request.seed)
            except (WeightFileError, BadEnvironmentError):
                raise
            except (TritmarkError, MemoryError) as error:
                rows, columns = info.shape
                reason = f"{type(error).__name__}: {error}"
                layer = Layer(
                    status=Status.ERROR,
                    reason=reason,
                    name=info.name,
                    shape=(rows, columns),
                    dtype=info.dtype,
                    bytes=info.nbytes,
                )
            partial.add(layer)
        observer.finished(layer)
        yield layer


def stored_layers(
    installed: Installed,
    weights: TernaryWeights,
    linear: stored.Plan,
    request: Request,
    partial: Partial,
    observer: Observer,
) -> Iterator[Layer]:
    """Each matrix of stored codes, multiplied by the kernels that are planned for it."""
    done = partial.finished_layers()
    for info in (each for each in weights.matrices if each.name in linear):
        layer = done.get(info.name)
        if layer is None:
            observer.started(info.name)
            layer = stored.evaluated(installed, request, weights, info, linear[info.name])
            partial.add(layer)
        observer.finished(layer)
        yield layer
