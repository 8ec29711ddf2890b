"""GGUF types and keys of 2026: the meaning of a file is shown, or refused with the choices; it is never guessed.

`vectors/` has files whose tensors are bytes of the original packers; `w:NAME` and `s:NAME` are the codes and scales.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tritmark.harness.errors import InvalidArgumentError, WeightFileError
from tritmark.harness.providers import installed
from tritmark.harness.weights import Conventions, TernaryInfo, TernaryWeights, holders_of, open_weights
from tritmark.harness.weights.compare import compare
from tritmark.harness.weights.convert import convert
from tritmark.harness.weights.gguf_types import described
from tritmark.harness.weights.hadamard import rotation_of
from tritmark.harness.weights.left_out import judged, left_out, reads_of
from tritmark.kernels.formats import FORMATS

VECTORS = Path(__file__).parent / "vectors"
FILES = sorted(path.stem for path in VECTORS.glob("gguf_*.npz"))
F32, UINT32, BOOL, STRING, ARRAY = 0, 4, 7, 8, 9
Tensor = tuple[str, tuple[int, ...], int, bytes]


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def write(path: Path, tensors: list[Tensor], pairs: list[tuple[str, int, bytes]] | None = None) -> Path:
    """Tensors as (name, dimensions in ggml's order, type, bytes), pairs as (key, type, bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs or ()))
    head += b"".join(text(key) + struct.pack("<I", kind) + raw for key, kind, raw in pairs or ())
    data = b""
    for name, dims, kind, raw in tensors:
        head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += raw + bytes(-len(raw) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return path


def matrices(path: Path, layout: str = "") -> dict[str, tuple[str, Any, Any]]:
    with open_weights(path) as source:
        weights = TernaryWeights(source, holders_of(installed()), Conventions(layout))
        weights.require_finite()
        return {each.name: (each.format, *_read(weights, each)) for each in weights.matrices}


def _read(weights: TernaryWeights, info: TernaryInfo) -> tuple[Any, Any]:
    """Codes and scales, of all experts of a 3-D tensor."""
    found = [weights.read(info, expert) for expert in info.expert_numbers]
    if not info.experts:
        return found[0]
    return np.stack([codes for codes, _ in found]), np.stack([scale for _, scale in found])


# ---- types


@pytest.mark.parametrize("stem", FILES)
def test_codes_and_scales_of_each_type_are_the_packers(stem: str) -> None:
    found = matrices(VECTORS / f"{stem}.gguf")
    with np.load(VECTORS / f"{stem}.npz") as truth:
        named = {key[2:] for key in truth.files if key.startswith("w:")}
        assert set(found) == named
        for name, (_, codes, scale) in found.items():
            np.testing.assert_array_equal(codes, truth[f"w:{name}"])
            np.testing.assert_array_equal(scale, truth[f"s:{name}"])


@pytest.mark.parametrize("stem", sorted({path.stem for path in VECTORS.glob("*_decode.npz")}))
def test_any_bytes_are_read_as_the_original_reads_them(stem: str) -> None:
    with np.load(VECTORS / f"{stem}.npz") as vector:
        name = {"q2_0_type42_g128": "pq2_0"}.get(str(vector["format"]), str(vector["format"]))
        packed, expected = vector["packed"], vector["dequant_c"]
    form = FORMATS[name]
    codes, scale = form.unpack(packed, expected.shape)
    np.testing.assert_array_equal(codes * np.repeat(scale, form.group, axis=1), expected)


@pytest.mark.parametrize("name", ["stq1_0", "stq1_0_quads"])
def test_stq_names_the_first_group_that_it_cannot_hold(name: str) -> None:
    form = FORMATS[name]
    codes = form.sample((3, 512), np.random.default_rng(0))
    codes[1, 300] = 1 - abs(codes[1, 300])
    codes[2, 0] = 1 - abs(codes[2, 0])
    group = 44 // 4 if name == "stq1_0_quads" else 44 % 16
    with pytest.raises(InvalidArgumentError, match=f"without exactly one 0 in group {group} of block 3;"):
        form.pack(codes, 1.0)


def g64(count: int) -> bytes:
    return (struct.pack("<e", 0.5) + bytes([0x99]) * 16) * count


def g128(count: int) -> bytes:
    return (struct.pack("<e", 0.5) + bytes([0x99]) * 32) * count


@pytest.mark.parametrize(
    ("raw", "format"),
    [
        (g64(64), "q2_0"),
        (g128(32), "pq2_0"),
        (g64(8), "q2_0"),  # the size of padded blocks of 128, with nonzero bytes in place of padding
    ],
)
def test_type_42_is_what_its_extents_say(tmp_path: Path, raw: bytes, format: str) -> None:
    rows = len(raw) // (36 if format == "q2_0" else 34)
    last = ("output_norm.weight", (8,), F32, bytes(32))
    path = write(tmp_path / "m.gguf", [("blk.0.attn_q.weight", (128, rows), 42, raw), last])
    found, codes, scale = matrices(path)["blk.0.attn_q.weight"]
    assert (found, np.unique(scale).tolist()) == (format, [0.5])
    np.testing.assert_array_equal(codes, np.tile([0, 1, 0, 1], (rows, 32)))


def test_one_large_tensor_decides_for_small_ones(tmp_path: Path) -> None:
    small: Tensor = ("blk.0.attn_q.weight", (128, 4), 42, g128(4))
    large: Tensor = ("blk.0.attn_k.weight", (128, 64), 42, g128(64))
    for order in ([small, large], [large, small]):
        assert {each[0] for each in matrices(write(tmp_path / "m.gguf", order)).values()} == {"pq2_0"}


def test_type_42_that_may_be_either_is_refused_until_it_is_said(tmp_path: Path) -> None:
    tensors: list[Tensor] = [(f"blk.{n}.attn_q.weight", (128, 4), 42, g128(4)) for n in range(2)]
    path = write(tmp_path / "m.gguf", tensors)
    with pytest.raises(WeightFileError, match=r"each of q2_0, pq2_0; legal: --layout g64 or g128: .*34 bytes for 128"):
        matrices(path)
    assert {each[0] for each in matrices(path, "g128").values()} == {"pq2_0"}
    assert {each[0] for each in matrices(path, "g64").values()} == {"q2_0"}
    with pytest.raises(InvalidArgumentError, match="legal: g64 or g128"):
        matrices(path, "arm")
    said = write(tmp_path / "said.gguf", tensors, [("tritmark.layout", STRING, text("g128"))])
    assert {each[0] for each in matrices(said).values()} == {"pq2_0"}


def test_a_file_without_padding_at_its_end_decides(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", [("blk.0.attn_q.weight", (128, 4), 42, g128(4))])
    path.write_bytes(path.read_bytes()[: -(-4 * 34 % 32)])
    assert matrices(path)["blk.0.attn_q.weight"][0] == "pq2_0"


@pytest.mark.parametrize("layout", ["quads", "stride16"])
def test_stq_under_type_42_has_a_layout(layout: str) -> None:
    form = FORMATS["stq1_0_quads" if layout == "quads" else "stq1_0"]
    path = VECTORS / "gguf_type42_stq_a.gguf"
    found, codes, _ = matrices(path, layout)["blk.0.attn_q.weight"]
    assert found == form.name
    with open_weights(path) as source:
        raw = source.read_bytes("blk.0.attn_q.weight")
    np.testing.assert_array_equal(codes, form.unpack(raw, codes.shape)[0])


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("code", [37, 4, 999])
def test_an_unknown_type_is_listed_and_the_rest_is_read(tmp_path: Path, place: int, code: int) -> None:
    tensors: list[Tensor] = [(f"blk.{n}.attn_q.weight", (128, 4), 142, g128(4)) for n in range(2)]
    tensors.insert(place, ("enc.w", (32, 2), code, b"\1" * 96))
    path = write(tmp_path / "m.gguf", tensors)
    assert len(matrices(path)) == 2
    with open_weights(path) as source:
        weights = TernaryWeights(source, holders_of(installed()))
        (found,) = left_out(weights, {each.name for each in weights.matrices})
    assert found.names == ("enc.w",)
    assert found.reason.startswith(f"GGUF type {code}")
    out = tmp_path / "out.gguf"
    convert(path, out, "q2_0", holders_of(installed()))
    assert compare(path, out, holders_of(installed())).differences == ()


def test_users_of_a_number_are_named() -> None:
    assert described("type_37") == "GGUF type 37 (I8_S of bitnet.cpp, int8 values)"
    assert described("type_999") == "GGUF type 999"
    assert described("q2_0") == "q2_0"


INT8 = np.array([[0, 1, -1, 1] * 10, [1, 1, 0, -1] * 10, [-1] * 40], np.int8)


def int8_model(path: Path, values: Any, behind: bytes, beside: float | None = None) -> Path:
    """A model with a matrix of I8_S between two others."""
    tensors: list[Tensor] = [
        ("blk.0.attn_q.weight", (128, 4), 142, g128(4)),
        ("enc.0.weight", values.shape[::-1], 37, values.tobytes() + behind),
    ]
    if beside is not None:
        tensors.append(("enc.0.scale", (1,), 0, np.float32(beside).tobytes()))
    return write(path, [*tensors, ("blk.0.attn_k.weight", (128, 4), 142, g128(4))])


@pytest.mark.parametrize("behind", [b"", b"\0" * 32, np.float32(0.5).tobytes(), np.float32(0.5).tobytes() + bytes(28)])
@pytest.mark.parametrize("beside", [None, 4.0])
def test_int8_values_that_are_codes(tmp_path: Path, behind: bytes, beside: float | None) -> None:
    path = int8_model(tmp_path / "m.gguf", INT8, behind, beside)
    _, codes, scale = matrices(path)["enc.0.weight"]
    np.testing.assert_array_equal(codes, INT8, strict=True)
    assert scale == (0.5 if any(behind) else 1) * (beside or 1)
    out = tmp_path / "out.gguf"
    if beside is None:
        convert(int8_model(tmp_path / "n.gguf", np.tile(INT8, 16), behind), out, "pq2_0", holders_of(installed()))
        format, codes, scales = matrices(out)["enc.0.weight"]
        assert format == "pq2_0"
        np.testing.assert_array_equal(codes, np.tile(INT8, 16))
        assert (scales == (0.5 if any(behind) else 1)).all()


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (np.where(INT8 == -1, -127, INT8 * 127).astype(np.int8), "127 at [0, 1], ternary is -1, 0 or 1"),
        (np.where(np.arange(120).reshape(3, 40) == 119, 2, INT8).astype(np.int8), "2 at [2, 39]"),
        (np.ones((3, 40), np.int8), "all values are 1"),
    ],
)
def test_other_int8_values_are_listed_and_passed_through(tmp_path: Path, values: Any, told: str) -> None:
    path, out = int8_model(tmp_path / "m.gguf", values, np.float32(0.5).tobytes()), tmp_path / "out.gguf"
    assert set(matrices(path)) == {"blk.0.attn_q.weight", "blk.0.attn_k.weight"}
    with open_weights(path) as source:
        weights = TernaryWeights(source, holders_of(installed()))
        (found,) = left_out(weights, {each.name for each in weights.matrices})
        assert found.names == ("enc.0.weight",)
        assert told in found.reason
    convert(path, out, "q2_0", holders_of(installed()))
    assert compare(path, out, holders_of(installed())).differences == ()
    with pytest.raises(InvalidArgumentError, match=r"enc\.0\.weight"):
        convert(path, tmp_path / "out.safetensors", "hf_pack", holders_of(installed()))


@pytest.mark.parametrize("scale", [np.nan, np.inf, -0.5])
def test_a_scale_of_int8_codes_that_is_no_scale_is_refused(tmp_path: Path, scale: float) -> None:
    with pytest.raises(WeightFileError, match="behind the values"):
        matrices(int8_model(tmp_path / "m.gguf", INT8, np.float32(scale).tobytes()))


KEPT = {
    **{f"gguf_type{kind}_a": ("q2_0", "pq2_0") for kind in ("142", "142_legacy", "42_g128")},
    "gguf_type42_g64_a": ("q2_0",),
    "gguf_type143_a": ("q2_0", "pq2_0", "ptq1_0"),
    "gguf_type43_stq_a": ("q2_0", "pq2_0", "ptq1_0", "tq2_0", "tq1_0"),
    "gguf_type42_stq_a": ("pq2_0", "ptq1_0", "tq2_0", "tq1_0"),
    "gguf_hadamard_a": ("q2_0", "pq2_0"),
}
"""For each file, the formats that hold all of its matrices."""


@pytest.mark.parametrize(("stem", "target"), [(stem, target) for stem, targets in KEPT.items() for target in targets])
def test_conversion_keeps_codes_and_scales(tmp_path: Path, stem: str, target: str) -> None:
    source, out = VECTORS / f"{stem}.gguf", tmp_path / "out.gguf"
    convert(source, out, target, holders_of(installed()))
    before, after = matrices(source), matrices(out)
    assert set(after) == set(before)
    for name, (format, codes, scale) in after.items():
        assert format == target
        _, expected, scales = before[name]
        np.testing.assert_array_equal(codes, expected)
        finest = max(scale.shape[-1], scales.shape[-1])
        found, wanted = (np.repeat(each, finest // each.shape[-1], axis=-1) for each in (scale, scales))
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("stem", "target", "told"),
    [
        ("gguf_type142_a", "tq2_0", "with different scales"),
        ("gguf_hadamard_a", "tq2_0", "cannot hold"),
        ("gguf_type142_a", "i2_s_x86", "with experts"),
    ],
)
def test_conversion_that_would_change_weights_is_refused(tmp_path: Path, stem: str, target: str, told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        convert(VECTORS / f"{stem}.gguf", tmp_path / "out.gguf", target, holders_of(installed()))
    assert list(tmp_path.iterdir()) == []


# ---- scales beside


def tq2_0(rows: int, scale: float = 1.0) -> bytes:
    return (bytes([0b01100100]) * 64 + struct.pack("<e", scale)) * rows


def beside(path: Path, name: str, values: list[float], kind: int = F32) -> Path:
    raw = struct.pack(f"<{len(values)}f", *values)
    tensors: list[Tensor] = [("blk.0.attn_q.weight", (256, 4), 35, tq2_0(4, 3.0)), (name, (len(values),), kind, raw)]
    return write(path, tensors)


def test_a_scale_beside_is_multiplied_in(tmp_path: Path) -> None:
    path = beside(tmp_path / "m.gguf", "blk.0.attn_q.scale", [0.5])
    assert np.unique(matrices(path)["blk.0.attn_q.weight"][2]).tolist() == [1.5]
    convert(path, tmp_path / "out.gguf", "i2_s_x86", holders_of(installed()))
    assert matrices(tmp_path / "out.gguf")["blk.0.attn_q.weight"][2] == np.float32(1.5)
    with open_weights(tmp_path / "out.gguf") as source:
        assert [each.name for each in source.tensors] == ["blk.0.attn_q.weight"]


@pytest.mark.parametrize("name", ["blk.0.attn_q.input_scale", "blk.0.attn_q.weight_scale", "blk.0.attn_q.scales"])
def test_a_scale_that_is_not_understood_is_refused_unless_it_is_one(tmp_path: Path, name: str) -> None:
    with pytest.raises(WeightFileError, match=f"{name}.*of unknown meaning"):
        matrices(beside(tmp_path / "m.gguf", name, [2.0]))
    assert np.unique(matrices(beside(tmp_path / "m.gguf", name, [1.0]))["blk.0.attn_q.weight"][2]).tolist() == [3.0]


def test_a_scale_for_each_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightFileError, match=r"blk.0.attn_q.scale.*shape \(4,\), of unknown meaning"):
        matrices(beside(tmp_path / "m.gguf", "blk.0.attn_q.scale", [1.0, 2.0, 1.0, 1.0]))


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, -1.0])
def test_a_factor_that_cannot_be_is_refused(tmp_path: Path, value: float) -> None:
    with pytest.raises(WeightFileError, match=r"attn_q\.scale.*legal: a finite number above 0"):
        matrices(beside(tmp_path / "m.gguf", "blk.0.attn_q.scale", [value]))


