"""ternary_matmul by look-up, straight from the bytes of tl1 and tl2: the same accumulators and bits as from any other
format."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.validate.guards import GuardedArray
from tritmark.kernels import QuantizedLinear, pack_weights
from tritmark.kernels.formats.tl1 import TL1_FORMAT
from tritmark.kernels.formats.tl2 import TL2_FORMAT
from tritmark.kernels.formats.tl_layout import TL, Layout
from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_matmul.api import with_receipt

FORMATS = {"tl1": TL1_FORMAT, "tl2": TL2_FORMAT}
every_kernel = pytest.mark.parametrize(
    ("format", "variant"),
    [
        (format, isa.name)
        for format in FORMATS
        for isa in cpu.KERNELS[f"ternary_matmul_{format}"]
        if isa.features <= cpu.features()
    ],
)


def sums(
    form: TL,
    variant: str,
    activations: npt.NDArray[np.int8],
    codes: npt.NDArray[np.int8],
    layout: Layout,
    threads: int = 1,
) -> npt.NDArray[np.int32]:
    """The kernel's sums of weights in a layout that need not be the shape's own, with guards around all that it is
    given."""
    packed = form.pack(codes, 1.0, **layout._asdict())
    weights = GuardedArray(packed.shape, np.dtype(np.uint8), seed=1, offset=1)
    weights.array[...] = packed
    out = GuardedArray((len(activations), len(codes)), np.dtype(np.int32), seed=2)
    out.poison()
    one = np.ones(len(activations), np.float32)
    call = cpu.native("ternary_matmul").TernaryMatmul(
        form.name, variant, activations, weights.array, len(codes), 1.0, one, out.array, threads, layout
    )
    call.run()
    assert call.ran == variant
    assert not out.broken()
    return out.array.copy()


@every_kernel
@given(
    st.integers(1, 9) | st.integers(60, 70),
    st.integers(1, 20),
    st.integers(1, 40),
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 37]),
    st.integers(1, 5),
    st.sampled_from(["int32", "float32", "bfloat16"]),
)
def test_the_bits_are_those_of_the_repacked_product(
    format: str, variant: str, M: int, rows: int, columns: int, seed: int, gap: int, threads: int, dtype: str
) -> None:
    N, K = 32 * rows, columns * FORMATS[format].column_multiple
    rng = np.random.default_rng(seed)
    activations = rng.integers(-128, 128, (M, K + gap), dtype=np.int8)[:, :K]
    codes = rng.integers(-1, 2, (N, K), dtype=np.int8)
    scale, act_scale = np.float32(rng.uniform(1e-3, 10)), rng.uniform(1e-2, 1e3, M).astype(np.float32)
    weights = pack_weights(codes, scale, format=format)
    out, receipt = with_receipt(
        activations, weights, act_scale=act_scale, dtype=dtype, variant=variant, threads=threads
    )
    assert (receipt.kernel, receipt.ran, receipt.note) == (
        f"cpu/ternary_matmul/{format}/{dtype}/{variant}",
        variant,
        "",
    )
    expected, _ = with_receipt(
        activations, pack_weights(codes, scale), act_scale=act_scale, dtype=dtype, variant="scalar"
    )
    assert np.array_equal(out, expected)
    if dtype == "int32":
        assert np.array_equal(out, activations.astype(np.int64) @ codes.T.astype(np.int64))


@every_kernel
@given(st.data())
def test_any_layout_that_the_kernels_read_gives_the_same_sums(format: str, variant: str, data: st.DataObject) -> None:
    """Tiles of every size, chunks of the sums that end within a tile, and pairs beside the triples."""
    form, draw = FORMATS[format], data.draw
    if format == "tl1":
        layout = Layout(draw(st.integers(1, 9)) * 64, draw(st.integers(1, 40)) * 8, draw(st.sampled_from([32, 64])))
        K = layout.BK * draw(st.integers(1, 3))
    else:
        layout = Layout(draw(st.integers(1, 18)) * 32, draw(st.integers(1, 14)) * 24, 32)
        whole = draw(st.integers(0, 3))
        paired = [width for width in range(0, min(layout.BK, 257), 32) if whole or width]
        K = layout.BK * whole + draw(st.sampled_from(paired)) if paired else layout.BK
    M, N = draw(st.integers(1, 9)), layout.BM * draw(st.integers(1, 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    activations = rng.integers(-128, 128, (M, K), dtype=np.int8)
    codes = rng.integers(-1, 2, (N, K), dtype=np.int8)
    found = sums(form, variant, activations, codes, layout, draw(st.integers(1, 3)))
    assert np.array_equal(found, activations.astype(np.int64) @ codes.T.astype(np.int64))


@every_kernel
@pytest.mark.parametrize(("code", "activation"), [(1, -128), (-1, -128), (1, 127), (-1, 127)])
@pytest.mark.parametrize("K", [96, 2176, 4096, 65536])
@pytest.mark.parametrize("M", [1, 3])
def test_sums_of_the_largest_products_are_exact(
    format: str, variant: str, M: int, K: int, code: int, activation: int
) -> None:
    """K = 2176 is where bitnet.cpp's own sums overflow."""
    weights = pack_weights(np.full((32, K), code, np.int8), 1.0, format=format)
    acc, _ = with_receipt(np.full((M, K), activation, np.int8), weights, dtype="int32", variant=variant, threads=1)
    assert np.array_equal(acc, np.full((M, 32), code * activation * K))


