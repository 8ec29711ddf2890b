"""Read the initializers of an .onnx file, and which of them are weights of com.microsoft.MatMulNBits and QMoE.

The onnx package parses the file, which protobuf limits to 2 GiB. Larger weights are external data: files beside it,
which are read in parts. Initializers inside the file stay in memory. Floats of other operators are not read as linear
layers, because ONNX does not state which are weights, and stores them as (K, N).
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from math import prod
from pathlib import PurePosixPath
from typing import Any

from tritmark.harness.errors import WeightFileError
from tritmark.harness.weights.names import inert
from tritmark.harness.weights.plain_file import PlainFile
from tritmark.harness.weights.tensor import BlockProduct, ExpertProduct, FileHeader, TensorInfo

MAX_INITIALIZERS = 1 << 16
MAX_ELEMENTS = 1 << 48
_LARGEST = (1 << 31) - 1
_DEPTH = 8
_DTYPES = {
    "FLOAT": ("float32", 32),
    "FLOAT16": ("float16", 16),
    "BFLOAT16": ("bfloat16", 16),
    "DOUBLE": ("float64", 64),
    "BOOL": ("bool", 8),
    "UINT2": ("uint2", 2),
    "INT2": ("int2", 2),
    "UINT4": ("uint4", 4),
    "INT4": ("int4", 4),
    **{f"{sign}INT{bits}": (f"{sign}int{bits}".lower(), bits) for sign in ("", "U") for bits in (8, 16, 32, 64)},
}
"""Name in ONNX -> dtype name, bits per element."""
_PRODUCT, _EXPERTS, _DOMAIN = "MatMulNBits", "QMoE", "com.microsoft"
_LAYERS = ((2, 3, 11), (5, 6, 12), (8, 9, 13))
"""Places of the weights, scales and zero points of each layer of QMoE."""
_INTEGERS = ("N", "K", "bits", "block_size", "weight_prepacked", "expert_weight_bits", "weights_prepacked", "k")
_UNDEFINED, _INT = 0, 2
"""Numbers of AttributeProto.AttributeType."""
_OTHERS = {"MatMulBnb4": (1,), "GatherBlockQuantized": (0,)}
"""Operators whose weights have other layouts, and the places of these inputs."""


class InlineData:
    """An initializer inside the .onnx file; it is read like a PlainFile."""

    def __init__(self, file: PlainFile, data: bytes) -> None:
        self._file, self._data = file, data
        self.path = file.path

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` with bytes from byte `offset`."""
        buffer[:] = self._data[offset : offset + len(buffer)]

    def error(self, found: str, legal: str) -> WeightFileError:
        """Build an error about the file."""
        return self._file.error(found, legal)


def read_model(file: PlainFile, opened: Callable[[PlainFile], object]) -> tuple[FileHeader, Mapping[str, Any]]:
    """The header of an .onnx file, and what holds the data of each initializer.

    `opened` is called with each file of external data. Raises WeightFileError without the onnx package, for a file that
    is no model, for external data outside the folder, and for data whose size is not that of its shape.
    """
    library = _library(file)
    if file.size > _LARGEST:
        raise file.error(f"{file.size} bytes", f"at most {_LARGEST}, with larger weights as external data")
    model = library.ModelProto()
    try:
        model.ParseFromString(file.read(0, file.size))
    except Exception as error:  # protobuf's own error class depends on its implementation
        raise file.error(f"{type(error).__name__}: {inert(str(error))}", "an ONNX model") from error
    if not model.HasField("graph"):
        raise file.error("no graph", "an ONNX model")
    tensors: dict[str, TensorInfo] = {}
    places: dict[str, Any] = {}
    beside: dict[str, PlainFile] = {}
    products: dict[str, BlockProduct] = {}
    experts: dict[str, ExpertProduct] = {}
    others: dict[str, str] = {}
    for graph in _graphs(model.graph, 0):
        for each in graph.initializer:
            name = each.name
            if name in tensors:
                raise file.error(f"two initializers named {inert(name)}", "names used once")
            if len(tensors) == MAX_INITIALIZERS:
                raise file.error(f"more than {MAX_INITIALIZERS} initializers", f"at most {MAX_INITIALIZERS}")
            tensors[name], places[name] = _initializer(file, library, each, beside, opened)
        for node in graph.node:
            if node.op_type == _PRODUCT and node.domain == _DOMAIN:
                _add(file, products, node)
            elif node.op_type == _EXPERTS and node.domain == _DOMAIN:
                _add_experts(file, experts, node)
            elif node.op_type in _OTHERS and node.domain == _DOMAIN:
                of = (node.input[place] for place in _OTHERS[node.op_type] if place < len(node.input))
                others |= dict.fromkeys(filter(None, of), node.op_type)
    header = FileHeader(tuple(tensors.values()), products=products, experts=experts, other_words=others)
    return header, places


def _library(file: PlainFile) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its dependencies
            return importlib.import_module("onnx")
    except ImportError as error:
        legal = "`pip install onnx`, or a .gguf or .safetensors file"
        raise file.error(f"an .onnx file, and onnx cannot be imported ({error})", legal) from error


def _graphs(graph: Any, depth: int) -> Iterator[Any]:
    """The graph, and those in attributes of its nodes (If, Loop)."""
    yield graph
    if depth == _DEPTH:
        return
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _graphs(inner, depth + 1)


