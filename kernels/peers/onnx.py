"""ONNX Runtime's MatMulNBits with 2-bit weights as a peer of ternary_matmul.

A product as in a model. Activations are float32, which the int8 path (accuracy level 4) quantizes for each block of 128
columns. Weights are 2-bit codes w + 1, four to a byte, the first in the lowest bits, with zero point 1 and a scale for
each block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import DeviceUnavailableError, InvalidArgumentError
from tritmark.harness.extras import install
from tritmark.harness.spec import Arrays, Axes, Launch, Peer
from tritmark.kernels.formats import Format
from tritmark.kernels.formats.bits import ZERO_BYTE
from tritmark.kernels.peers.launch import LEAST, PeerLaunch, gamma, is_installed, not_installed, scaled_times, times
from tritmark.kernels.ternary_matmul.formats import GROUPED, INTEGERS, PRODUCTS, ROWS, one_scale
from tritmark.kernels.ternary_matmul.scales import weight_scales

BLOCK = 128
"""Columns that share a scale: the largest block with an int8 path for 2-bit weights in ONNX Runtime."""
INT8 = 4
"""The accuracy level that admits int8; 0 asks for float32."""
_STEP = 32
"""The fewest columns that share one float32 addition: a 256-bit register of int8."""
_LANES = 16
"""The most parallel partial sums."""
_SCALES = 6
"""Roundings of a term's scales: the activations' and its inverse, the weights', their product, and its products."""

_ROWS = 128
"""Rows of activations in one step of computing the bound."""

Floats = npt.NDArray[np.float32]


def missing() -> str | None:
    """Why ONNX Runtime, or onnx for the model, cannot be used here and the next step, or None."""
    return None if is_installed("onnxruntime") and is_installed("onnx") else not_installed()


