"""Every way to put weights into a BitLinear: outputs match the current state of the module.

Expected values come from that state alone, unpacked and multiplied in plain torch.
"""

from __future__ import annotations

import copy
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")

from plain_bitlinear import hf_packed, product  # noqa: E402

from tritmark.harness.errors import InvalidArgumentError  # noqa: E402
from tritmark.torch import BitLinear, derived  # noqa: E402

N, K = 24, 80
State = dict[str, Any]


def state_of(seed: int, scale: float) -> State:
    codes = np.random.default_rng(seed).integers(-1, 2, (N, K), dtype=np.int8)
    return {"weight": hf_packed(torch.from_numpy(codes)), "weight_scale": torch.tensor([scale])}


def rows(seed: int = 5) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(2, K))).float()


def wanted(layer: Any, x: Any) -> Any:
    """Expected output from the current state of the layer."""
    state = {name.rpartition(".")[2]: value.detach().cpu() for name, value in layer.state_dict().items()}
    codes = torch.cat([(state["weight"] >> shift) & 3 for shift in (0, 2, 4, 6)])[:N].to(torch.int8) - 1
    y = product(x, codes, float(state["weight_scale"]))
    return (y + state["bias"]) if "bias" in state else y


def used(bits: int = 8) -> Any:
    """A layer after a call, so that its packed weights are kept."""
    layer = BitLinear.from_packed(**state_of(1, 0.5), activation_bits=bits)
    x = rows() if bits == 8 else rows().bfloat16()
    for _ in range(3):
        layer(x)
    return layer


def other() -> State:
    return state_of(2, 0.375)


def loaded(layer: Any, tmp_path: Path) -> Any:
    layer.load_state_dict(other())


def assigned(layer: Any, tmp_path: Path) -> Any:
    layer.load_state_dict(other(), assign=True)


def swapped_by_load(layer: Any, tmp_path: Path) -> Any:
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        layer.load_state_dict(other())
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def in_two_parts(layer: Any, tmp_path: Path) -> Any:
    for name, value in other().items():
        layer.load_state_dict({name: value}, strict=False)
        assert torch.equal(layer(rows()), wanted(layer, rows()))


def into_buffers(layer: Any, tmp_path: Path) -> Any:
    layer._buffers.update(other())


def into_attributes(layer: Any, tmp_path: Path) -> Any:
    for name, value in other().items():
        setattr(layer, name, value)


def as_parameters(layer: Any, tmp_path: Path) -> Any:
    for name, value in other().items():
        setattr(layer, name, torch.nn.Parameter(value, requires_grad=False))


def copied_in_place(layer: Any, tmp_path: Path) -> Any:
    for name, value in other().items():
        getattr(layer, name).copy_(value)


def scaled_in_place(layer: Any, tmp_path: Path) -> Any:
    layer.weight_scale.mul_(2)


def scaled_within_inference_mode(layer: Any, tmp_path: Path) -> Any:
    with torch.inference_mode():
        layer.weight_scale.mul_(2)
        layer.weight.copy_(other()["weight"])


def one_byte(layer: Any, tmp_path: Path) -> Any:
    layer.weight[3, 7] = layer.weight[3, 7] ^ 1 if layer.weight[3, 7] & 3 != 2 else layer.weight[3, 7] ^ 2


def into_a_view(layer: Any, tmp_path: Path) -> Any:
    layer.state_dict()["weight"].view(-1)[:K].fill_(0b01010101)


def data_set(layer: Any, tmp_path: Path) -> Any:
    for name, value in other().items():
        getattr(layer, name).data = value


def data_set_twice(layer: Any, tmp_path: Path) -> Any:
    """The second memory may have the address of the first."""
    for _ in range(4):
        layer.weight.data = state_of(3, 1.0)["weight"]
        layer.weight.data = other()["weight"]


def data_copied(layer: Any, tmp_path: Path) -> Any:
    """A write that PyTorch does not count."""
    for name, value in other().items():
        getattr(layer, name).data.copy_(value)


def through_numpy(layer: Any, tmp_path: Path) -> Any:
    for name, value in other().items():
        getattr(layer, name).numpy()[:] = value.numpy()


