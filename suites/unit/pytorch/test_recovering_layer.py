"""BitLinear with on_error="recover": its results are those of other layers, also after kernels that crash."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")

import failing_kernels as planted  # noqa: E402
from own_registry import registered  # noqa: E402
from plain_bitlinear import hf_packed, product  # noqa: E402

import tritmark  # noqa: E402
from tritmark.harness import judged  # noqa: E402
from tritmark.harness.errors import InvalidArgumentError, UsageError  # noqa: E402
from tritmark.harness.recovery import (  # noqa: E402
    FailureKind,
    NumericalFailureError,
    RecoveryWarning,
    UnrecoveredError,
    engine,
    history,
)
from tritmark.harness.spec import KernelKey, Tier, Variant  # noqa: E402
from tritmark.kernels.recovering import client, last_recoveries  # noqa: E402
from tritmark.kernels.weights.packed import preferred_format  # noqa: E402
from tritmark.torch import BitLinear, recovering  # noqa: E402

N, K = 24, 80
PRODUCT = KernelKey("cpu", "ternary_matmul", preferred_format("cpu"), "float32")


@pytest.fixture(autouse=True)
def own_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(history, "path", lambda: tmp_path / "history.jsonl")
    engine.forget_warnings()
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="module", autouse=True)
def worker() -> Iterator[None]:
    yield
    client.close_workers()


def codes_of(seed: int) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).integers(-1, 2, (N, K), dtype=np.int8))


def rows(*lead: int, dtype: Any = torch.float32) -> Any:
    return torch.from_numpy(np.random.default_rng(5).normal(size=(*lead, K))).to(dtype)


def layer_of(seed: int = 1, scale: float = 0.5, **options: Any) -> Any:
    options = {"on_error": "recover", **options}
    return BitLinear.from_packed(hf_packed(codes_of(seed)), torch.tensor([scale]), **options)


def first(kind: str) -> Variant:
    """A kernel that fails in that way, and is chosen before all others."""
    return planted.failing(kind, PRODUCT, Tier.EXTREMELY_OPTIMIZED, 99)


@pytest.mark.parametrize("lead", [(), (4,), (2, 3), (0,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("biased", [False, True])
def test_it_computes_what_other_layers_do(lead: tuple[int, ...], dtype: Any, biased: bool) -> None:
    bias = torch.linspace(-1, 1, N) if biased else None
    x = rows(*lead, dtype=dtype)
    recovers, other = layer_of(bias=bias), layer_of(bias=bias, on_error="raise")
    with torch.no_grad():
        y = recovers(x)
        assert (y.shape, y.dtype) == ((*lead, N), dtype)
        assert torch.equal(y, other(x))
    assert last_recoveries() == ()


@pytest.mark.parametrize(("kernel", "kind"), [("sigsegv", FailureKind.SEGMENTATION_FAULT), ("own", FailureKind.ERROR)])
def test_another_kernel_takes_the_place_of_one_that_failed(kernel: str, kind: FailureKind) -> None:
    layer = layer_of()
    with registered(first(kernel)), torch.no_grad(), pytest.warns(RecoveryWarning):
        assert torch.equal(layer(rows(3)), product(rows(3), codes_of(1), 0.5))
    (recovery,) = last_recoveries()
    assert (recovery.diagnosis.kind, recovery.failed.rpartition("/")[2]) == (kind, kernel)
    client.close_workers()  # a worker keeps what it registered


@pytest.mark.filterwarnings("ignore::tritmark.harness.recovery.RecoveryWarning")
def test_graphs_and_gradients_recover() -> None:
    layer, x = layer_of(), rows(3).requires_grad_()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    layer_of(on_error="raise")(x).sum().backward()
    wanted, x.grad = x.grad, None
    with registered(first("sigsegv")):
        for call in (layer, compiled):
            y = call(x)
            assert len(last_recoveries()) == 1
            assert torch.equal(y, product(x.detach(), codes_of(1), 0.5))
            y.sum().backward()
            assert torch.equal(x.grad, wanted)
            x.grad = None
    client.close_workers()


def test_a_compiled_layer_follows_the_attribute() -> None:
    layer = layer_of(on_error="raise")
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    counted: list[int] = []
    for choice in ("raise", "recover", "raise"):
        layer.on_error = choice
        with tritmark.monitor(keep=False) as session, torch.no_grad():
            assert torch.equal(compiled(rows(2)), product(rows(2), codes_of(1), 0.5))
        assert session.data is not None
        counted.append(sum("in a worker" in each.key.kernel for each in session.data.series))
    assert counted == [0, 1, 0]


def test_an_exported_layer_recovers() -> None:
    exported = torch.export.export(layer_of(), (rows(2),), strict=True)
    assert any(node.target is torch.ops.tritmark.bit_linear_recovering.default for node in exported.graph.nodes)
    assert torch.equal(exported.module()(rows(2)), product(rows(2), codes_of(1), 0.5))


def test_changed_weights_and_scales_are_sent_again() -> None:
    layer, before = layer_of(), len(recovering._SENT)
    with torch.no_grad():
        assert torch.equal(layer(rows(2)), product(rows(2), codes_of(1), 0.5))
        layer.weight.copy_(hf_packed(codes_of(2)))
        assert torch.equal(layer(rows(2)), product(rows(2), codes_of(2), 0.5))
        layer.weight_scale.fill_(2)
        assert torch.equal(layer(rows(2)), product(rows(2), codes_of(2), 2.0))
        del layer
    assert len(recovering._SENT) == before, "weights that are gone are kept"


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "torch.save", "to"])
def test_copies_keep_the_attribute_and_states_do_not_have_it(way: str) -> None:
    layer = layer_of()
    assert set(layer.state_dict()) == {"weight", "weight_scale"}
    if way == "deepcopy":
        again = copy.deepcopy(layer)
    elif way == "pickle":
        again = pickle.loads(pickle.dumps(layer))
    elif way == "torch.save":
        file = io.BytesIO()
        torch.save(layer, file)
        again = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
    else:
        again = layer.to(torch.bfloat16).to("cpu")
    assert again.on_error == "recover"
    assert "on_error='recover'" in repr(again)
    plain = BitLinear(K, N)
    plain.load_state_dict(layer.state_dict())
    assert plain.on_error == "raise"
    assert "on_error" not in repr(plain)


def test_a_pickle_from_before_the_attribute_raises_errors() -> None:
    layer = layer_of(on_error="raise")
    del layer.__dict__["on_error"]
    assert pickle.loads(pickle.dumps(layer)).on_error == "raise"


def test_all_constructors_take_it() -> None:
    linear = torch.nn.Linear(K, N)
    for made in (BitLinear(K, N, on_error="recover"), BitLinear.from_float(linear, on_error="recover"), layer_of()):
        assert made.on_error == "recover"


@pytest.mark.parametrize("value", ["ignore", None, True])
def test_other_choices_are_refused_and_change_nothing(value: Any) -> None:
    layer = layer_of()
    with pytest.raises(InvalidArgumentError, match=r'on_error.*"raise" or "recover"'):
        layer.on_error = value
    assert layer.on_error == "recover"
    with pytest.raises(InvalidArgumentError, match=r"on_error"):
        BitLinear(K, N, on_error=value)


def test_activations_of_16_bits_have_no_kernel_to_recover_from() -> None:
    with pytest.raises(InvalidArgumentError, match=r"activation_bits 16.*without a kernel"):
        layer_of(activation_bits=16)
    layer = layer_of()
    layer.activation_bits = 16
    with pytest.raises(InvalidArgumentError, match=r"activation_bits 16.*without a kernel"):
        layer(rows(2, dtype=torch.bfloat16))


def test_errors_of_the_caller_are_raised_and_not_recovered() -> None:
    layer, x = layer_of(), rows(2)
    x[1, 7] = float("nan")
    with pytest.raises(InvalidArgumentError, match=r"BitLinear: x.*nan at index \(1, 7\)"):
        layer(x)
    with pytest.raises(InvalidArgumentError, match="of shape"):
        layer(rows(2)[:, :-1])
    with pytest.raises(InvalidArgumentError, match="dtype"):
        layer(rows(2).double())
    with torch.no_grad():
        layer.weight_scale.zero_()
    with pytest.raises(InvalidArgumentError, match="weight_scale"):
        layer(rows(2))
    assert last_recoveries() == ()


def test_a_call_that_nothing_helps_is_refused() -> None:
    layer = layer_of()
    with registered(first("own")), pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "MOST", 1)  # no second attempt
        with pytest.raises(UnrecoveredError, match="OwnError"):
            layer(rows(2))
    (recovery,) = last_recoveries()
    assert recovery.refused
    client.close_workers()


def test_a_value_that_the_contract_excludes_is_refused() -> None:
    layer = layer_of()
    incorrect = planted.not_finite("nan", np.nan, PRODUCT, Tier.EXTREMELY_OPTIMIZED, 99)
    with registered(incorrect), pytest.raises(NumericalFailureError, match="nan"):
        layer(rows(2))
    client.close_workers()


def test_tensors_that_the_worker_does_not_have_are_refused() -> None:
    """Without a GPU: the implementation that PyTorch calls for CUDA tensors."""

    class OnGpu:
        is_cuda, is_cpu, device = True, False, "cuda:0"

    x, weight, scale = rows(2), hf_packed(codes_of(1)), torch.tensor([0.5])
    compute: Any = recovering.computes("cuda")
    for name, given in {"x": (OnGpu(), weight, scale), "weight": (x, OnGpu(), scale)}.items():
        with pytest.raises(InvalidArgumentError, match=f'{name}.*on cuda:0.*on_error="raise"'):
            compute(*given, N, False, None, None)
    replica = layer_of()
    replica._origin = None, 0.5
    with pytest.raises(InvalidArgumentError, match=r"weight.*workers share"):
        replica._replicated(x, weight, None, *replica._origin)


def test_judges_cannot_recover() -> None:
    layer = layer_of()
    with judged.judging():
        with pytest.raises(UsageError, match="a process that judges kernels"):
            layer(rows(2))
        with pytest.raises(UsageError, match="a process that judges kernels"):
            layer_of()


def test_layers_that_do_not_recover_import_no_worker() -> None:
    code = (
        "import sys, torch; from tritmark.torch import BitLinear\n"
        "BitLinear(64, 64)(torch.ones(2, 64))\n"
        "sys.exit(bool({'tritmark.kernels.recovering', 'tritmark.harness.worker'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