def load() -> None:
    """Import it, and onnx, which makes the models. Raises DeviceUnavailableError if one of them cannot be imported."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise DeviceUnavailableError(f"onnxruntime: cannot be imported: {error}", next_step=install("peers")) from None


_POOL: list[int] = []
"""The number of threads that the sessions of this process share, after the first session."""


def pool(threads: int) -> int:
    """Make the sessions of this process share one thread pool, and return its size: the first requested number.
    Otherwise each session would have its own threads, asleep while others run, unlike the layers of a model.

    Raises RuntimeError if sessions exist that do not share their threads.
    """
    import onnxruntime

    if not _POOL:
        onnxruntime.set_global_thread_pool_sizes(threads, 1)
        _POOL.append(threads)
    return _POOL[0]


def version() -> str:
    """The version of the package."""
    from importlib.metadata import version as version_of

    return f"onnxruntime {version_of('onnxruntime')}"


def pack(codes: npt.NDArray[np.int8], block: int = BLOCK) -> npt.NDArray[np.uint8]:
    """Ternary codes (N, K) in the layout of MatMulNBits: uint8 (N, K/block, block/4), columns padded with code 0 to
    whole blocks."""
    N, K = codes.shape
    fields = np.pad(codes, ((0, 0), (0, -K % block))).view(np.uint8).reshape(N, -1, block // 4, 4)
    # Modulo 256, and 1 added to each field at the end.
    packed: npt.NDArray[np.uint8] = (fields * np.array([1, 4, 16, 64], np.uint8)).sum(axis=3, dtype=np.uint8)
    packed += np.uint8(ZERO_BYTE)
    return packed


class OnnxProduct:
    """A session that multiplies activations (M, K), float32, with weights from `pack`, times one scale or one for each
    block, (N, blocks)."""

    def __init__(
        self, weights: npt.NDArray[np.uint8], scale: float | Floats, K: int, *, accuracy: int = INT8, threads: int = 1
    ) -> None:
        reason = missing()
        if reason:
            raise DeviceUnavailableError(f"onnxruntime: {reason}", next_step=install("peers"))
        load()
        import onnxruntime

        model = _model(weights, scale, K, accuracy)
        self._session = onnxruntime.InferenceSession(model, _options(threads), providers=["CPUExecutionProvider"])
        self._columns = K, len(weights)

    def into(self, activations: Floats, out: Floats) -> Callable[[], None]:
        """A function that runs the product with these arrays, in place, and keeps them alive."""
        K, N = self._columns
        _check("activations", activations, K)
        _check("out", out, N)
        binding = self._session.io_binding()
        binding.bind_cpu_input("A", activations)
        binding.bind_output("Y", "cpu", 0, np.float32, out.shape, out.ctypes.data)

        def run(kept: Any = (activations, out)) -> None:  # the binding has only addresses
            self._session.run_with_iobinding(binding)

        return run

    def __call__(self, activations: Floats) -> Floats:
        """The product, (M, N), by a plain call of the session: faster than binding arrays for one call."""
        _check("activations", activations, self._columns[0])
        (out,) = self._session.run(["Y"], {"A": activations})
        made: Floats = out
        return made


def _check(name: str, array: Floats, columns: int) -> None:
    if array.dtype != np.float32 or array.ndim != 2 or array.shape[1] != columns or not array.flags.c_contiguous:
        found, legal = f"{array.dtype} of shape {array.shape}", f"C-contiguous float32 with {columns} columns"
        raise InvalidArgumentError(op="MatMulNBits", argument=name, found=found, legal=legal)


def _options(threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if _POOL:
        options.use_per_session_threads = False
    else:
        options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Between runs its threads must not occupy the cores of the interleaved kernels.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def _model(weights: npt.NDArray[np.uint8], scale: float | Floats, K: int, accuracy: int) -> bytes:
    """The model, serialized."""
    from onnx import TensorProto, helper, numpy_helper

    N, blocks, quarter = weights.shape
    constants: dict[str, npt.NDArray[Any]] = {
        "B": weights,
        "scales": np.broadcast_to(np.float32(scale), (N, blocks)).copy(),
        "zero_points": np.full((N, -(-blocks // 4)), ZERO_BYTE, np.uint8),
    }
    node = helper.make_node(
        "MatMulNBits",
        ["A", *constants],
        ["Y"],
        domain="com.microsoft",
        K=K,
        N=N,
        bits=2,
        block_size=4 * quarter,
        accuracy_level=accuracy,
    )
    graph = helper.make_graph(
        [node],
        "ternary_matmul",
        [helper.make_tensor_value_info("A", TensorProto.FLOAT, ["M", K])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, ["M", N])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    serialized: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return serialized


@cache
def quantizes(block: int = BLOCK) -> bool:
    """Whether accuracy level 4 computes in int8 on this machine: for 2-bit weights, older versions and some processors
    have only float32."""
    row = np.ones((1, block), np.float32)
    row[0, 0] = 100
    # In int8, 1 * 127 / 100 is rounded to 1, which is decoded as 0.79.
    found = OnnxProduct(pack(np.eye(16, block, dtype=np.int8), block), 1.0, block)(row)
    return bool((found != row[:, :16]).any())


def _activations(inputs: Arrays) -> npt.NDArray[np.float64]:
    """The float values of the int8 activations."""
    values: npt.NDArray[np.float64] = inputs["activations"] / inputs["act_scale"].astype(np.float64)[:, np.newaxis]
    return values


def encode(inputs: Arrays, axes: Axes) -> Arrays:
    """Activations as float values, weights in the layout of MatMulNBits, and their scale.

    Raises InvalidArgumentError for activations that float32 does not hold.
    """
    return {
        "activations": floats(inputs),
        "weights": pack(inputs["weights"]),
        "weight_scale": inputs["weight_scale"],
    }


def floats(inputs: Arrays) -> Floats:
    """The values of the int8 activations as float32, (M, K). Raises InvalidArgumentError if float32 does not hold
    them."""
    activations = _activations(inputs)
    most = float(np.max(np.abs(activations), initial=0.0))
    if most > float(np.finfo(np.float32).max):
        legal = "activations that are numbers of float32"
        raise InvalidArgumentError(
            op="MatMulNBits", argument="act_scale", found=f"activations of {most:.3g}", legal=legal
        )
    return activations.astype(np.float32)


def _bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    product = OnnxProduct(inputs["weights"], float(inputs["weight_scale"]), axes["K"], threads=threads)
    return PeerLaunch("MatMulNBits", threads, product.into(inputs["activations"], outputs["out"]))


def bound(inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The bound: the loss by the quantization of the activations, which is known except next to ties, and float32's
    roundings.

    The int8 path sums (w + 1) * q in integers, adds these sums in float32, and subtracts the zero point times the sum
    of q in the same way.
    """
    weights, scale = inputs["weights"], float(inputs["weight_scale"])
    if not quantizes():
        return {"out": gamma(axes["K"] + _SCALES) * scale * times(np.abs(_activations(inputs)), np.abs(weights))}
    off = np.empty((axes["M"], axes["N"]))
    for start in range(0, axes["M"], _ROWS):
        part = slice(start, start + _ROWS)
        rows = {name: inputs[name][part] for name in ("activations", "act_scale")}
        lost, slack = _lost(rows, axes, BLOCK)
        off[part] = scale * (np.abs(times(lost, weights)) + times(slack, weights, plus=2))
    return {"out": off}


