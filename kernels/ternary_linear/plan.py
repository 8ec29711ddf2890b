"""The plan of a linear layer: quantization of activations of any floating dtype, then the product with the weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.spec import Axes, KernelKey
from tritmark.kernels.activation_quantize.spec import OP as ACTIVATION_QUANTIZE
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.launch import DEVICE
from tritmark.kernels.cuda.plans.plan import SCALAR, PlanContext, Planner
from tritmark.kernels.ternary_linear.spec import OPS as LINEAR
from tritmark.kernels.ternary_matmul.cuda import FORMAT
from tritmark.kernels.ternary_matmul.spec import OP as TERNARY_MATMUL


def add_quantization(
    planner: Planner, x: DeviceArray, outputs: Mapping[str, DeviceArray], M: int, K: int
) -> dict[str, DeviceArray]:
    """Add the quantization of activations (M * K,), float32, bfloat16 or float16. Returns all outputs of the op."""
    given = x.dtype.name
    key = KernelKey(DEVICE, ACTIVATION_QUANTIZE.name, "none" if given == "float32" else given, "int8")
    return planner.add(ACTIVATION_QUANTIZE, key, {"x": x.view((M, K))}, outputs, {"M": M, "K": K})


def add_product(
    planner: Planner, arrays: tuple[DeviceArray, DeviceArray, DeviceArray, DeviceArray], format: str, axes: Axes
) -> None:
    """Add the product of activations and weights with activation scales into an output, in this order of `arrays`. Each
    launch supplies weight_scale."""
    activations, weights, act_scale, out = arrays
    inputs = {"activations": activations, "weights": weights, "weight_scale": SCALAR, "act_scale": act_scale}
    key = KernelKey(DEVICE, TERNARY_MATMUL.name, format, out.dtype.name)
    planner.add(TERNARY_MATMUL, key, inputs, {"out": out}, axes)


def linear_plan(
    context: PlanContext,
    axes: Axes,
    x_dtype: str,
    nbytes: int,
    format: str,
    out_dtype: str,
    *,
    constant_weights: bool = False,
    kernels: list[str] | None = None,
) -> tuple[Callable[..., int], int]:
    """A launch function for the addresses of x (M, K), weights (nbytes,), out (M, N) and the workspace, and for
    weight_scale.

    See Planner.made. `constant_weights`: no pending launch writes the weights. For one row of activations it uses a
    single kernel if there is one, otherwise the best variant of each op. Their ids are added to `kernels`.
    """
    M, N, K = axes["M"], axes["N"], axes["K"]
    planner = Planner(context)
    x = planner.given((M, K), named_dtype(x_dtype))
    weights = planner.given((nbytes,), "uint8", constant=constant_weights)
    out = planner.given((M, N), named_dtype(out_dtype))
    if M == 1 and format == FORMAT:
        inputs = {"x": x, "weights": weights, "weight_scale": SCALAR}
        planner.add(
            LINEAR[x_dtype], KernelKey(DEVICE, LINEAR[x_dtype].name, format, out_dtype), inputs, {"out": out}, axes
        )
    else:
        rows = add_quantization(planner, x, {}, M, K)
        add_product(planner, (rows["q"], weights, rows["scale"], out), format, axes)
    if kernels is not None:
        kernels += planner.kernels
    return planner.made()
