"""`tritmark convert` and `compare`: the same codes and scales in another file, or a refusal without any output."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from tritmark.harness.cli import app
from tritmark.harness.errors import InvalidArgumentError, UsageError, WeightFileError
from tritmark.harness.providers import installed
from tritmark.harness.weights import Conventions, TernaryWeights, holders_of, open_weights
from tritmark.harness.weights import convert as conversion
from tritmark.harness.weights.compare import ModelComparison, compare
from tritmark.harness.weights.convert import Converted, convert
from tritmark.harness.weights.published_names import hf_name
from tritmark.harness.weights.scales import by_row, first_difference, fitted
from tritmark.kernels.formats import FORMATS

sys.path.append(str(Path(__file__).parents[1] / "helpers"))
models = import_module("made_up_models")
SMALL = models.SMALL
MATRICES = [(name, shape) for name, shape in SMALL.matrices()]
OTHERS = len(SMALL.others())

HOLDERS = holders_of(installed())

KINDS = {
    "i2_s": lambda folder: models.write_gguf(folder / "a.gguf", SMALL),
    "tq1_0": lambda folder: models.write_gguf(folder / "a.gguf", SMALL, 34),
    "tq2_0": lambda folder: models.write_gguf(folder / "a.gguf", SMALL, 35),
    "q2_0": lambda folder: models.write_gguf(folder / "a.gguf", SMALL, models.Q2_0),
    "iq1_bn": lambda folder: models.write_gguf(folder / "a.gguf", SMALL, models.IQ1_BN),
    "iq2_bn": lambda folder: models.write_gguf(folder / "a.gguf", SMALL, models.IQ2_BN),
    "iq2_bn_r4": lambda folder: models.write_gguf(folder / "a.gguf", SMALL, models.IQ2_BN_R4),
    "split": lambda folder: (models.write_gguf(folder / "a.gguf", SMALL, part=7), folder / "a-00001-of-00003.gguf")[1],
    "packed rows": lambda folder: models.write_safetensors(folder / "a.safetensors", SMALL),
    "shards": lambda folder: models.write_shards(folder / "a", SMALL),
}
TARGETS = ["i2_s_x86", "i2_s_arm", "i2_s_x86_r4", "tq1_0", "tq2_0", "q2_0", "iq1_bn", "iq2_bn", "iq2_bn_r4", "hf_pack"]


def to(source: Path, out: Path, format: str, conventions: Conventions | None = None) -> Converted:
    return convert(source, out, format, holders_of(installed()), conventions)


def compared(a: Path, b: Path) -> ModelComparison:
    return compare(a, b, holders_of(installed()))


def suffix(format: str) -> str:
    return ".safetensors" if format == "hf_pack" else ".gguf"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", TARGETS)
def test_codes_scales_and_all_else_are_the_same(tmp_path: Path, kind: str, target: str) -> None:
    source, out = KINDS[kind](tmp_path), tmp_path / f"out{suffix(target)}"
    found = to(source, out, target)
    assert (found.matrices, found.others, found.nbytes) == (14, OTHERS, out.stat().st_size)
    assert compared(source, out) == ModelComparison(14, OTHERS, ()) == compared(out, source)
    with open_weights(out) as opened:
        weights = TernaryWeights(opened, holders_of(installed()))
        assert {each.format for each in weights.matrices} == {target}
        for info, (name, shape) in zip(weights.matrices, sorted_as(weights), strict=True):
            codes, scale = weights.read(info)
            np.testing.assert_array_equal(codes, SMALL.codes(name, shape))
            assert (np.asarray(scale) == SMALL.scale(name)).all()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def sorted_as(weights: TernaryWeights) -> list[tuple[str, tuple[int, int]]]:
    from tritmark.harness.weights.published_names import gguf_name

    shapes = dict(MATRICES)
    names = [gguf_name(each.name).removesuffix(".weight") for each in weights.matrices]
    return [(name, shapes[name]) for name in names]


def test_libraries_read_what_was_written(tmp_path: Path) -> None:
    to(models.write_gguf(tmp_path / "a.gguf", SMALL), tmp_path / "b.safetensors", "hf_pack")
    expected = models.packed_tensors(SMALL, dtype=np.float32)
    found = load_file(tmp_path / "b.safetensors")
    assert set(found) == set(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    to(tmp_path / "b.safetensors", tmp_path / "c.gguf", "tq2_0")
    read = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "c.gguf").tensors}
    assert len(read) == 14 + OTHERS
    for name, shape in MATRICES:
        tensor = read[f"{name}.weight"]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        np.testing.assert_array_equal(values, SMALL.codes(name, shape) * SMALL.scale(name))


def test_metadata_of_gguf_is_kept(tmp_path: Path) -> None:
    source = models.write_gguf(tmp_path / "a.gguf", SMALL)
    to(source, tmp_path / "b.gguf", "tq1_0")
    to(source, tmp_path / "c.gguf", "i2_s_x86")
    before = gguf.GGUFReader(models.write_gguf(tmp_path / "t.gguf", SMALL, 35))
    after = gguf.GGUFReader(tmp_path / "b.gguf")
    own = {"GGUF.version", "GGUF.tensor_count", "GGUF.kv_count"}
    assert set(before.fields) == set(after.fields)
    for key in set(before.fields) - own - {"general.file_type"}:
        np.testing.assert_array_equal(before.fields[key].contents(), after.fields[key].contents())
    assert after.fields["general.file_type"].contents() == gguf.LlamaFileType.MOSTLY_TQ1_0
    assert (tmp_path / "c.gguf").stat().st_size == source.stat().st_size


def test_a_layout_that_is_not_the_usual_one_is_said_in_the_file(tmp_path: Path) -> None:
    source = models.write_gguf(tmp_path / "a.gguf", SMALL)
    to(source, tmp_path / "arm.gguf", "i2_s_arm")
    assert b"tritmark.layout" in (tmp_path / "arm.gguf").read_bytes()
    to(tmp_path / "arm.gguf", tmp_path / "back.gguf", "i2_s_x86")
    assert b"tritmark.layout" not in (tmp_path / "back.gguf").read_bytes()
    assert compared(source, tmp_path / "back.gguf").differences == ()


def test_scales_by_which_is_divided_become_those_by_which_is_multiplied(tmp_path: Path) -> None:
    save_file(models.packed_tensors(SMALL, dtype=np.float32, divide=True), tmp_path / "a.safetensors")
    to(tmp_path / "a.safetensors", tmp_path / "b.safetensors", "hf_pack", Conventions(weight_scale="divide"))
    (tmp_path / "config.json").write_text('{"quantization_config": {"linear_class": "bitlinear"}}')
    found = load_file(tmp_path / "b.safetensors")
    for name, _ in MATRICES:
        expected = np.float32(1) / np.float32(1 / SMALL.scale(name))
        assert found[f"{models.hf_name(name)}.weight_scale"] == expected
    # A converted file states its own convention, whatever configuration is beside it.
    assert compared(tmp_path / "a.safetensors", tmp_path / "b.safetensors").differences == ()


def test_masters_become_codes_by_the_models_rule(tmp_path: Path) -> None:
    source = models.write_masters(tmp_path / "a.safetensors", SMALL)
    with pytest.raises(
        InvalidArgumentError, match=r"--quantize is missing; linear layers with floats .* 14, first .*; legal: absmean"
    ):
        to(source, tmp_path / "b.gguf", "i2_s_x86")
    found = convert(source, tmp_path / "b.gguf", "i2_s_x86", HOLDERS, quantize="absmean")
    assert (found.matrices, found.quantized, found.floats) == (14, 14, 0)
    with open_weights(tmp_path / "b.gguf") as written, open_weights(source) as floats:
        weights = TernaryWeights(written, HOLDERS)
        power = noise = 0.0
        for info in weights.matrices:
            codes, scale = weights.read(info)
            before = floats.read(hf_name(info.name)).astype(np.float64)
            power, noise = power + (before**2).sum(), noise + ((before - codes * np.float64(scale)) ** 2).sum()
            name = info.name.removesuffix(".weight")
            np.testing.assert_array_equal(codes, SMALL.codes(name, info.shape))
    assert found.loss.snr_db is not None
    # Two sums of n terms in different orders, each within n roundings.
    slack = 2 * found.loss.elements * np.finfo(np.float64).eps * 10 / np.log(10)
    assert abs(found.loss.snr_db - 10 * np.log10(power / noise)) <= slack


def test_floats_that_are_ternary_keep_their_scale(tmp_path: Path) -> None:
    source = models.write_exact(tmp_path / "a.safetensors", SMALL)
    for quantize in ("", "absmean"):
        found = convert(source, tmp_path / "b.gguf", "i2_s_x86", HOLDERS, quantize=quantize)
        assert (found.matrices, found.quantized, found.floats) == (14, 0, 0)
        assert compared(source, tmp_path / "b.gguf") == ModelComparison(14, OTHERS, ())
        assert compared(tmp_path / "b.gguf", models.write_gguf(tmp_path / "c.gguf", SMALL)).differences == ()

    # ---- unsupported shapes, types and scales


def one(path: Path, codes: Any, scale: Any, *, type: int = 35) -> Path:
    """A GGUF file with one matrix, blk.0.ffn_up, in TQ2_0."""
    writer = gguf.GGUFWriter(path, "bitnet")
    packed = FORMATS["tq2_0"].pack(codes, scale)
    writer.add_tensor("blk.0.ffn_up.weight", packed, raw_dtype=gguf.GGMLQuantizationType(type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def packed(path: Path, codes: Any, scale: float) -> Path:
    name = "model.layers.0.mlp.up_proj.weight"
    save_file({name: models.packed_rows(codes), f"{name}_scale": np.array([scale], np.float32)}, path)
    return path


CODES = np.ones((4, 512), np.int8)


def different(folder: Path) -> Path:
    scales = np.ones((4, 2), np.float32)
    scales[2, 1] = 1.5
    return one(folder / "a.gguf", CODES, scales)


REFUSED: dict[str, tuple[Callable[[Path], Path], str, str]] = {
    "a scale that float16 does not hold": (
        lambda folder: packed(folder / "a.safetensors", CODES, 0.1),
        "tq2_0",
        r"'model.layers.0.mlp.up_proj.weight' is with a scale of 0.1\d* at \(0, 0\); legal: a number that float16",
    ),
    "a scale past float16": (
        lambda folder: packed(folder / "a.safetensors", CODES, 1e6),
        "tq1_0",
        "up_proj.*1000000.0.*a number that float16 holds",
    ),
    "groups with different scales": (
        different,
        "i2_s_x86",
        r"'blk.0.ffn_up.weight' is with different scales: 1.5 at \(2, 1\), 1.0 before",
    ),
    "a scale that is not finite": (
        lambda folder: one(folder / "a.gguf", CODES, np.float32(np.inf)),
        "i2_s_x86",
        "ffn_up.weight': a scale of inf in row 0, block 0; legal: finite scales",
    ),
    "columns that are no multiple": (
        lambda folder: packed(folder / "a.safetensors", CODES[:, :384], 1.0),
        "tq2_0",
        r"of shape \(4, 384\), which tq2_0 cannot hold; legal: N a multiple of 1, K of 256",
    ),
    "a tail": (
        lambda folder: packed(folder / "a.safetensors", CODES[:, :129], 1.0),
        "i2_s_x86",
        r"of shape \(4, 129\), which i2_s_x86 cannot hold.*no partial block",
    ),
    "rows that no packed rows can be": (
        lambda folder: one(folder / "a.gguf", CODES[:3], 1.0),
        "hf_pack",
        r"of shape \(3, 512\), which hf_pack cannot hold; legal: N a multiple of 4",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    make, target, told = REFUSED[name]
    out = tmp_path / f"out{suffix(target)}"
    out.write_bytes(b"before")
    source = make(tmp_path)
    there = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises((InvalidArgumentError, WeightFileError), match=told):
        to(source, out, target)
    assert out.read_bytes() == b"before"
    assert sorted(path.name for path in tmp_path.iterdir()) == there


def test_tensors_that_the_other_kind_of_file_lacks_are_refused(tmp_path: Path) -> None:
    tensors = {**models.packed_tensors(SMALL), "mask": np.ones(3, np.uint8)}
    save_file(tensors, tmp_path / "a.safetensors")
    with pytest.raises(InvalidArgumentError, match="tensor 'mask' is of dtype uint8; legal: a dtype of GGUF"):
        to(tmp_path / "a.safetensors", tmp_path / "b.gguf", "i2_s_x86")
    assert to(tmp_path / "a.safetensors", tmp_path / "b.safetensors", "hf_pack").others == OTHERS + 1


@pytest.mark.parametrize(
    ("out", "target", "told"),
    [
        ("b.bin", "i2_s_x86", "ends in '.bin'; legal: .gguf or .safetensors"),
        ("b.gguf", "hf_pack", "'hf_pack' cannot be stored in a .gguf file"),
        ("b.gguf", "i2_s_x68", "'i2_s_x68' cannot be stored in a .gguf file; did you mean 'i2_s_x86'"),
        ("b.safetensors", "tile64", "'tile64' cannot be stored in a .safetensors file"),
        ("folder.gguf", "i2_s_x86", "is a folder"),
        ("link.gguf", "i2_s_x86", "is a symbolic link"),
        ("none/b.gguf", "i2_s_x86", "cannot be written: No such file"),
    ],
)
def test_where_nothing_can_be_written(tmp_path: Path, out: str, target: str, told: str) -> None:
    (tmp_path / "folder.gguf").mkdir()
    (tmp_path / "link.gguf").symlink_to("elsewhere")
    source = models.write_gguf(tmp_path / "a.gguf", models.Model(layers=1, width=256, kv=64, ffn=256))
    with pytest.raises(UsageError, match=told):
        to(source, tmp_path / out, target)


def test_a_model_without_ternary_matrices_is_refused(tmp_path: Path) -> None:
    save_file({"w": np.ones((4, 4), np.float32)}, tmp_path / "a.safetensors")
    with pytest.raises(WeightFileError, match="no ternary matrix"):
        to(tmp_path / "a.safetensors", tmp_path / "b.gguf", "i2_s_x86")


def test_a_disk_that_keeps_something_else_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = models.write_gguf(tmp_path / "a.gguf", SMALL)
    right = conversion._write_packed

    def flipped(file: Any, part: Any, form: Any, codes: Any, scale: Any) -> None:
        changed = codes.copy()
        changed[-1, -1] = 0 if changed[-1, -1] else 1
        right(file, part, form, changed if part.source == "blk.1.ffn_down.weight" else codes, scale)

    monkeypatch.setattr(conversion, "_write_packed", flipped)
    with pytest.raises(WeightFileError, match=r"blk\.1\.ffn_down\.weight.*other bytes than were written"):
        to(source, tmp_path / "b.gguf", "tq1_0")
    assert [path.name for path in tmp_path.iterdir()] == ["a.gguf"]


@given(st.data())
def test_scales_are_repeated_and_taken_together_only_where_nothing_changes(data: st.DataObject) -> None:
    from dataclasses import replace

    group = FORMATS["tq2_0"]
    targets = [FORMATS["i2_s_x86"], replace(FORMATS["tile64"], name="row", scale_per="row")]
    targets += [replace(group, group=size, scale_dtype="float32") for size in (64, 128, 192, 384)]
    source, target = (data.draw(st.sampled_from(targets)) for _ in range(2))
    shape = (data.draw(st.integers(1, 3)), 384)
    several = source.scale_shape(shape)
    count = int(np.prod(several))
    values = data.draw(st.lists(st.sampled_from([0.5, 3.0]), min_size=count, max_size=count))
    scale = np.array(values, np.float32).reshape(several)
    expanded = np.repeat(by_row(scale, shape), 384 // by_row(scale, shape).shape[1], axis=1)
    try:
        found = fitted("w", scale, shape, target)
    except InvalidArgumentError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert "different scales" in refusal
        pieces = 384 // target.group if target.group else 1
        rows = expanded.reshape(1, -1) if target.scale_per == "tensor" else expanded.reshape(shape[0] * pieces, -1)
        assert (rows != rows[:, :1]).any()
        return
    assert np.shape(found) == target.scale_shape(shape)
    again = by_row(found, shape)
    np.testing.assert_array_equal(np.repeat(again, 384 // again.shape[1], axis=1), expanded)
    assert first_difference(by_row(scale, shape), again) is None


# ---- differences


def changed(folder: Path, model: Any = SMALL, **changes: Any) -> Path:
    tensors = models.packed_tensors(model)
    for name, change in changes.items():
        key = name.replace("__", ".")
        tensors = {k: v for k, v in tensors.items() if k != key} if change is None else {**tensors, key: change}
    save_file(tensors, folder / "b.safetensors")
    return folder / "b.safetensors"


UP = "model__layers__1__mlp__up_proj__weight"
NORM = "model__norm__weight"


ONE_CODE = models.Model(2, 256, 64, 512, changed={"blk.1.ffn_up": (300, 7)})
REVERSED = SMALL.others()["output_norm.weight"][::-1].copy()
DIFFERENCES: dict[str, tuple[dict[str, Any], str, str]] = {
    "codes": ({}, "blk.1.ffn_up", "at [300, 7]"),
    "scales": ({UP + "_scale": np.array([9], np.float32)}, "blk.1.ffn_up", "and 9.0 at row 0, column 0"),
    "name": ({NORM: None}, "output_norm", "only in"),
    "name of another": ({"extra__weight": np.zeros(3, np.float32)}, "extra", "only in"),
    "shape": ({NORM: np.zeros(128, np.float32)}, "output_norm", "(256,) and (128,)"),
    "values": ({NORM: np.zeros(256, np.float32)}, "output_norm", "and 0.0 at [0]"),
    "dtype": ({NORM: np.zeros(256, np.int8)}, "output_norm", "bfloat16 and int8"),
    "values of one dtype": (
        {NORM: REVERSED},
        "output_norm",
        f"{np.float32(REVERSED[-1])} and {np.float32(REVERSED[0])} at [0]",
    ),
}


@pytest.mark.parametrize("what", DIFFERENCES)
def test_the_first_difference_is_named(tmp_path: Path, what: str) -> None:
    changes, name, words = DIFFERENCES[what]
    other = changed(tmp_path, SMALL if changes else ONE_CODE, **changes)
    (difference,) = compared(models.write_gguf(tmp_path / "a.gguf", SMALL), other).differences
    assert (difference.name, difference.what) == (f"{name}.weight", what.partition(" ")[0])
    assert words in difference.description


def test_what_only_one_of_two_files_needs_may_be_asked_for(tmp_path: Path) -> None:
    class Halves(models.Model):  # type: ignore[misc, name-defined]
        """A model with a scale whose reciprocal is exact."""

        def scale(self, name: str) -> np.float32:
            return np.float32(0.5)

    model = Halves(layers=1, width=256, kv=64, ffn=256)
    arm = models.write_gguf(tmp_path / "a.gguf", model, lane=16)
    divided = models.write_safetensors(tmp_path / "b.safetensors", model, divide=True)
    asked = Conventions(layout="arm", weight_scale="divide")
    assert compare(arm, divided, HOLDERS, asked) == ModelComparison(7, len(model.others()), ())
    assert len(compare(arm, divided, HOLDERS, Conventions(layout="arm")).differences) == 7
    with pytest.raises(InvalidArgumentError, match=r"layout is 'arm', and .* has no tensor with several layouts"):
        compare(divided, divided, HOLDERS, asked)
    with pytest.raises(InvalidArgumentError, match=r"weight_scale is 'divide', and .* has no scales"):
        compare(arm, arm, HOLDERS, asked)


def test_floats_of_the_same_values_are_the_same(tmp_path: Path) -> None:
    wide = {NORM: SMALL.others()["output_norm.weight"].astype(np.float32)}
    assert compared(models.write_gguf(tmp_path / "a.gguf", SMALL), changed(tmp_path, **wide)).differences == ()


# ---- the commands, and a conversion that is killed


def told(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*map(str, arguments)])
    return done.exit_code, done.stdout


def test_the_commands(tmp_path: Path) -> None:
    source, out = models.write_gguf(tmp_path / "a.gguf", SMALL), tmp_path / "b.safetensors"
    status, text = told("convert", source, out, "--format", "hf_pack")
    assert status == 0
    assert f"14 matrices in hf_pack, {OTHERS} other tensors unchanged" in text
    status, text = told("compare", source, out)
    assert (status, text[:40]) == (0, "The same model: 14 ternary matrices and ")
    models.write_safetensors(out, models.Model(2, 256, 64, 512, changed={"blk.0.attn_v": (1, 2)}))
    status, text = told("compare", source, out)
    assert status == 1
    assert "blk.0.attn_v.weight: codes: " in text
    assert "at [1, 2]" in text


def test_files_that_are_not_read_are_named(tmp_path: Path) -> None:
    models.write_safetensors(tmp_path / "model.safetensors", SMALL)
    (tmp_path / "consolidated.safetensors").write_bytes(b"old")
    for arguments in (
        ("convert", tmp_path, tmp_path / "b.gguf", "--format", "i2_s_x86"),
        ("compare", tmp_path, tmp_path),
    ):
        status, text = told(*arguments)
        assert status == 0
        assert "Not read, because they are not part of the model: consolidated.safetensors" in text


FOR_EVER = """
import sys
from pathlib import Path
from tritmark.harness.providers import installed
from tritmark.harness.weights import holders_of
from tritmark.harness.weights.convert import convert

