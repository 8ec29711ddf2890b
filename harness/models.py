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
    """Largest difference from the float64 product of the weights of before, over its bound; at most 1 is right. 0 for a
    layer that no token reached, which is NOT RUN."""
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


class EngineReport(Model):
    """An engine that was asked for, with the settings that it ran with."""

    name: str
    version: str = ""
    settings: str = ""
    """Those that it was timed with, and which others were slower."""
    failed: str = ""
    """Its own message if it cannot run the model."""
    missing: tuple[str, ...] = ()
    """What it was not timed with, and why."""


class Rates(Model):
    """What the device can do, measured in this session."""

    read: float | None = None
    """Bytes a second from memory."""
    compute: float | None = None
    """int8 operations a second."""

    def least_ms(self, nbytes: int, operations: int) -> float | None:
        """The least time to read the bytes and do the operations, at the same time; None without measured rates."""
        times = [1e3 * nbytes / self.read] if self.read else []
        times += [1e3 * operations / self.compute] if self.compute else []
        return max(times) if self.read else None


class Frame(Model):
    """A stretch of a step's time: a module of the model, with those inside it."""

    name: str
    part: str
    """The part that its own operations count to."""
    ms: float
    """With the frames inside it."""
    own_ms: float
    """Of operations (on a GPU kernels) outside the frames inside it."""
    python_ms: float = 0.0
    """Outside all operations: Python, on the CPU."""
    nbytes: int = 0
    """Bytes of weights, or of keys and values, that its own operations read at least."""
    operations: int = 0
    """int8 operations of its own."""
    inner: tuple[Frame, ...] = ()


class StepPart(Model):
    """All frames of a kind."""

    name: str
    ms: float
    share: float
    nbytes: int = 0
    operations: int = 0
    least_ms: float | None = None
    """Of its bytes and operations; None for a part without any, and without measured rates."""


class TimeSplit(Model):
    """Where the time of a step goes."""

    work: str
    """prompt, or decode: one token of each sequence."""
    batch: int
    prompt: int
    """Tokens of each sequence; decoding begins behind them."""
    ms: float
    """Of the whole step, untraced: the median."""
    frames: tuple[Frame, ...]
    parts: tuple[StepPart, ...]
    """The longest first."""

    @property
    def least_ms(self) -> float | None:
        """The sum over the parts, since each needs the result of the one before."""
        times = [each.least_ms for each in self.parts if each.least_ms is not None]
        return sum(times) if times else None


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
    peak_nbytes: int
    """The most memory that the process, on a GPU PyTorch, has held, with both models and all comparisons."""
    token_nbytes: int
    """Bytes of weights that a decoded token reads at least."""
    limits: Rates
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
    splits: tuple[TimeSplit, ...]
    """Of the prompts, and of tokens behind them."""
    engines: tuple[EngineReport, ...] = ()
    notes: tuple[str, ...] = ()
    """How the model differs from its file."""
    machine: str = ""
    """Id of the machine, as in Records."""
    machine_name: str = ""
    created: str = ""
    """UTC, ISO 8601."""

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