def test_scales_of_other_tensors_are_left_alone(tmp_path: Path) -> None:
    for name in ("blk.0.attn_q2.scale", "blk.0.attn_q_norm.scale", "blk.1.attn_q.scale", "scale"):
        path = beside(tmp_path / "m.gguf", name, [2.0])
        assert np.unique(matrices(path)["blk.0.attn_q.weight"][2]).tolist() == [3.0]


def test_a_scale_beside_i2_s_is_multiplied_in(tmp_path: Path) -> None:
    raw = bytes([0x55]) * 128 + struct.pack("<f", 0.5) + bytes(28)
    scale = ("blk.0.attn_q.scale", (1,), F32, struct.pack("<f", 4))
    path = write(tmp_path / "m.gguf", [("blk.0.attn_q.weight", (128, 4), 36, raw), scale])
    assert matrices(path)["blk.0.attn_q.weight"][2] == np.float32(2)


# ---- NaN and infinity


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("kind", "columns", "block", "at", "float"),
    [(35, 256, 66, 64, "<e"), (142, 128, 34, 0, "<e"), (143, 128, 28, 26, "<e"), (135, 256, 68, 0, "<f")],
)
def test_scales_that_are_not_finite_are_errors_of_the_file(
    tmp_path: Path, kind: int, columns: int, block: int, at: int, float: str, value: float
) -> None:
    raw = bytearray(block * 4)
    struct.pack_into(float, raw, 2 * block + at, value)
    path = write(tmp_path / "m.gguf", [("blk.0.attn_q.weight", (columns, 4), kind, bytes(raw))])
    with open_weights(path) as source:
        weights = TernaryWeights(source, holders_of(installed()))
        with pytest.raises(WeightFileError, match=rf"blk\.0\.attn_q\.weight.*a scale of {value} in row 2") as caught:
            weights.require_finite()
        assert ("block 0" in str(caught.value)) == (kind != 135)
        with pytest.raises(WeightFileError, match="in row 2"):
            weights.read(weights.matrices[0])


