"""Adapters: one TOML file in this folder for each project with a library that the user may have built.

    source = "owner of the code"
    start = "init"                  # a function without arguments, called once when the library is loaded

    [[products]]
    name = "i2_s"                   # the variant is called ADAPTER:NAME
    symbol = "vec_dot_i2_s"
    call = "vec_dot"                # its signature, which determines how rows are split over threads
    weights = "i2_s_x86"            # layout of the weights
    activations = "int8"            # layout of the activations
    columns = 128                   # K is a multiple of it
    rows = 1                        # N is a multiple of it
    shapes = [[1, 2560, 2560]]      # or the only legal (M, N, K)
    several = { symbol = "vec_dot_i2_s_4", rows = 4 }   # vec_dot: a function for that many rows of activations, at
                                    # most 16; used if the library has it and M is large enough

Signatures: `vec_dot` is ggml's ggml_vec_dot_t (int n, float *s, size_t bs, const void *vx, size_t bx, const void *vy,
size_t by, int nrc), one row of weights times one of activations; threads share the rows of weights, in blocks of 16
rows of weights and 16 rows of activations. `iqk_mul_mat` is ik_llama.cpp's: each thread calls it with its number and
the number of threads. `bitlinear_int8xint2` is BitNet's, on CUDA (see adapted_cuda): it splits rows itself.

Activations: `int8` are plain codes. The function then sums (w + 1) * a; the sum of a is subtracted and the rest scaled.
`q8_K` is ggml's. `q8_K64` and `q8_K16` are ik_llama.cpp's; its library also packs the weights.
"""

from __future__ import annotations

import ctypes
import os
import tomllib
from collections.abc import Callable, Sequence
from ctypes import c_void_p
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tritmark.harness.candidate.elf import NotALibraryError, exported
from tritmark.harness.errors import DeviceUnavailableError, UsageError
from tritmark.harness.nearest import nearest
from tritmark.harness.spec import Arrays, Axes, Constraint, KernelKey, Launch, MultipleOf, Tier, Variant
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.peers import adapted_cuda, ggml, isa, libggml, libik, products
from tritmark.kernels.ternary_matmul import cpu

FOLDER = Path(__file__).parent
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))
"""The names of the adapters."""


@dataclass(frozen=True, slots=True)
class SeveralRows:
    """A function of the same signature for several rows of activations. Can be pickled."""

    symbol: str
    rows: int


@dataclass(frozen=True, slots=True)
class AdaptedProduct:
    """One of [[products]]. Can be pickled."""

    name: str
    symbol: str
    call: str
    weights: str
    activations: str
    columns: int = 1
    rows: int = 1
    shapes: tuple[tuple[int, int, int], ...] = ()
    several: SeveralRows | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shapes", tuple(map(tuple, self.shapes)))  # a list of lists in TOML
        if isinstance(self.several, dict):
            object.__setattr__(self, "several", SeveralRows(**self.several))

    @property
    def symbols(self) -> tuple[str, ...]:
        """All functions that are called."""
        packs = (f"quantize_{self.weights}", "ggml_row_size") if self.call == libik.MULTIPLY else ()
        return (self.symbol, *packs)


@dataclass(frozen=True, slots=True)
class Adapter:
    """The content of a file."""

    source: str
    products: tuple[AdaptedProduct, ...]
    start: str = ""


@cache
def adapter(name: str) -> Adapter:
    """The adapter of that name. Raises UsageError if there is none."""
    if name not in NAMES:
        raise UsageError(f"unknown adapter {name!r}; {nearest(name, NAMES)}")
    table = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    return Adapter(table["source"], tuple(AdaptedProduct(**each) for each in table["products"]), table.get("start", ""))


def variants(name: str, path: str) -> Sequence[Variant]:
    """The products of a library that the user has built, as variants; nothing is loaded.

    Raises UsageError for an unknown adapter, for a file that is no library of this machine, and for a library without a
    required function, which is named.
    """
    adapted, library = adapter(name), Path(path)
    try:
        data = library.read_bytes()
        has = exported(data)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; legal: a library for the adapter {name}") from None
    except NotALibraryError as error:
        raise UsageError(f"{path}: {error}; legal: a shared library of this machine") from None
    wanted = [adapted.start] if adapted.start else []
    for symbol in dict.fromkeys([*wanted, *(each for product in adapted.products for each in product.symbols)]):
        if symbol not in has:
            raise UsageError(f"{path} has no function {symbol}, which the adapter {name} calls; {nearest(symbol, has)}")
    whole, digest = str(library.resolve()), sha256(data).hexdigest()
    made: list[Variant] = []
    for product in adapted.products:
        if product.call == adapted_cuda.CALL:
            load, own = partial(_loaded, whole, adapted.start), f"{name}:{product.name}"
            what = (own, adapted.source, product.symbol, product.weights, product.shapes)
            made += adapted_cuda.variants(*what, Path(whole), digest, load)
        else:
            made += _on_cpu(name, adapted, product, whole, digest)
    return made


