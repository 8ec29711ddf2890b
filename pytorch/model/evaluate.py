"""Judges and times a model; the entry point of `tritmark model`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from typing import Any

import torch

from tritmark.harness.engines.asked import engines as engines_asked
from tritmark.harness.engines.engine import DECODED, PROMPT, Engine
from tritmark.harness.errors import UsageError
from tritmark.harness.models import OURS, EngineReport, ModelResult, Rates, TimeSplit
from tritmark.torch.bit_experts import BitExperts
from tritmark.torch.bit_linear import BitLinear
from tritmark.torch.converted_experts import ConvertedExperts
from tritmark.torch.model.judging import agreement, judged_layers
from tritmark.torch.model.judging_experts import judged_experts
from tritmark.torch.model.judging_source import judged_source
from tritmark.torch.model.loading import ModelPair, eager, load
from tritmark.torch.model.machine import machine_of, measured_limits, peak_nbytes
from tritmark.torch.model.profiling import split
from tritmark.torch.model.timing import (
    WORKS,
    InProcess,
    decode_steps,
    fastest_steps,
    first_token_ms,
    prompt_step,
    rates,
)
from tritmark.torch.stored_floats import StoredFloats

BASE = "transformers"
"""The engine that the model came with."""
_UNTIMED = EngineReport(name=BASE, failed="the floats of its linear layers do not fit into memory, see the note")


def evaluate(
    source: str,
    *,
    device: str = "cpu",
    dtype: str = "auto",
    activation_bits: int | None = None,
    keep: Sequence[str] = (),
    prompts: Sequence[int] = (128,),
    batches: Sequence[int] = (1,),
    text: str | None = None,
    logits: str = "",
    tokens: int = 64,
    threads: int | None = None,
    seconds: float = 5.0,
    seed: int = 0,
    layout: str = "",
    engines: Sequence[str] = (),
    gguf: str = "",
    report: Callable[[str], None] = lambda line: None,
) -> ModelResult:
    """Load a model twice, as transformers computes it and with tritmark's layers; compare and time them.

    `prompts` and `batches`: lengths and numbers of sequences to time, for about `seconds` each. `text`: what is judged,
    by default `tokens` random tokens of `seed`. `logits`: a file of another engine's, see `judged_logits`. `engines`:
    further ones to time, see harness.engines.asked; `gguf`: the file of the same model for those that read GGUF. Raises
    UsageError, MissingPackageError and WeightFileError, see `load`.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    asked = engines_asked(engines, source, gguf, threads=threads, device=device)
    report("loading")
    pair = load(
        source,
        device=device,
        dtype=dtype,
        activation_bits=activation_bits,
        keep=keep,
        layout=layout,
        report=report,
    )
    generator = torch.Generator().manual_seed(seed)
    vocabulary = int(pair.before.config.get_text_config().vocab_size)

    def drawn(batch: int, length: int) -> torch.Tensor:
        return torch.randint(vocabulary, (batch, length), generator=generator).to(pair.before.device)

    given = drawn(1, tokens) if text is None else _tokens(pair, text)
    untimed = any(isinstance(each, StoredFloats) for each in pair.before.modules())
    models = {OURS: pair.after, **({} if untimed else {BASE: pair.before})}
    report("measuring the machine")
    limits = measured_limits(pair.before.device.type, torch.get_num_threads())
    with torch.no_grad():
        with eager():
            report("comparing outputs")
            agreed = agreement(pair, given)
            layers = judged_layers(pair, given, report)
            report("judging experts")
            experts = judged_experts(pair, given)
            report("judging the graph")
            graph, others = judged_source(pair.after, source, given, logits)
        shortest = drawn(1, min(prompts))
        report("timing the first token")
        first = {name: first_token_ms(model, shortest) for name, model in models.items()}
        versions = {OURS: version("tritmark"), BASE: version("transformers")}
        all_engines = (*(InProcess(name, model, versions[name]) for name, model in models.items()), *asked)
        timed = []
        failed: dict[str, str] = {}
        try:
            for batch in batches:
                for length in prompts:
                    report(f"timing {batch} x {length} tokens")
                    timed += rates(all_engines, drawn(batch, length), seconds, failed)
        finally:
            for engine in asked:
                engine.close()
        report("dividing the time of a step")
        divided = [
            each
            for batch in batches
            for length in prompts
            for each in _splits(pair.after, drawn(batch, length), limits)
        ]
        nbytes, per_token = _nbytes(pair.after)
    return ModelResult(
        tritmark=version("tritmark"),
        model=source,
        architecture=type(pair.before).__name__,
        device=str(pair.before.device),
        dtype=str(pair.before.get_input_embeddings().weight.dtype).removeprefix("torch."),
        threads=torch.get_num_threads(),
        seed=seed,
        replaced=len(pair.conversion.replaced),
        kept=tuple(map(str, pair.conversion.kept)),
        nbytes_before=_sum((*pair.before.parameters(), *pair.before.buffers())),
        nbytes=nbytes,
        peak_nbytes=peak_nbytes(pair.before.device),
        token_nbytes=per_token,
        limits=limits,
        layers=layers,
        agreement=agreed,
        experts=experts,
        graph=graph,
        logits=others,
        first_token_ms=first,
        rates=tuple(timed),
        splits=tuple(divided),
        engines=(*(_reported(each, failed) for each in all_engines), *((_UNTIMED,) if untimed else ())),
        notes=pair.notes,
        **machine_of(),
    )


