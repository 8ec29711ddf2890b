"""Which device arrays a kernel may read while earlier launches still run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tritmark.harness.spec import Variant
from tritmark.kernels import FORMATS
from tritmark.kernels.cuda.launch.launch import CudaLaunch
from tritmark.kernels.ternary_matmul import cuda as products

if TYPE_CHECKING:
    from tritmark.kernels.cuda.array import DeviceArray
    from tritmark.kernels.cuda.context import CudaContext

M, N, K = 1, 64, 256


def _bound(here: CudaContext, weights: DeviceArray, variant: Variant) -> CudaLaunch:
    inputs: dict[str, Any] = {
        "activations": here.upload(np.ones((M, K), np.int8)),
        "weights": weights,
        "weight_scale": np.float32(1),
        "act_scale": here.upload(np.ones(M, np.float32)),
    }
    launch = variant.bind(inputs, {"out": here.array((M, N), np.float32)}, {"M": M, "N": N, "K": K}, 1)
    assert isinstance(launch, CudaLaunch)
    return launch


def test_what_the_host_filled_is_constant_until_launches_write_it(simulator: CudaContext) -> None:
    array = simulator.array((16,), np.float32)
    assert not array.constant
    array.write(np.zeros(16, np.float32))
    assert array.constant
    assert array.view((8,)).constant
    array.mark_output()
    assert not array.constant
    assert not array.view((8,)).constant
    array.write(np.zeros(16, np.float32))
    assert not array.constant


def test_who_may_write_it_from_outside_makes_it_none(simulator: CudaContext) -> None:
    array = simulator.upload(np.zeros(16, np.float32))
    assert array.constant
    assert array.__cuda_array_interface__["data"][0] == array.pointer
    assert not array.constant


def test_a_big_array_that_was_uploaded_by_pieces_is_constant(simulator: CudaContext) -> None:
    assert simulator.upload(np.zeros(1 << 23, np.int8)).constant


def test_outputs_are_none(simulator: CudaContext) -> None:
    packed = FORMATS["row16"].pack(np.ones((N, K), np.int8), 1.0, tail="error")
    variant = next(each for each in products.VARIANTS if each.name == "gemv" and each.key.dtype == "float32")
    launch = _bound(simulator, simulator.upload(packed), variant)
    out = launch._call.outputs["out"]
    out.write(np.zeros((M, N), np.float32))
    assert not out.constant


@pytest.mark.parametrize("filled", [True, False])
def test_a_product_is_told_of_its_weights(simulator: CudaContext, filled: bool) -> None:
    packed = FORMATS["row16"].pack(np.ones((N, K), np.int8), 1.0, tail="error")
    weights = simulator.array(packed.shape, np.uint8)
    weights.write(packed)
    if not filled:
        weights.mark_output()
    variant = next(each for each in products.VARIANTS if each.name == "gemv" and each.key.dtype == "float32")
    (step,) = _bound(simulator, weights, variant).steps
    assert step.args[-1] == filled