def test_master_weights_that_are_not_finite_are_errors_of_the_file(tmp_path: Path) -> None:
    values = np.ones((300, 256), np.float32)
    values[299, 7] = np.inf
    save_file({"model.layers.0.mlp.up_proj.weight": values}, tmp_path / "m.safetensors")
    told = r"up_proj\.weight.*inf at \[299, 7\]"
    with open_weights(tmp_path / "m.safetensors") as source, pytest.raises(WeightFileError, match=told):
        TernaryWeights(source, holders_of(installed())).require_finite()


# ---- prism.hadamard


KEYS: dict[str, Any] = {
    "version": (UINT32, struct.pack("<I", 1)),
    "block_size": (UINT32, struct.pack("<I", 128)),
    "transform": (STRING, text("normalized-sylvester-walsh-hadamard")),
    "axis": (STRING, text("input-last-dimension")),
    "sign_mode": (STRING, text("explicit")),
    "sign_widths": (ARRAY, struct.pack("<IQi", 5, 1, 128)),
    "sign_values": (ARRAY, struct.pack("<IQ128i", 5, 128, *[-1, 1] * 64)),
    "weight_names": (ARRAY, struct.pack("<IQ", 8, 1) + text("blk.0.attn_q.weight")),
}


def rotated(path: Path, **changes: Any) -> Path:
    keys = {name: each for name, each in {**KEYS, **changes}.items() if each is not None}
    pairs = [(f"prism.hadamard.{name}", *each) for name, each in keys.items()]
    return write(path, [("blk.0.attn_q.weight", (128, 4), 142, g128(4))], pairs)


