"""Valid weight files: every value equals an independent reading of the same file."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from tritmark.harness.errors import InvalidArgumentError, WeightFileError
from tritmark.harness.weights import WeightSource, open_weights

FLOAT_DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float64": np.float64}


def values(shape: tuple[int, ...], dtype: str = "float32", seed: int = 7) -> NDArray[np.generic]:
    return np.random.default_rng(seed).standard_normal(shape).astype(FLOAT_DTYPES[dtype])


def write_gguf(path: Path, tensors: dict[str, tuple[NDArray[Any], GGMLQuantizationType | None]]) -> Path:
    writer = gguf.GGUFWriter(path, "test")
    writer.add_array("tokenizer.ggml.tokens", ["a", "bc", ""])
    writer.add_array("tokenizer.ggml.scores", [1.0, 2.0])
    for name, (array, kind) in tensors.items():
        writer.add_tensor(name, array, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    path = tmp_path / "mixed.safetensors"
    tensors = {name: values((5, 6), name, seed) for seed, name in enumerate(FLOAT_DTYPES)}
    tensors |= {"vector": values((9,)), "cube": values((2, 3, 4)), "scalar": values(()), "none": values((0, 4))}
    tensors |= {"ids": np.arange(6).reshape(2, 3), "packed": np.arange(6, dtype=np.uint8).reshape(2, 3)}
    save_file(tensors, path, metadata={"format": "pt", "note": "\u202e{["})
    return path


def test_every_float_tensor_equals_the_library_reading(mixed: Path) -> None:
    expected = load_file(mixed)
    with open_weights(mixed) as source:
        assert source.path == str(mixed)
        assert {tensor.name for tensor in source.tensors} == set(expected)
        for tensor in source.tensors:
            assert tensor.shape == expected[tensor.name].shape
            assert tensor.nbytes == expected[tensor.name].nbytes
            assert tensor.dtype == expected[tensor.name].dtype.name
            assert tensor.file == mixed
            assert tensor.readable == (tensor.dtype in FLOAT_DTYPES)
            if tensor.readable:
                got = source.read(tensor.name)
                assert got.dtype == np.float32
                assert got.flags.writeable
                np.testing.assert_array_equal(got, expected[tensor.name].astype(np.float32), strict=True)


def test_matrices_are_the_2d_floats_in_file_order(mixed: Path) -> None:
    with open_weights(mixed) as source:
        matrices = list(source.matrices())
        assert {tensor.name for tensor in matrices} == set(FLOAT_DTYPES)
        assert [tensor.offset for tensor in matrices] == sorted(tensor.offset for tensor in matrices)


def test_file_order_is_that_of_the_data_not_of_the_names(tmp_path: Path) -> None:
    header = json.dumps(
        {
            "second": {"dtype": "F32", "shape": [1, 1], "data_offsets": [4, 8]},
            "empty": {"dtype": "F32", "shape": [3, 0], "data_offsets": [4, 4]},
            "first": {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]},
        }
    ).encode()
    path = tmp_path / "order.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<2f", 1.0, 2.0))
    with open_weights(path) as source:
        assert [tensor.name for tensor in source.tensors] == ["first", "empty", "second"]
        assert [tensor.name for tensor in source.matrices()] == ["first", "second"]
        assert source.read("second").item() == 2.0
        assert source.read("empty").shape == (3, 0)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize(
    "rows",
    [
        slice(None),
        slice(0, 1),
        slice(3, 7),
        slice(-2, None),
        slice(5, 99),
        slice(4, 4),
        slice(6, 2),
        slice(np.int64(1), 3, 1),
    ],
)
def test_row_ranges_are_those_of_the_array(tmp_path: Path, dtype: str, rows: slice) -> None:
    tensors = {"before": values((3,)), "w": values((11, 5), dtype), "x": values((11, 2, 3), dtype)}
    save_file(tensors, tmp_path / "m.safetensors")
    with open_weights(tmp_path / "m.safetensors") as source:
        for name in ("w", "x"):
            np.testing.assert_array_equal(source.read(name, rows), tensors[name][rows].astype(np.float32), strict=True)


def test_float64_is_rounded_once_and_overflows_to_infinity(tmp_path: Path) -> None:
    halfway = 1 + 2.0**-24
    array = np.array([[halfway, np.nextafter(halfway, 2), 1e300, -1e300, np.nan, 1e-320]])
    save_file({"w": array}, tmp_path / "m.safetensors")
    with open_weights(tmp_path / "m.safetensors") as source:
        got = source.read("w")
    np.testing.assert_array_equal(got, np.array([[1.0, 1 + 2.0**-23, np.inf, -np.inf, np.nan, 0.0]], np.float32))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_all_16_bit_patterns_widen_exactly(tmp_path: Path, dtype: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256).view(FLOAT_DTYPES[dtype])
    save_file({"w": every}, tmp_path / "m.safetensors")
    with open_weights(tmp_path / "m.safetensors") as source, np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(source.read("w"), every.astype(np.float32), strict=True)


def test_data_that_is_not_aligned_is_read_exactly(tmp_path: Path) -> None:
    header = json.dumps(
        {
            "flag": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
            "w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [3, 19]},
        }
    ).encode()
    path = tmp_path / "odd.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"abc" + values((2, 2)).tobytes())
    with open_weights(path) as source:
        np.testing.assert_array_equal(source.read("w"), values((2, 2)), strict=True)


def test_a_folder_of_shards_is_one_source(tmp_path: Path) -> None:
    parts = [{f"layer{part}.{row}": values((4, 3), seed=10 * part + row) for row in range(3)} for part in range(3)]
    for number, tensors in enumerate(parts, 1):
        save_file(tensors, tmp_path / f"model-{number:05}-of-00003.safetensors")
    (tmp_path / "._model-00001-of-00003.safetensors").write_text("left by another system")
    with open_weights(tmp_path) as source:
        assert [tensor.name[:6] for tensor in source.tensors] == ["layer0"] * 3 + ["layer1"] * 3 + ["layer2"] * 3
        for tensors in parts:
            for name, array in tensors.items():
                np.testing.assert_array_equal(source.read(name), array, strict=True)
        assert len({tensor.file for tensor in source.tensors}) == len(parts)


def test_a_symlink_to_a_regular_file_is_fine(mixed: Path, tmp_path: Path) -> None:
    (tmp_path / "link.safetensors").symlink_to(mixed)
    with open_weights(str(tmp_path / "link.safetensors")) as source:
        assert source.read("float32").shape == (5, 6)


def test_gguf_values_and_numpy_shapes(tmp_path: Path) -> None:
    plain = {name: values((7, 64), name) for name in ("float32", "float16", "float64")}
    bf16 = values((7, 64), "bfloat16")
    tensors: dict[str, tuple[NDArray[Any], GGMLQuantizationType | None]] = {
        name: (array, None) for name, array in plain.items()
    }
    tensors["bfloat16"] = bf16.view(np.uint8), GGMLQuantizationType.BF16
    tensors["ids"] = np.arange(3, dtype=np.int32), None
    tensors["cube"] = values((2, 3, 4)), None
    path = write_gguf(tmp_path / "m.gguf", tensors)
    with open_weights(path) as source:
        shapes = {tensor.name: tensor.shape for tensor in source.tensors}
        assert shapes == dict.fromkeys([*plain, "bfloat16"], (7, 64)) | {"ids": (3,), "cube": (2, 3, 4)}
        assert [tensor.name for tensor in source.matrices()] == [*plain, "bfloat16"]
        assert {tensor.name: tensor.dtype for tensor in source.matrices()} == {name: name for name in FLOAT_DTYPES}
        for name, array in (plain | {"bfloat16": bf16}).items():
            np.testing.assert_array_equal(source.read(name), array.astype(np.float32), strict=True)
            np.testing.assert_array_equal(source.read(name, slice(2, 5)), array[2:5].astype(np.float32), strict=True)
    for tensor in gguf.GGUFReader(path).tensors:
        assert shapes[tensor.name] == tuple(int(size) for size in tensor.shape)[::-1]


@pytest.mark.parametrize("kind", ["Q8_0", "TQ1_0", "TQ2_0"])
def test_gguf_block_types_equal_their_defining_formula(tmp_path: Path, kind: str) -> None:
    codes = np.random.default_rng(1).integers(-1, 2, (5, 512))
    scale = np.float32(0.375)  # exact in float16, the dtype of a block's scale
    weights = (codes * scale).astype(np.float32)
    quantized = gguf.quants.quantize(weights, GGMLQuantizationType[kind])
    path = write_gguf(
        tmp_path / "m.gguf", {"before": (values((5,)), None), "w": (quantized, GGMLQuantizationType[kind])}
    )
    with open_weights(path) as source:
        (tensor,) = source.matrices()
        assert (tensor.name, tensor.shape, tensor.dtype, tensor.nbytes) == (
            "w",
            (5, 512),
            kind.lower(),
            quantized.nbytes,
        )
        # TQ scales are the block's absmax, so they are exact; q8_0's is absmax/127 in float16, off by half an ulp.
        bound = 0 if kind.startswith("TQ") else 2.0**-11 * scale
        assert np.abs(source.read("w") - weights).max() <= bound
        np.testing.assert_array_equal(source.read("w", slice(1, 4)), source.read("w")[1:4], strict=True)


def test_gguf_q4_0_and_i2_s_are_listed_but_not_read(tmp_path: Path) -> None:
    quantized = gguf.quants.quantize(values((4, 64)), GGMLQuantizationType.Q4_0)
    name = b"blk.0.ffn_up.weight"
    i2_s = struct.pack("<Q", len(name)) + name + struct.pack("<IQQIQ", 2, 128, 4, 36, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + i2_s
    (tmp_path / "b.gguf").write_bytes(head.ljust(-(-len(head) // 32) * 32, b"\0") + bytes(4 * 128 // 4 + 32))
    write_gguf(tmp_path / "q.gguf", {"w": (quantized, GGMLQuantizationType.Q4_0)})
    for file, dtype, shape in (("q.gguf", "q4_0", (4, 64)), ("b.gguf", "i2_s", (4, 128))):
        with open_weights(tmp_path / file) as source:
            (tensor,) = source.tensors
            assert (tensor.dtype, tensor.shape, tensor.readable) == (dtype, shape, False)
            assert list(source.matrices()) == []
            with pytest.raises(WeightFileError, match=f"is {dtype}; legal: one of float32, "):
                source.read(tensor.name)


@pytest.mark.parametrize(
    ("stored", "dtype", "nbytes"),
    [("I64", "int64", 64), ("U8", "uint8", 8), ("F8_E4M3", "float8_e4m3fn", 8), ("F4", "float4_e2m1fn", 4)],
)
def test_integers_and_small_floats_are_listed_but_not_read(
    tmp_path: Path, stored: str, dtype: str, nbytes: int
) -> None:
    header = json.dumps({"w": {"dtype": stored, "shape": [2, 4], "data_offsets": [0, nbytes]}}).encode()
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(nbytes))
    with open_weights(tmp_path / "m.safetensors") as source:
        assert [(tensor.dtype, tensor.nbytes) for tensor in source.tensors] == [(dtype, nbytes)]
        assert list(source.matrices()) == []
        with pytest.raises(WeightFileError, match=f"'w' is {dtype}; legal: one of float32, "):
            source.read("w")


@pytest.mark.parametrize("rows", [slice(0, 4, 2), slice(None, None, -1), slice(0.5, 2), slice("a"), 3])
def test_rows_that_are_no_plain_range_are_refused(mixed: Path, rows: slice) -> None:
    with open_weights(mixed) as source, pytest.raises(InvalidArgumentError, match=r"weights\.read: rows"):
        source.read("float32", rows)


@pytest.mark.parametrize("name", ["vector", "scalar"])
def test_rows_need_a_tensor_that_has_rows(mixed: Path, name: str) -> None:
    with open_weights(mixed) as source, pytest.raises(InvalidArgumentError, match="fewer than 2 dimensions"):
        source.read(name, slice(0, 1))


def test_an_unknown_name_is_refused_and_shown_inert(mixed: Path) -> None:
    with open_weights(mixed) as source, pytest.raises(InvalidArgumentError) as caught:
        source.read("\x1b[31m\u202e" + "x" * 5000)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_a_closed_source_says_so(mixed: Path) -> None:
    source = open_weights(mixed)
    source.close()
    source.close()
    with pytest.raises(WeightFileError, match="inside the `with` block"):
        source.read("float32")


def test_a_file_that_shrinks_after_opening_is_an_error(mixed: Path) -> None:
    with open_weights(mixed) as source:
        with mixed.open("r+b") as file:
            file.truncate(mixed.stat().st_size - 100)
        last = max((tensor for tensor in source.tensors if tensor.readable), key=lambda tensor: tensor.offset)
        with pytest.raises(WeightFileError, match="bytes too early; legal"):
            source.read(last.name)


def test_files_are_closed_when_a_later_shard_is_bad(tmp_path: Path) -> None:
    save_file({"w": values((2, 2))}, tmp_path / "a.safetensors")
    (tmp_path / "b.safetensors").write_bytes(b"")
    # A file left open would give a ResourceWarning, which pytest turns into an error.
    with pytest.raises(WeightFileError, match=r"b\.safetensors"):
        open_weights(tmp_path)


def test_a_source_is_made_by_open_weights_only_of_checked_files(mixed: Path) -> None:
    with open_weights(mixed) as source:
        assert isinstance(source, WeightSource)
        assert sum(tensor.nbytes for tensor in source.tensors) + source.tensors[0].offset == mixed.stat().st_size
