"""convert: tritmark's layers in place of the linear layers of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.native.arena import ArenaPages
from tritmark.torch import converted_experts
from tritmark.torch.bit_experts import BitExperts
from tritmark.torch.bit_linear import BitLinear
from tritmark.torch.contract import HALVES
from tritmark.torch.derived import DEVICES
from tritmark.torch.gathering import gather
from tritmark.torch.head import faster
from tritmark.torch.norm import RmsNorm, native_norm
from tritmark.torch.stored_floats import StoredFloats
from tritmark.torch.ternary_floats import stored_scales, ternary_experts_of, ternary_of

_OF_TRANSFORMERS = "transformers.integrations.bitnet"
"""The module with `BitLinear` and `AutoBitLinear`, as of transformers 5.24."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_BITS = (None, 8, 16)
_ON_A_CPU = "its activations are floats, and W2A16 is for 16-bit layers on a GPU; activation_bits=8 quantizes them"


@dataclass(frozen=True, slots=True)
class Replaced:
    """A layer that convert replaced."""

    name: str
    was: str
    """Its class."""
    layer: torch.nn.Module
    changed: str = ""
    """How its function differs from before beyond rounding; "" if it does not."""

    def __str__(self) -> str:
        return f"{self.name}: {self.was} -> {self.layer}{self.changed and f'; {self.changed}'}"


@dataclass(frozen=True, slots=True)
class Kept:
    """A linear layer that convert did not replace."""

    name: str
    was: str
    """Its class."""
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.was} kept, since {self.why}"


class Conversion:
    """What convert did to a model. It holds the layers of before until it is dropped."""

    def __init__(
        self,
        replaced: Sequence[Replaced],
        kept: Sequence[Kept],
        undoing: Sequence[_Place],
        pages: ArenaPages | None = None,
        also: Sequence[Replaced] = (),
    ) -> None:
        self.replaced = tuple(replaced)
        self.kept = tuple(kept)
        self.also = tuple(also)
        """Norms, and a head that is kept, which have the same weights and are computed faster."""
        self.pages = pages
        """The arena with the packed weights of the layers on the CPU; None if there are none."""
        self._undoing = tuple(undoing)

    def undo(self) -> None:
        """Put the layers of before back. Raises InvalidArgumentError, and changes nothing, if a layer was replaced
        since."""
        for place in self._undoing:
            if place.parent._modules.get(place.attribute) is not place.made:
                found = f"{place.name}, which is not the layer that convert made"
                raise _refuse("model", found, "the model as convert left it")
        for place in self._undoing:
            place.parent._modules[place.attribute] = place.before
        self._undoing = ()

    def __str__(self) -> str:
        head = f"{len(self.replaced)} replaced, {len(self.kept)} kept"
        head += f", {len(self.also)} others made faster" if self.also else ""
        pages = () if self.pages is None else (str(self.pages),)
        return "\n".join((head, *pages, *map(str, (*self.replaced, *self.kept, *self.also))))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a layer is in a model."""

    name: str
    parent: torch.nn.Module
    attribute: str
    before: torch.nn.Module
    made: torch.nn.Module


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What convert was called with."""

    activation_bits: int | None
    quantize: bool
    tied: dict[int, list[str]]
    """Names of the parameters and buffers with the same tensor."""


_Child = tuple[str, torch.nn.Module, str, torch.nn.Module]
"""Name, parent, attribute, layer."""
_Made = tuple[torch.nn.Module, str]
"""The layer, and how its function differs from before."""