def transform(path: Path) -> str:
    with open_weights(path) as source:
        return TernaryWeights(source, holders_of(installed())).transform


def test_the_transform_is_told(tmp_path: Path) -> None:
    for path in (rotated(tmp_path / "m.gguf"), VECTORS / "gguf_hadamard_a.gguf"):
        told = transform(path)
        assert "(version 1)" in told
        assert "the transform is not applied" in told
    alone = write(
        tmp_path / "a.gguf",
        [("blk.0.attn_q.weight", (128, 4), 142, g128(4))],
        [("prism.hadamard.block_size", *KEYS["block_size"])],
    )
    assert "no version given" in transform(alone)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"version": (UINT32, struct.pack("<I", 9))}, "version 9"),
        ({"version": (STRING, text("1"))}, "version '1'"),
        ({"block_size": None}, "block_size missing"),
        ({"block_size": (UINT32, struct.pack("<I", 96))}, "block_size 96"),
        ({"block_size": (UINT32, struct.pack("<I", 256))}, "block_size 256, and 'blk.0.attn_q.weight' has 128"),
        ({"transform": (STRING, text("dct"))}, "transform 'dct'"),
        ({"axis": (STRING, text("output"))}, "axis 'output'"),
        ({"sign_mode": (STRING, text("identity"))}, "sign_values 128 values"),
        ({"sign_values": None}, "sign_values missing"),
        ({"sign_values": (ARRAY, struct.pack("<IQ2i", 5, 2, 1, 1))}, "sign_values 2 values"),
        ({"sign_values": (ARRAY, struct.pack("<IQ128i", 5, 128, *[0] * 128))}, "sign_values with 0"),
        ({"sign_widths": (ARRAY, struct.pack("<IQ2i", 5, 2, 64, 64))}, "sign_widths without 128"),
        ({"weight_names": None}, "weight_names missing"),
        ({"weight_names": (UINT32, bytes(4))}, "weight_names of another type"),
        ({"sign_widths": (ARRAY, struct.pack("<IQ", 8, 1) + text("a"))}, "sign_widths of another type"),
        ({"sign_values": (STRING, text("a"))}, "sign_values of another type"),
        ({"weight_names": (ARRAY, struct.pack("<IQ", 8, 1) + text("other"))}, "weight_names with 'other'"),
    ],
)
def test_keys_that_contradict_are_refused(tmp_path: Path, changes: dict[str, Any], key: str) -> None:
    with pytest.raises(WeightFileError) as caught:
        transform(rotated(tmp_path / "m.gguf", **changes))
    assert caught.value.found.startswith(f"prism.hadamard.{key}")


