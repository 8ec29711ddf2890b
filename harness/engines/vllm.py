"""vLLM in the process of `serve`."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

_SHARE = 0.4
"""Of the GPU's memory: tritmark's models are on the same one."""


class _Vllm:
    """Offline generation of vLLM; whole batches of sequences."""

    def __init__(self, llm: Any, package: Any) -> None:
        self._llm, self._package = llm, package
        self.version = str(package.__version__)

    def prompt(self, tokens: list[list[int]]) -> int:
        """Nanoseconds of the prompts with one token behind each."""
        return self._generated(tokens, 1)

    def decode(self, tokens: list[list[int]], count: int) -> int:
        """Nanoseconds of `count` further tokens: the difference of two calls, as generation is one call."""
        first = self._generated(tokens, 1)
        return max(1, self._generated(tokens, 1 + count) - first)

    def _generated(self, tokens: list[list[int]], count: int) -> int:
        asked = self._package.SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True, detokenize=False)
        given = [{"prompt_token_ids": each} for each in tokens]
        begin = perf_counter_ns()
        self._llm.generate(given, asked, use_tqdm=False)
        return perf_counter_ns() - begin


def load(*, model: str, device: str, threads: int, flash: bool | None, room: int) -> _Vllm:
    """Load a folder or a GGUF file. Prefixes are not cached: each sample computes its prompt."""
    import vllm

    llm = vllm.LLM(
        model=model,
        max_model_len=room,
        gpu_memory_utilization=_SHARE,
        enable_prefix_caching=False,
        skip_tokenizer_init=True,
    )
    return _Vllm(llm, vllm)