def tensors_swapped(layer: Any, tmp_path: Path) -> Any:
    for name, value in other().items():
        torch.utils.swap_tensors(getattr(layer, name), value)


def of_inference_mode(layer: Any, tmp_path: Path) -> Any:
    with torch.inference_mode():
        layer.load_state_dict({name: value.clone() for name, value in other().items()}, assign=True)


def of_inference_mode_in_place(layer: Any, tmp_path: Path) -> Any:
    of_inference_mode(layer, tmp_path)
    layer(rows())
    with torch.inference_mode():
        layer.weight_scale.mul_(2)
        layer.weight.copy_(state_of(4, 1.0)["weight"])


def inference_parameters(layer: Any, tmp_path: Path) -> Any:
    """Tensors whose writes are not counted."""
    with torch.inference_mode():
        for name, value in other().items():
            setattr(layer, name, torch.nn.Parameter(value.clone(), requires_grad=False))
        layer(rows())
        layer.weight[0, 0] = 0b01010101
        layer.weight_scale.mul_(2)


def through_safetensors(layer: Any, tmp_path: Path) -> Any:
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    safetensors.save_file(other(), tmp_path / "model.safetensors")
    safetensors.load_model(layer, tmp_path / "model.safetensors")


def mapped_from_a_file(layer: Any, tmp_path: Path) -> Any:
    torch.save(other(), tmp_path / "model.pt")
    layer.load_state_dict(torch.load(tmp_path / "model.pt", mmap=True, weights_only=True), assign=True)


def by_accelerate(layer: Any, tmp_path: Path) -> Any:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    torch.save(other(), tmp_path / "pytorch_model.bin")
    accelerate.load_checkpoint_in_model(layer, str(tmp_path / "pytorch_model.bin"), device_map={"": "cpu"})


def offloaded_by_accelerate(layer: Any, tmp_path: Path) -> Any:
    """Its hooks bring the tensors for each call and remove them afterwards."""
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    layer.load_state_dict(other())
    kept = {name: value.clone() for name, value in layer.state_dict().items()}
    expected = wanted(layer, rows())
    accelerate.cpu_offload(layer, execution_device="cpu", offload_buffers=True, state_dict=kept)
    assert layer.weight.is_meta
    for _ in range(2):
        assert torch.equal(layer(rows()), expected)
    accelerate.hooks.remove_hook_from_module(layer)


def by_distributed_checkpoint(layer: Any, tmp_path: Path) -> Any:
    from torch.distributed import checkpoint

    with Alone(tmp_path):
        checkpoint.save(other(), checkpoint_id=tmp_path / "checkpoint")
        checkpoint.load(layer.state_dict(), checkpoint_id=tmp_path / "checkpoint")


def averaged(layer: Any, tmp_path: Path) -> Any:
    model = torch.nn.Sequential(layer, torch.nn.Linear(N, N))
    averages = torch.optim.swa_utils.AveragedModel(model)
    averages.update_parameters(model)
    averages(rows())
    layer.load_state_dict(other())
    averages.update_parameters(model)
    assert torch.equal(averages.module[0].weight, layer.weight)
    return averages.module[0]


def trained_averages(layer: Any, tmp_path: Path) -> Any:
    """With `use_buffers` scales are averaged, and bytes get what the rule makes of them."""
    averages = torch.optim.swa_utils.AveragedModel(
        layer, avg_fn=lambda average, value, count: value if value.dtype == torch.uint8 else (average + value) / 2
    )
    averages.use_buffers = True
    averages.update_parameters(layer)
    averages(rows())
    layer.load_state_dict(other())
    averages.update_parameters(layer)
    assert averages.module.weight_scale == (0.5 + 0.375) / 2
    return averages.module


def shared_memory(layer: Any, tmp_path: Path) -> Any:
    layer.share_memory()
    layer(rows())
    layer.weight.copy_(other()["weight"])


def deep_copied(layer: Any, tmp_path: Path) -> Any:
    made = copy.deepcopy(layer)
    made.weight_scale.mul_(2)
    return made


