"""TritmarkConfig: models of transformers load on tritmark's layers, and are saved as their folders were."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")
transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed; tox -e torch has it")

from made_up_architectures import folder_of  # noqa: E402

from tritmark.harness.errors import InvalidArgumentError  # noqa: E402
from tritmark.torch import BitLinear  # noqa: E402
from tritmark.torch.transformers import TritmarkConfig  # noqa: E402

KINDS = ("bitnet", "online", "falcon", "qwen3", "qwen3_moe")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[tuple[str, str], Path] = {}

    def folder(kind: str, dtype: str = "float32") -> Path:
        if (kind, dtype) not in made:
            made[kind, dtype] = folder_of(kind, tmp_path_factory.mktemp(kind), dtype=dtype)
        return made[kind, dtype]

    return folder


@pytest.fixture(autouse=True)
def eager() -> Any:
    """transformers compiles its layers, which takes half a minute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch._dynamo.config.patch(disable=True), torch.no_grad():
        yield
    torch.set_num_threads(before)


def loaded(folder: Path, **options: Any) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **{"dtype": "auto", **options})


def tokens(length: int = 8) -> Any:
    return torch.randint(3, 64, (1, length), generator=torch.Generator().manual_seed(0))


def bits(kind: str) -> dict[str, Any]:
    """Layers of floats have no quantized activations of their own."""
    return {"quantization_config": TritmarkConfig(activation_bits=8 if kind.startswith("qwen3") else None)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_loads_and_generates(folders: Any, kind: str) -> None:
    model, before = loaded(folders(kind), **bits(kind)), loaded(folders(kind))
    conversion = model.hf_quantizer.conversion
    assert len(conversion.replaced) == (10 if kind == "qwen3_moe" else 14)
    assert isinstance(model.model.layers[1].self_attn.q_proj, BitLinear)
    expected, found = before(tokens()).logits, model(tokens()).logits
    # Activations of the models of floats are quantized; in the others only roundings differ.
    assert (found - expected).abs().max() < (0.1 if kind.startswith("qwen3") else 1e-5) * expected.abs().max()
    options = {"max_new_tokens": 6, "do_sample": False}
    dynamic, static = (model.generate(tokens(), **options, **each) for each in ({}, {"cache_implementation": "static"}))
    assert torch.equal(dynamic, static)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_is_the_same(folders: Any, kind: str, tmp_path: Path) -> None:
    model = loaded(folders(kind), **bits(kind))
    expected = model(tokens()).logits
    model.save_pretrained(tmp_path / "saved")
    assert torch.equal(loaded(tmp_path / "saved", **bits(kind))(tokens()).logits, expected)
    stored = json.loads((tmp_path / "saved" / "config.json").read_text())["quantization_config"]
    assert stored["quant_method"] == ("tritmark" if kind.startswith("qwen3") else "bitnet")


@pytest.mark.nightly
def test_a_saved_model_needs_no_tritmark(folders: Any, tmp_path: Path) -> None:
    places = []
    for kind in KINDS:
        loaded(folders(kind), **bits(kind)).save_pretrained(tmp_path / kind)
        places += [str(folders(kind)), str(tmp_path / kind)]
    code = (
        "import sys, torch, transformers\n"
        "torch._dynamo.config.disable = True\n"
        "load = transformers.AutoModelForCausalLM.from_pretrained\n"
        "x = torch.arange(3, 20)[None]\n"
        "for before, saved in zip(sys.argv[1::2], sys.argv[2::2], strict=True):\n"
        "    with torch.no_grad():\n"
        "        a, b = (load(folder, dtype='auto')(x).logits for folder in (before, saved))\n"
        "    assert (a - b).abs().max() <= 1e-5 * a.abs().max(), saved\n"
        "assert 'tritmark.torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *places], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_bfloat16_with_scales_that_it_holds_is_saved(folders: Any, tmp_path: Path) -> None:
    for kind in ("bitnet", "falcon", "qwen3"):
        model = loaded(folders(kind, "bfloat16"), **bits(kind))
        model.save_pretrained(tmp_path / kind)
        again = loaded(tmp_path / kind, **bits(kind))
        assert torch.equal(again(tokens()).logits, model(tokens()).logits)


def test_what_cannot_be_saved_is_refused(folders: Any, tmp_path: Path) -> None:
    model = loaded(folders("online", "bfloat16"), **bits("online"))
    with pytest.raises(InvalidArgumentError, match=r"a scale that torch\.bfloat16 rounds"):
        model.save_pretrained(tmp_path / "saved")
    config = TritmarkConfig(keep=["*down_proj"])
    model = loaded(folders("online"), quantization_config=config)
    with pytest.raises(InvalidArgumentError, match="floats beside layers that were quantized"):
        model.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_kept_layers_are_saved_beside_others(folders: Any, tmp_path: Path) -> None:
    for kind in ("bitnet", "falcon"):
        config = TritmarkConfig(keep=["*down_proj"])
        model = loaded(folders(kind), quantization_config=config)
        assert type(model.model.layers[0].mlp.down_proj).__name__ in ("AutoBitLinear", "BitLinear")
        model.save_pretrained(tmp_path / kind)
        again = loaded(tmp_path / kind, quantization_config=config)
        assert torch.equal(again(tokens()).logits, model(tokens()).logits)


def test_other_models_load_as_before(folders: Any) -> None:
    model = loaded(folders("bitnet"))
    assert type(model.model.layers[0].self_attn.q_proj).__name__ == "AutoBitLinear"
    given = transformers.BitNetQuantConfig(linear_class="autobitlinear")
    with pytest.warns(UserWarning, match="already has a `quantization_config`"):
        model = loaded(folders("bitnet"), quantization_config=given)
    assert type(model.model.layers[0].self_attn.q_proj).__name__ == "AutoBitLinear"


def test_a_model_of_another_method_is_refused(folders: Any, tmp_path: Path) -> None:
    config = json.loads((folders("qwen3") / "config.json").read_text())
    (tmp_path / "model.safetensors").symlink_to(folders("qwen3") / "model.safetensors")
    given = {"quant_method": "gptq", "bits": 2}
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": given}))
    with pytest.raises(InvalidArgumentError, match=r"quantized by gptq; legal: .*bitnet"):
        loaded(tmp_path, quantization_config=TritmarkConfig())


def test_a_model_without_a_layer_to_replace_is_refused(folders: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="activation_bits=8 quantizes them"):
        loaded(folders("qwen3"), quantization_config=TritmarkConfig(), device_map="cpu")


@pytest.mark.parametrize(
    ("given", "told"),
    [({"activation_bits": 4}, "8, 16"), ({"keep": "*"}, "in a list"), ({"quant_method": "bitnet"}, "'tritmark'")],
)
def test_arguments_out_of_the_contract_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        TritmarkConfig(**given)


def test_a_model_is_compiled_whole(folders: Any) -> None:
    model = loaded(folders("falcon"), **bits("falcon"))
    expected = model(tokens(), use_cache=False).logits
    with torch._dynamo.config.patch(disable=False):
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(tokens(), use_cache=False).logits, expected)


def test_only_the_module_of_that_name_imports_transformers() -> None:
    code = (
        "import sys, tritmark.torch\n"
        "from tritmark.harness.errors import MissingPackageError\n"
        "assert 'transformers' not in sys.modules\n"
        "class Missing:\n"
        "    def find_spec(self, name, *more):\n"
        "        if name == 'transformers':\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "try:\n"
        "    import tritmark.torch.transformers\n"
        "except MissingPackageError as error:\n"
        "    assert 'models' in str(error), error\n"
        "else:\n"
        "    raise SystemExit('no error')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
