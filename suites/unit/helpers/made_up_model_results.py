"""A made-up result of `tritmark model`."""

from __future__ import annotations

from typing import Any

from tritmark.harness.models import (
    Agreement,
    Drift,
    EngineReport,
    Frame,
    JudgedLayer,
    ModelResult,
    Rates,
    StepPart,
    TimeSplit,
    TokenRate,
)
from tritmark.harness.record import Ratio, Status


def frames() -> tuple[Frame, ...]:
    """Two blocks, the head, and Python: 10 ms."""
    linear = Frame(name="q_proj", part="q, k, v", ms=1, own_ms=0.9, python_ms=0.1, nbytes=9_000_000, operations=10)
    attention = Frame(name="self_attn", part="attention", ms=2.5, own_ms=1, python_ms=0.5, nbytes=1000, inner=(linear,))
    blocks = tuple(Frame(name=f"block {at}", part="rest", ms=3, own_ms=0.5, inner=(attention,)) for at in range(2))
    head = Frame(name="lm_head", part="head", ms=3, own_ms=3, nbytes=20_000_000)
    return (*blocks, head, Frame(name="Python", part="Python", ms=1, own_ms=0, python_ms=1))


def split(work: str = "decode", **changed: Any) -> TimeSplit:
    """The time of these frames."""
    parts = (
        StepPart(name="head", ms=3, share=0.3, nbytes=20_000_000, least_ms=2.5),
        StepPart(name="Python", ms=2.2, share=0.22),
        StepPart(name="attention", ms=2, share=0.2, nbytes=2000, least_ms=0.0002),
        StepPart(name="q, k, v", ms=1.8, share=0.18, nbytes=18_000_000, operations=20, least_ms=1.8),
        StepPart(name="rest", ms=1, share=0.1),
    )
    given: dict[str, Any] = {"work": work, "batch": 1, "prompt": 128, "ms": 10.0, "frames": frames(), "parts": parts}
    return TimeSplit(**{**given, **changed})


def result(**changed: Any) -> ModelResult:
    """A result that passed, with an engine that ran and one that did not."""
    speed = Ratio(median=1.5, low=1.4, high=1.6, pairs=9)
    given: dict[str, Any] = {
        "tritmark": "0",
        "model": "made-up",
        "architecture": "BitNetForCausalLM",
        "device": "cpu",
        "dtype": "bfloat16",
        "threads": 2,
        "seed": 0,
        "replaced": 1,
        "kept": (),
        "nbytes_before": 4000,
        "nbytes": 1000,
        "peak_nbytes": 9000,
        "token_nbytes": 900,
        "limits": Rates(read=1e10, compute=1e12),
        "layers": (JudgedLayer(name="q_proj", was="AutoBitLinear", status=Status.PASS, largest=0.5),),
        "agreement": Agreement(
            tokens=9, kl=0.001, top1=1.0, greedy=4, greedy_of=4, drift=(Drift(name="logits", relative=0.01),)
        ),
        "first_token_ms": {"tritmark": 20.0},
        "rates": (
            TokenRate(engine="tritmark", work="decode", batch=1, prompt=128, tokens_per_s=100.0),
            TokenRate(engine="transformers", work="decode", batch=1, prompt=128, tokens_per_s=66.0, speed=speed),
        ),
        "splits": (split(), split("prompt")),
        "engines": (
            EngineReport(name="tritmark", version="0", settings="2 threads"),
            EngineReport(name="llama-cpp-python", failed="invalid ggml type 135"),
        ),
        "machine": "abc",
        "machine_name": "A CPU, 2 cores",
        "created": "2026-01-01T00:00:00+00:00",
    }
    return ModelResult(**{**given, **changed})