def convert(
    model: torch.nn.Module,
    *,
    activation_bits: int | None = None,
    quantize: bool = False,
    keep: Sequence[str] = (),
) -> Conversion:
    """Replace the linear layers of a model, in place, by BitLinear with the same weights.

    | layer | its replacement |
    |---|---|
    | `BitLinear` of transformers | W2A8; it shares the packed weights. Scale sense: divide |
    | `AutoBitLinear`, offline | W2A8, if its weights are ternary |
    | `AutoBitLinear`, online | W2A8 of its weights by the absmean rule, once; kept while it is trained |
    | `torch.nn.Linear`, ternary weights with one scale or scales of groups of 32 to 256 | W2A16 on a GPU |
    | experts of transformers, ternary weights | with `activation_bits=8` W2A8, see BitExperts |
    | `torch.nn.Linear` and experts, other weights | kept; with `quantize` W2A8 of its weights by the absmean rule |

    The function of a layer stays the same up to rounding, unless the result says so in `Replaced.changed`. Activations
    are quantized in float32, by transformers' BitLinear in the dtype of the model. `activation_bits` 8 or 16 is for all
    layers; 8 replaces ternary `torch.nn.Linear` also on the CPU, and quantizes their activations. `keep` has patterns
    of names (fnmatch) of layers and norms that stay.

    On a CPU in bfloat16, the RMS norms of BitNet, Llama and Qwen become RmsNorm, one native call with the same
    roundings, and a head of floats (`get_output_embeddings`) stays, and multiplies one row by torch.mv.

    On the CPU the packed weights of all layers lie in one arena of huge pages; `pages` of the result reports how much
    of it the system put there, and why not all.

    Layers with hooks, parametrizations or tied weights, subclasses, and layers on other devices are kept, too. The
    result lists each layer; `undo()` restores the model. Raises InvalidArgumentError, and changes nothing, for an
    argument outside the contract.
    """
    if not isinstance(model, torch.nn.Module):
        raise _refuse("model", f"a {type(model).__name__}", "a torch.nn.Module")
    if _maker(model) is not None:
        raise _refuse("model", f"a {type(model).__name__}", "a module that contains it; BitLinear makes single layers")
    if activation_bits not in _BITS:
        raise _refuse("activation_bits", repr(activation_bits), "8, 16, or None for those of each layer")
    if isinstance(keep, str):
        raise _refuse("keep", repr(keep), f"patterns of names in a list, as [{keep!r}]")
    wanted = _Wanted(activation_bits, quantize, _tied(model))
    replaced: list[Replaced] = []
    kept: list[Kept] = []
    places: list[_Place] = []
    children = list(_children(model))
    kept_by_name = {id(each[-1]) for each in children if any(fnmatchcase(each[0], pattern) for pattern in keep)}
    made_of = _all_made({id(each[-1]): each for each in reversed(children) if id(each[-1]) not in kept_by_name}, wanted)
    for name, parent, attribute, module in children:
        was = type(module).__name__
        made = made_of.get(id(module), "`keep` names it")
        if isinstance(made, str):
            kept.append(Kept(name, was, made))
        else:
            replaced.append(Replaced(name, was, *made))
            places.append(_Place(name, parent, attribute, module, made[0]))
    others = [*_head(model, children, made_of), *_norms(model, {id(place.before) for place in places})]
    others = [place for place in others if not any(fnmatchcase(place.name, pattern) for pattern in keep)]
    also = [Replaced(place.name, type(place.before).__name__, place.made) for place in others]
    places += others
    pages = gather(layer for place in places for layer in place.made.modules())
    # All layers are made before the first is replaced: an exception leaves the model as it was.
    for place in places:
        place.parent._modules[place.attribute] = place.made
    return Conversion(replaced, kept, places, pages, also)


def _all_made(layers: Mapping[int, _Child], wanted: _Wanted) -> dict[int, _Made | str]:
    """The replacement of each layer, or why it is kept. Layers of a CPU are made side by side."""

    def make(child: _Child) -> _Made | str:
        name, _, _, module = child
        try:
            with torch.no_grad():
                return _made(module, wanted)
        except InvalidArgumentError as error:
            error.add_note(f"in layer {name}; keep=[{name!r}] leaves it as it is")
            raise

    on_cpu = all(each.is_cpu for child in layers.values() for each in _weights_of(child[-1]))
    with ThreadPoolExecutor(torch.get_num_threads() if on_cpu else 1) as threads:
        return dict(zip(layers, threads.map(make, layers.values()), strict=True))


def _head(model: Any, children: Sequence[_Child], made_of: Mapping[int, _Made | str]) -> Iterator[_Place]:
    """The places of a head of floats that a CPU computes faster. A head with hooks stays."""
    module = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if not isinstance(made_of.get(id(module)), str) or _watched(module):
        return
    if (made := faster(module)) is not None:
        for name, parent, attribute, each in children:
            if each is module:
                yield _Place(name, parent, attribute, each, made)