def _lost(inputs: Arrays, axes: Axes, block: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """For each activation the loss by quantization, and the uncertainty of its quantized value, both (M, K) and in the
    unit of the float values."""
    values = _activations(inputs)
    columns = ((0, 0), (0, -axes["K"] % block))
    blocks = np.pad(values.astype(np.float32).astype(np.float64), columns).reshape(len(values), -1, block)
    steps = np.abs(blocks).max(axis=2, keepdims=True) / 127
    quotients = np.divide(blocks, steps, out=np.zeros_like(blocks), where=steps > 0)
    taken = np.rint(quotients)
    ties = np.abs(np.abs(quotients - np.trunc(quotients)) - 0.5) <= 127 * gamma(4)
    lost = values - (taken * steps).reshape(len(values), -1)[:, : axes["K"]]
    roundings = -(-axes["K"] // _STEP) + blocks.shape[1] + _LANES + _SCALES
    slack = (steps * (ties + gamma(roundings) * np.abs(taken))).reshape(len(values), -1)[:, : axes["K"]]
    return lost, slack


def _group_scales(format: Format, inputs: Arrays, axes: Axes) -> tuple[Floats, int]:
    """A scale for each block, (N, blocks), and the columns of a block: a group, or a part of a group or row that is
    short enough."""
    scales = weight_scales(inputs, axes, format.name).reshape(axes["N"], -1)
    block = block_of(format)
    return np.repeat(scales, (format.group or axes["K"] + -axes["K"] % block) // block, axis=1), block


def block_of(format: Format) -> int:
    """Columns that share a scale in the product from that format: a group, or a part of it that is short enough."""
    return min(BLOCK, format.group or BLOCK)


def _encode_groups(format: Format, inputs: Arrays, axes: Axes) -> Arrays:
    scales, block = _group_scales(format, inputs, axes)
    return {"activations": floats(inputs), "weights": pack(inputs["weights"], block), "scales": scales}


def _bind_groups(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    product = OnnxProduct(inputs["weights"], inputs["scales"], axes["K"], threads=threads)
    return PeerLaunch("MatMulNBits", threads, product.into(inputs["activations"], outputs["out"]))


def grouped_bound(format: Format, inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """As `bound`, with a scale for each block; a denormal term may lose the least number."""
    scales, block = _group_scales(format, inputs, axes)
    weights, magnitudes = inputs["weights"], np.abs(scales)
    values = np.abs(_activations(inputs))
    below = LEAST * (axes["K"] + times(values, np.abs(weights), plus=2))
    if not quantizes(block):
        sums = scaled_times(values, np.abs(weights), magnitudes, block)
        return {"out": gamma(axes["K"] + _SCALES) * sums + below}
    lost, slack = _lost(inputs, axes, block)
    off = np.abs(scaled_times(lost, weights, scales, block))
    return {"out": off + scaled_times(slack, weights, magnitudes, block, plus=2) + below}


class OnnxIntegers:
    """A session that multiplies activations (M, K), int8, with codes (N, K), int8, to int32."""

    def __init__(self, codes: npt.NDArray[np.int8], threads: int) -> None:
        import onnxruntime
        from onnx import TensorProto, helper, numpy_helper

        graph = helper.make_graph(
            [helper.make_node("MatMulInteger", ["A", "B"], ["Y"])],
            "ternary_matmul",
            [helper.make_tensor_value_info("A", TensorProto.INT8, ["M", codes.shape[1]])],
            [helper.make_tensor_value_info("Y", TensorProto.INT32, ["M", codes.shape[0]])],
            [numpy_helper.from_array(np.ascontiguousarray(codes.T), "B")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), _options(threads), providers=["CPUExecutionProvider"]
        )

    def into(self, activations: npt.NDArray[np.int8], out: npt.NDArray[np.int32]) -> Callable[[], None]:
        """A function that runs the product with these C-contiguous arrays, in place, and keeps them alive."""
        binding = self._session.io_binding()
        binding.bind_cpu_input("A", activations)
        binding.bind_output("Y", "cpu", 0, np.int32, out.shape, out.ctypes.data)

        def run(kept: Any = (activations, out)) -> None:  # the binding has only addresses
            self._session.run_with_iobinding(binding)

        return run


def _codes(inputs: Arrays, axes: Axes) -> Arrays:
    return {"activations": np.ascontiguousarray(inputs["activations"]), "weights": inputs["weights"]}


def _bind_integers(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    product = OnnxIntegers(inputs["weights"], threads)
    return PeerLaunch("MatMulInteger", threads, product.into(inputs["activations"], outputs["out"]))


PEERS = (
    Peer(
        name="onnxruntime",
        op="ternary_matmul",
        formats=INTEGERS,
        takes=one_scale,
        dtypes=frozenset({"int32"}),
        source="ONNX Runtime, MatMulInteger of int8 activations and int8 codes; from PyPI's onnxruntime",
        version=version,
        missing=missing,
        encode=_codes,
        bind=_bind_integers,
        outputs=("out",),
    ),
    Peer(
        name="onnxruntime",
        op="ternary_matmul",
        formats=PRODUCTS,
        takes=one_scale,
        dtypes=frozenset({"float32"}),
        source="ONNX Runtime, com.microsoft.MatMulNBits, bits = 2, blocks of 128, accuracy level 4; from PyPI's "
        "onnxruntime",
        version=version,
        missing=missing,
        encode=encode,
        bind=_bind,
        outputs=("out",),
        error_bound=bound,
    ),
    *(
        Peer(
            name="onnxruntime",
            op="ternary_matmul",
            formats=frozenset({format.name}),
            dtypes=frozenset({"float32"}),
            source=f"ONNX Runtime, com.microsoft.MatMulNBits, bits = 2, blocks of {block_of(format)}, accuracy "
            "level 4; from PyPI's onnxruntime",
            version=version,
            missing=missing,
            encode=partial(_encode_groups, format),
            bind=_bind_groups,
            outputs=("out",),
            error_bound=partial(grouped_bound, format),
        )
        for format in (*GROUPED, *ROWS)
    ),
)
