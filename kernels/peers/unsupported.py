"""What other projects have no product for on the CPU, so that a list of peers is complete: UNSUPPORTED."""

from __future__ import annotations

from tritmark.harness.spec import Unsupported

_ONE, _EXPERTS = "ternary_matmul", "ternary_matmul_experts"
_GROUPS = "a scale for each group*"

UNSUPPORTED: tuple[Unsupported, ...] = (
    *(
        Unsupported(
            name="ik_llama with 2 bits",
            op=op,
            device="cpu",
            scales=_GROUPS,
            reason="ik-llama-cpp-python 0.1.5 has no type Q2_0, PQ2_0, TQ2_0 or TQ1_0; its Q4_0_R8 holds the same "
            "weights in 4.5 bits",
        )
        for op in (_ONE, _EXPERTS)
    ),
    *(
        Unsupported(
            name="llama.cpp of PrismML",
            op=op,
            device="cpu",
            scales="a scale for each group of 128",
            reason="its PQ2_0 and PTQ1_0 are on no package index; ggml's Q2_0 holds the same weights, with each scale "
            "twice",
        )
        for op in (_ONE, _EXPERTS)
    ),
    Unsupported(
        name="torch",
        op=_ONE,
        device="cpu",
        scales=_GROUPS,
        reason="its int8 and bfloat16 products of dense weights, which are called here, have no scales of groups",
    ),
    Unsupported(
        name="torch",
        op=_EXPERTS,
        device="cpu",
        reason="its int8 product, which is called here, is of one matrix",
    ),
    Unsupported(
        name="onnxruntime",
        op=_EXPERTS,
        device="cpu",
        reason="ONNX Runtime's QMoE is a whole layer: router, both products and activation in one node",
    ),
)
"""Checked with ik-llama-cpp-python 0.1.5 and ONNX Runtime 1.32."""