def _splits(model: Any, prompt: torch.Tensor, limits: Rates) -> list[TimeSplit]:
    batch, length = prompt.shape
    of_prompt = prompt_step(model, prompt)
    found = [split(model, of_prompt, work=PROMPT, steps=1, batch=batch, prompt=length, limits=limits)]
    for work in WORKS:
        if work != PROMPT:
            timed = fastest_steps(model, prompt)[0]
            # Modules show only in steps without a graph.
            traced = decode_steps(model, prompt) if prompt.is_cuda else timed
            found.append(
                split(model, traced, timed=timed, work=work, steps=DECODED, batch=batch, prompt=length, limits=limits)
            )
    return found


def _reported(engine: Engine, failed: dict[str, str]) -> EngineReport:
    """The report of an engine with the messages of what failed: as a whole if nothing ran."""
    found = engine.report()
    own = {key: why for key, why in failed.items() if key.startswith(f"{engine.name}, ")}
    if own and not found.settings:
        return found.model_copy(update={"failed": next(iter(own.values()))})
    missing = [f"{key.removeprefix(f'{engine.name}, ')}: {why}" for key, why in own.items()]
    return found.model_copy(update={"missing": tuple(dict.fromkeys((*found.missing, *missing)))})


def _tokens(pair: ModelPair, text: str) -> torch.Tensor:
    if pair.tokenizer is None:
        raise UsageError("--text is given, and the folder has no tokenizer; next: omit it, random tokens are judged")
    found: torch.Tensor = pair.tokenizer(text, return_tensors="pt").input_ids.to(pair.before.device)
    if found.shape[1] < 2:
        raise UsageError(f"--text has {found.shape[1]} tokens; legal: at least 2")
    return found


def _sum(tensors: Iterable[torch.Tensor]) -> int:
    """The bytes of tensors, each once."""
    return sum({each.data_ptr(): each.nbytes for each in tensors}.values())


def _nbytes(model: Any) -> tuple[int, int]:
    """Bytes of a converted model, and those that a decoded token reads: the layers, the head, and of experts the used
    ones. Of the embedding it reads a row, unless the head is the same matrix."""
    packed = [module for module in model.modules() if isinstance(module, BitLinear | BitExperts)]
    of_kernels, read = 0, 0.0
    used = _used(model)
    for module in packed:
        of_packed = module.packed
        one = of_packed if isinstance(of_packed, torch.Tensor) else None if of_packed is None else of_packed.packed
        nbytes = 0 if one is None else one.nbytes
        of_kernels += nbytes
        read += nbytes if isinstance(module, BitLinear) else nbytes * min(1.0, used / module.num_experts)
    states = {id(each) for module in packed for each in (module.weight, module.weight_scale)}
    others = [each for each in (*model.parameters(), *model.buffers()) if id(each) not in states]
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    tied = head is not None and getattr(head, "weight", None) is getattr(embedding, "weight", None)
    unread = 0 if embedding is None or tied else embedding.weight.nbytes
    rest = _sum(others)
    return of_kernels + rest, int(read) + rest - unread


def _used(model: Any) -> int:
    """Experts of a token."""
    if not any(isinstance(module, ConvertedExperts) for module in model.modules()):
        return 0
    return int(model.config.get_text_config().num_experts_per_tok)
