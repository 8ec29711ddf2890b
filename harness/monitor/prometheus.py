"""An endpoint for Prometheus, by its official client."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tritmark.harness.errors import UsageError
from tritmark.harness.extras import install
from tritmark.harness.monitor.metrics import Metric

_SUFFIXES = {"s": "_seconds", "By": "_bytes", "Hz": "_hertz", "W": "_watts", "Cel": "_celsius", "1": ""}


class PrometheusEndpoint:
    """Serves what `read` returns, at that address until `close`. Raises UsageError without prometheus-client and for an
    address that cannot be used."""

    def __init__(self, read: Callable[[], Iterable[Metric]], port: int, address: str) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError:
            raise UsageError(f"prometheus-client is not installed; next: {install('prometheus')}") from None
        registry = CollectorRegistry()
        registry.register(_Collector(read))
        try:
            self._server, self._thread = start_http_server(port, address, registry)
        except (OSError, OverflowError) as error:
            legal = "a free port (0 picks one) of an address of this machine"
            raise UsageError(f"{address}:{port} cannot be used: {error}; legal: {legal}") from error
        self.port: int = self._server.server_port

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Collector:
    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def describe(self) -> list[Any]:
        """Nothing, so that registering does not read."""
        return []

    def collect(self) -> Iterable[Any]:
        """Called by the client for each request."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for each in self._read():
            labels = sorted({name for found, _ in each.values for name in found})
            family = CounterMetricFamily if each.total else GaugeMetricFamily
            made = family(f"{each.name}{_SUFFIXES[each.unit]}", each.summary, labels=labels)
            for found, value in each.values:
                made.add_metric([found.get(name, "") for name in labels], value)
            yield made
