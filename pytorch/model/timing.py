"""Tokens a second of engines, interleaved, and the steps that are timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np
import torch

from tritmark.harness.engines.engine import DECODED, PROMPT, Engine, EngineError
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.measure.alternate import Alternation, Side, Timed, alternate
from tritmark.harness.measure.clocks import PythonClock
from tritmark.harness.measure.statistics import LEAST_SAMPLES, median
from tritmark.harness.measure.stopping import First, Interval, MinimumSamples, TimeLimit
from tritmark.harness.models import OURS, EngineReport, TokenRate
from tritmark.harness.record import Ratio
from tritmark.torch.model.decoding import GreedyDecoding
from tritmark.torch.model.stepping import step

WORKS = (PROMPT, "decode")
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


class InProcess:
    """A model of transformers in this process, as an Engine."""

    def __init__(self, name: str, model: Any, version: str) -> None:
        self.name, self._model, self._version = name, model, version
        self._growing = ""
        """Why a step of decoding has no static cache, and on a GPU is no CUDA graph."""

    def side(self, work: str, tokens: Sequence[Sequence[int]]) -> Side:
        """See Engine."""
        prompt = torch.tensor(tokens).to(self._model.device)
        if work == PROMPT:
            return Timed([_Call(prompt_step(self._model, prompt))], PythonClock())
        call, self._growing = fastest_steps(self._model, prompt)
        return Timed([_Call(call)], PythonClock())

    def report(self) -> EngineReport:
        """See Engine."""
        settings = f"{torch.get_num_threads()} threads, attention {self._model.config._attn_implementation}"
        why = f", since {self._growing}" if self._growing else ""
        if self._model.device.type == "cuda":
            settings += f"; a step of decoding is {'no' if why else 'one'} CUDA graph{why}"
        else:
            settings += f"; decoding with a {'growing' if why else 'static'} cache{why}"
        return EngineReport(name=self.name, version=self._version, settings=settings)

    def close(self) -> None:
        """Nothing to end."""


def rates(engines: Sequence[Engine], prompt: torch.Tensor, seconds: float, failed: dict[str, str]) -> list[TokenRate]:
    """The rates of each engine for a prompt (B, T) and for tokens behind it, interleaved with the first, tritmark's.

    An engine that fails is left out; `failed` gets its message by "engine, work".
    """
    batch, length = prompt.shape
    tokens = prompt.tolist()
    found: list[TokenRate] = []
    ours, *others = engines
    for work in WORKS:
        count = batch * (length if work == PROMPT else DECODED)
        mine = ours.side(work, tokens)
        runs: dict[str, Alternation] = {}
        for other in others:
            try:
                runs[other.name] = _alternated(mine, other.side(work, tokens), seconds)
            except EngineError as error:
                failed[f"{other.name}, {work}, batch {batch}, prompt {length}"] = str(error)
        samples = [each for run in runs.values() for each in run.a_ns]
        ns = {ours.name: median(samples or [mine.sample() for _ in range(LEAST_SAMPLES)])}
        ns |= {name: median(run.b_ns) for name, run in runs.items()}
        speeds: dict[str, Ratio | None] = {OURS: None, **{name: run.ratio() for name, run in runs.items()}}
        found += [
            TokenRate(
                engine=name,
                work=work,
                batch=batch,
                prompt=length,
                tokens_per_s=1e9 * count / each,
                speed=speeds[name],
            )
            for name, each in ns.items()
        ]
    return found


def _alternated(mine: Side, theirs: Side, seconds: float) -> Alternation:
    for each in (mine, theirs):
        each.sample()
    enough = First(
        MinimumSamples(LEAST_SAMPLES, Interval(_NARROW)),
        MinimumSamples(LEAST_SAMPLES, TimeLimit(seconds)),
        TimeLimit(4 * seconds),
    )
    return alternate(mine, theirs, np.random.default_rng(0), enough)


def prompt_step(model: Any, prompt: torch.Tensor) -> Callable[[], None]:
    """Computes the prompt, up to the first token behind it."""

    def call() -> None:
        step(model, prompt)
        _wait(prompt)

    return call


def decode_steps(model: Any, prompt: torch.Tensor) -> Callable[[], None]:
    """DECODED tokens behind the prompt. The cache is cut to the prompt again."""
    start, cache = step(model, prompt)

    def call() -> None:
        tokens = start
        for _ in range(DECODED):
            tokens, _ = step(model, tokens, cache)
        cache.crop(-DECODED)
        _wait(prompt)

    return call


def fastest_steps(model: Any, prompt: torch.Tensor) -> tuple[Callable[[], None], str]:
    """DECODED tokens behind the prompt with a static cache, on a GPU by a CUDA graph, if the model can be captured.
    Otherwise with a growing cache, and why."""
    try:
        return static_steps(model, prompt, graph=prompt.is_cuda), ""
    except (InvalidArgumentError, RuntimeError) as error:
        _wait(prompt)
        return decode_steps(model, prompt), str(error).strip().partition("\n")[0]


def static_steps(model: Any, prompt: torch.Tensor, *, graph: bool) -> Callable[[], None]:
    """DECODED tokens behind the prompt with a static cache; with `graph` each is the replay of one CUDA graph. Raises
    InvalidArgumentError as GreedyDecoding does, and RuntimeError for a model that cannot be captured."""
    decoding = GreedyDecoding(model, prompt, DECODED, graph=graph)
    start = decoding.tokens.clone()

    def call() -> None:
        for _ in range(DECODED):
            decoding.next()
        decoding.back(DECODED, start)
        _wait(prompt)

    return call


def first_token_ms(model: Any, prompt: torch.Tensor) -> float:
    """The time from a prompt to its first token: the least of a few."""
    call = prompt_step(model, prompt)
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