def _norms(model: torch.nn.Module, replaced: Set[int]) -> Iterator[_Place]:
    """The places of norms that a CPU computes in one call, outside of the layers that are `replaced`."""
    made: dict[int, RmsNorm | None] = {}
    for prefix, parent in model.named_modules(remove_duplicate=False):
        for attribute, module in parent._modules.items() if id(parent) not in replaced else ():
            if module is None or _watched(module):
                continue
            of = made.setdefault(id(module), native_norm(module))
            if of is not None:
                yield _Place(f"{prefix}{prefix and '.'}{attribute}", parent, attribute, module, of)


def _watched(module: Any) -> bool:
    """Whether a module has hooks, parametrizations, or another method forward."""
    hooks = any(getattr(module, name) for name in _HOOKS)
    return hooks or "forward" in vars(module) or torch.nn.utils.parametrize.is_parametrized(module)


def _children(model: torch.nn.Module) -> Iterator[_Child]:
    """The linear layers of a model: name, parent, attribute, layer. A layer that several parents share comes several
    times."""
    for prefix, parent in model.named_modules(remove_duplicate=False):
        for attribute, module in parent._modules.items():
            if module is not None and _maker(module) is not None:
                yield f"{prefix}{prefix and '.'}{attribute}", parent, attribute, module


def _tied(model: torch.nn.Module) -> dict[int, list[str]]:
    """The names of each tensor in the modules that own it; a module with several names counts once."""
    names: dict[int, list[str]] = {}
    for prefix, module in model.named_modules():
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                names.setdefault(id(tensor), []).append(f"{prefix}{prefix and '.'}{name}")
    return names


def _maker(module: torch.nn.Module) -> Callable[[Any, _Wanted], _Made | str] | None:
    """The function for a linear layer of this class, None for other modules."""
    kind = type(module)
    if kind is BitLinear:
        return None
    if kind.__module__ == _OF_TRANSFORMERS:
        return {"BitLinear": _of_packed, "AutoBitLinear": _of_auto}.get(kind.__name__)
    if kind is torch.nn.Linear:
        return _of_linear
    if kind is StoredFloats:
        return _of_stored
    if converted_experts.is_experts(module):
        return _of_experts
    return _of_subclass if isinstance(module, torch.nn.Linear) else None


def _made(module: Any, wanted: _Wanted) -> _Made | str:
    """The replacement of a layer, or why it is kept."""
    maker = _maker(module)
    assert maker is not None
    why = _unfit(module, wanted)
    if why is not None:
        return why
    made = maker(module, wanted)
    if isinstance(made, str):
        return made
    layer, _ = made
    layer.train(module.training)
    if (norm := getattr(module, "rms_norm", None)) is not None:
        layer.rms_norm = norm
        layer.register_forward_pre_hook(_normed)
    if (hook := getattr(module, "_hf_hook", None)) is not None:
        from accelerate.hooks import add_hook_to_module

        add_hook_to_module(layer, hook)
    return made


