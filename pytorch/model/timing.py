"""Tokens a second of models, interleaved, and where the time of a token goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any

import numpy as np
import torch

from tritmark.harness.measure.alternate import Alternation, Timed, alternate
from tritmark.harness.measure.clocks import PythonClock
from tritmark.harness.measure.statistics import LEAST_SAMPLES, median
from tritmark.harness.measure.stopping import First, Interval, MinimumSamples, TimeLimit
from tritmark.harness.models import OURS, TokenPart, TokenRate
from tritmark.harness.record import Ratio
from tritmark.torch.bit_experts import BitExperts
from tritmark.torch.bit_linear import BitLinear
from tritmark.torch.converted_experts import ConvertedExperts
from tritmark.torch.model.stepping import step

DECODED = 8
"""Tokens of a sample."""
_NARROW = 0.04
"""Width of an interval that is narrow enough."""


class _Call:
    """A Python function as a launch of a clock."""

    pointer = None
    bad = -1
    threads_used = 0
    ran = ""
    runs = 0

    def __init__(self, call: Callable[[], None]) -> None:
        self.run = call


def rates(engines: Mapping[str, Any], prompt: torch.Tensor, seconds: float) -> list[TokenRate]:
    """The rates of each engine for a prompt (B, T) and for tokens behind it, interleaved with tritmark's."""
    batch, length = prompt.shape
    found: list[TokenRate] = []
    for work, tokens, make in (("prompt", batch * length, _prompt), ("decode", batch * DECODED, _decode)):
        calls = {name: make(model, prompt) for name, model in engines.items()}
        others = {name: _alternated(calls[OURS], call, seconds) for name, call in calls.items() if name != OURS}
        ns = {OURS: median([each for found in others.values() for each in found.a_ns])}
        ns |= {name: median(found.b_ns) for name, found in others.items()}
        speeds: dict[str, Ratio | None] = {OURS: None, **{name: found.ratio() for name, found in others.items()}}
        found += [
            TokenRate(
                engine=name,
                work=work,
                batch=batch,
                prompt=length,
                tokens_per_s=1e9 * tokens / ns[name],
                speed=speeds[name],
            )
            for name in calls
        ]
    return found


def _alternated(ours: Callable[[], None], other: Callable[[], None], seconds: float) -> Alternation:
    clock = PythonClock()
    mine, theirs = (Timed([_Call(call)], clock) for call in (ours, other))
    for each in (mine, theirs):
        each.sample()
    enough = First(
        MinimumSamples(LEAST_SAMPLES, Interval(_NARROW)),
        MinimumSamples(LEAST_SAMPLES, TimeLimit(seconds)),
        TimeLimit(4 * seconds),
    )
    return alternate(mine, theirs, np.random.default_rng(0), enough)


def _prompt(model: Any, prompt: torch.Tensor) -> Callable[[], None]:
    def call() -> None:
        step(model, prompt)
        _wait(prompt)

    return call


def _decode(model: Any, prompt: torch.Tensor) -> Callable[[], None]:
    """DECODED tokens behind the prompt. The cache is cut to the prompt again."""
    start, cache = step(model, prompt)

    def call() -> None:
        tokens = start
        for _ in range(DECODED):
            tokens, _ = step(model, tokens, cache)
        cache.crop(-DECODED)
        _wait(prompt)

    return call


def first_token_ms(model: Any, prompt: torch.Tensor) -> float:
    """The time from a prompt to its first token: the least of a few."""
    call = _prompt(model, prompt)
    call()
    times = []
    for _ in range(3):
        begin = perf_counter_ns()
        call()
        times.append(perf_counter_ns() - begin)
    return min(times) / 1e6


def _wait(like: torch.Tensor) -> None:
    if like.is_cuda:
        torch.cuda.synchronize(like.device)


def parts(model: Any, prompt: torch.Tensor) -> tuple[TokenPart, ...]:
    """Where the time of a decoded token goes, by the class of the modules; each without the modules inside it. What no
    named part has is "rest": Python, the cache, positions and masks."""
    call = _decode(model, prompt)
    call()
    spent: defaultdict[str, float] = defaultdict(float)
    with _watched(model, prompt.is_cuda) as read:
        begin = perf_counter_ns()
        call()
        whole = (perf_counter_ns() - begin) / 1e6
        for name, ms in read():
            spent[name] += ms
    spent["rest"] = max(0.0, whole - sum(spent.values()))
    total = sum(spent.values())
    found = [TokenPart(name=name, ms=ms / DECODED, share=ms / total) for name, ms in spent.items()]
    return tuple(sorted(found, key=lambda each: -each.ms))


def _kind(model: Any, name: str, module: torch.nn.Module) -> str | None:
    """The part that a module belongs to."""
    if module is model.get_output_embeddings():
        return "head"
    if module is model.get_input_embeddings():
        return "embedding"
    if isinstance(module, BitLinear | BitExperts):
        return "ternary linears"
    if isinstance(module, torch.nn.Linear):
        return "other linears"
    if isinstance(module, ConvertedExperts):
        return "activation of experts"
    kind = type(module).__name__
    if "Norm" in kind:
        return "norms"
    if kind.endswith("Attention"):
        return "attention"
    return "feed forward" if kind.endswith(("MLP", "MoeBlock", "MoE")) else None


@contextmanager
def _watched(model: Any, cuda: bool) -> Iterator[Callable[[], list[tuple[str, float]]]]:
    """Times of the modules, each without those inside it, in ms."""
    stack: list[list[Any]] = []
    spans: list[tuple[str, Any, Any, list[tuple[Any, Any]]]] = []

    def now() -> Any:
        if not cuda:
            return perf_counter_ns()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def enter(kind: str) -> Callable[..., None]:
        return lambda *_: stack.append([kind, now(), []])

    def leave(*_: Any) -> None:
        kind, begin, inner = stack.pop()
        end = now()
        spans.append((kind, begin, end, inner))
        if stack:
            stack[-1][2].append((begin, end))

    def between(begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end)) if cuda else (end - begin) / 1e6

    def read() -> list[tuple[str, float]]:
        if cuda:
            torch.cuda.synchronize()
        return [(kind, between(a, b) - sum(between(*each) for each in inner)) for kind, a, b, inner in spans]

    handles = []
    for name, module in model.named_modules():
        kind = _kind(model, name, module)
        if kind is not None:
            handles.append(module.register_forward_pre_hook(enter(kind), prepend=True))
            handles.append(module.register_forward_hook(leave))
    try:
        yield read
    finally:
        for handle in handles:
            handle.remove()