def shallow_copied(layer: Any, tmp_path: Path) -> Any:
    made = copy.copy(layer)
    made(rows())
    layer.weight_scale.mul_(2)
    return made


def pickled(layer: Any, tmp_path: Path) -> Any:
    layer.weight_scale.mul_(2)  # without an earlier call
    return pickle.loads(pickle.dumps(layer))


def saved(layer: Any, tmp_path: Path) -> Any:
    layer.weight.copy_(other()["weight"])
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def emptied(layer: Any, tmp_path: Path) -> Any:
    layer.to("meta")
    layer.to_empty(device="cpu")
    copied_in_place(layer, tmp_path)


def parametrized(layer: Any, tmp_path: Path) -> Any:
    class Doubled(torch.nn.Module):  # type: ignore[misc]
        def forward(self, scale: Any) -> Any:
            return 2 * scale

    expected = wanted(layer, rows())
    torch.nn.utils.parametrize.register_parametrization(layer, "weight_scale", Doubled())
    assert torch.equal(layer(rows()), 2 * expected)
    torch.nn.utils.parametrize.remove_parametrizations(layer, "weight_scale")


def fully_sharded(layer: Any, tmp_path: Path) -> Any:
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Sequential(layer, torch.nn.Linear(N, N))
    with Alone(tmp_path):
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        fully_shard(model[1], mesh=mesh)
        fully_shard(model, mesh=mesh)
        model(rows())
        layer.load_state_dict(other())
        found: dict[str, Any] = {}
        layer.register_forward_hook(lambda module, given, y: found.update(y=y))
        model(rows())
        assert torch.equal(found["y"], wanted(layer, rows()))


class Alone:
    """A process group of one."""

    def __init__(self, tmp_path: Path) -> None:
        self._store = f"file://{tmp_path}/store"

    def __enter__(self) -> None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        torch.distributed.init_process_group("gloo", init_method=self._store, rank=0, world_size=1)

    def __exit__(self, *_: object) -> None:
        torch.distributed.destroy_process_group()


WAYS: tuple[Callable[[Any, Path], Any], ...] = (
    loaded,
    assigned,
    swapped_by_load,
    in_two_parts,
    into_buffers,
    into_attributes,
    as_parameters,
    copied_in_place,
    scaled_in_place,
    scaled_within_inference_mode,
    one_byte,
    into_a_view,
    data_set,
    data_set_twice,
    data_copied,
    through_numpy,
    tensors_swapped,
    of_inference_mode,
    of_inference_mode_in_place,
    inference_parameters,
    through_safetensors,
    mapped_from_a_file,
    by_accelerate,
    offloaded_by_accelerate,
    by_distributed_checkpoint,
    averaged,
    trained_averages,
    shared_memory,
    deep_copied,
    shallow_copied,
    pickled,
    saved,
    emptied,
    parametrized,
    fully_sharded,
)
MODES: dict[str, Callable[[], Any]] = {"": torch.no_grad, "inference": torch.inference_mode, "grad": torch.enable_grad}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_output_is_the_states(way: Any, mode: str, tmp_path: Path) -> None:
    """From the first call, with a state that differs from before."""
    layer = used()
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    layer = way(layer, tmp_path) or layer
    if way is not parametrized:
        assert not all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())
    if mode == "grad" and layer.weight.is_inference():
        with pytest.raises(RuntimeError, match="cannot be saved for backward"):
            layer(rows().requires_grad_())
        return
    with MODES[mode]():
        x = rows().requires_grad_() if mode == "grad" else rows()
        for _ in range(2):
            assert torch.equal(layer(x), wanted(layer, rows()))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_output_of_16_bits_is_the_states(way: Any, tmp_path: Path) -> None:
    layer = used(16)
    layer.register_forward_pre_hook(lambda module, given: (given[0].bfloat16(),))
    layer.register_forward_hook(lambda module, given, y: y.float())
    exact = BitLinear(K, N, activation_bits=16)
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{__name__}.wanted", lambda module, x: fresh(exact, module)(x.bfloat16()).float())
        if way in (pickled, saved):  # hooks are local functions
            return
        layer = way(layer, tmp_path) or layer
        found = layer(rows())
        assert torch.equal(found, fresh(exact, layer)(rows().bfloat16()).float())


