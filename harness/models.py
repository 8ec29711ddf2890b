"""A whole model on tritmark's kernels: the result of judging and timing it, and the package that does so."""

from __future__ import annotations

from collections.abc import Callable

from tritmark.harness.errors import UsageError
from tritmark.harness.providers import entry_points
from tritmark.harness.record.model import Model, Ratio, Status

GROUP = "tritmark.models"
"""Entry-point group of packages that run whole models: a callable with the arguments of `tritmark model`."""
OURS = "tritmark"
"""The name of the engine whose linear layers are tritmark's."""


class JudgedLayer(Model):
    """A replaced layer, on the activations that it gets in the model."""

    name: str
    was: str
    """Its class before."""
    status: Status
    largest: float
    """Largest difference from the float64 product of the weights of before, over its bound; at most 1 is right."""
    changed: str = ""
    """How its function differs from before beyond rounding."""


class JudgedExperts(Model):
    """The experts of a replaced layer, each on the tokens that it gets in the model."""

    name: str
    """Of one of the two products of the layer."""
    status: Status
    experts: int
    unreached: int
    """Experts that no token of the text reached: not judged."""
    largest: float
    """As in JudgedLayer, of the worst expert."""
    wrong: tuple[int, ...] = ()
    """Numbers of the experts beyond their bound."""


class JudgedPart(Model):
    """A part of the graph, on the inputs that it gets in the model, beside a reference in float64 that reads only the
    folder's tensors and config.json."""

    name: str
    status: Status
    """NOT RUN for a part whose inputs or output cannot be seen."""
    largest: float | None
    """Largest difference from the reference, over the bound of the roundings of the model's dtype; None if there is no
    number to compare."""
    why: str = ""
    """What is wrong besides values: a part that is not called, or that gets another part's output."""


class JudgedGraph(Model):
    """The graph of the model, part by part."""

    architecture: str
    tokens: int
    parts: tuple[JudgedPart, ...]
    """In the order in which they are computed."""
    why_not: str = ""
    """Why the graph is not judged: there is no reference for it."""

    @property
    def wrong(self) -> tuple[JudgedPart, ...]:
        """The parts that depart; the first one is the first cause."""
        return tuple(each for each in self.parts if each.status is Status.FAIL)

    @property
    def unseen(self) -> tuple[JudgedPart, ...]:
        """The parts that could not be judged."""
        return tuple(each for each in self.parts if each.status is Status.NOT_RUN)


class JudgedLogits(Model):
    """Another engine's logits of the same file, beside those of the reference."""

    file: str
    tokens: int
    status: Status
    """NOT RUN without a reference; `why_not` states why."""
    kl: float | None = None
    """As in Agreement, from the reference."""
    top1: float | None = None
    distance: float | None = None
    """Root of the sum of squared differences over that of the squared logits of the reference, without each token's
    mean."""
    spread: float | None = None
    """The largest distance of `samples` forward passes of the reference whose roundings in the checkpoint's dtype are
    drawn at random. Another rounding is farther than all of them with probability 1 / (samples + 1)."""
    samples: int = 0
    fault: str = ""
    """The fault that brings the reference within `spread` of these logits."""
    tried: tuple[str, ...] = ()
    """The faults that were tried."""
    why_not: str = ""


class Drift(Model):
    """A hidden state of the model, beside that of the model before."""

    name: str
    relative: float
    """Root of the sum of squared differences, over that of the squared states of before."""


class Agreement(Model):
    """The outputs of the model, beside those of the model before."""

    tokens: int
    """Tokens of the text."""
    kl: float
    """Mean Kullback-Leibler divergence of the next token's distribution from that of before, in nats."""
    top1: float
    """Share of tokens with the same most likely next token."""
    greedy: int
    """Tokens of the greedy continuation before the first other one."""
    greedy_of: int
    """Tokens of the greedy continuation."""
    drift: tuple[Drift, ...]
    """The embedding, each block, and the logits."""


class TokenRate(Model):
    """Tokens a second of an engine."""

    engine: str
    work: str
    """prompt or decode."""
    batch: int
    prompt: int
    """Tokens of the prompt of each sequence; decoding begins behind it."""
    tokens_per_s: float
    """All sequences together; the median."""
    speed: Ratio | None = None
    """tritmark's rate over this engine's, interleaved; None for tritmark itself."""


class TokenPart(Model):
    """A part of the time of a decoded token."""

    name: str
    ms: float
    """Without the parts inside it."""
    share: float


class ModelResult(Model):
    """The result of `tritmark model`."""

    tritmark: str
    model: str
    """The folder or the name."""
    architecture: str
    device: str
    dtype: str
    threads: int
    seed: int
    """Of the tokens, if no text was given."""
    replaced: int
    kept: tuple[str, ...]
    """Linear layers that stay as they were, with the reason."""
    nbytes_before: int
    """Bytes of all parameters and buffers before."""
    nbytes: int
    """The same afterwards, with the weights in the layout of the kernels in place of the state."""
    token_nbytes: int
    """Bytes of weights that a decoded token reads at least."""
    read_rate: float | None
    """Bytes a second that the device reads from memory, measured; None without a clock."""
    layers: tuple[JudgedLayer, ...]
    agreement: Agreement
    experts: tuple[JudgedExperts, ...] = ()
    graph: JudgedGraph | None = None
    """None in results of older versions."""
    logits: JudgedLogits | None = None
    """Of another engine, if they were given."""
    first_token_ms: dict[str, float]
    """Time from the shortest prompt to its first token, by engine."""
    rates: tuple[TokenRate, ...]
    parts: tuple[TokenPart, ...]

    @property
    def least_ms(self) -> float | None:
        """The least time of a decoded token: that of reading its weights."""
        return None if not self.read_rate else 1e3 * self.token_nbytes / self.read_rate

    @property
    def failed(self) -> bool:
        """Whether a layer, an expert or a part of the graph is beyond its bound, or another engine's logits depart."""
        judged = (*self.layers, *self.experts, *((self.logits,) if self.logits is not None else ()))
        wrong = any(each.status is Status.FAIL for each in judged)
        return wrong or (self.graph is not None and bool(self.graph.wrong))


def evaluator() -> Callable[..., ModelResult]:
    """The function that judges and times a model. Raises UsageError if no installed package has one."""
    for point in entry_points(group=GROUP):
        found: Callable[..., ModelResult] = point.load()
        return found
    raise UsageError(f"no installed package runs models; legal: one with an entry point of the group {GROUP}")