def test_an_unknown_version_of_a_whole_file_is_refused() -> None:
    with pytest.raises(WeightFileError, match=r"prism\.hadamard\.version 9; legal: 1 or 2"):
        transform(VECTORS / "gguf_hadamard_unknown_version_a.gguf")


def test_the_rotation_of_a_tensor_is_read(tmp_path: Path) -> None:
    name, grouped = "blk.0.attn_q.weight", (BOOL, b"\1")
    for path, signs in (
        (rotated(tmp_path / "m.gguf", gdn_v_grouped=grouped), [-1, 1] * 64),
        (rotated(tmp_path / "n.gguf", sign_mode=(STRING, text("identity")), sign_values=None, sign_widths=None), None),
    ):
        with open_weights(path) as source:
            found = rotation_of(source, name)
            assert found is not None
            assert (found.block_size, found.inverse, found.heads) == (128, False, None)
            assert (found.signs if found.signs is None else found.signs.tolist()) == signs
            assert rotation_of(source, "other") is None
    plain = write(tmp_path / "plain.gguf", [(name, (128, 4), 142, g128(4))])
    alone = write(
        tmp_path / "a.gguf", [(name, (128, 4), 142, g128(4))], [("prism.hadamard.block_size", *KEYS["block_size"])]
    )
    with open_weights(plain) as source:
        assert rotation_of(source, name) is None
    with open_weights(alone) as source, pytest.raises(WeightFileError, match="weight_names missing"):
        rotation_of(source, name)


