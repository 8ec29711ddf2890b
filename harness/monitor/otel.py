"""Metrics for OpenTelemetry, as observable instruments that its SDK reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tritmark.harness.errors import UsageError
from tritmark.harness.extras import install
from tritmark.harness.monitor.metrics import Metric


class OtelInstruments:
    """Instruments of `provider`, or of the global provider, that report what `read` returns until `close`. Raises
    UsageError without OpenTelemetry."""

    def __init__(self, read: Callable[[], Iterable[Metric]], known: Iterable[Metric], provider: Any) -> None:
        try:
            from opentelemetry import metrics
        except ImportError:
            raise UsageError(f"opentelemetry is not installed; next: {install('otel')}") from None
        self._read: Callable[[], Iterable[Metric]] | None = read
        meter = (provider or metrics.get_meter_provider()).get_meter("tritmark")
        for each in known:
            make = meter.create_observable_counter if each.total else meter.create_observable_gauge
            callbacks = [self._reader(each.name, metrics.Observation)]
            make(each.name.replace("_", ".", 1), callbacks=callbacks, unit=each.unit, description=each.summary)

    def _reader(self, name: str, observation: Any) -> Callable[[Any], Iterable[Any]]:
        def observed(options: Any) -> Iterable[Any]:
            read = self._read
            found = next((each for each in read() if each.name == name), None) if read is not None else None
            return [observation(value, labels) for labels, value in found.values] if found is not None else []

        return observed

    def close(self) -> None:
        """Report nothing more. OpenTelemetry cannot remove instruments."""
        self._read = None