def _normed(layer: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The norm of activations before their quantization (`use_rms_norm` of transformers)."""
    return (layer.rms_norm(inputs[0]), *inputs[1:])


def _unfit(module: Any, wanted: _Wanted) -> str | None:
    """Why no replacement would do what the layer does."""
    weights = _weights_of(module)
    if torch.nn.utils.parametrize.is_parametrized(module):
        return "its tensors are parametrized"
    if any(getattr(module, name) for name in _HOOKS):
        return "it has hooks"
    if "forward" in vars(module) and not hasattr(module, "_hf_hook"):
        return "its method forward was replaced"
    for weight in weights:
        if weight.device.type not in DEVICES:
            offloaded = " (offloaded, or not loaded)" if weight.is_meta else ""
            return f"its weights are on {weight.device}{offloaded}; kernels are for {' and '.join(DEVICES)}"
        names = wanted.tied.get(id(weight), [])
        if len(names) > 1:
            return f"its weights are tied: {', '.join(names)}"
        if module.training and weight.requires_grad:
            return "its weights are trained; model.eval() ends training"
    return None


def _weights_of(module: Any) -> tuple[torch.Tensor, ...]:
    if type(module) is StoredFloats:
        return (module.packed,)
    return (module.gate_up_proj, module.down_proj) if converted_experts.is_experts(module) else (module.weight,)


def _of_subclass(module: torch.nn.Linear, wanted: _Wanted) -> str:
    return "it is a subclass of torch.nn.Linear, which may do more"


def _of_packed(module: Any, wanted: _Wanted) -> _Made | str:
    """`BitLinear` of transformers: codes beside the inverse of their scale."""
    layer = BitLinear.from_packed(
        module.weight,
        module.weight_scale,
        module.bias,
        out_features=module.out_features,
        weight_scale_rule="divide",
        activation_bits=wanted.activation_bits or 8,
    )
    return layer.requires_grad_(False), _unquantized(layer.activation_bits)


def _of_auto(module: Any, wanted: _Wanted) -> _Made | str:
    """`AutoBitLinear` of transformers: online, weights are quantized in each call; offline, codes are stored as floats
    beside the value of code 1. Offline, a bias is multiplied by that value, too."""
    bits = wanted.activation_bits or 8
    if module.online_quant:
        layer = BitLinear.from_float(module, activation_bits=bits)
        return layer.requires_grad_(False), _unquantized(bits)
    found = ternary_of(module.weight)
    if isinstance(found, str):
        return found
    factor = module.weight_scale.detach().float()
    if factor.numel() != 1 or not 0 < float(factor) < float("inf"):
        return f"its weight_scale is {factor.tolist()}, not one number above zero"
    bias = None if module.bias is None else (module.bias.detach() * module.weight_scale.detach())
    return _packed(module, found.packed, found.scale * factor, bias, bits), _unquantized(bits)


def _of_linear(module: torch.nn.Linear, wanted: _Wanted) -> _Made | str:
    bits, found = wanted.activation_bits, ternary_of(module.weight)
    if isinstance(found, str):
        if not wanted.quantize or "NaN" in found:
            return found
        layer = BitLinear.from_float(module, activation_bits=bits or 8)
        return layer.requires_grad_(False), "weights quantized by the absmean rule" + _int8(bits or 8)
    if bits is None:
        if module.weight.dtype not in HALVES or not module.weight.is_cuda:
            return _ON_A_CPU
        bits = 16
    bias = None if module.bias is None else module.bias.detach()
    return _packed(module, found.packed, found.scale, bias, bits), _int8(bits).removeprefix(", ")


def _of_stored(module: Any, wanted: _Wanted) -> _Made | str:
    """As torch.nn.Linear with these floats on a CPU, but it shares the packed codes."""
    if wanted.activation_bits != 8:
        return _ON_A_CPU
    scale = module.scale
    found = scale if scale.numel() == 1 else stored_scales(scale, module.in_features // scale.shape[1])
    if isinstance(found, str):
        return found
    return _packed(module, module.packed, found, module.bias, 8), _int8(8).removeprefix(", ")


def _of_experts(module: Any, wanted: _Wanted) -> _Made | str:
    """Stacked experts of transformers. Their products have int8 activations only."""
    why = converted_experts.unfit(module)
    if why is not None:
        return why
    if wanted.activation_bits != 8 and not (wanted.quantize and wanted.activation_bits is None):
        return "products of experts have int8 activations, and its are floats; activation_bits=8 quantizes them"
    layers, changed = [], "activations quantized to int8"
    for weights in _weights_of(module):
        found = ternary_experts_of(weights)
        if isinstance(found, str):
            if not wanted.quantize or "NaN" in found:
                return found
            layers.append(BitExperts.from_float(weights))
            changed = "weights quantized by the absmean rule, activations quantized to int8"
        else:
            layers.append(BitExperts.from_packed(found.packed, found.scale, out_features=weights.shape[1]))
    return converted_experts.ConvertedExperts(module, *layers), changed


def _packed(module: Any, packed: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None, bits: int) -> BitLinear:
    layer = BitLinear.from_packed(packed, scale, bias, out_features=module.out_features, activation_bits=bits)
    layer.requires_grad_(False)
    return layer


def _int8(bits: int) -> str:
    return ", activations quantized to int8" if bits == 8 else ""


def _unquantized(bits: int) -> str:
    return "" if bits == 8 else "activations not quantized"


def _refuse(argument: str, found: str, legal: str) -> InvalidArgumentError:
    return InvalidArgumentError(op="convert", argument=argument, found=found, legal=legal)
