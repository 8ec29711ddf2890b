"""What a monitor counts of the ops on tensors and of BitLinear."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")

import tritmark  # noqa: E402
import tritmark.torch  # noqa: E402
from tritmark.harness.monitor.counters import UNKNOWN  # noqa: E402
from tritmark.harness.spec import KernelKey  # noqa: E402
from tritmark.kernels.dispatch import dispatch  # noqa: E402
from tritmark.kernels.ternary_matmul.spec import OP  # noqa: E402


def test_ops_and_layers_are_counted_once_under_the_kernel_that_ran() -> None:
    layer = tritmark.torch.BitLinear.from_float(torch.nn.Linear(256, 64, bias=False))
    ops, x = torch.ops.tritmark, torch.randn(4, 256)
    with tritmark.monitor(keep=False) as session:
        for rows in (1, 1, 1, 4):
            with torch.no_grad():
                layer(x[:rows])  # the second call of a shape finds a plan
        codes, scale = ops.activation_quantize(x)
        packed = ops.pack(torch.ones(64, 256, dtype=torch.int8), 1.0, "tile64")
        ops.ternary_matmul(codes, packed, 1.0, scale, 64, "tile64")
        with pytest.raises(ValueError, match="scale"):
            ops.i2s_quantize(x, -1.0)
    assert session.data is not None
    calls: Counter[str] = Counter()
    for each in session.data.series:
        calls[each.key.entry] += each.calls
        assert each.key.kernel != UNKNOWN
        assert not each.key.asynchronous
    assert calls == {
        "torch.linear": 4,
        "torch.activation_quantize": 1,
        "torch.pack": 1,
        "torch.ternary_matmul": 1,
        "torch.i2s_quantize": 0,
    }
    assert layer.packed is not None
    found = {each.key.shape: each.key.kernel for each in session.data.series if each.key.entry == "torch.linear"}
    for rows in (1, 4):
        axes = {"M": rows, "N": 64, "K": 256}
        kernel = found[f"M={rows} N=64 K=256"]
        format = kernel.split("/")[2]
        chosen = dispatch.select(KernelKey("cpu", OP.name, format, "float32"), axes, None, torch.get_num_threads())
        assert kernel == chosen.id
    assert session.data.errors == 1
