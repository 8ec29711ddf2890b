"""What Python shows of a layer, a bound call, packed weights and a receipt: what each is, on one line."""

from __future__ import annotations

import numpy as np

from tritmark.harness.spec import Launched, Proof, Receipt
from tritmark.kernels import QuantizedLinear, pack_weights

CODES = np.ones((16, 512), np.int8)
X = np.ones((3, 512), np.float32)


def test_a_layer() -> None:
    layer = QuantizedLinear(pack_weights(CODES, 0.5, format="i2_s_x86"), np.ones(16, np.float32), variant="scalar")
    assert repr(layer) == (
        "QuantizedLinear(in_features=512, out_features=16, bias=True, format='i2_s_x86', device='cpu', "
        "kernel='cpu/ternary_matmul/i2_s_x86/float32/scalar')"
    )
    assert repr(QuantizedLinear(CODES.astype(np.float32), threads=1)).endswith(", threads=1)")


def test_a_layer_names_the_kernel_that_runs() -> None:
    layer = QuantizedLinear(pack_weights(CODES, 0.5))
    layer(X[0])
    assert layer.receipt is not None
    assert f"kernel={layer.receipt.kernel!r}" in repr(layer)
    bound = layer.bind(X)
    bound.run()
    assert repr(bound) == (
        f"BoundLinear(x=(3, 512), out=(3, 16), format='tile64', device='cpu', kernel={bound.receipt.kernel!r})"
    )


def test_packed_weights() -> None:
    plain = pack_weights(CODES, 0.125, format="hf_pack")
    assert repr(plain) == "PackedWeights(shape=(16, 512), format='hf_pack', scale=0.125, nbytes=2048)"
    grouped = pack_weights(CODES, np.float32(0.5), format="tq1_0", variant="scalar").placed("first-touch")
    assert repr(grouped) == (
        f"PackedWeights(shape=(16, 512), format='tq1_0', scale=float32 of shape (16, 2), nbytes={grouped.data.nbytes}, "
        "variant='scalar', placement='first-touch')"
    )


def test_a_receipt_has_no_empty_fields() -> None:
    assert repr(Receipt(kernel="k", ran="avx2", runs=1, threads=2)) == (
        "Receipt(kernel='k', ran='avx2', runs=1, threads=2)"
    )
    full = Receipt(kernel="k", ran="numpy", runs=0, threads=1, native=False, simulated=True, note="why")
    assert repr(full) == (
        "Receipt(simulated=True, kernel='k', ran='numpy', runs=0, threads=1, native=False, note='why')"
    )
    launched = Launched(function="f", binary="b", grid=(1, 1, 1), block=(32, 1, 1))
    assert repr(Proof(launches=1, launched=(launched,))) == f"Proof(launches=1, launched=({launched!r},))"
    assert repr(Proof()) == "Proof()"
