"""Whether each expert of the converted layers computes what it computed before."""

from __future__ import annotations

from typing import Any

import torch

from tritmark.harness.models import JudgedExperts
from tritmark.harness.record import Status
from tritmark.torch.converted_experts import ConvertedExperts
from tritmark.torch.model.capture import captured
from tritmark.torch.model.judging import worst_of
from tritmark.torch.model.loading import ModelPair

_PRODUCTS = ("gate_up_proj", "down_proj")


def judged_experts(pair: ModelPair, tokens: torch.Tensor) -> tuple[JudgedExperts, ...]:
    """Both products of each converted layer of experts, expert by expert, on the activations that these tokens bring to
    it, beside the float64 product of the weights of before."""
    layers = [each for each in pair.conversion.replaced if isinstance(each.layer, ConvertedExperts)]
    if not layers:
        return ()
    originals = dict(pair.before.named_modules())
    with captured(pair.after) as seen:
        pair.after(tokens)
    made = []
    for each in layers:
        for product in _PRODUCTS:
            name = f"{each.name}.{product}"
            (call,) = seen.modules[name]
            x, chosen = call.given[:2]
            weights = getattr(originals[each.name], product).detach()
            made.append(_judged(name, getattr(each.layer, product), x, chosen, weights))
    return tuple(made)


def _judged(name: str, layer: Any, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> JudgedExperts:
    found = layer(x, chosen)  # a row for each expert of a token, before gates add them
    x = x.unsqueeze(-2).expand(*chosen.shape, -1) if x.ndim == chosen.ndim else x
    reached = chosen.unique().tolist()
    worst = {
        expert: worst_of(
            x[chosen == expert],
            weights[expert],
            1.0,
            found[chosen == expert],
            bits=8,
            exact_sums=layer.group_size is None,
        )
        for expert in reached
    }
    wrong = tuple(expert for expert, ratio in worst.items() if not ratio <= 1)
    return JudgedExperts(
        name=name,
        status=Status.FAIL if wrong else Status.PASS,
        experts=layer.num_experts,
        unreached=layer.num_experts - len(reached),
        largest=max(worst.values()),
        wrong=wrong,
    )
