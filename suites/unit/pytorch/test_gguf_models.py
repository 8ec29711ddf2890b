"""GGUF files as models of transformers: the same logits as the folder of the same model, or an error that says why."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")
transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed; tox -e torch has it")

from whole_models import ACTS, PUBLISHED, tiny, write_folder, write_gguf  # noqa: E402

from tritmark import workloads  # noqa: E402
from tritmark.harness.errors import UsageError, WeightFileError  # noqa: E402
from tritmark.harness.models import OURS  # noqa: E402
from tritmark.harness.record import Status  # noqa: E402
from tritmark.torch.model import gguf_model as gguf_models  # noqa: E402
from tritmark.torch.model.evaluate import BASE, evaluate  # noqa: E402
from tritmark.torch.model.gguf_model import gguf_model  # noqa: E402
from tritmark.torch.model.judging import judged_layers  # noqa: E402
from tritmark.torch.model.loading import load  # noqa: E402
from tritmark.torch.stored_floats import StoredFloats  # noqa: E402


@pytest.fixture(autouse=True)
def eager() -> Any:
    with torch._dynamo.config.patch(disable=True), torch.no_grad():
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("folders")
    return {name: write_folder(root / name, tiny(name)) for name in ACTS}


def logits(model: Any) -> Any:
    return model(torch.arange(4, 24)[None]).logits.float()


@pytest.mark.parametrize(
    ("architecture", "type"),
    [
        ("bitnet-b1.58", "i2_s"),
        ("bitnet-b1.58", "iq2_bn"),
        ("bitnet-b1.58", "tq2_0"),
        ("llama", "i2_s"),
        ("qwen2", "q2_0"),
        ("qwen3", "pq2_0"),
        ("qwen3moe", "pq2_0"),
    ],
)
def test_a_file_has_the_logits_of_the_folder(
    folders: dict[str, Path], tmp_path: Path, architecture: str, type: str
) -> None:
    before = transformers.AutoModelForCausalLM.from_pretrained(folders[architecture])
    file = write_gguf(tmp_path / "m.gguf", tiny(architecture), type)
    asked = str(before.dtype).removeprefix("torch.")
    found, notes = gguf_model(str(file), device="cpu", dtype=asked)
    assert notes == ()
    assert torch.equal(logits(found), logits(before))


def test_rows_of_q_and_k_are_put_in_order(folders: dict[str, Path], tmp_path: Path) -> None:
    """As they are in the file, the logits would be others: the order is that of the rotation."""
    file = write_gguf(tmp_path / "m.gguf", tiny("llama"), "i2_s")
    found, _ = gguf_model(str(file), device="cpu", dtype="auto")
    right = logits(found)
    layer = found.model.layers[0].self_attn.q_proj
    layer.weight.data = layer.weight.data.unflatten(0, (4, 2, 32)).transpose(1, 2).reshape(layer.weight.shape)
    assert not torch.allclose(logits(found), right, atol=0.05)


def test_the_dtype_holds_the_scales(tmp_path: Path) -> None:
    model = tiny("qwen3")
    file = write_gguf(tmp_path / "m.gguf", model, "pq2_0")
    assert gguf_model(str(file), device="cpu", dtype="auto")[0].dtype == torch.bfloat16
    finer = tmp_path / "finer.gguf"
    _with_scales(model, finer)
    assert gguf_model(str(finer), device="cpu", dtype="auto")[0].dtype == torch.float16
    _, notes = gguf_model(str(finer), device="cpu", dtype="bfloat16")
    assert notes == ("scales of the file are rounded to bfloat16",)


def _with_scales(model: Any, path: Path) -> None:
    """Scales with the 11 bits of float16."""

    class Finer(type(model)):  # type: ignore[misc]
        def scales(self, name: str, shape: tuple[int, ...]) -> Any:
            return super().scales(name, shape) * (1 + 2.0**-10)

    write_gguf(path, Finer(**{each: getattr(model, each) for each in model.__dataclass_fields__}), "pq2_0")


def test_a_file_is_judged_as_a_folder_is(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", tiny("qwen3"), "pq2_0")
    pair = load(str(file), device="cpu", dtype="auto", activation_bits=8, keep=())
    assert len(pair.conversion.replaced) == 2 * 7 + 1  # and the head, which is ternary, too


@pytest.mark.parametrize(("architecture", "type"), [("qwen3", "pq2_0"), ("qwen2", "q2_0"), ("llama", "tq2_0")])
def test_layers_stay_packed_where_their_floats_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, architecture: str, type: str
) -> None:
    file = write_gguf(tmp_path / "m.gguf", tiny(architecture), type)
    usual = load(str(file), device="cpu", dtype="auto", activation_bits=8, keep=())
    floats = sum(each.weight.nbytes for each in usual.before.modules() if isinstance(each, torch.nn.Linear))
    monkeypatch.setattr(gguf_models, "available", lambda: floats)
    packed = load(str(file), device="cpu", dtype="auto", activation_bits=8, keep=())
    linears = [each for each in packed.before.modules() if isinstance(each, torch.nn.Linear)]
    stored = [each for each in packed.before.modules() if isinstance(each, StoredFloats)]
    assert (len(stored), len(linears)) == ((15, 0) if architecture == "qwen3" else (14, 1))
    assert "unpacked in each call, and transformers is not timed" in packed.notes[-1]
    assert torch.equal(logits(packed.before), logits(usual.before))
    assert torch.equal(logits(packed.after), logits(usual.after))
    for each in packed.conversion.replaced:
        original = packed.before.get_submodule(each.name)
        assert not isinstance(original, StoredFloats) or each.layer.weight is original.packed, "one copy"
    assert {each.status for each in judged_layers(packed, torch.arange(4, 24)[None])} == {Status.PASS}


def test_a_model_that_stays_packed_is_not_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_gguf(tmp_path / "m.gguf", tiny("qwen3"), "pq2_0")
    monkeypatch.setattr(gguf_models, "available", lambda: 0)
    found = evaluate(str(file), prompts=(8,), seconds=0.05, tokens=8, activation_bits=8)
    assert not found.failed
    assert {each.engine for each in found.rates} == {OURS} == set(found.first_token_ms)
    assert [(each.name, bool(each.failed)) for each in found.engines] == [(OURS, False), (BASE, True)]


def changed(file: Path, old: bytes, new: bytes) -> Path:
    raw = file.read_bytes()
    assert raw.count(old) >= 1
    assert len(old) == len(new)
    file.write_bytes(raw.replace(old, new))
    return file


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (b"qwen3.rope.freq_base", b"qwen3.rope.freq_less", "no key qwen3.rope.freq_base"),
        (b"qwen3.attention.value_length", b"qwen3.attention.sliding_size", "sliding_size' '64', whose effect"),
        (b"blk.1.attn_q_norm.weight", b"blk.1.attn_r_norm.weight", "no tensor for .*q_norm.*unknown tensor .blk.1"),
        (b"blk.0.ffn_up.weight", b"blk.0.ffn_uq.weight", "no tensor for model.layers.0.mlp.up_proj.weight"),
        (b"token_embd.weight", b"token_embe.weight", "no tensor token_embd.weight"),
        (b"general.architecture", b"general.architexture", "no key general.architecture"),
        (b"qwen3.vocab_size\4\0\0\0\x40\1", b"qwen3.vocab_size\4\0\0\0\x41\1", "vocab_size' '321'"),
        (b"qwen3.attention.value_length", b"prism.hadamard.block_size.xy", "prism.hadamard"),
    ],
)
def test_a_file_that_would_run_another_graph_is_refused(tmp_path: Path, old: bytes, new: bytes, told: str) -> None:
    file = changed(write_gguf(tmp_path / "m.gguf", tiny("qwen3"), "pq2_0"), old, new)
    with pytest.raises(WeightFileError, match=told):
        gguf_model(str(file), device="cpu", dtype="auto")


def test_types_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", tiny("llama"), "i2_s")
    for name in (b"blk.0.attn_q.weight", b"blk.1.attn_q.weight"):
        entry = name + struct.pack("<IQQI", 2, 256, 256, 36)
        changed(file, entry, entry[:-4] + struct.pack("<I", 38))  # TL1, whose tiles the file does not state
    with pytest.raises(WeightFileError, match=r"cannot be read: 'blk.0.attn_q.weight' .*tiles.*'blk.1.attn_q.weight'"):
        gguf_model(str(file), device="cpu", dtype="auto")


def test_an_architecture_that_nobody_loads(tmp_path: Path) -> None:
    file = changed(
        write_gguf(tmp_path / "m.gguf", tiny("llama"), "i2_s"), b"\5\0\0\0\0\0\0\0llama", b"\5\0\0\0\0\0\0\0lxxxa"
    )
    with pytest.raises(UsageError, match=r"architecture 'lxxxa', which transformers cannot load.*legal: bitnet"):
        gguf_model(str(file), device="cpu", dtype="auto")


def test_published_shapes_are_those_of_the_workloads() -> None:
    import tomllib

    known = tomllib.loads((Path(workloads.__path__[0]) / "models.toml").read_text())
    for name, model in PUBLISHED.items():
        of_a_block = [list(shape) for matrix, shape in model.linears() if matrix.startswith("blk.0.")]
        wanted = [each[:2] for each in known[name]["linears"] for _ in range(each[2])]
        assert sorted(of_a_block) == sorted(wanted), name
        assert model.layers == known[name]["layers"]