def _initializer(
    file: PlainFile,
    library: Any,
    stored: Any,
    beside: dict[str, PlainFile],
    opened: Callable[[PlainFile], object],
) -> tuple[TensorInfo, Any]:
    what = f"initializer {inert(stored.name)}"
    names = {number: name for name, number in library.TensorProto.DataType.items()}
    kind = names.get(stored.data_type, "")
    dtype, bits = _DTYPES.get(kind, (f"onnx_{kind.lower() or stored.data_type}", 0))
    shape = tuple(int(each) for each in stored.dims)
    if any(each < 0 for each in shape) or prod(max(each, 1) for each in shape) > MAX_ELEMENTS:
        raise file.error(f"{what} of shape {inert(shape)}", f"sizes >= 0, at most {MAX_ELEMENTS} elements")
    nbytes = -(-prod(shape) * bits // 8)
    if stored.data_location == library.TensorProto.EXTERNAL:
        place, offset, length = _external(file, stored, beside, opened)
        nbytes = nbytes if bits else length
        if length != nbytes or offset + length > place.size:
            found = f"{length} bytes from byte {offset} of {place.size} as the external data of {what}"
            raise file.error(found, f"{nbytes} bytes for {dtype} of shape {shape}, inside {inert(place.path.name)}")
        return TensorInfo(stored.name, shape, dtype, nbytes, place.path, offset), place
    if stored.HasField("raw_data") or not bits:
        data = stored.raw_data
    else:
        try:
            data = library.numpy_helper.to_array(stored).tobytes()
        except Exception as error:  # of NumPy or of onnx
            raise file.error(f"{what}: {inert(str(error))}", f"data of {dtype} of shape {shape}") from error
    if bits and len(data) != nbytes:
        raise file.error(f"{len(data)} bytes of {what}", f"{nbytes} bytes for {dtype} of shape {shape}")
    return TensorInfo(stored.name, shape, dtype, len(data), file.path, 0), InlineData(file, data)


def _external(
    file: PlainFile, stored: Any, beside: dict[str, PlainFile], opened: Callable[[PlainFile], object]
) -> tuple[PlainFile, int, int]:
    """The file of external data, and the first byte and number of bytes there."""
    said = {each.key: each.value for each in stored.external_data}
    location = said.get("location", "")
    parts = PurePosixPath(location).parts
    if not location or "\0" in location or "\\" in location or location.startswith("/") or ".." in parts:
        what = f"external data of {inert(stored.name)} in {inert(location)}"
        raise file.error(what, "a file in the folder of the model")
    if location not in beside:
        beside[location] = PlainFile(file.path.parent / location)
        opened(beside[location])
    place = beside[location]
    numbers: list[int] = []
    for key, usual in (("offset", "0"), ("length", None)):
        text = said.get(key, usual)
        if text is not None and not (text.isascii() and text.isdigit() and len(text) < 20):
            raise file.error(f"{key} {inert(text)} of external data", "a number of bytes")
        numbers.append(int(text) if text is not None else max(place.size - numbers[0], 0))
    return place, numbers[0], numbers[1]


def _add(file: PlainFile, products: dict[str, BlockProduct], node: Any) -> None:
    what = f"node {inert(node.name)} ({_PRODUCT})"
    said = _integers(file, what, node)
    inputs = [*node.input, *[""] * (6 - len(node.input))]
    weights = inputs[1]
    sizes = {key: said.get(key, usual) for key, usual in (("N", 0), ("K", 0), ("bits", 4), ("block_size", 0))}
    if not weights or not inputs[2] or min(sizes.values()) < 1:
        legal = "inputs B and scales, and N, K, bits and block_size above 0"
        raise file.error(f"{what} with {sizes}", legal)
    found = BlockProduct(
        N=sizes["N"],
        K=sizes["K"],
        bits=sizes["bits"],
        block_size=sizes["block_size"],
        scales=inputs[2],
        zero_points=inputs[3],
        group_index=inputs[4],
        prepacked=said.get("weight_prepacked", 0),
    )
    if products.setdefault(weights, found) != found:
        raise file.error(f"{what} and another node read {inert(weights)} differently", "one meaning of a weight")


def _add_experts(file: PlainFile, experts: dict[str, ExpertProduct], node: Any) -> None:
    what = f"node {inert(node.name)} ({_EXPERTS})"
    said, inputs = _integers(file, what, node), [*node.input, *[""] * (14 - len(node.input))]
    kind = next((each.s for each in node.attribute if each.name == "quant_type"), b"int")
    offset = any(each.name == "zero_point_offset" and (each.f or each.i) for each in node.attribute)
    for weights, scales, points in (tuple(inputs[place] for place in layer) for layer in _LAYERS):
        if not weights:
            continue
        found = ExpertProduct(
            kind=kind.decode(errors="replace"),
            bits=said.get("expert_weight_bits", 4),
            block_size=max(said.get("block_size", 0), 0),
            scales=scales,
            zero_points=points,
            prepacked=said.get("weights_prepacked", -1),
            point_offset=offset,
            used=said.get("k", 1),
        )
        if experts.setdefault(weights, found) != found:
            raise file.error(f"{what} and another node read {inert(weights)} differently", "one meaning of a weight")


def _integers(file: PlainFile, what: str, node: Any) -> dict[str, int]:
    """The attributes of a node that are integers. Raises WeightFileError if one that decides the layout is not."""
    for each in node.attribute:
        if each.name in _INTEGERS and (each.type not in {_INT, _UNDEFINED} or not each.HasField("i")):
            raise file.error(f"{what} with {each.name} of attribute type {each.type}", f"{_INT}, an integer")
    return {each.name: each.i for each in node.attribute}
