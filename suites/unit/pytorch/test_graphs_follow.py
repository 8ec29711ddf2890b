"""Graphs of BitLinears (torch.compile, torch.export, AOTInductor), torch.func and DistributedDataParallel: each
computes from the given state."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")

from plain_bitlinear import hf_packed, product  # noqa: E402

from tritmark.harness.errors import InvalidArgumentError  # noqa: E402
from tritmark.torch import BitLinear  # noqa: E402

N, K = 24, 80
State = dict[str, Any]


def codes_of(seed: int) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).integers(-1, 2, (N, K), dtype=np.int8))


def state_of(seed: int, scale: float) -> State:
    return {"weight": hf_packed(codes_of(seed)), "weight_scale": torch.tensor([scale])}


def rows() -> Any:
    return torch.from_numpy(np.random.default_rng(5).normal(size=(2, K))).float()


def layer_of(seed: int = 1, scale: float = 0.5) -> Any:
    return BitLinear.from_packed(**state_of(seed, scale))


def expected(seed: int, scale: float) -> Any:
    return product(rows(), codes_of(seed), scale)


@pytest.fixture(autouse=True)
def nothing_compiled() -> Any:
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_compiled_layer_follows_its_weights(backend: str, mode: Any) -> None:
    layer = layer_of()
    traced = torch.compile(layer, fullgraph=True, backend=backend)
    with mode():
        x = rows().requires_grad_(mode is torch.enable_grad)
        assert torch.equal(traced(x), expected(1, 0.5))
        layer.weight_scale.mul_(2)
        assert torch.equal(traced(x), expected(1, 1.0))
        layer.weight.copy_(state_of(2, 1.0)["weight"])
        assert torch.equal(traced(x), expected(2, 1.0))
        layer.load_state_dict(state_of(3, 0.375))
        assert torch.equal(traced(x), expected(3, 0.375))
        layer.load_state_dict(state_of(4, 0.25), assign=True)
        assert torch.equal(traced(x), expected(4, 0.25))
        layer._buffers.update(state_of(5, 0.125))
        assert torch.equal(traced(x), expected(5, 0.125))


def test_layers_of_one_shape_share_a_graph() -> None:
    """The scale is not a constant of the graph."""
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()

    def called(layer: Any, x: Any) -> Any:
        return layer(x)

    traced = torch.compile(called, fullgraph=True, backend=counter)
    for seed in range(4):
        assert torch.equal(traced(layer_of(seed, 0.25 * (1 + seed)), rows()), expected(seed, 0.25 * (1 + seed)))
    assert counter.frame_count == 1


def test_a_compiled_layer_refuses_what_is_no_state() -> None:
    layer = layer_of()
    traced = torch.compile(layer, fullgraph=True, backend="aot_eager")
    traced(rows())
    layer.weight_scale.zero_()
    with pytest.raises(InvalidArgumentError, match=r"weight_scale is 0\.0"):
        traced(rows())
    layer.load_state_dict(state_of(2, 0.5))
    layer.weight.fill_(255)
    with pytest.raises(InvalidArgumentError, match="field 3"):
        traced(rows())


EXPORTS = pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
"""A private module of PyTorch with its pytree."""


@EXPORTS
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_module_computes_from_the_state_that_it_is_given(
    strict: bool, gradient: bool, tmp_path: Path
) -> None:
    model = torch.nn.Sequential(layer_of())
    with torch.set_grad_enabled(gradient):
        program = torch.export.export(model, (rows().requires_grad_(gradient),), strict=strict)
    torch.export.save(program, tmp_path / "program.pt2")
    for each in (program, torch.export.load(tmp_path / "program.pt2")):
        module = each.module()
        assert torch.equal(module(rows()), expected(1, 0.5))
        module.load_state_dict({f"0.{name}": value for name, value in state_of(2, 0.375).items()})
        assert torch.equal(module(rows()), expected(2, 0.375))
        module.load_state_dict({f"0.{name}": value for name, value in state_of(3, 0.25).items()}, assign=True)
        assert torch.equal(module(rows()), expected(3, 0.25))
        found = torch.func.functional_call(
            module, {f"0.{name}": value for name, value in state_of(4, 0.125).items()}, (rows(),)
        )
        assert torch.equal(found, expected(4, 0.125))
        each.state_dict.update({f"0.{name}": value for name, value in state_of(5, 0.75).items()})
        assert torch.equal(each.module()(rows()), expected(5, 0.75))
    decomposed = program.run_decompositions()
    assert torch.equal(decomposed.module()(rows()), expected(5, 0.75))


@EXPORTS
@pytest.mark.long
def test_an_ahead_of_time_program_computes_from_the_constants_that_it_is_given(tmp_path: Path) -> None:
    """Let Inductor keep small constants: by default it turns them into numbers and refuses new ones."""
    with torch.no_grad():
        program = torch.export.export(torch.nn.Sequential(layer_of()), (rows(),))
        package = torch._inductor.aoti_compile_and_package(
            program,
            package_path=str(tmp_path / "program.pt2"),
            inductor_configs={"always_keep_tensor_constants": True},
        )
        loaded = torch._inductor.aoti_load_package(package)
        assert sorted(loaded.get_constant_fqns()) == ["0.weight", "0.weight_scale"]
        for _ in range(2):
            assert torch.equal(loaded(rows()), expected(1, 0.5))
        for seed in (2, 3, 4):
            given = {f"0.{name}": value for name, value in state_of(seed, 0.25 * seed).items()}
            loaded.load_constants(given, check_full_update=True, user_managed=seed == 4)
            for _ in range(2):
                assert torch.equal(loaded(rows()), expected(seed, 0.25 * seed))
        given["0.weight"].copy_(state_of(5, 1.0)["weight"])
        given["0.weight_scale"].fill_(0.375)
        assert torch.equal(loaded(rows()), expected(5, 0.375))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_functional_call_uses_what_it_is_given(mode: Any) -> None:
    layer = layer_of()
    layer(rows())
    with mode():
        for seed in (2, 3, 2):
            given = state_of(seed, 0.25 * seed)
            assert torch.equal(torch.func.functional_call(layer, given, (rows(),)), expected(seed, 0.25 * seed))
        found = torch.func.functional_call(layer, {"weight_scale": torch.tensor([4.0])}, (rows(),))
        assert torch.equal(found, expected(1, 4.0))
        assert torch.equal(layer(rows()), expected(1, 0.5))


def test_an_ensemble_is_each_of_its_layers() -> None:
    """As torch.func.stack_module_state and vmap make it."""
    seeds = (1, 2, 3)
    layers = [layer_of(seed, 0.25 * seed) for seed in seeds]
    parameters, buffers = torch.func.stack_module_state(layers)
    base = layer_of(7)
    base(rows())

    def one(parameters: State, buffers: State, x: Any) -> Any:
        return torch.func.functional_call(base, (parameters, buffers), (x,))

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*performance drop because we have not yet implemented the batching rule.*")
        found = torch.func.vmap(one, in_dims=(0, 0, None))(parameters, buffers, rows())
        assert torch.equal(found, torch.stack([expected(seed, 0.25 * seed) for seed in seeds]))
        buffers["weight_scale"].mul_(2)
        found = torch.func.vmap(one, in_dims=(0, 0, None))(parameters, buffers, rows())
        assert torch.equal(found, torch.stack([expected(seed, 0.5 * seed) for seed in seeds]))


def test_a_gradient_is_of_the_state_that_computed() -> None:
    x = rows().requires_grad_()
    layer = layer_of()
    layer(x)
    layer.load_state_dict(state_of(2, 0.25))
    layer(x).sum().backward()
    assert torch.equal(x.grad, torch.ones(2, N) @ (codes_of(2).float() * 0.25))
    y = layer(x)
    layer.weight_scale.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def ranks(rank: int, store: str, queue: Any) -> None:
    """The results on each of two ranks after each change on rank 0."""
    found = []
    try:
        torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
        layer = layer_of(1 + rank, 0.5 + rank)
        layer.bias = torch.nn.Parameter(torch.zeros(N))
        layer(rows())
        wrapped = torch.nn.parallel.DistributedDataParallel(layer)
        found.append(torch.equal(wrapped(rows()), expected(1, 0.5)))
        # Each forward pass broadcasts buffers without changing their count of writes.
        for seed, inference in ((3, False), (4, True)):
            if rank == 0:
                layer.load_state_dict(state_of(seed, 0.25 * seed), strict=False)
            with torch.inference_mode(inference):
                found.append(torch.equal(wrapped(rows()), expected(seed, 0.25 * seed)))
        if rank == 0:
            layer.weight[0, 0] = 0b01010101 if layer.weight[0, 0] != 0b01010101 else 0
            layer.weight_scale.mul_(2)
        y = wrapped(rows())
        found.append(torch.equal(y, layer_of_state(layer)(rows())))
        # An explicit collective is not counted either.
        layer.load_state_dict(state_of(5 + rank, 1.0 + rank), strict=False)
        layer(rows())
        for value in layer.state_dict().values():
            torch.distributed.broadcast(value, 0)
        found.append(torch.equal(layer(rows()), expected(5, 1.0)))
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    finally:
        queue.put((rank, found))


def layer_of_state(layer: Any) -> Any:
    made = BitLinear(K, N, bias=True)
    made.load_state_dict(layer.state_dict())
    return made


def test_every_rank_computes_from_what_was_broadcast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", os.environ.get("GLOO_SOCKET_IFNAME", "lo"))
    monkeypatch.setenv(
        "PYTHONPATH", f"{Path(hf_packed.__code__.co_filename).parent}:{os.environ.get('PYTHONPATH', '')}"
    )
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=ranks, args=(rank, str(tmp_path / "store"), queue)) for rank in range(2)]
    for each in processes:
        each.start()
    found = sorted(queue.get(timeout=300) for _ in processes)
    for each in processes:
        each.join()
    assert found == [(0, [True] * 5), (1, [True] * 5)]
