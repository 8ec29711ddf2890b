"""ik-llama-cpp-python in the process of `serve`."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

import numpy as np


class _IkLlamaCpp:
    """Its bindings have one sequence, and no function that drops the end of it."""

    def __init__(self, internals: Any, model: Any, context: Any, version: str) -> None:
        self._internals, self._model, self._context = internals, model, context
        self.version = version

    def prompt(self, tokens: list[list[int]]) -> int:
        """Nanoseconds of the prompt, and of choosing the token behind it."""
        if len(tokens) != 1:
            raise ValueError("the package has one sequence")
        self._context.kv_cache_clear()
        begin = perf_counter_ns()
        self._eval(self._internals.make_batch_range(tokens[0], pos_start=0))
        self._next()
        return perf_counter_ns() - begin

    def decode(self, tokens: list[list[int]], count: int) -> int:
        """Nanoseconds of `count` tokens behind the prompt."""
        self.prompt(tokens)
        token, at = self._next(), len(tokens[0])
        begin = perf_counter_ns()
        for step in range(count):
            self._eval(self._internals.make_batch_single(token, at + step))
            token = self._next()
        return perf_counter_ns() - begin

    def _eval(self, batch: Any) -> None:
        status = self._context.decode(batch)
        self._internals.C.llama_batch_free(batch)
        if status:
            raise RuntimeError(f"llama_decode returned {status}")

    def _next(self) -> int:
        logits = self._context.get_logits(-1)
        return int(np.ctypeslib.as_array(logits, (self._model.n_vocab,)).argmax())


def load(*, model: str, device: str, threads: int, flash: bool, room: int) -> _IkLlamaCpp:
    """Load a GGUF file. The class IkLlama ignores `flash_attn` on some CPUs, so its parts are used."""
    import ik_llama_cpp
    from ik_llama_cpp import _internals

    loaded = _internals.IkModel(model, n_gpu_layers=0 if device == "cpu" else 999)
    context = _internals.IkContext(loaded, n_ctx=room, n_threads=threads, flash_attn=flash)
    return _IkLlamaCpp(_internals, loaded, context, str(ik_llama_cpp.__version__))
