"""The shapes that the kernels take."""

from __future__ import annotations

from dataclasses import dataclass

from tritmark.harness.spec import Axes, MaxSize
from tritmark.kernels.hadamard_quantize.spec import BLOCKS, MAX_K


@dataclass(frozen=True, slots=True)
class WholeBlocks:
    """The block is one of BLOCKS and divides K."""

    def refusal(self, axes: Axes) -> str | None:
        """Why these axes are not admitted, or None."""
        block, K = axes["block"], axes["K"]
        if block not in BLOCKS:
            return f"block = {block} is not {', '.join(map(str, BLOCKS[:-1]))} or {BLOCKS[-1]}"
        return None if K % block == 0 else f"K = {K} is no multiple of block = {block}"


LIMITS = (WholeBlocks(), MaxSize("K", MAX_K))
