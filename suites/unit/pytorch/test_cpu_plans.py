"""Layers on CPU tensors of a known shape: the same bits and errors as in the first call, in the memory of the given
tensors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from tritmark.harness import tuned  # noqa: E402
from tritmark.harness.errors import InvalidArgumentError  # noqa: E402
from tritmark.harness.spec import KernelKey  # noqa: E402
from tritmark.kernels import FORMATS  # noqa: E402
from tritmark.kernels.dispatch import dispatch  # noqa: E402
from tritmark.kernels.linear import plans  # noqa: E402
from tritmark.kernels.native.cpu import FORCE  # noqa: E402
from tritmark.kernels.ternary_matmul.cpu import FORMATS as CPU_FORMATS  # noqa: E402
from tritmark.kernels.ternary_matmul.cpu import kept as memory_of  # noqa: E402
from tritmark.kernels.ternary_matmul.spec import OP as PRODUCT  # noqa: E402
from tritmark.torch import BitLinear, cpu  # noqa: E402
from tritmark.torch.allocator import allocator  # noqa: E402
from tritmark.torch.derived import derived  # noqa: E402

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
OUT_DTYPES = (None, *FLOATS)
LINEAR = torch.ops.tritmark.linear
SCALE = 0.375
N, K = 24, 96


def packed(N: int, K: int, format: str = "tile64", seed: int = 0) -> Any:
    codes = np.random.default_rng(seed).integers(-1, 2, (N, K), dtype=np.int8)
    form = FORMATS[format]
    scale = np.float32(SCALE) if form.scale_per == "tensor" else np.ones(form.scale_shape((N, K)), np.float32)
    return torch.from_numpy(form.pack(codes, scale, tail="error"))


def rows(*shape: int, seed: int = 1, dtype: Any = torch.float32) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape)).to(dtype)


class KeptState:
    """Plans that count their complete runs."""

    def __init__(self) -> None:
        self.clear()
        self.ran = 0

    def clear(self) -> None:
        self._plans = plans.address_plans()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plans, name)

    def __len__(self) -> int:
        return len(self._plans)

    def __contains__(self, key: object) -> bool:
        return key in self._plans

    def get(self, registry: Any, key: Any) -> Any:
        found = self._plans.get(registry, key)
        if found is None:
            return None
        run_at, *told = found

        def counted(*given: Any) -> bool:
            done: bool = run_at(*given)
            self.ran += done
            return done

        return counted, *told


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> KeptState:
    found = KeptState()
    monkeypatch.setattr(cpu, "_PLANS", found)
    return found


@settings(max_examples=60)
@given(
    lead=st.lists(st.integers(1, 4), max_size=3),
    N=st.integers(1, 70),
    K=st.integers(1, 200),
    dtypes=st.tuples(st.sampled_from(FLOATS), st.sampled_from(OUT_DTYPES)),
    bias=st.sampled_from(OUT_DTYPES),
    strided=st.booleans(),
    seed=st.integers(0, 1 << 32),
)
def test_a_plan_makes_the_bits_of_the_long_way(
    lead: list[int], N: int, K: int, dtypes: tuple[Any, Any], bias: Any, strided: bool, seed: int
) -> None:
    """With rows, weights and scale that differ from those at planning."""
    found = KeptState()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "_PLANS", found)
        add = None if bias is None else rows(N, seed=seed + 1, dtype=bias)

        def called(seed: int, scale: float) -> Any:
            x = rows(*lead, 2 * K if strided else K, seed=seed, dtype=dtypes[0])[..., :: 1 + strided]
            return LINEAR(x, packed(N, K, seed=seed), scale, N, "tile64", add, dtypes[1])

        called(seed, 0.5)
        planned, ran = called(seed + 1, SCALE), found.ran
        patch.setattr(cpu, "_PLANS", KeptState())
        wanted = called(seed + 1, SCALE)
    assert ran == 1
    assert planned.dtype is wanted.dtype
    assert planned.shape == wanted.shape
    assert torch.equal(planned, wanted)


def test_a_layer_runs_it_from_its_second_call_on(kept: KeptState) -> None:
    layer = BitLinear.from_float(torch.nn.Linear(K, N))
    with torch.inference_mode():
        x = rows(2, K)
        first = layer(x)
        assert kept.ran == 0
        for count in (1, 2):
            assert torch.equal(layer(x), first)
            assert kept.ran == count
        other = BitLinear.from_float(torch.nn.Linear(K, N))
        y = other(x)  # the same shape, so the same plan
        assert kept.ran == 3
        kept.clear()
        assert torch.equal(y, other(x))
        assert kept.ran == 3
    assert not torch.equal(y, first)


def test_what_weights_hold_now_counts(kept: KeptState) -> None:
    x, weights = rows(1, K), packed(N, K)
    first = [LINEAR(x, weights, SCALE, N, "tile64") for _ in range(2)][1]
    weights.copy_(packed(N, K, seed=5))
    changed = LINEAR(x, weights, SCALE, N, "tile64")
    assert kept.ran == 2
    assert not torch.equal(changed, first)
    assert torch.equal(changed, LINEAR(x.double().float(), packed(N, K, seed=5), SCALE, N, "tile64"))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", FLOATS)
def test_what_is_not_finite_is_refused_as_at_first(kept: KeptState, dtype: Any, bad: float) -> None:
    x, weights = rows(3, K, dtype=dtype), packed(N, K)
    wrong = x.clone()
    wrong[1, 2] = bad
    said = []
    for _ in range(2):
        with pytest.raises(InvalidArgumentError) as caught:
            LINEAR(wrong, weights, SCALE, N, "tile64")
        said.append(str(caught.value))
        LINEAR(x, weights, SCALE, N, "tile64")
    assert said[0] == said[1]
    assert said[0].startswith("torch.ops.tritmark.linear: x is ")
    assert "at index (1, 2); legal: finite values; torch.nan_to_num(x)" in said[0]
    assert kept.ran == 1


@pytest.mark.parametrize("scale", [0.0, -1.0, torch.nan, torch.inf, 1e39, 1e-46])
def test_a_scale_that_is_none_is_refused_as_at_first(kept: KeptState, scale: float) -> None:
    x, weights = rows(3, K), packed(N, K)
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match="weight_scale"):
            LINEAR(x, weights, scale, N, "tile64")
        LINEAR(x, weights, SCALE, N, "tile64")
    assert kept.ran == 1


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"weights": packed(N, K).float()}, "weights"),
        ({"weights": packed(N, K)[:-1]}, "weights"),
        ({"weights": torch.stack([packed(N, K)] * 2, dim=-1)[..., 0]}, "weights"),
        ({"N": N + 64}, "weights"),
        ({"format": "no such"}, "format"),
        ({"bias": torch.ones(N + 1)}, "bias"),
        ({"bias": torch.ones(N, dtype=torch.int32)}, "bias"),
        ({"out_dtype": torch.int32}, "out_dtype"),
        ({"x": rows(3, K).double()}, "x"),
        ({"x": rows(3, K + 1)}, "weights"),
    ],
)
def test_a_call_like_one_that_was_planned_is_checked_all_the_same(
    kept: KeptState, change: dict[str, Any], argument: str
) -> None:
    told = {
        "x": rows(3, K),
        "weights": packed(N, K).reshape(-1),
        "weight_scale": SCALE,
        "N": N,
        "format": "tile64",
        "bias": torch.ones(N),
        "out_dtype": None,
    }
    for _ in range(2):
        LINEAR(*told.values())
    with pytest.raises(InvalidArgumentError, match=f"argument {argument}|{argument} "):
        LINEAR(*{**told, **change}.values())
    assert kept.ran == 1


@pytest.mark.parametrize(("dtype", "offset"), [(torch.float32, 1), (torch.float32, 2), (torch.bfloat16, 1)])
def test_rows_that_are_not_aligned_go_the_long_way(kept: KeptState, dtype: Any, offset: int) -> None:
    x, weights = rows(2, K, dtype=dtype), packed(N, K)
    wanted = [LINEAR(x, weights, SCALE, N, "tile64") for _ in range(2)][1]
    memory = torch.zeros(x.element_size() * x.numel() + offset, dtype=torch.uint8)
    memory[offset:] = x.reshape(-1).view(torch.uint8)
    askew = torch.frombuffer(memory.numpy(), dtype=dtype, offset=offset).view(2, K)
    assert torch.equal(LINEAR(askew, weights, SCALE, N, "tile64"), wanted)
    assert kept.ran == 1


def test_rows_of_bfloat16_need_be_aligned_to_two_bytes_alone(kept: KeptState) -> None:
    x, weights = rows(2 * K + 1, dtype=torch.bfloat16), packed(N, K)
    wanted = [LINEAR(x[1:].view(2, K).clone(), weights, SCALE, N, "tile64") for _ in range(2)][1]
    assert torch.equal(LINEAR(x[1:].view(2, K), weights, SCALE, N, "tile64"), wanted)
    assert kept.ran == 2


def test_an_output_beyond_bfloat16_is_infinite(kept: KeptState) -> None:
    """A value between two representable ones rounds to even, as in the first call."""
    x, weights = 1e30 * rows(7, K, dtype=torch.bfloat16), packed(N, K)
    first, second = (LINEAR(x, weights, 3e8, N, "tile64") for _ in range(2))
    assert kept.ran == 1
    assert torch.equal(first, second)
    assert torch.isinf(first).any()
    assert not torch.isinf(first).all()


def test_it_is_dropped_with_what_the_choice_rests_on(kept: KeptState, monkeypatch: pytest.MonkeyPatch) -> None:
    x, weights = rows(1, K), packed(N, K)

    def call() -> Any:
        return LINEAR(x, weights, SCALE, N, "tile64")

    wanted = [call() for _ in range(2)][1]
    monkeypatch.setenv(FORCE, "scalar")
    assert torch.equal(call(), wanted)
    assert kept.ran == 1
    assert torch.equal(call(), wanted)
    assert kept.ran == 2
    tuned.forget()
    assert torch.equal(call(), wanted)
    assert kept.ran == 2
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        assert torch.equal(call(), wanted)
        assert kept.ran == 2
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", FLOATS)
def test_many_rows_find_a_plan_too(kept: KeptState, dtype: Any) -> None:
    """Plans keep no memory of the size of their inputs."""
    x, weights = rows(3000, K, dtype=dtype), packed(N, K)
    first, second = (LINEAR(x, weights, SCALE, N, "tile64") for _ in range(2))
    assert torch.equal(first, second)
    assert kept.ran == 1


@pytest.mark.parametrize("format", CPU_FORMATS)
def test_every_format_with_a_kernel_gives_the_same_again(kept: KeptState, format: str) -> None:
    """Formats run from a plan, except those whose kernels need a workspace other than the sums of groups."""
    one, room = FORMATS[format].scale_per == "tensor", memory_of(format, {"M": 2, "N": 64, "K": 256})
    weights, x, scale = packed(64, 256, format), rows(2, 256), SCALE if one else 1.0
    first, second = (LINEAR(x, weights, scale, 64, format) for _ in range(2))
    assert torch.equal(first, second)
    assert kept.ran == (not room or FORMATS[format].scale_per == "group")
    if not one:
        with pytest.raises(InvalidArgumentError, match="weight_scale"):
            LINEAR(x, weights, SCALE, 64, format)


def test_no_rows_are_not_planned(kept: KeptState) -> None:
    weights = packed(N, K)
    for _ in range(2):
        assert LINEAR(rows(0, K), weights, SCALE, N, "tile64").shape == (0, N)
    assert kept.ran == 0


def test_without_pytorchs_own_function_outputs_go_through_its_dispatcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C._dynamo.guards, "_empty_strided_cpu")
    made = allocator("cpu")((2, 3), (3, 1), torch.bfloat16)
    assert (made.shape, made.stride(), made.dtype, made.device.type) == ((2, 3), (3, 1), torch.bfloat16, "cpu")


def test_they_are_kept_up_to_a_number(kept: KeptState) -> None:
    weights, x = packed(1, 1), rows(4200, 1)
    for M in range(1, 4201):
        LINEAR(x[:M], weights, SCALE, 1, "tile64")
    assert 0 < len(kept) <= 4096


@pytest.mark.parametrize("format", ["tile64_g64", "tile64_g256", "q2_0"])
@pytest.mark.parametrize("M", [1, 5, 70])
def test_scales_of_groups_in_a_plan_make_the_bits_of_the_long_way(
    kept: KeptState, monkeypatch: pytest.MonkeyPatch, format: str, M: int
) -> None:
    """With rows and weights that differ from those at planning, and every dtype."""
    for dtype in FLOATS:
        ran = kept.ran
        LINEAR(rows(M, 512, dtype=dtype), packed(70, 512, format), 1.0, 70, format)
        given = rows(M, 512, seed=2, dtype=dtype), packed(70, 512, format, seed=2), 1.0, 70, format
        planned = LINEAR(*given)
        assert kept.ran == ran + 1
        with monkeypatch.context() as patch:
            patch.setattr(cpu, "_PLANS", KeptState())
            assert torch.equal(planned, LINEAR(*given))


def test_scales_of_groups_in_a_plan_are_checked_all_the_same(kept: KeptState) -> None:
    weights, x = packed(64, 256, "tile64_g128"), rows(3, 256)
    first = LINEAR(x, weights, 1.0, 64, "tile64_g128")
    with pytest.raises(InvalidArgumentError, match="weight_scale"):
        LINEAR(x, weights, 0.5, 64, "tile64_g128")
    x[1, 7] = torch.nan
    with pytest.raises(InvalidArgumentError, match="nan"):
        LINEAR(x, weights, 1.0, 64, "tile64_g128")
    x[1, 7] = rows(3, 256)[1, 7]
    assert torch.equal(LINEAR(x, weights, 1.0, 64, "tile64_g128"), first)


def test_threads_share_a_plan_with_scales_of_groups(kept: KeptState) -> None:
    """Each run has its own sums of groups."""
    weights = packed(300, 2048, "tile64_g64")
    several = [rows(4, 2048, seed=seed) for seed in range(4)]
    wanted = [LINEAR(x, weights, 1.0, 300, "tile64_g64") for x in several]

    def called(nth: int) -> bool:
        return all(torch.equal(LINEAR(several[nth], weights, 1.0, 300, "tile64_g64"), wanted[nth]) for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(called, range(4)))
    assert kept.ran > 4


def test_a_layer_has_the_format_that_was_measured_as_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """As pack_weights: the choice of `tritmark tune variants` for one row. The bits do not depend on it."""
    registry = dispatch.registry()
    best = next(each for each in registry.variants if each.key == KernelKey("cpu", PRODUCT.name, "tile80", "float32"))
    state = torch.from_numpy(FORMATS["hf_pack"].pack(np.resize([1, 0, -1], (N, K)).astype(np.int8), np.float32(1)))
    x = torch.randn(3, K, generator=torch.Generator().manual_seed(0))
    usual = BitLinear.from_packed(state, SCALE)
    asked: list[Any] = []

    def measured(keys: Any, axes: Any, requirement: Any, threads: Any) -> Any:
        if len(keys) == 1:  # which variant of a format, not which format
            return None
        asked.append(axes)
        return best

    monkeypatch.setattr(registry, "measured", measured)
    chosen = BitLinear.from_packed(state.clone(), SCALE)
    assert asked[0] == {"M": 1, "N": N, "K": K}
    assert [derived(each.weight, N).format for each in (usual, chosen)] == ["tile64", "tile80"]
    assert torch.equal(chosen(x), usual(x))
