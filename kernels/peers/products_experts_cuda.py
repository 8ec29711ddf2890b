"""Products of other projects on CUDA as variants of ternary_matmul_experts, of tier PEER: the product of
humming-kernels for rows sorted by expert (its gemm_type "grouped_contiguous"), and PyTorch's grouped product of dense
weights. Bind packs the weights into the peer's layout, or dequantizes them, as its users do beforehand; the offsets are
read on the device."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, Launch, MultipleOf, Variant
from tritmark.kernels.cuda.backend import Stream
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.formats.row16_grouped import FORMATS as GROUPED
from tritmark.kernels.peers import humming, torch_cuda
from tritmark.kernels.peers.experts_bound import of_experts
from tritmark.kernels.peers.launch_cuda import FASTEST, CudaPeerLaunch, on_host, variant
from tritmark.kernels.peers.products import inverse_scales, packed
from tritmark.kernels.ternary_matmul_experts.offsets import expert_of
from tritmark.kernels.ternary_matmul_experts.spec import OP

_GEMM = "grouped_contiguous"
_TORCH = (MultipleOf("N", 8), MultipleOf("K", 8))
"""Rows that torch._grouped_mm takes: aligned to 16 bytes."""

Bound = Callable[[Arrays, Axes], Mapping[str, Any]]


def pack_each(codes: npt.NDArray[np.int8]) -> npt.NDArray[np.uint8]:
    """Codes (E, N, K) in the layout of humming's layer: uint8 (E, N, K / 4)."""
    return np.stack([humming.pack(each) for each in codes])


class HummingExperts:
    """The weights of all experts in humming's layout."""

    def __init__(self, kind: str, format: str, inputs: Arrays, axes: Axes) -> None:
        """`kind`: of its activations. `inputs` are on the host."""
        import torch
        from humming.layer import HummingLayer

        E, N, K = (axes[axis] for axis in "ENK")
        form = BUILT_IN[format]
        grouped = form.scale_per == "group"
        of_scales = {"scale_type": "group", "group_size": form.group} if grouped else {"scale_type": "tensor"}
        self._kind = kind
        self.layer = HummingLayer(
            shape_n=N,
            shape_k=K,
            weight_config={"dtype": "uint2", **of_scales},
            input_config={"dtype": kind},
            num_experts=E,
            torch_dtype=torch.bfloat16,
        ).cuda()
        words = packed(format, humming.PACKAGE, pack_each, inputs, axes)
        if grouped:
            stored = np.stack([form.stored_scales(np.ascontiguousarray(each), (N, K)) for each in inputs["weights"]])
            scale = torch.from_numpy(stored).to(torch.bfloat16)
        else:
            scale = torch.from_numpy(np.array(inputs["weight_scale"], np.float32))
        tensors = {"weight": torch.from_numpy(words.view("<i4")).to("cuda"), "weight_scale": scale.to("cuda")}
        self.layer.load_from_tensors(tensors)
        self.layer.transform()

    def launch(self, name: str, inputs: Arrays, outputs: Arrays) -> Launch:
        """The product of these activations, by the kernel for as many rows. `inputs` are on the host."""
        import torch
        from humming.kernel.humming import HummingKernel
        from humming.ops import launch_kernel
        from humming.tune import get_heuristics_config

        config = self.layer.humming_config
        tuned = get_heuristics_config(config, shape_m=len(inputs["activations"]), gemm_type=_GEMM)
        configs = HummingKernel.prepare_kernels(config.to_str(), json.dumps({"gemm_type": _GEMM}), json.dumps(tuned))
        compiled = HummingKernel._id2kernel[int(configs[2])].kernel_filename
        rows, scales = humming.rows_of(self._kind, inputs)
        offsets, out = torch.from_numpy(inputs["offsets"]).to("cuda"), torch_cuda.over(outputs["out"])

        def call(stream: Stream) -> None:
            with torch_cuda.within(stream):
                launch_kernel(
                    configs=configs,
                    inputs=rows,
                    weight=self.layer.weight,
                    weight_scale=self.layer.weight_scale,
                    weight_scale_2=getattr(self.layer, "weight_scale_2", None),
                    input_scale=scales,
                    outputs=out,
                    expert_layout=offsets,
                    locks=self.layer.locks,
                )

        return CudaPeerLaunch(name, call, outputs, lambda: [Path(compiled)])


