"""Whether a converted model computes what the model before computed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from tritmark.harness.models import Agreement, Drift, JudgedLayer
from tritmark.harness.record import Status
from tritmark.torch.bit_linear import BitLinear
from tritmark.torch.conversion import Replaced
from tritmark.torch.model.loading import ModelPair
from tritmark.torch.model.stepping import step

_UNIT = 2.0**-24
"""Unit roundoff of float32, in which scales of groups are applied."""
_GREEDY = 32
_SLAB = 1 << 18
"""Weights that are compared at a time on a CPU."""


def judged_layers(
    pair: ModelPair, tokens: torch.Tensor, report: Callable[[str], None] = lambda line: None
) -> tuple[JudgedLayer, ...]:
    """Each BitLinear on the activations of these tokens, beside the float64 product of the weights of before. A layer
    that no token reaches is NOT RUN. `report` gets the number of the layer."""
    originals = dict(pair.before.named_modules())
    replaced = [each for each in pair.conversion.replaced if isinstance(each.layer, BitLinear)]
    made: dict[str, JudgedLayer] = {}

    def judge(each: Replaced, given: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
        if each.name not in made:
            report(f"judging layer {len(made) + 1} of {len(replaced)}")
            made[each.name] = _judged(each, originals[each.name], given[0].detach(), out.detach())

    # Judged within the pass, which would else keep the activations of all layers.
    handles = [
        each.layer.register_forward_hook(lambda _, given, out, each=each: judge(each, given, out)) for each in replaced
    ]
    try:
        pair.after(tokens)
    finally:
        for handle in handles:
            handle.remove()
    return tuple(made.get(each.name) or _unreached(each) for each in replaced)


def _unreached(replaced: Replaced) -> JudgedLayer:
    return JudgedLayer(
        name=replaced.name, was=replaced.was, status=Status.NOT_RUN, largest=0.0, changed=replaced.changed
    )


def _judged(replaced: Replaced, original: Any, x: torch.Tensor, found: torch.Tensor) -> JudgedLayer:
    """A layer beside the weights of the layer before."""
    layer: Any = replaced.layer
    exact_sums = layer.activation_bits == 8 and layer.group_size is None
    bits, bias = layer.activation_bits, bias_of(original)
    worst = worst_of(x, *dense(original), found, bits=bits, exact_sums=exact_sums, bias=bias)
    status = Status.PASS if worst <= 1 else Status.FAIL
    return JudgedLayer(name=replaced.name, was=replaced.was, status=status, largest=worst, changed=replaced.changed)


def worst_of(
    x: torch.Tensor,
    weights: torch.Tensor,
    factor: torch.Tensor | float,
    found: torch.Tensor,
    *,
    bits: int,
    exact_sums: bool,
    bias: torch.Tensor | None = None,
) -> float:
    """The largest error of a product over its bound. The arithmetic in float64: the codes of the activations are those
    of the layer's contract, the weights (N, K) times `factor` those of before, and the bound that of its roundings."""
    rows = x.reshape(-1, x.shape[-1])
    if bits == 8:
        largest = rows.float().abs().amax(-1, keepdim=True).clamp(min=1e-5)
        scale = torch.full_like(largest, 127) / largest  # 127 / largest would be 127 times the rounded inverse
        rows, scale = (rows.float() * scale).round(), scale.double()
    else:
        scale = torch.ones(1, dtype=torch.float64, device=rows.device)
    rows, results = rows.double(), found.reshape(len(rows), -1)
    size = rows.abs()
    # Sums are exact for codes and one scale; else each term passes through float32 sums.
    sums = 1 if exact_sums else rows.shape[1]
    eps, tiny = torch.finfo(found.dtype).eps, torch.finfo(found.dtype).tiny

    def of_slab(at: int) -> torch.Tensor:
        part = slice(at, at + length)
        slab = weights[part].to(torch.float64, copy=True).mul_(factor)
        exact = rows @ slab.T / scale
        magnitudes = size @ slab.abs_().T / scale
        if bias is not None:
            exact, magnitudes = exact + bias[part].double(), magnitudes + bias[part].double().abs()
        bound = (sums + 4) * _UNIT * magnitudes + eps / 2 * exact.abs()
        off = (results[:, part].double() - exact).abs()
        return (off / bound.clamp(min=tiny)).max()

    if weights.is_cuda:
        length = len(weights)
        return float(of_slab(0))
    # A slab in float64 stays in the cache. Each thread has its own, so that none waits for others in each operation.
    length = max(1, _SLAB // weights.shape[1])
    count = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as threads:
            return float(torch.stack(list(threads.map(of_slab, range(0, len(weights), length)))).max())
    finally:
        torch.set_num_threads(count)  # of this thread it is unchanged; PyTorch gives the last one set to new threads


def dense(original: Any) -> tuple[torch.Tensor, torch.Tensor | float]:
    """The weights that a layer of before multiplies with, by the code of its own package: floats (N, K), and what they
    are times."""
    if type(original).__name__ == "BitLinear":
        from transformers.integrations.bitnet import unpack_weights

        codes = unpack_weights(original.weight, torch.float32)
        return codes[: original.out_features], 1 / original.weight_scale.double()
    weight = original.weight.detach()
    if getattr(original, "online_quant", False):
        from transformers.integrations.bitnet import WeightQuant

        online: torch.Tensor = WeightQuant.apply(weight.float())
        return online, 1.0
    scale = getattr(original, "weight_scale", None)
    return weight, 1.0 if scale is None else scale.double()


def bias_of(original: Any) -> torch.Tensor | None:
    """The bias of a layer of before, as it adds it."""
    bias: torch.Tensor | None = original.bias
    if bias is None:
        return None
    offline = type(original).__name__ == "AutoBitLinear" and not original.online_quant
    return bias.detach() * original.weight_scale if offline else bias.detach()


def agreement(pair: ModelPair, tokens: torch.Tensor) -> Agreement:
    """Outputs of both models for these tokens (1, T), and how far the model before would go on as the model after does.

    The model before computes one batch: the tokens, and their first half with the greedy continuation of the model
    after. It goes on in the same way as long as each token is its most likely one, too.
    """
    start = tokens[:, : max(1, tokens.shape[1] // 2)]
    continued = _greedy(pair.after, start)
    forced = torch.cat((start, continued[None, :-1]), 1)
    length = max(tokens.shape[1], forced.shape[1])
    # Tokens behind the end of a sequence do not change those before them: attention is causal.
    both = torch.cat([torch.nn.functional.pad(each, (0, length - each.shape[1])) for each in (tokens, forced)])
    before = pair.before(both, output_hidden_states=True)
    after = pair.after(tokens, output_hidden_states=True)
    count = tokens.shape[1]
    states_before = [each[:1, :count] for each in (*before.hidden_states, before.logits)]
    names = ["embedding", *(f"block {at}" for at in range(len(before.hidden_states) - 1)), "logits"]
    states = zip(states_before, (*after.hidden_states, after.logits), strict=True)
    drift = [Drift(name=name, relative=_relative(b, a)) for name, (b, a) in zip(names, states, strict=True)]
    p, q = (torch.log_softmax(each[0].double(), -1) for each in (states_before[-1], after.logits))
    expected = before.logits[1, start.shape[1] - 1 : forced.shape[1]].argmax(-1)
    same = (expected == continued).long().cumprod(-1).sum()
    return Agreement(
        tokens=count,
        kl=float((p.exp() * (p - q)).sum(-1).mean()),
        top1=float((p.argmax(-1) == q.argmax(-1)).double().mean()),
        greedy=int(same),
        greedy_of=_GREEDY,
        drift=tuple(drift),
    )


def _relative(before: torch.Tensor, after: torch.Tensor) -> float:
    size = before.double().norm()
    return float((after.double() - before.double()).norm() / size) if size else 0.0


def _greedy(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """The next tokens (_GREEDY,), each the most likely one."""
    found, cache = [], None
    for _ in range(_GREEDY):
        tokens, cache = step(model, tokens, cache)
        found.append(tokens[0, 0])
    return torch.stack(found)
