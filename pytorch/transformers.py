"""tritmark's layers as a quantizer of transformers. Importing this module registers it:
`from_pretrained(FOLDER, quantization_config=TritmarkConfig())`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from tritmark.harness.errors import InvalidArgumentError, MissingPackageError
from tritmark.harness.extras import install

try:
    from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
    from transformers.quantizers.auto import AutoHfQuantizer
    from transformers.quantizers.quantizer_bitnet import BitNetHfQuantizer
    from transformers.utils.quantization_config import BitNetQuantConfig, QuantizationConfigMixin
except ModuleNotFoundError as error:
    if error.name != "transformers":
        raise
    raise MissingPackageError(
        "tritmark.torch.transformers needs transformers, which is not installed",
        name="transformers",
        next_step=install("models"),
    ) from None
from tritmark.torch.conversion import Conversion, convert
from tritmark.torch.saved_state import require_exact, state_of

METHOD = "tritmark"
_FROM_PRETRAINED = "from_pretrained"


@register_quantization_config(METHOD)
class TritmarkConfig(QuantizationConfigMixin):  # type: ignore[misc]
    """The arguments of `tritmark.torch.convert`, for `from_pretrained(..., quantization_config=)`.

    A folder's own quantization_config of BitNet stays in force: it states how its weights are stored. Folders without
    one have ternary weights as floats. Raises InvalidArgumentError for arguments that convert refuses.
    """

    stored: BitNetQuantConfig | None = None
    """The folder's own configuration."""

    def __init__(
        self,
        activation_bits: int | None = None,
        quantize: bool = False,
        keep: Sequence[str] = (),
        quant_method: str = METHOD,
    ) -> None:
        if quant_method != METHOD:
            raise _refuse("quant_method", repr(quant_method), repr(METHOD))
        if activation_bits not in (None, 8, 16):
            raise _refuse("activation_bits", repr(activation_bits), "8, 16, or None for those of each layer")
        if isinstance(keep, str):
            raise _refuse("keep", repr(keep), f"patterns of names in a list, as [{keep!r}]")
        self.quant_method = METHOD
        self.activation_bits, self.quantize, self.keep = activation_bits, quantize, list(keep)

    def over(self, of_model: Any) -> TritmarkConfig:
        """This configuration for a model that has its own. Raises InvalidArgumentError for other methods."""
        given = of_model if isinstance(of_model, dict) else of_model.to_dict()
        method = str(getattr(given.get("quant_method"), "value", given.get("quant_method")))
        made = copy.copy(self)
        if method == METHOD:
            return made
        if method != "bitnet":
            raise InvalidArgumentError(
                op=_FROM_PRETRAINED,
                argument="quantization_config",
                found=f"a TritmarkConfig for a model that is quantized by {method}",
                legal="a model with quant_method bitnet or tritmark in its config.json, or with none",
            )
        made.stored = BitNetQuantConfig(**{name: value for name, value in given.items() if name != "quant_method"})
        return made

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in super().to_dict().items() if name != "stored"}


_merge = AutoHfQuantizer.merge_quantization_configs


def _merged(quantization_config: Any, quantization_config_from_args: Any = None, *more: Any, **further: Any) -> Any:
    """transformers refuses an argument of another class than the folder's own configuration. A TritmarkConfig says who
    computes, not how weights are stored, so it goes with the configuration of BitNet. All else is as before."""
    if isinstance(quantization_config_from_args, TritmarkConfig):
        return quantization_config_from_args.over(quantization_config)
    return _merge(quantization_config, quantization_config_from_args, *more, **further)


AutoHfQuantizer.merge_quantization_configs = staticmethod(_merged)


@register_quantizer(METHOD)
class TritmarkQuantizer(HfQuantizer):  # type: ignore[misc]
    """Loads a model as transformers does, then converts it. `conversion` lists what was replaced and what was kept."""

    quantization_config: TritmarkConfig
    conversion: Conversion

    def __init__(self, quantization_config: TritmarkConfig, **options: Any) -> None:
        super().__init__(quantization_config, **options)
        stored = quantization_config.stored
        self._reader = None if stored is None else BitNetHfQuantizer(stored, pre_quantized=True)
        if self._reader is not None:
            self.serialized_names = self._reader.serialized_names

    def get_load_operations(self) -> dict[str, Any]:
        return {} if self._reader is None else dict(self._reader.get_load_operations())

    def _process_model_before_weight_loading(self, model: Any, **options: Any) -> Any:
        if self._reader is not None:
            self._reader._process_model_before_weight_loading(model, **options)
        return model

    def _process_model_after_weight_loading(self, model: Any, **options: Any) -> Any:
        asked = self.quantization_config
        found = convert(model, activation_bits=asked.activation_bits, quantize=asked.quantize, keep=asked.keep)
        if not found.replaced:
            raise InvalidArgumentError(
                op=_FROM_PRETRAINED,
                argument="quantization_config",
                found=f"a TritmarkConfig for a model in which no layer can be replaced; {found}",
                legal="a model with ternary linear layers, or no quantization_config",
            )
        # Without the layers of before, which would keep their weights in memory.
        self.conversion = Conversion(found.replaced, found.kept, (), also=found.also)
        # The state is packed already: save_pretrained has nothing to revert, and BitNetDeserialize has no reverse.
        own = tuple(self.get_load_operations().values())
        model._weight_conversions = [
            each
            for each in getattr(model, "_weight_conversions", ())
            if not any(isinstance(operation, own) for operation in getattr(each, "operations", ()))
        ]
        if (stored := asked.stored) is not None:
            model.config.quantization_config = BitNetQuantConfig(**{**_options(stored), "quantization_mode": "offline"})
            if stored.quantization_mode == "online":
                model.config.quantization_config.linear_class = "autobitlinear"
        return model

    def is_serializable(self) -> bool:
        """Whether save_pretrained is right. Raises InvalidArgumentError, before anything is written, if not."""
        require_exact(self._loaded, self.conversion, self.quantization_config.stored)
        return True

    def get_state_dict_and_metadata(self, model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The state in the form of the folder that the model came from: BitNet's packed weights, or floats."""
        return state_of(model, packed=self.quantization_config.stored is not None), {}

    def postprocess_model(self, model: Any, **options: Any) -> Any:
        super().postprocess_model(model, **options)
        self._loaded = model
        return model

    @property
    def is_trainable(self) -> bool:
        return False

    @property
    def is_compileable(self) -> bool:
        return True


def _options(stored: BitNetQuantConfig) -> dict[str, Any]:
    return {name: value for name, value in stored.to_dict().items() if name != "quant_method"}


def _refuse(argument: str, found: str, legal: str) -> InvalidArgumentError:
    return InvalidArgumentError(op="TritmarkConfig", argument=argument, found=found, legal=legal)
