"""What to change next in a whole model: the parts that lose most time beyond their least time come first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tritmark.harness.models import ModelResult, StepPart, TimeSplit

_WORTH = 1.02
"""The least gain that is proposed."""


@dataclass(frozen=True, slots=True)
class ModelProposal:
    """A change of a part of a step, and the most that it gains."""

    rule: str
    part: str
    split: TimeSplit
    lost_ms: float
    """The time of the part beyond its least time."""
    edit: str

    @property
    def gain(self) -> float:
        """The step's time over its time with the part at its least time: the most that the change gains."""
        return self.split.ms / max(self.split.ms - self.lost_ms, 1e-9)

    @property
    def where(self) -> str:
        """The step, as text."""
        what = "a decoded token" if self.split.work == "decode" else "the prompt"
        return f"{what}, {self.split.batch} x {self.split.prompt}"

    def __str__(self) -> str:
        return (
            f"{self.part}: {self.lost_ms:.3g} of {self.split.ms:.3g} ms beyond the least time of {self.where}, at most "
            f"{self.gain:.2f}x; {self.edit} ({self.rule})"
        )


@dataclass(frozen=True, slots=True)
class ModelRule:
    """What to do about a kind of part."""

    name: str
    applies: Callable[[ModelResult, TimeSplit, StepPart], bool]
    edit: str


def _named(*names: str) -> Callable[[ModelResult, TimeSplit, StepPart], bool]:
    return lambda found, split, part: part.name in names or (":" in part.name and part.name.partition(":")[0] in names)


_TERNARY = ("q, k, v", "o", "gate, up", "down", "other linears", "experts")
RULES: tuple[ModelRule, ...] = (
    ModelRule(
        "model-python",
        _named("Python"),
        "fewer modules and calls: compile the model (torch.compile), or bind the linears of a block once",
    ),
    ModelRule(
        "model-idle",
        _named("idle"),
        "the GPU waits for launches: record a step as a CUDA graph with a static cache, or compile the model with "
        "mode reduce-overhead",
    ),
    ModelRule(
        "model-kept-linears",
        lambda found, split, part: part.name in _TERNARY and part.operations == 0,
        "these linears stay as they were; convert them (--activation-bits 8, or a checkpoint with packed weights)",
    ),
    ModelRule(
        "model-linears-decode",
        lambda found, split, part: split.work == "decode" and _named(*_TERNARY)(found, split, part),
        "products of few rows read weights: look at their cold figures with tritmark run --weights, at the number of "
        "threads, and at fusing products with the same input",
    ),
    ModelRule(
        "model-linears-prompt",
        _named(*_TERNARY),
        "products of many rows compute: look at the ceiling of their kernel with tritmark run --weights, and at the "
        "quantization of activations before each",
    ),
    ModelRule(
        "model-head",
        _named("head"),
        "the head is a product of floats: store it in fewer bits, or compute it in the dtype that the CPU multiplies "
        "fastest",
    ),
    ModelRule(
        "model-attention",
        _named("attention"),
        "try another implementation (attn_implementation sdpa or flash_attention_2), and a static cache",
    ),
    ModelRule("model-norms", _named("norms", "activation"), "fuse them with the quantization of activations behind"),
    ModelRule("model-rest", lambda found, split, part: True, "compile the model, which fuses small operations"),
)
"""For a part, the first rule that applies."""


def proposals(found: ModelResult, rules: Sequence[ModelRule] = RULES) -> tuple[ModelProposal, ...]:
    """For each part of each step what to change, the largest gain first. A part without a least time could vanish."""
    made = []
    for split in found.splits:
        for part in split.parts:
            lost = max(0.0, part.ms - (part.least_ms or 0.0))
            rule = next((each for each in rules if each.applies(found, split, part)), None)
            if rule is not None:
                made.append(ModelProposal(rule.name, part.name, split, lost, rule.edit))
    return tuple(sorted((each for each in made if each.gain >= _WORTH), key=lambda each: -each.gain))
