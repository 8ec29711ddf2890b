"""BitLinear's calls that bypass PyTorch's dispatcher: only if nothing intercepts them, and with the same bits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from threading import Thread
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")

from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from tritmark.torch import BitLinear, cpu  # noqa: E402
from tritmark.torch.direct import unseen  # noqa: E402

N, K = 24, 80
BITS = {8: "linear_constant", 16: "ternary_matmul_a16_constant"}
DISPATCHED = {8: "bit_linear_forward", 16: "bit_linear_a16_forward"}


def rows(*shape: int) -> Any:
    return torch.from_numpy(np.random.default_rng(2).normal(size=shape)).bfloat16()


@pytest.fixture(params=BITS)
def bits(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def layer(bits: int) -> Any:
    return BitLinear.from_float(torch.nn.Linear(K, N), activation_bits=bits).requires_grad_(False)


@pytest.fixture
def direct(bits: int, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The outputs of calls that bypassed the dispatcher."""
    name, made = BITS[bits], []
    compute: Callable[..., Any] = getattr(cpu, name)

    def seen(*args: Any) -> Any:
        made.append(compute(*args))
        return made[-1]

    monkeypatch.setattr(cpu, name, seen)
    return made


class Functions(TorchFunctionMode):  # type: ignore[misc]
    """Intercepts PyTorch's functions."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):  # type: ignore[misc]
    """Intercepts dispatched calls."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


def a_profiler() -> Any:
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True)


class Mine(torch.Tensor):  # type: ignore[misc]
    """A subclass."""


QUIET: dict[str, Callable[[], Any]] = {
    "nothing": nullcontext,
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}
WATCHING: dict[str, Callable[[], Any]] = {
    "a mode of functions": Functions,
    "a default device": lambda: torch.device("cpu"),
    "a mode of dispatch": Dispatched,
    "a profiler": a_profiler,
}


@pytest.mark.parametrize("quiet", QUIET)
def test_a_plain_call_goes_past_the_dispatcher(layer: Any, direct: list[Any], quiet: str) -> None:
    with Dispatched():
        expected = layer(rows(3, K))
    assert not direct
    with QUIET[quiet]():
        found = layer(rows(3, K))
    assert len(direct) == 1
    assert torch.equal(found, expected)


def test_it_does_in_every_thread_and_with_tensors_of_inference_mode(layer: Any, direct: list[Any]) -> None:
    with torch.inference_mode():
        x = rows(3, K) + 0
    layer(x)
    thread = Thread(target=layer, args=(x,))
    thread.start()
    thread.join()
    assert len(direct) == 2


@pytest.mark.parametrize("watching", WATCHING)
def test_what_watches_sees_it(layer: Any, direct: list[Any], watching: str) -> None:
    expected = layer(rows(3, K))
    direct.clear()
    with WATCHING[watching]():
        found = layer(rows(3, K))
    assert not direct
    assert torch.equal(found, expected)
    layer(rows(3, K))
    assert direct


def test_a_profiler_shows_the_op(layer: Any, bits: int) -> None:
    with a_profiler() as profile:
        layer(rows(3, K))
    assert f"tritmark::{DISPATCHED[bits]}" in {event.key for event in profile.key_averages()}


def test_a_gradient_goes_through(layer: Any, direct: list[Any]) -> None:
    x = rows(3, K).requires_grad_()
    layer(x).sum().backward()
    assert x.grad is not None
    assert not direct
    with torch.no_grad():
        layer(x)
    assert direct


def test_a_bias_that_is_trained_has_its_gradient(layer: Any) -> None:
    layer.requires_grad_()
    layer(rows(3, K)).sum().backward()
    assert torch.equal(layer.bias.grad, torch.full((N,), 3.0))


@pytest.mark.parametrize(
    "x",
    [
        pytest.param(lambda: rows(3, K).as_subclass(Mine), id="subclass"),
        pytest.param(lambda: torch._neg_view(rows(3, K)), id="negation"),
        pytest.param(lambda: torch._to_functional_tensor(rows(3, K)), id="functional"),
        pytest.param(lambda: rows(3, K).to_sparse(), id="sparse"),
        pytest.param(lambda: rows(3, K).to("meta"), id="meta"),
        pytest.param(lambda: FakeTensorMode().from_tensor(rows(3, K)), id="fake"),
    ],
)
def test_a_tensor_that_is_more_than_its_memory_is_dispatched(x: Callable[[], Any]) -> None:
    plain = rows(3, K)
    assert unseen("cpu", plain, plain, None)
    assert not unseen("cpu", x(), plain, None)


def test_weights_and_biases_with_functions_of_their_own_are_dispatched() -> None:
    x = rows(3, K)
    assert unseen("cpu", x, x, torch.nn.Parameter(x))
    assert not unseen("cpu", x, x.as_subclass(Mine), None)
    assert not unseen("cpu", x, x, x.as_subclass(Mine))


def test_a_negation_is_computed(layer: Any) -> None:
    assert torch.equal(layer(torch._neg_view(rows(3, K))), layer(-rows(3, K)))


def test_another_kind_of_device_is_dispatched() -> None:
    assert not unseen("cuda", rows(3, K), rows(N, K), None)


@pytest.mark.parametrize("transform", [torch.func.vmap, torch.func.functionalize])
def test_transformations_see_it(transform: Any) -> None:
    found = []

    def ask(x: Any) -> Any:
        found.append(any(unseen("cpu", each, rows(N, K), None) for each in (x, rows(3, K))))
        return x

    transform(ask)(rows(2, 3, K))
    assert found == [False]


def test_tracers_have_it_in_their_graphs(layer: Any, bits: int, direct: list[Any]) -> None:
    with torch.no_grad():
        graphs = (make_fx(layer)(rows(3, K)).graph, torch.export.export(layer, (rows(3, K),)).graph)
    for graph in graphs:
        assert f"tritmark.{DISPATCHED[bits]}.default" in {str(node.target) for node in graph.nodes}
    assert not direct


def test_without_what_tells_every_call_is_dispatched() -> None:
    """A PyTorch with other private names."""
    import subprocess
    import sys

    program = (
        "import torch; del torch._C._is_tracing; from tritmark.torch import BitLinear, direct; one = torch.ones(1);"
        "assert not direct.unseen('cpu', one, one, None); print(BitLinear(8, 8)(torch.ones(1, 8)).sum().item())"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "0.0\n"
