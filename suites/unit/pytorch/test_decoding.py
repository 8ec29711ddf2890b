"""A step of decoding with a static cache: the tokens of a growing cache, without a read by the host; on a GPU one CUDA
graph."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")
pytest.importorskip("transformers", reason="transformers is not installed; tox -e torch has it")

from made_up_transformers import bitnet_folder  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from tritmark.harness.errors import InvalidArgumentError  # noqa: E402
from tritmark.torch import convert  # noqa: E402
from tritmark.torch.model.decoding import GreedyDecoding  # noqa: E402
from tritmark.torch.model.stepping import step  # noqa: E402

STEPS = 12
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has no GPU here")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Any:
    import transformers

    with torch._dynamo.config.patch(disable=True):
        folder: Path = bitnet_folder(tmp_path_factory.mktemp("model"))
        return transformers.AutoModelForCausalLM.from_pretrained(folder).eval()


@pytest.fixture(autouse=True)
def eager() -> Iterator[None]:
    """transformers compiles its layers, which takes half a minute."""
    with torch._dynamo.config.patch(disable=True):
        yield


@pytest.fixture
def model(original: Any) -> Any:
    made = copy.deepcopy(original)
    assert len(convert(made).replaced) == 14
    return made


def prompt(batch: int = 1, device: str = "cpu") -> Any:
    return torch.randint(64, (batch, 9), generator=torch.Generator().manual_seed(3)).to(device)


def greedy(model: Any, tokens: Any) -> list[Any]:
    """With a cache that grows."""
    found, cache = [], None
    with torch.no_grad():
        for _ in range(STEPS + 1):
            tokens, cache = step(model, tokens, cache)
            found.append(tokens.tolist())
    return found


def decoded(decoding: GreedyDecoding) -> list[Any]:
    return [decoding.tokens.tolist(), *(decoding.next().tolist() for _ in range(STEPS))]


@pytest.mark.parametrize("batch", [1, 3])
def test_tokens_are_those_of_a_growing_cache(model: Any, batch: int) -> None:
    made = GreedyDecoding(model, prompt(batch), STEPS, graph=False)
    assert decoded(made) == greedy(model, prompt(batch))
    assert not made.graphed
    assert made.left == 0
    with pytest.raises(InvalidArgumentError, match="full cache"):
        made.next()


def test_steps_can_be_undone(model: Any) -> None:
    made = GreedyDecoding(model, prompt(), STEPS, graph=False)
    first = made.tokens.clone()
    expected = decoded(made)
    made.back(STEPS, first)
    assert decoded(made) == expected


class HostReads(TorchDispatchMode):  # type: ignore[misc]
    """Names of ops whose result or shape the host must read, which a CUDA graph cannot contain."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name() in {"aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::equal"}:
            self.found.append(func.name())
        return func(*args, **(kwargs or {}))


def test_no_step_is_read_by_the_host(model: Any) -> None:
    made = GreedyDecoding(model, prompt(), STEPS, graph=False)
    made.next()
    with HostReads() as reads:
        made.next()
    assert reads.found == []


def test_a_read_in_a_step_is_found(model: Any) -> None:
    made = GreedyDecoding(model, prompt(), STEPS, graph=False)
    model.model.norm.register_forward_hook(lambda module, given, out: out * out.sum().item())
    with HostReads() as reads:
        made.next()
    assert reads.found == ["aten::_local_scalar_dense"]


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("prompt", {"prompt": torch.zeros(9, dtype=torch.int64)}),
        ("prompt", {"prompt": torch.zeros((1, 0), dtype=torch.int64)}),
        ("prompt", {"prompt": torch.zeros((1, 9))}),
        ("room", {"room": 0}),
        ("room", {"room": True}),
        ("graph", {"graph": True}),
    ],
)
def test_other_arguments_are_refused(model: Any, argument: str, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        GreedyDecoding(model, **{"prompt": prompt(), "room": STEPS, "graph": False, **given})
    assert refused.value.argument == argument


def test_a_cache_of_a_sliding_window_is_refused(model: Any) -> None:
    model.config.layer_types = ["sliding_attention", "full_attention"]
    model.config.sliding_window = 4
    with pytest.raises(InvalidArgumentError, match="keeps its length in Python"):
        GreedyDecoding(model, prompt(), STEPS, graph=False)


@pytest.mark.cuda
@needs_gpu
@pytest.mark.parametrize("batch", [1, 3])
def test_a_whole_step_is_one_cuda_graph(original: Any, batch: int) -> None:
    model = copy.deepcopy(original).cuda()
    assert len(convert(model).replaced) == 14
    expected = greedy(model, prompt(batch, "cuda"))
    made = GreedyDecoding(model, prompt(batch, "cuda"), STEPS, graph=True)
    assert made.graphed
    assert decoded(made) == expected


@pytest.mark.cuda
@needs_gpu
def test_a_replay_calls_no_module(original: Any) -> None:
    model = copy.deepcopy(original).cuda()
    convert(model)
    made = GreedyDecoding(model, prompt(device="cuda"), STEPS, graph=True)
    called: list[str] = []
    for module in model.modules():
        module.register_forward_pre_hook(lambda module, _: called.append(type(module).__name__))
    before = made.tokens.clone()
    made.next()
    torch.cuda.synchronize()
    assert not called
    made.back(1, before)
    assert made.next().tolist() == greedy(model, prompt(device="cuda"))[1]


@pytest.mark.cuda
@needs_gpu
def test_steps_of_a_graph_can_be_undone(original: Any) -> None:
    model = copy.deepcopy(original).cuda()
    convert(model)
    made = GreedyDecoding(model, prompt(device="cuda"), STEPS, graph=True)
    first = made.tokens.clone()
    expected = decoded(made)
    made.back(STEPS, first)
    assert decoded(made) == expected