class TorchExperts:
    """Dense bfloat16 weights of all experts; they contain the scales of groups."""

    def __init__(self, format: str, inputs: Arrays, axes: Axes) -> None:
        """`inputs` are on the host."""
        import torch

        form, shape = BUILT_IN[format], (axes["N"], axes["K"])
        self._one_scale = form.scale_per != "group"
        made = []
        for codes, stored in zip(torch_cuda.weights_of(format, inputs, axes), inputs["weights"], strict=True):
            scale: Any = 1
            if not self._one_scale:
                scales = torch.from_numpy(form.stored_scales(np.ascontiguousarray(stored), shape))
                scale = scales.to("cuda").repeat_interleave(form.group, dim=1)
            made.append((codes * scale).to(torch.bfloat16))
        self._columns = torch.stack(made).transpose(1, 2)

    def launch(self, name: str, inputs: Arrays, outputs: Arrays | None) -> Launch:
        """The product of these activations, which contain all other scales. `inputs` are on the host. Without `outputs`
        it stays in memory of PyTorch, whose function takes none."""
        import torch

        scale = inverse_scales(inputs)
        if self._one_scale:
            scale = scale * inputs["weight_scale"][expert_of(inputs["offsets"], len(scale))]
        rows = torch.from_numpy(inputs["activations"] * scale[:, np.newaxis]).to(torch.bfloat16).to("cuda")
        ends = torch.from_numpy(inputs["offsets"][1:].copy()).to("cuda")
        out = torch_cuda.over(outputs["out"]) if outputs else None

        def call(stream: Stream) -> None:
            with torch_cuda.within(stream):
                product = torch._grouped_mm(rows, self._columns, offs=ends)
                if out is not None:
                    out.copy_(product)

        return CudaPeerLaunch(name, call, outputs or {}, torch_cuda.holders)


def _bind_humming(
    name: str, kind: str, format: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int
) -> Launch:
    host = on_host(inputs)
    return HummingExperts(kind, format, host, axes).launch(name, host, outputs)


def _bind_torch(name: str, format: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    host = on_host(inputs)
    return TorchExperts(format, host, axes).launch(name, host, outputs)


def _variants(format: str) -> tuple[Variant, ...]:
    one = format == FASTEST
    made = []
    for name, kind in (("humming-w2a8", humming.INT8), ("humming-w2a16", humming.BF16)):
        bound: Bound = partial(humming.bound, kind) if one else partial(humming.grouped_bound, kind, format)
        made.append(
            variant(
                name,
                "bfloat16",
                f"humming-kernels, int2 weights of all experts and {kind} activations, tuned for the shape",
                partial(_bind_humming, name, kind, format),
                humming.missing,
                humming.load,
                format=format,
                op=OP.name,
                constraints=humming.CONSTRAINTS,
                error_bound=partial(of_experts, bound),
            )
        )
    bound = torch_cuda.bfloat16_bound if one else partial(torch_cuda.dequantized_bound, format)
    dense = variant(
        "torch-bfloat16",
        "bfloat16",
        "PyTorch, torch._grouped_mm of dense bfloat16 weights, sums in float32",
        partial(_bind_torch, "torch-bfloat16", format),
        torch_cuda.missing,
        torch_cuda.load,
        format=format,
        op=OP.name,
        constraints=_TORCH,
        error_bound=partial(of_experts, bound),
    )
    return *made, dense


VARIANTS: tuple[Variant, ...] = tuple(
    each for format in (FASTEST, *(form.name for form in GROUPED)) for each in _variants(format)
)
"""The variants of packages on PyPI; they register through the entry-point group `tritmark.variants`."""