def fresh(made: Any, layer: Any) -> Any:
    """Another layer with a copy of that state."""
    made = copy.deepcopy(made)
    made.load_state_dict({name: value.clone() for name, value in layer.state_dict().items()})
    return made


def test_what_is_kept_is_made_once_and_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared by all layers that read the same memory, as long as it is unchanged."""
    made: list[Any] = []
    make = derived._made

    def counted(*args: Any) -> Any:
        made.append(make(*args))
        return made[-1]

    monkeypatch.setattr(derived, "_made", counted)
    layer = BitLinear.from_packed(**state_of(1, 0.5))
    twin = BitLinear.from_packed(layer.weight, 0.25)
    for _ in range(3):
        layer(rows())
        twin(rows())
        layer(rows().requires_grad_())
    assert len(made) == 1
    assert layer.packed is twin.packed
    layer.weight_scale.mul_(2)
    layer(rows())
    assert len(made) == 1
    layer.weight = layer.weight.clone()  # the same bytes elsewhere
    layer(rows())
    assert len(made) == 2
    assert made[0] is made[1]


def test_what_was_made_goes_with_the_weights() -> None:
    import gc
    import weakref

    layer = BitLinear.from_packed(**state_of(1, 0.5))
    layer(rows().requires_grad_())
    held = weakref.ref(layer.packed)
    place = layer.weight.untyped_storage()._cdata
    assert held() is not None
    assert place in derived._KEPT
    del layer
    gc.collect()
    assert held() is None
    assert place not in derived._KEPT


def test_repack_reads_what_no_sample_showed() -> None:
    """A write of one byte that PyTorch does not count."""
    layer = used()
    layer.weight.numpy()[2, 1] ^= 0b11 if layer.weight[2, 1] & 3 == 1 else 0
    layer.weight.numpy()[2, 1] = 0b01010101
    layer.repack()
    assert torch.equal(layer(rows()), wanted(layer, rows()))
    layer.weight_scale.numpy()[0] = 3
    assert torch.equal(layer(rows()), wanted(layer, rows()))


WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "weights of floats": (lambda layer: layer._buffers.update(weight=torch.ones(N, K)), r"weight is torch.float32"),
    "weights of another shape": (
        lambda layer: layer._buffers.update(weight=layer.weight[:, :-1].clone()),
        r"weight is torch.uint8 \(6, 79\); legal: torch.uint8 \(6, 80\)",
    ),
    "a field that stands for no code": (lambda layer: layer.weight.fill_(255), "field 3"),
    "a scale of nothing": (lambda layer: layer.weight_scale.zero_(), r"weight_scale is 0\.0"),
    "a scale below zero": (lambda layer: layer.weight_scale.neg_(), r"weight_scale is -0\.5"),
    "a NaN": (lambda layer: layer.weight_scale.fill_(torch.nan), "weight_scale is nan"),
    "two scales": (lambda layer: setattr(layer, "weight_scale", torch.ones(2)), "one number"),
    "weights without memory": (lambda layer: layer._buffers.update(weight=layer.weight.to("meta")), "on meta"),
    "a scale without memory": (
        lambda layer: layer._buffers.update(weight_scale=layer.weight_scale.to("meta")),
        "weight_scale is on meta",
    ),
    "memory of undefined content": (lambda layer: layer.to("meta").to_empty(device="cpu"), "not loaded"),
    "weights without their scale": (
        lambda layer: (
            layer.to("meta")
            .to_empty(device="cpu")
            .load_state_dict({"weight": state_of(1, 1.0)["weight"]}, strict=False)
        ),
        "not loaded",
    ),
}


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_state_that_is_none_is_refused_at_each_call(wrong: str, gradient: bool) -> None:
    change, words = WRONG[wrong]
    layer = used()
    change(layer)
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match=words):
            layer(rows().requires_grad_(gradient))
    layer._buffers.update(other())
    assert torch.equal(layer(rows()), wanted(layer, rows()))