@every_kernel
@pytest.mark.parametrize("signs", ["weights", "activations"])
def test_the_largest_sums_of_a_tile_are_exact(format: str, variant: str, signs: str) -> None:
    """All of one row's products of one sign, of the other row's of the other, in tiles of 1536 columns: the int16 and
    int8 sums are at their limits on both sides."""
    N, K = 64, 3072
    rng = np.random.default_rng(0)
    codes = np.where(rng.integers(0, 2, (N, K), dtype=np.int8), 1, -1).astype(np.int8)
    activations = np.stack([-127 * codes[0], 127 * codes[5], np.full(K, -128)]).astype(np.int8)
    if signs == "activations":
        codes[7], activations[0] = -1, -128
    for bm in (32, 64) if format == "tl1" else (32,):
        found = sums(FORMATS[format], variant, activations, codes, Layout(64, 1536, bm))
        assert np.array_equal(found, activations.astype(np.int64) @ codes.T.astype(np.int64))


@every_kernel
def test_every_entry_of_every_table_is_exact(format: str, variant: str) -> None:
    """Rows that hold each pair, or triple, of weights, times activations at the ends and in the middle."""
    ends = [-128, -127, -65, -1, 0, 1, 31, 64, 127]
    K = 96 * 8
    each = np.arange(K)
    width = 2 if format == "tl1" else 3
    codes = np.stack([row // 3 ** (each % width) % 3 - 1 for row in range(32)]).astype(np.int8)
    rng = np.random.default_rng(0)
    activations = rng.choice(ends, (300, K)).astype(np.int8)
    acc, _ = with_receipt(
        activations, pack_weights(codes, 1.0, format=format), dtype="int32", variant=variant, threads=2
    )
    assert np.array_equal(acc, activations.astype(np.int64) @ codes.T.astype(np.int64))


@pytest.mark.parametrize(("format", "layout"), [
    ("tl1", (64, 64, 16)), ("tl1", (0, 64, 32)), ("tl1", (48, 64, 32)), ("tl1", (96, 64, 32)), ("tl1", (64, 40, 32)),
    ("tl1", (64, 4, 64)), ("tl2", (64, 96, 64)), ("tl2", (64, 64, 32)), ("tl2", (96, 96, 32)), ("tl2", (64, 72, 32)),
    ("tl2", (64, 0, 32)), ("tl2", (0, 0, 0)),
])  # fmt: skip
def test_layouts_that_no_kernel_reads_are_refused(format: str, layout: tuple[int, int, int]) -> None:
    activations, out = np.ones((1, 128), np.int8), np.zeros((1, 64), np.int32)
    packed = FORMATS[format].pack(np.ones((64, 128), np.int8), 1.0)
    arguments: Any = (activations, packed, 64, 1.0, np.ones(1, np.float32), out, 1, layout)
    with pytest.raises(ValueError, match="with a layout of"):
        cpu.native("ternary_matmul").TernaryMatmul(format, "scalar", *arguments)
    assert not out.any()


@pytest.mark.parametrize(("format", "shape"), [("tl1", (48, 128)), ("tl2", (64, 48))])
def test_shapes_that_the_formats_do_not_hold_are_computed_from_others(format: str, shape: tuple[int, int]) -> None:
    weights = pack_weights(np.ones(shape, np.int8), 0.5, format="i2_s_x86_r4")
    out, receipt = with_receipt(np.ones((1, shape[1]), np.int8), weights)
    assert f"/{format}/" not in receipt.kernel
    assert np.array_equal(out, np.full((1, shape[0]), 0.5 * shape[1], np.float32))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("shape", [(1536, 1536), (3200, 3200)])
def test_a_layer_in_a_published_layout_computes_from_its_bytes(
    format: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(cpu.FORCE, raising=False)
    codes = np.random.default_rng(0).integers(-1, 2, shape, dtype=np.int8)
    x = np.random.default_rng(1).standard_normal((2, shape[1]), dtype=np.float32)
    layer = QuantizedLinear(pack_weights(codes, 0.5, format=format))
    assert np.array_equal(layer(x), QuantizedLinear(pack_weights(codes, 0.5))(x))
    assert layer.receipt is not None
    assert layer.receipt.kernel.startswith(f"cpu/ternary_matmul/{format}/float32/")
    assert layer.receipt.note == ""