def _on_cpu(name: str, adapted: Adapter, product: AdaptedProduct, path: str, digest: str) -> Sequence[Variant]:
    return [
        _variant(name, adapted, product, format, path, digest)
        for format in dict.fromkeys((products.FASTEST, product.weights))
        # Scales of rows and groups are possible only if the library takes the bytes unchanged.
        if format in cpu.FORMATS and (BUILT_IN[format].scale_per == "tensor" or product.activations == "q8_K")
    ]


def _variant(name: str, adapted: Adapter, product: AdaptedProduct, format: str, path: str, digest: str) -> Variant:
    multiples: tuple[Constraint, ...] = (MultipleOf("K", product.columns),)
    if product.rows > 1:
        multiples = (*multiples, MultipleOf("N", product.rows))
    own = f"{name}:{product.name}"
    return Variant(
        key=KernelKey("cpu", products.OP, format, products.DTYPE),
        name=own,
        tier=Tier.PEER,
        summary=f"{adapted.source}: {product.symbol} of {Path(path).name}",
        bind=partial(_bind, own, product, adapted.start, path, format),
        constraints=multiples,
        reports_nonfinite=False,
        code_hash=digest,
        missing=partial(isa.beyond, partial(isa.compiled, Path(path))),
        load=partial(_loaded, path, adapted.start),
        packs=True,
        error_bound=_bound(own, product, format),
        version=partial(_version, Path(path), digest),
    )


def _version(path: Path, digest: str) -> str:
    number = isa.version(path)
    return f"{f'{number}, ' if number else ''}SHA-256 {digest}, {isa.in_words(partial(isa.compiled, path))}"


def _bound(own: str, product: AdaptedProduct, format: str) -> products.ErrorBound:
    if product.activations == "q8_K" and format == product.weights:
        return partial(products.grouped_bound, format, product.weights)
    roundings: dict[str, Callable[[Axes], int]] = {
        # Roundings: the scale, the sum as float32, the difference, its product.
        "int8": lambda axes: 4,
        "q8_K": ggml.roundings,
        "q8_K64": libik.roundings,
        "q8_K16": libik.roundings,
    }
    return partial(products.bound, own, roundings[product.activations])


@cache
def _loaded(path: str, start: str) -> ctypes.CDLL:
    """The library. Raises DeviceUnavailableError if it cannot be loaded."""
    try:
        # DEEPBIND: its own functions precede those of libraries that are loaded globally.
        library = ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL | os.RTLD_DEEPBIND)
    except OSError as error:
        raise DeviceUnavailableError(
            f"{path} cannot be loaded: {error}",
            next_step="put the libraries that it needs beside it, or name their folder in LD_LIBRARY_PATH",
        ) from None
    if start:
        library[start]()
    return library


def _bind(
    own: str,
    product: AdaptedProduct,
    start: str,
    path: str,
    format: str,
    inputs: Arrays,
    outputs: Arrays,
    axes: Axes,
    threads: int,
) -> Launch:
    library = _loaded(path, start)
    address = ctypes.cast(library[product.symbol], c_void_p).value or 0
    codes = np.ascontiguousarray(inputs["activations"])
    more: dict[str, Any] = {}
    if product.call == libik.MULTIPLY:
        weights = products.packed(
            format, product.weights, partial(libik.pack, product.weights, opened=library), inputs, axes
        )
        activations = libik.pack_activations(product.weights, codes, products.both_scales(inputs))
        more["types"] = libik.TYPES[product.weights]
    elif product.activations == "q8_K":
        weights = products.blocks(format, product.weights, inputs, axes)
        activations = libggml.pack_q8_K(codes, products.scales_beside(format, inputs, axes))
    else:
        weights = products.packed(format, product.weights, partial(_rows, product.weights), inputs, axes)
        activations = codes.view(np.uint8)
        more["sums"] = codes.sum(axis=1, dtype=np.int64).astype(np.float32)
        more["scales"] = products.both_scales(inputs)
    if product.several is not None and hasattr(library, product.several.symbol):
        function = library[product.several.symbol]
        more["several"] = ctypes.cast(function, c_void_p).value, product.several.rows
    return products.call(own, address, weights, activations, inputs, outputs, axes, threads, **more)


def _rows(format: str, codes: products.Codes) -> products.Bytes:
    """Codes (N, K) packed, row by row, without the trailing scale."""
    N, K = codes.shape
    packed: products.Bytes = BUILT_IN[format].pack(codes, 1.0).reshape(-1)[: N * K // 4].reshape(N, -1)
    return packed
