"""Metrics for Prometheus and OpenTelemetry, read back by their own libraries."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
import pytest

import tritmark
from tritmark.harness.errors import UsageError
from tritmark.harness.monitor.machine_samples import GpuSample, Sample
from tritmark.harness.monitor.metrics import metrics
from tritmark.harness.monitor.session import MonitorSession
from tritmark.kernels import i2s_quantize

X = np.ones(10, np.float32)


@pytest.fixture
def session() -> Iterator[MonitorSession]:
    with tritmark.monitor(keep=False) as found:
        for _ in range(3):
            i2s_quantize(X, 1.0)
        with pytest.raises(ValueError, match="scale"):
            i2s_quantize(X, -1.0)
        yield found


def test_prometheus_reads_the_calls_on_this_machine_only(session: MonitorSession) -> None:
    pytest.importorskip("prometheus_client", reason="every environment of tox has it")
    from prometheus_client.parser import text_string_to_metric_families

    port = session.prometheus(port=0)
    text = urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    found = {one.name: one for family in text_string_to_metric_families(text) for one in family.samples}
    calls = found["tritmark_calls_total"]
    assert calls.value == 3
    assert calls.labels["entry"] == "i2s_quantize"
    assert calls.labels["kernel"].startswith("cpu/i2s_quantize/")
    assert found["tritmark_call_errors_total"].labels["error"] == "InvalidArgumentError"
    assert found["tritmark_call_time_seconds_total"].value > 0
    i2s_quantize(X, 1.0)
    assert "} 4.0" in urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    own = socket.gethostbyname(socket.gethostname())
    if not own.startswith("127."):
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((own, port), timeout=5).close()
    session.__exit__(None, None, None)
    with pytest.raises(URLError):
        urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5)


def test_a_port_in_use(session: MonitorSession) -> None:
    pytest.importorskip("prometheus_client", reason="every environment of tox has it")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(UsageError, match="0 picks one"):
            session.prometheus(port=other.getsockname()[1])


def test_opentelemetry_reads_the_calls(session: MonitorSession) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="every environment of tox has it")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    session.opentelemetry(provider)

    def read() -> dict[str, list[tuple[float, dict[str, object]]]]:
        data = reader.get_metrics_data()
        return {
            each.name: [(one.value, dict(one.attributes)) for one in each.data.data_points]
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for each in scope.metrics
        }

    ((value, labels),) = read()["tritmark.calls"]
    assert (value, labels["entry"]) == (3, "i2s_quantize")
    i2s_quantize(X, 1.0)
    assert read()["tritmark.calls"][0][0] == 4
    session.__exit__(None, None, None)
    assert not read().get("tritmark.calls")
    provider.shutdown()


@pytest.mark.parametrize("library", ["prometheus", "opentelemetry"])
def test_a_missing_library_is_named(session: MonitorSession, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sys.modules]:
        if name.partition(".")[0] in {"opentelemetry", "prometheus_client"}:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UsageError, match=r"is not installed; next: .*(otel|prometheus)"):
        session.prometheus() if library == "prometheus" else session.opentelemetry()


def test_the_machine_is_exported(session: MonitorSession) -> None:
    gpu = GpuSample(50, 1_500_000_000, 300.0, None, 1 << 30, ())
    sample = Sample(1.0, 2.0, None, 3e9, None, 1 << 20, 5, {"GPU-1": gpu})
    found = {each.name: each.values for each in metrics(session.now(), sample)}
    assert found["tritmark_own_cores"] == (({}, 2.0),)
    assert found["tritmark_other_cores"] == ()
    assert found["tritmark_gpu_power"] == (({"gpu": "GPU-1"}, 300.0),)
    assert found["tritmark_gpu_temperature"] == ()
    assert found["tritmark_gpu_utilization"] == (({"gpu": "GPU-1"}, 0.5),)  # unit "1"


def test_what_devices_count_has_its_unit(session: MonitorSession) -> None:
    counts = {"uploads": 2, "bytes_uploaded": 100, "pool_hits": 3, "pool_misses": 1, "pool_held": 1 << 20}
    seen = replace(session.now(), devices={"cuda": counts})
    found = {
        (each.unit, each.total, labels["of"]): value
        for each in metrics(seen, None)
        if each.name.startswith("tritmark_device")
        for labels, value in each.values
    }
    assert found == {
        ("1", True, "uploads"): 2,
        ("By", True, "bytes_uploaded"): 100,
        ("1", True, "pool_hits"): 3,
        ("1", True, "pool_misses"): 1,
        ("By", False, "pool_held"): 1 << 20,
    }


def test_each_series_has_its_own_labels(session: MonitorSession) -> None:
    """Prometheus refuses all metrics if two have the same labels."""
    one = session.now().series[0]
    keys = replace(one.key, asynchronous=True), replace(one.key, simulated=True)
    others = [replace(one, key=key) for key in keys]
    for each in metrics(replace(session.now(), series=(one, *others)), None):
        labels = [sorted(labels.items()) for labels, _ in each.values]
        assert all(labels.count(found) == 1 for found in labels)


def test_totals_never_fall(session: MonitorSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of all calls is the mean of the timed ones times all calls. A counter that falls was reset, to
    Prometheus, which then adds it once more."""

    def time() -> float:
        return next(each for each in session._metrics() if each.name == "tritmark_call_time").values[0][1]

    now = session.now()
    one = now.series[0]
    for calls, timed in ((1100, 1000), (1100, 1001)):
        seen = replace(one, calls=calls, total_ns=10**9 + timed, histogram={40: timed})
        monkeypatch.setattr(session, "now", lambda seen=seen: replace(now, series=(seen,)))
        assert time() == pytest.approx((10**9 + 1000) * 1.1 / 1e9)
