"""A model of transformers, twice: as it is, and with tritmark's layers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tritmark.harness.errors import MissingPackageError, UsageError
from tritmark.harness.extras import install
from tritmark.torch.conversion import Conversion, convert

DTYPES = ("auto", "float32", "bfloat16", "float16")
"""Of the model; auto is that of the checkpoint."""


@dataclass(frozen=True)
class ModelPair:
    """The model before and afterwards. Both share what was not replaced."""

    before: Any
    after: Any
    conversion: Conversion
    tokenizer: Any
    """None if the folder has none."""
    notes: tuple[str, ...] = ()
    """How the model before differs from the file."""


def load(
    source: str,
    *,
    device: str,
    dtype: str,
    activation_bits: int | None,
    keep: Sequence[str],
    layout: str = "",
    report: Callable[[str], None] = lambda line: None,
) -> ModelPair:
    """Load a folder, a GGUF file or a name on Hugging Face with transformers, and convert it. `layout`: see gguf_model.
    `report` gets what is being done.

    Raises MissingPackageError without transformers, UsageError for a folder that it cannot read, for another dtype,
    and for a model without a layer to replace, and WeightFileError for a file that gguf_model refuses.
    """
    try:
        import transformers
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        found = "tritmark model needs transformers, which is not installed"
        raise MissingPackageError(found, name="transformers", next_step=install("models")) from None
    if dtype not in DTYPES:
        raise UsageError(f"--dtype {dtype}: legal: {', '.join(DTYPES)}")
    if source.endswith(".gguf"):
        from tritmark.torch.model.gguf_model import gguf_model

        model, notes = gguf_model(source, device=device, dtype=dtype, layout=layout, report=report)
        report("replacing layers")
        return _pair(source, model, activation_bits, keep, None, notes)
    if layout:
        raise UsageError("--layout is for GGUF files")
    if not Path(source).is_dir() and (source.startswith((".", "/")) or source.count("/") != 1):
        raise UsageError(
            f"{source}: no folder; legal: a folder of transformers, a .gguf file, or OWNER/NAME of Hugging Face"
        )
    try:
        with eager():
            before = transformers.AutoModelForCausalLM.from_pretrained(
                source, dtype=dtype if dtype == DTYPES[0] else getattr(torch, dtype), device_map=device
            ).eval()
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise UsageError(f"{source}: transformers cannot load it: {error}") from error
    report("replacing layers")
    return _pair(source, before, activation_bits, keep, _tokenizer(source))


@contextmanager
def eager() -> Iterator[None]:
    """Without torch.compile, with which transformers decorates functions: loading and judging call each of them for a
    few shapes, and a compilation takes longer."""
    with torch._dynamo.config.patch(disable=True):
        yield


def _pair(
    source: str,
    before: Any,
    activation_bits: int | None,
    keep: Sequence[str],
    tokenizer: Any,
    notes: tuple[str, ...] = (),
) -> ModelPair:
    after = _twin(before)
    conversion = convert(after, activation_bits=activation_bits, keep=keep)
    if not conversion.replaced:
        raise UsageError(f"{source}: no layer was replaced; {conversion}")
    return ModelPair(before, after, conversion, tokenizer, notes)


def _twin(model: Any) -> Any:
    """Another module tree over the same tensors."""
    shared = {id(each): each for each in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, memo=shared)


def _tokenizer(source: str) -> Any:
    import transformers

    try:
        return transformers.AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError, KeyError, ImportError):
        return None