a, b, out = map(Path, sys.argv[1:])
holders = holders_of(installed())
print("ready", flush=True)
while True:
    convert(a, out, "hf_pack", holders)
    convert(b, out, "hf_pack", holders)
"""


def test_killed_at_any_moment_there_is_one_whole_file_or_none(tmp_path: Path) -> None:
    """Repeats TRITMARK_KILLS times; two models alternate under one name."""
    sources, whole = [], []
    for seed in range(2):
        model = models.Model(layers=2, width=256, kv=64, ffn=512, seed=seed)
        sources.append(models.write_gguf(tmp_path / f"{seed}.gguf", model))
        to(sources[-1], tmp_path / f"{seed}.safetensors", "hf_pack")
        whole.append((tmp_path / f"{seed}.safetensors").read_bytes())
    out = tmp_path / "out" / "b.safetensors"
    out.parent.mkdir()
    rng = random.Random(5)
    left = 0
    for _ in range(int(os.environ.get("TRITMARK_KILLS", "3"))):
        out.unlink(missing_ok=True)
        with subprocess.Popen([sys.executable, "-c", FOR_EVER, *sources, out], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(rng.uniform(0, 0.3))
            process.send_signal(signal.SIGKILL)
        found = out.read_bytes() if out.exists() else None
        assert found is None or found in whole
        left += len(list(out.parent.glob(".*.tmp.safetensors")))
    assert left, "some were killed while they wrote"
    to(sources[0], out, "hf_pack")
    assert [path.name for path in out.parent.iterdir()] == [out.name], "what was left over is swept"