def test_grouped_heads_are_those_of_the_published_model(tmp_path: Path) -> None:
    def written(path: Path, columns: int) -> Path:
        names = (ARRAY, struct.pack("<IQ", 8, 1) + text("blk.0.ssm_out.weight"))
        keys = {**KEYS, "sign_mode": (STRING, text("identity")), "weight_names": names, "gdn_v_grouped": (BOOL, b"\1")}
        pairs = [(f"prism.hadamard.{key}", *each) for key, each in keys.items() if not key.startswith("sign_v")]
        pairs = [each for each in pairs if not each[0].endswith("sign_widths")]
        return write(path, [("blk.0.ssm_out.weight", (columns, 2), 142, g128(2 * columns // 128))], pairs)

    with open_weights(written(tmp_path / "m.gguf", 6144)) as source:
        found = rotation_of(source, "blk.0.ssm_out.weight")
        assert found is not None
        assert found.heads == (128, 16, 3)
    with open_weights(written(tmp_path / "n.gguf", 256)) as source, pytest.raises(WeightFileError, match="256 columns"):
        rotation_of(source, "blk.0.ssm_out.weight")


def test_the_keys_are_compared_and_kept(tmp_path: Path) -> None:
    holders = holders_of(installed())
    path = rotated(tmp_path / "m.gguf")
    plain = write(tmp_path / "plain.gguf", [("blk.0.attn_q.weight", (128, 4), 142, g128(4))])
    differences = compare(path, plain, holders).differences
    assert {each.what for each in differences} == {"metadata"}
    assert {each.name for each in differences} == {f"prism.hadamard.{name}" for name in KEYS}
    flipped = (ARRAY, struct.pack("<IQ128i", 5, 128, *[1, -1] * 64))
    (one,) = compare(path, rotated(tmp_path / "n.gguf", sign_values=flipped), holders).differences
    assert (one.name, one.what) == ("prism.hadamard.sign_values", "metadata")
    convert(path, tmp_path / "out.gguf", "q2_0", holders)
    assert compare(path, tmp_path / "out.gguf", holders).differences == ()
    with pytest.raises(InvalidArgumentError, match=r"prism\.hadamard.*legal: from a \.gguf file to a \.gguf file"):
        convert(path, tmp_path / "out.safetensors", "hf_pack", holders)
    assert not (tmp_path / "out.safetensors").exists()


# ---- what a token reads


def embedded(*more: Tensor) -> list[Tensor]:
    return [("token_embd.weight", (128, 8), 142, g128(8)), ("blk.0.attn_q.weight", (128, 4), 142, g128(4)), *more]


def names_and_reasons(path: Path) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    with open_weights(path) as source:
        weights = TernaryWeights(source, holders_of(installed()))
        names = [each.name for each in judged(weights)]
        return names, {each.reason: each.names for each in left_out(weights, names)}


def test_an_embedding_beside_a_head_is_no_layer(tmp_path: Path) -> None:
    head = ("output.weight", (128, 8), 142, g128(8))
    names, reasons = names_and_reasons(write(tmp_path / "m.gguf", embedded(head)))
    assert names == ["blk.0.attn_q.weight", "output.weight"]
    assert reasons == {"embedding, of which a token reads one row": ("token_embd.weight",)}
    floats = ("output.weight", (128, 1), F32, bytes(512))
    assert names_and_reasons(write(tmp_path / "f.gguf", embedded(floats)))[0] == ["blk.0.attn_q.weight"]


def test_an_embedding_that_is_the_head_is_read_whole(tmp_path: Path) -> None:
    names, reasons = names_and_reasons(write(tmp_path / "m.gguf", embedded()))
    assert (names, reasons) == (["token_embd.weight", "blk.0.attn_q.weight"], {})


def test_experts_are_listed_with_how_many_a_token_reads(tmp_path: Path) -> None:
    experts = ("blk.0.ffn_up_exps.weight", (128, 4, 8), 142, g128(32))
    pairs = [
        (f"qwen3moe.{key}", UINT32, struct.pack("<I", n)) for key, n in (("expert_count", 8), ("expert_used_count", 2))
    ]
    path = write(tmp_path / "m.gguf", embedded(experts), pairs)
    assert names_and_reasons(path) == (["token_embd.weight", "blk.0.attn_q.weight", "blk.0.ffn_up_exps.weight"], {})
    with open_weights(path) as source:
        assert reads_of(TernaryWeights(source, holders_of(installed())))["blk.0.ffn_up_exps.weight"] == 2
    unstated = write(tmp_path / "unstated.gguf", embedded(experts), pairs[:1])
    told = "ternary experts, and the metadata does not state how many a token reads"
    assert names_and_reasons(unstated)[1] == {told: ("blk.0.ffn_up_exps.weight",)}
    for changed, told in (
        ([("q.expert_count", UINT32, struct.pack("<I", 4)), *pairs[1:]], "8 experts; legal: 4"),
        ([*pairs[:1], ("q.expert_used_count", UINT32, struct.pack("<I", 9))], "9 of 8 experts"),
        ([*pairs, ("q.expert_count", UINT32, struct.pack("<I", 9))], "expert_count 9, and 8 elsewhere"),
    ):
        with pytest.raises(WeightFileError, match=told):
            names_and_reasons(write(tmp_path / "m.gguf", embedded(experts), changed))
