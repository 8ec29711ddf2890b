"""What asv follows over this project's commits: every op and instruction set at one shape of a real model or of its kind.

Absolute times drift with the machine; they are for orientation, and regressions are judged by alternation in one process instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tritmark.kernels import (
    absmean_quantize,
    activation_quantize,
    cpu,
    i2s_dequantize,
    i2s_quantize,
    pack_weights,
    ternary_matmul,
    ternary_quantize,
)

ISAS = [isa for isa, (_, needed, _) in cpu.ISAS.items() if needed <= cpu.features()]
ELEMENTS = 1 << 20


class Quantize:
    """Ops over a vector of 2^20 floats; threads as by default."""

    params = (
        [
            "i2s_quantize",
            "i2s_dequantize",
            "absmean_quantize",
            "ternary_quantize",
            "ternary_quantize_packed",
            "activation_quantize",
        ],
        ISAS,
    )
    param_names = ("op", "variant")

    def setup(self, op: str, variant: str) -> None:
        x = np.random.default_rng(0).standard_normal(ELEMENTS, dtype=np.float32)
        codes = i2s_quantize(x, 0.7)
        rows = x.reshape(-1, 2560 // 5)
        calls = {
            "i2s_quantize": lambda: i2s_quantize(x, 0.7, variant=variant),
            "i2s_dequantize": lambda: i2s_dequantize(codes, 0.7, variant=variant),
            "absmean_quantize": lambda: absmean_quantize(x, variant=variant),
            "ternary_quantize": lambda: ternary_quantize(x, 128, variant=variant),
            "ternary_quantize_packed": lambda: ternary_quantize(x, 128, packed=True, variant=variant),
            "activation_quantize": lambda: activation_quantize(rows, variant=variant),
        }
        self.call: Any = calls[op]

    def time_call(self, op: str, variant: str) -> None:
        self.call()

    def peakmem_call(self, op: str, variant: str) -> None:
        self.call()


class Matmul:
    """ternary_matmul at layer shapes of bitnet-b1.58-2B-4T."""

    params = (["2560x2560", "6912x2560", "2560x6912"], [1, 32], ISAS)
    param_names = ("N x K", "M", "variant")

    def setup(self, shape: str, M: int, variant: str) -> None:
        N, K = (int(size) for size in shape.split("x"))
        rng = np.random.default_rng(0)
        self.activations = rng.integers(-128, 128, (M, K), dtype=np.int8)
        self.weights = pack_weights(rng.integers(-1, 2, (N, K), dtype=np.int8), 1.0)

    def time_product(self, shape: str, M: int, variant: str) -> None:
        ternary_matmul(self.activations, self.weights, act_scale=40.0, variant=variant)

    def track_bits_per_weight(self, shape: str, M: int, variant: str) -> float:
        return 8 * self.weights.data.nbytes / (self.weights.shape[0] * self.weights.shape[1])

    track_bits_per_weight.unit = "bits"  # type: ignore[attr-defined]


class Import:
    """Start-up."""

    def timeraw_import_kernels(self) -> str:
        return "import tritmark.kernels"
