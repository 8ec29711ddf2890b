"""A GGUF file as a model of transformers: its graph, with the weights that tritmark's readers find in the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from tritmark.harness.errors import UsageError
from tritmark.harness.machine.memory import available
from tritmark.harness.providers import installed
from tritmark.harness.weights.gguf_types import described
from tritmark.harness.weights.names import inert
from tritmark.harness.weights.published_names import hf_name, is_linear
from tritmark.harness.weights.source import WeightSource, open_weights
from tritmark.harness.weights.tensor import TensorInfo
from tritmark.harness.weights.ternary import Conventions, TernaryInfo, TernaryWeights, holders_of
from tritmark.kernels.formats.hf_pack import HF_PACK
from tritmark.torch.model.gguf_config import ARCHITECTURES, GgufArchitecture, architecture_of, configuration_of
from tritmark.torch.stored_floats import StoredFloats
from tritmark.torch.ternary_floats import GROUPS

_BITNET_TYPES = ("i2_s", "i8_s", "type_38", "type_39")
"""Types of bitnet.cpp only, whose products have int8 activations with one scale for a token."""
_EXACT = (torch.bfloat16, torch.float16, torch.float32)
"""The dtypes of a model, the preferred one first."""
_STACKED = {"ffn_gate_exps": "gate_up_proj", "ffn_up_exps": "gate_up_proj", "ffn_down_exps": "down_proj"}
_State = dict[str, torch.Tensor]


def gguf_model(
    path: str, *, device: str, dtype: str, layout: str = "", report: Callable[[str], None] = lambda line: None
) -> tuple[Any, tuple[str, ...]]:
    """The model in a GGUF file, as transformers computes it, and notes on what differs from the file, and from
    transformers: where the floats of linear layers do not fit into memory, these are StoredFloats.

    Linear layers of BitNet are `AutoBitLinear` with codes as floats, other ternary matrices floats. `dtype` auto is the
    first of bfloat16, float16 and float32 that holds all scales exactly. `layout`: see
    tritmark.harness.weights.Conventions. An architecture that is not in ARCHITECTURES is loaded by transformers alone.

    Raises UsageError for an architecture that transformers does not load, and WeightFileError for a file that cannot
    be read and for tensors that are missing, unknown or of an unknown type; the message names all of them.
    """
    with open_weights(path) as source:
        name = architecture_of(source)
        if name not in ARCHITECTURES:
            return _by_transformers(path, name, device, dtype), ()
        config = configuration_of(source, name)
        found = TernaryWeights(source, holders_of(installed()), Conventions(layout))
        if found.transform:
            legal = "weights of unchanged activations; the model's graph would have to transform them"
            raise source.file_error(found.transform, legal)
        reader = _Reader(source, found, ARCHITECTURES[name], config, report)
        kind = _dtype(reader, dtype)
        notes = [] if reader.exact(kind) else [f"scales of the file are rounded to {dtype}"]
        if device == "cpu":
            notes += reader.keep_packed(kind, available())
        return _loaded(reader, kind, device), tuple(notes)


def _by_transformers(path: str, name: str, device: str, dtype: str) -> Any:
    import transformers

    own = ", ".join(ARCHITECTURES)
    try:
        return transformers.AutoModelForCausalLM.from_pretrained(
            ".", gguf_file=path, dtype=dtype if dtype == "auto" else getattr(torch, dtype), device_map=device
        ).eval()
    except (OSError, ValueError, KeyError, ImportError, NotImplementedError) as error:
        raise UsageError(
            f"{path}: architecture {inert(name)}, which transformers cannot load ({error}); legal: {own}, or what "
            "transformers loads; next: a folder of transformers"
        ) from error


def _dtype(reader: _Reader, asked: str) -> torch.dtype:
    if asked != "auto":
        kind: torch.dtype = getattr(torch, asked)
        return kind
    return next((each for each in _EXACT if reader.exact(each)), torch.float32)


def _loaded(reader: _Reader, kind: torch.dtype, device: str) -> Any:
    import transformers

    config = reader.config
    if reader.int8:
        config.quantization_config = {
            "quant_method": "bitnet",
            "linear_class": "autobitlinear",
            "quantization_mode": "offline",
        }
    maker = transformers.AutoModelForCausalLM._model_mapping[type(config)]
    model, report = maker.from_pretrained(
        None,
        config=config,
        state_dict=dict(reader.state(kind)),
        dtype=kind,
        device_map=device,
        output_loading_info=True,
    )
    missing = set(report["missing_keys"]) - ({"lm_head.weight"} if config.tie_word_embeddings else set())
    wrong = [f"no tensor for {each}" for each in sorted(missing)]
    wrong += [f"an unknown tensor {inert(each)}" for each in sorted(report["unexpected_keys"])]
    wrong += [f"another shape of {inert(str(each))}" for each in report["mismatched_keys"]]
    if wrong:
        legal = f"the tensors of {maker.__name__}; next: a folder of transformers"
        raise reader.source.file_error("; ".join(wrong), legal)
    for name, layer in reader.stored.items():
        layer.bias = model.get_submodule(name).bias
        model.set_submodule(name, layer)
    return model.eval()


class _Reader:
    """The tensors of a file by their names in transformers."""

    def __init__(
        self,
        source: WeightSource,
        found: TernaryWeights,
        known: GgufArchitecture,
        config: Any,
        report: Callable[[str], None],
    ) -> None:
        self.source, self.config, self._report = source, config, report
        self._found, self._known = found, known
        self.stored: dict[str, StoredFloats] = {}
        """Layers that stay packed, by name; of each, the state has a tensor without memory of its own."""
        self._packed: frozenset[str] = frozenset()
        self.int8 = known.int8 or any(each.dtype in _BITNET_TYPES for each in found.matrices)
        self._check_types()

    def _check_types(self) -> None:
        """Refuse types that cannot be read, all of them at once."""
        bad = []
        for tensor in self._others():
            if not tensor.readable and _type_of(tensor.dtype) is None:
                why = self._found.not_ternary.get(tensor.name) or self._found.unread.get(tensor.name)
                bad.append(f"{inert(tensor.name)} ({why or described(tensor.dtype)})")
        if bad:
            raise self.source.file_error(f"tensors that cannot be read: {', '.join(bad)}", "types that are read")

    def _others(self) -> Iterator[TensorInfo]:
        """The tensors that hold neither codes nor scales of codes."""
        return (
            each
            for each in self.source.tensors
            if self._found.matrix(each.name) is None and each.name not in self._found.scales
        )

    def keep_packed(self, kind: torch.dtype, free: int) -> list[str]:
        """Keep linear layers packed if their floats of dtype `kind` would leave less than a third of `free` bytes of
        memory. Returns a note that says so, else nothing."""
        fit = [each for each in self._found.matrices if self._can_stay(each)]
        nbytes = kind.itemsize * sum(N * K for N, K in (each.shape for each in fit))
        if 3 * nbytes <= 2 * free:
            return []
        self._packed = frozenset(each.name for each in fit)
        return [
            f"{len(fit)} linear layers are unpacked in each call, and transformers is not timed: their floats take "
            f"{nbytes / 1e9:.3g} GB, and {free / 1e9:.3g} GB of memory are available"
        ]

    def _can_stay(self, info: TernaryInfo) -> bool:
        of_linear = is_linear(info.name) or info.name == "output.weight"
        if self.int8 or info.experts or not of_linear or not info.format or info.words is not None:
            return False
        scales = self._found.format(info).scale_shape(info.shape)
        return not scales or (len(scales) == 2 and info.shape[1] // scales[1] in GROUPS)

    def exact(self, kind: torch.dtype) -> bool:
        """Whether the dtype holds all scales."""
        for info in self._found.matrices:
            for expert in info.expert_numbers:
                scale = torch.from_numpy(np.atleast_1d(np.asarray(self._scales(info, expert), np.float32)))
                if not bool((scale.to(kind).float() == scale).all()):
                    return False
        return True

    def _scales(self, info: TernaryInfo, expert: int) -> Any:
        if not info.format or info.words is not None or info.factor is not None or info.scale is not None:
            return self._found.read(info, expert)[1]
        stored = self._found.format(info).stored_scales(self._found.packed(info, expert), info.shape)
        return self._found.read(info, expert)[1] if stored is None else stored

    def state(self, kind: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
        """Names in transformers, and tensors; experts are stacked."""
        stacked: dict[str, dict[str, torch.Tensor]] = {}
        matrices = self._found.matrices
        # NumPy and PyTorch unpack without Python's lock.
        with ThreadPoolExecutor(torch.get_num_threads()) as threads:
            read = threads.map(lambda info: self._tensors(info, kind), matrices)
            for number, (info, tensors) in enumerate(zip(matrices, read, strict=True), 1):
                self._report(f"reading matrix {number} of {len(matrices)}")
                block, part = _place(info)
                if part in _STACKED:
                    name = f"model.layers.{block.removeprefix('blk.')}.mlp.experts.{_STACKED[part]}"
                    stacked.setdefault(name, {})[part] = tensors[part]
                else:
                    yield from tensors.items()
        for name, parts in stacked.items():
            whole = [parts[part] for part in ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps") if part in parts]
            yield name, torch.cat(whole, dim=1)
        for tensor in self._others():
            yield hf_name(tensor.name), self._plain(tensor).to(kind)

    def _tensors(self, info: TernaryInfo, kind: torch.dtype) -> _State:
        """A matrix by its name in transformers, with its scale if it is one of BitNet; experts by their part's name."""
        part = _place(info)[1]
        if part in _STACKED:
            return {part: torch.stack([self._floats(info, kind, expert) for expert in info.expert_numbers])}
        name = hf_name(info.name)
        if not (self.int8 and is_linear(info.name)) and info.name not in self._packed:
            return {name: self._floats(info, kind)}
        codes, scales = self._read(info)
        if info.name in self._packed:
            packed = torch.from_numpy(HF_PACK.pack(codes, np.float32(1), tail="error"))
            held = torch.from_numpy(np.array(scales, np.float32)).to(kind)
            self.stored[name.removesuffix(".weight")] = StoredFloats(packed, held, info.shape[0], kind)
            return {name: torch.zeros(1, 1, dtype=kind).expand(info.shape)}
        one = np.unique(scales)
        if one.size != 1:
            legal = "one scale for a matrix, as the layers of BitNet have it"
            raise self.source.error(info.name, f"{one.size} scales", legal)
        scale = torch.tensor([float(one[0])], dtype=torch.float32).to(kind)
        return {name: torch.from_numpy(codes).to(kind), f"{name}_scale": scale}

    def _floats(self, info: TernaryInfo, kind: torch.dtype, expert: int = 0) -> torch.Tensor:
        """code * scale (N, K)."""
        codes, scales = self._read(info, expert)
        values = torch.from_numpy(codes).to(kind)
        factor = torch.from_numpy(np.array(scales, np.float32)).to(kind)
        if factor.ndim == 2:
            groups = factor.shape[1]
            return values.unflatten(1, (groups, -1)).mul_(factor[:, :, None]).flatten(1)
        return values.mul_(factor[:, None] if factor.ndim == 1 else factor)

    def _read(self, info: TernaryInfo, expert: int = 0) -> tuple[Any, Any]:
        codes, scales = self._found.read(info, expert)
        heads = self._heads(info.name)
        if not heads:
            return codes, scales
        return _restored(codes, heads), scales if np.ndim(scales) == 0 else _restored(np.asarray(scales), heads)

    def _heads(self, name: str) -> int:
        """The heads of a tensor whose rows are interleaved, else 0."""
        part = name.rpartition(".")[0].rpartition(".")[2]
        if not self._known.interleaved or part not in {"attn_q", "attn_k"}:
            return 0
        config = self.config
        return int(config.num_attention_heads if part == "attn_q" else config.num_key_value_heads)

    def _plain(self, tensor: TensorInfo) -> torch.Tensor:
        if tensor.readable:
            values = self.source.read(tensor.name)
        else:
            from gguf.quants import dequantize

            rows = self.source.read_bytes(tensor.name).reshape(int(np.prod(tensor.shape[:-1])), -1)
            values = dequantize(rows, _type_of(tensor.dtype)).reshape(tensor.shape)
        heads = self._heads(tensor.name)
        return torch.from_numpy(np.ascontiguousarray(_restored(values, heads) if heads else values))


def _place(info: TernaryInfo) -> tuple[str, str]:
    """The block, such as blk.0, and the part, such as ffn_up."""
    block, _, part = info.name.removesuffix(".weight").rpartition(".")
    return block, part


def _restored(rows: Any, heads: int) -> Any:
    """The rows of q or k with the halves of each head one after the other, as transformers rotates them."""
    pairs = rows.reshape(heads, len(rows) // heads // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def _type_of(dtype: str) -> Any:
    """The type of the gguf package if it dequantizes it, else None. tritmark's readers refuse these types as ternary
    weights; an embedding or a head may be of one."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    found = GGMLQuantizationType.__members__.get(dtype.upper())
    if found is None:
        return None
    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[found][1]), np.uint8), found)
    except NotImplementedError:
        return None
    return found
