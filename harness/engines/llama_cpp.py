"""llama-cpp-python in the process of `serve`."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

import numpy as np


class _LlamaCpp:
    """Its class Llama has one sequence."""

    def __init__(self, llama: Any, package: Any) -> None:
        self._llama, self._package = llama, package
        self.version = str(package.__version__)

    def prompt(self, tokens: list[list[int]]) -> int:
        """Nanoseconds of the prompt, and of choosing the token behind it."""
        (own,) = _one(tokens)
        self._llama.reset()
        begin = perf_counter_ns()
        self._llama.eval(own)
        self._next()
        return perf_counter_ns() - begin

    def decode(self, tokens: list[list[int]], count: int) -> int:
        """Nanoseconds of `count` tokens behind the prompt."""
        self.prompt(tokens)
        token = self._next()
        begin = perf_counter_ns()
        for _ in range(count):
            self._llama.eval([token])
            token = self._next()
        return perf_counter_ns() - begin

    def _next(self) -> int:
        logits = self._package.llama_get_logits(self._llama.ctx)
        return int(np.ctypeslib.as_array(logits, (self._llama.n_vocab(),)).argmax())


def _one(tokens: list[list[int]]) -> list[list[int]]:
    if len(tokens) != 1:
        raise ValueError("the package has one sequence")
    return tokens


def load(*, model: str, device: str, threads: int, flash: bool, room: int) -> _LlamaCpp:
    """Load a GGUF file."""
    import llama_cpp

    llama = llama_cpp.Llama(
        model,
        n_ctx=room,
        n_batch=room,
        n_threads=threads,
        n_threads_batch=threads,
        flash_attn=flash,
        n_gpu_layers=0 if device == "cpu" else -1,
        verbose=True,
    )
    return _LlamaCpp(llama, llama_cpp)
