"""The head of a model on a CPU, whose weights stay floats: one row is a product of a matrix and a vector."""

from __future__ import annotations

from typing import Any

import torch


class Head(torch.nn.Linear):  # type: ignore[misc]
    """torch.nn.Linear in bfloat16 with the same parameters, by torch.mv for one row.

    torch.nn.functional.linear calls oneDNN's matrix product, which reads a large matrix more slowly than memory gives
    it. Products and sums are float32 in both; their order differs. In float16 torch.mv is the slower one.
    """

    @classmethod
    def of(cls, linear: torch.nn.Linear) -> Head:
        """A head that shares the parameters of `linear`."""
        made = cls(linear.in_features, linear.out_features, bias=False, device="meta", dtype=linear.weight.dtype)
        made.weight, made.bias = linear.weight, linear.bias
        made.train(linear.training)
        return made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (..., K) to (..., N)."""
        weight = self.weight
        if x.numel() != self.in_features or x.dtype != weight.dtype or torch.is_autocast_enabled(x.device.type):
            found: torch.Tensor = super().forward(x)
            return found
        row = x.reshape(-1)
        y = torch.mv(weight, row) if self.bias is None else torch.addmv(self.bias, weight, row)
        return y.view(*x.shape[:-1], -1)


def faster(head: Any) -> Head | None:
    """The replacement of a model's head, if it is a torch.nn.Linear in bfloat16 on a CPU."""
    fits = type(head) is torch.nn.Linear and head.weight.is_cpu and head.weight.dtype is torch.bfloat16
    return Head.of(head) if fits else None
