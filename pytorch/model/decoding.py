"""Decoding with a model of transformers, a token at a time: on a GPU each step is one CUDA graph."""

from __future__ import annotations

from typing import Any

import torch

from tritmark.harness.errors import InvalidArgumentError
from tritmark.torch.model.stepping import step

_WARM = 3
"""Steps before the capture: they compile, choose kernels, and fill PyTorch's caches of memory."""


class GreedyDecoding:
    """Greedy decoding behind a prompt, with a static cache: `next()` is one step.

    With `graph`, a step (embedding, blocks, cache, head, the most likely token) is captured as one CUDA graph, and
    `next()` is its replay: no Python, and no read by the host. The graph keeps the tensors of the model that it was
    captured with; make it again after the weights were written, moved or converted.
    """

    tokens: torch.Tensor
    """The last tokens (B, 1). Each step writes them, so copy those that you keep."""

    def __init__(self, model: Any, prompt: torch.Tensor, room: int, *, graph: bool) -> None:
        """Read the prompt, int64 (B, T), for at most `room` tokens behind it.

        Raises InvalidArgumentError for a prompt of another shape, for a `room` below 1, for `graph` with a model that
        is not on one GPU, and for a model whose cache keeps a part of its state in Python, such as that of a sliding
        window.
        """
        if prompt.ndim != 2 or not prompt.numel() or prompt.is_floating_point():
            raise _refuse("prompt", f"{prompt.dtype} {tuple(prompt.shape)}", "int64 (B, T), not empty")
        if isinstance(room, bool) or not isinstance(room, int) or room < 1:
            raise _refuse("room", repr(room), "an integer of 1 or more")
        devices = {each.device for each in model.parameters()}
        if graph and (len(devices) != 1 or next(iter(devices)).type != "cuda"):
            found = ", ".join(sorted(map(str, devices)))
            raise _refuse("graph", f"True for a model on {found}", "a model on one GPU; graph=False runs without")
        self._model, self._room = model, room
        self._graph: torch.cuda.CUDAGraph | None = None
        with torch.no_grad():
            self._cache = _static_cache(model, prompt.shape[1] + room + (_WARM if graph else 0))
            first, _ = step(model, prompt, self._cache)
            # Eager steps and the graph read it at one address.
            self.tokens = first.clone()
            if graph:
                self._capture(first)

    @property
    def left(self) -> int:
        """Steps for which the cache has room."""
        return self._room

    @property
    def graphed(self) -> bool:
        """Whether a step is a CUDA graph."""
        return self._graph is not None

    def next(self) -> torch.Tensor:
        """One step; returns `tokens`. Raises InvalidArgumentError if the cache is full."""
        if not self._room:
            raise _refuse("room", "a full cache", "a decoding with more room, or back()")
        self._room -= 1
        if self._graph is None:
            with torch.no_grad():
                self._step()
        else:
            self._graph.replay()
        return self.tokens

    def back(self, steps: int, tokens: torch.Tensor) -> None:
        """Undo the last steps; `tokens` (B, 1) are those before them. The cache is cut in place."""
        self._cache.crop(-steps)
        self._room += steps
        self.tokens.copy_(tokens)

    def _step(self) -> None:
        found, _ = step(self._model, self.tokens, self._cache)
        self.tokens.copy_(found)

    def _capture(self, first: torch.Tensor) -> None:
        device = first.device
        with torch.cuda.device(device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(_WARM):
                    self._step()
                self._cache.crop(-_WARM)
                self.tokens.copy_(first)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                self._step()
        self._graph = graph


def _static_cache(model: Any, length: int) -> Any:
    from transformers import StaticCache

    made = StaticCache(config=model.config, max_cache_len=length)
    for layer in made.layers:
        if not isinstance(getattr(layer, "cumulative_length", None), torch.Tensor) or layer.is_sliding:
            found = f"a {type(layer).__name__}, which keeps its length in Python"
            raise _refuse("model", found, "layers of full attention, as of transformers from 5.24 on")
    return made


def _refuse(argument: str, found: str, legal: str) -> InvalidArgumentError:
    return InvalidArgumentError(op="GreedyDecoding", argument=argument, found=found, legal=legal)
