"""Packed weights as one object, and the choice of the kernel that computes a product from them: in their own format, or
in another format that holds the same weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.contract import check_threads, check_variant
from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.machine.numa import topology
from tritmark.harness.monitor.hook import KernelRan
from tritmark.harness.nearest import misspelt
from tritmark.harness.registry import Registry
from tritmark.harness.spec import Axes, Device, KernelKey, Requirement, Variant
from tritmark.kernels.dispatch import dispatch, offload
from tritmark.kernels.formats import BUILT_IN, FORMATS, Format
from tritmark.kernels.formats.base import Content, Experts, Shape
from tritmark.kernels.native.huge_pages import HUGE_PAGES
from tritmark.kernels.native.placement import Placement, placed

_PRODUCT = "ternary_matmul"
_EXPERTS = "ternary_matmul_experts"


@dataclass(frozen=True, eq=False)
class PackedWeights:
    """A ternary (N, K) matrix in the bytes of a format, or the matrices of E experts, (E, N, K), one after another.
    Raises InvalidArgumentError for an unknown format and for fewer bytes than the format has for the shape."""

    data: npt.NDArray[np.uint8]
    """The bytes, as FORMATS[format].pack returns them."""
    format: str
    shape: Shape | Experts
    """(N, K): out_features, in_features; or (E, N, K)."""
    scale: Any
    """float32, the value of code 1, stored in or beside the bytes: one number, or an array of the format's
    `scale_shape`; of experts an array with E as its first axis."""
    variant: str | None = None
    """The variant that products with these weights must use, unless the product names one."""
    placement: Placement | None = None
    """The placement of the bytes over NUMA nodes, set by `placed`."""
    _kept: dict[tuple[str, str], Any] = field(default_factory=dict, init=False, repr=False)
    """The weights in other formats and on devices, by (format, device)."""
    plans: Any = field(default=None, init=False, repr=False)
    """Plans of products with these weights on the CPU; None until the first (kernels/ternary_matmul/plans.py)."""
    planned: dict[Any, KernelRan] = field(default_factory=dict, init=False, repr=False)
    """The kernel of each plan, by its key."""

    def __post_init__(self) -> None:
        form = known_format("PackedWeights", self.format)
        check_variant("PackedWeights", self.variant)
        least = math.prod(self.shape[:-2]) * form.packed_bytes(self.matrix)
        known = isinstance(self.data, np.ndarray) and self.data.dtype == np.uint8
        if not known or self.data.nbytes < least:
            kind = f"{self.data.dtype}" if isinstance(self.data, np.ndarray) else f"a {type(self.data).__name__}"
            found = f"{self.data.nbytes} bytes" if known else kind
            legal = f"an array of uint8 of {least} bytes, as {self.format} has for {self.shape}"
            raise InvalidArgumentError(op="PackedWeights", argument="data", found=found, legal=legal)

    def __repr__(self) -> str:
        scale = np.asarray(self.scale)
        text = f"{scale:.6g}" if not scale.shape else f"{scale.dtype} of shape {scale.shape}"
        further = "".join(
            f", {name}={value!r}"
            for name, value in (("variant", self.variant), ("placement", self.placement))
            if value is not None
        )
        return (
            f"PackedWeights(shape={self.shape}, format={self.format!r}, scale={text}, "
            f"nbytes={self.data.nbytes}{further})"
        )

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: without copies on devices and without plans, which are made again."""
        return self.__dict__ | {"_kept": {}, "plans": None, "planned": {}}

    @classmethod
    def from_bytes(
        cls, data: npt.NDArray[np.uint8], format: str, shape: Shape | Experts, scale: Any = None
    ) -> PackedWeights:
        """Weights from bytes that were packed elsewhere. They are unpacked once, which checks every code and the scale.

        `shape` is (N, K), or (E, N, K) for experts. `scale` is the value of code 1, in formats that do not store it in
        the bytes: one number, or float32 of `scale_shape`, with E as the first axis for experts.

        Raises InvalidArgumentError for an unknown format, for bytes or a scale that it refuses, for a missing scale,
        and for a scale that the bytes already have.
        """
        op, form = "PackedWeights.from_bytes", known_format("PackedWeights", format)
        _, stored = form.unpack(data, shape, tail="error")
        if form.scale_stored and scale is not None:
            raise InvalidArgumentError(
                op=op, argument="scale", found="a scale", legal=f"none: {format} has it in the bytes"
            )
        if not form.scale_stored and scale is None:
            legal = f"the scale, which {format} keeps beside the bytes"
            raise InvalidArgumentError(op=op, argument="scale", found="none", legal=legal)
        return cls(data, format, shape, stored if form.scale_stored else checked_scale(op, form, scale, shape))

    def placed(self, placement: Placement) -> PackedWeights:
        """The same weights, placed over the NUMA nodes of this machine: "first-touch" (each node has the part with
        which its threads begin), "interleave" (pages distributed in rotation), or a node's number; see
        kernels/native/placement.py. Repacked weights have the same placement. On a machine with one node nothing is
        copied.

        Raises InvalidArgumentError for another placement, PlacementError if the system refuses.
        """
        return PackedWeights(
            placed(self.data, placement).reshape(self.data.shape),
            self.format,
            self.shape,
            self.scale,
            self.variant,
            placement,
        )

    def replicas(self) -> dict[int, PackedWeights]:
        """A copy for each NUMA node that has cores for this process, in the nearest memory, for calls that stay on a
        node (kernels/native/placement.py, `on_node`). If the Linux kernel has no NUMA, returns {0: self}. Raises
        PlacementError if the system refuses."""
        there = topology()
        homes = {node: there.home(node) for node in there.working}
        return {node: self if home is None else self.placed(home) for node, home in homes.items()} or {0: self}

    def asked(self, variant: str | None) -> str | None:
        """The forced variant of a product: `variant` if given, else that of these weights."""
        return self.variant if variant is None else variant

    @property
    def matrix(self) -> tuple[int, int]:
        """(N, K), of experts that of each."""
        N, K = self.shape[-2:]
        return N, K

    @property
    def weight_scale(self) -> np.float32:
        """The `weight_scale` argument of kernels: the scale, or 1 if rows or groups have scales, which kernels read
        from the bytes."""
        return np.float32(self.scale if FORMATS[self.format].scale_per == "tensor" else 1)

    @property
    def expert_scales(self) -> npt.NDArray[np.float32]:
        """The same of experts: float32 (E,)."""
        one = FORMATS[self.format].scale_per == "tensor"
        return np.array(self.scale, np.float32) if one else np.ones(self.shape[0], np.float32)

    @cached_property
    def content(self) -> Content:
        """The codes that occur in the weights, if their format has others besides -1, 0 and 1, such as the 2 of q2_0,
        and float16 if that holds all of several float32 scales; else all of the format. Searched for once."""
        form = FORMATS[self.format]
        codes, dtype = form.codes, form.scale_dtype
        if form.ternary and len(codes) > 3:
            codes = tuple(np.unique(self.unpack()[0]).tolist())
        if form.scale_per != "tensor" and dtype == "float32":
            scale = np.asarray(self.scale, np.float32)
            with np.errstate(over="ignore"):
                narrow = scale.astype(np.float16).astype(np.float32)
            dtype = "float16" if np.array_equal(narrow, scale, equal_nan=True) else dtype
        return Content(codes, dtype)

    def unpack(self) -> tuple[npt.NDArray[np.int8], Any]:
        """Codes int8 of this shape, and the scale."""
        form = FORMATS[self.format]
        codes, stored = form.unpack(self.data, self.shape, tail="error")
        return codes, stored if form.scale_stored else self.scale

    def dequantize(self) -> npt.NDArray[np.float32]:
        """The weights as float32 of this shape: code times scale, rounded once."""
        codes, scale = self.unpack()
        form, scale = FORMATS[self.format], np.asarray(scale, dtype=np.float32)
        if form.scale_per == "group":
            scale = np.repeat(scale, form.group, axis=-1)[..., : codes.shape[-1]]
        elif scale.ndim:  # of rows or experts
            scale = scale.reshape(*scale.shape, *(1,) * (codes.ndim - scale.ndim))
        values: npt.NDArray[np.float32] = codes.astype(np.float32) * scale
        return values

    def packed_as(self, format: str, device: str = "cpu") -> Any:
        """The same weights in a format, in memory that the device's kernels read: repacked and copied at the first use,
        then kept.

        Returns uint8: a NumPy array, or an array on the device if it has its own memory. Raises InvalidArgumentError
        for a format that cannot hold the weights and for an unknown device, DeviceError if the device cannot take them.
        """
        found = self._kept.get((format, device))
        if found is None:
            where = _known_device(device)
            found = self._repacked(format)
            if where.memory is not None:
                found = offload.transfers(where).upload(found)
            self._kept[format, device] = found
        return found

    def on_host(self) -> list[npt.NDArray[np.uint8]]:
        """The arrays that products in host memory read: repacked for one row of activations, if none ran yet."""
        if not any(isinstance(each, np.ndarray) for each in self._kept.values()):
            with suppress(NoCompatibleKernelError):
                self.packed_as(product_with(self, "cpu", "float32", axes_of(self, 1), self.variant).key.format)
        arrays = {id(each): each for each in self._kept.values() if isinstance(each, np.ndarray)}
        return list(arrays.values()) or [self.data]

    def move(self, copied: Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.uint8]]) -> None:
        """Put copies in the place of the arrays of `on_host`. Plans of these weights are made again."""
        for before in self.on_host():
            moved = copied(before)
            self._kept.update({key: moved for key, each in self._kept.items() if each is before})
            if before is self.data:
                object.__setattr__(self, "data", moved)
        object.__setattr__(self, "plans", None)
        self.planned.clear()

    def _repacked(self, format: str) -> npt.NDArray[np.uint8]:
        if self.format == format:
            return self.data
        why = known_format("PackedWeights.packed_as", format).refusal(FORMATS[self.format], self.matrix, self.content)
        if why is not None:
            raise InvalidArgumentError(
                op="PackedWeights.packed_as", argument="format", found=f"{format!r}: {why}", legal="one that holds them"
            )
        codes, scale = self.unpack()
        form = FORMATS[format]
        packed = HUGE_PAGES.copied(form.pack(codes, form.regrouped(scale, FORMATS[self.format]), tail="error"))
        return packed if self.placement is None else placed(packed, self.placement).reshape(packed.shape)

    def repacked_note(self, variant: Variant) -> str:
        """A note for the receipt if the variant computes from a format other than the weights' own."""
        return (
            ""
            if variant.key.weight_format == self.format
            else f"computed from {variant.key.weight_format}, repacked from {self.format}"
        )


def pack_weights(
    codes: npt.NDArray[np.int8],
    scale: Any,
    *,
    format: str | None = None,
    variant: str | None = None,
    device: str = "cpu",
) -> PackedWeights:
    """Pack codes int8 (N, K), -1, 0 or 1 (or another code that the format has), and their scale. Codes (E, N, K) are
    those of E experts, for ternary_matmul_experts.

    `scale` is one float32, or float32 of the format's `scale_shape` if rows or groups have scales; for experts with E
    as the first axis, or one number for all. The default `format`
    is the one that `tritmark tune variants` measured as best for this shape, else that of the best kernel of `device`.
    `variant` forces the kernel on `device` for products with these weights.

    Raises InvalidArgumentError for an unknown format, for a code or a scale that the format cannot store, for a shape
    with a tail that the format would lose, and for a scale of the whole tensor that is 0, which no product takes.
    Raises NoCompatibleKernelError for a variant that cannot run on this machine or on that format.

    The bytes are stored in huge pages, adjacent to other weights (kernels/native/huge_pages.py), if the system has
    them.
    """
    if format is None:
        known = isinstance(codes, np.ndarray) and codes.ndim == 2
        op = _EXPERTS if isinstance(codes, np.ndarray) and codes.ndim == 3 else _PRODUCT
        format = preferred_format(device, (int(codes.shape[0]), int(codes.shape[1])) if known else None, op=op)
    form = known_format("pack_weights", format)
    _check_number(scale, form)
    data = HUGE_PAGES.copied(form.pack(codes, scale, tail="error"))
    *experts, N, K = map(int, codes.shape)
    shape: Shape | Experts = (experts[0], N, K) if experts else (N, K)
    kept = np.asarray(checked_scale("pack_weights", form, scale, shape))
    made = PackedWeights(data, format, shape, kept.astype(form.scale_dtype).astype(np.float32)[()], variant)
    if variant is not None:
        product_with(made, device, "float32", axes_of(made, 1), variant)
    return made


def checked_scale(op: str, form: Format, scale: Any, shape: tuple[int, ...]) -> Any:
    """The scale of weights (N, K), or the scales of experts (E, N, K), as Format.check_scale returns them. Raises
    InvalidArgumentError as it does, and for the scale of an expert that no product takes."""
    N, K = shape[-2:]
    if len(shape) == 2:
        return form.check_scale(op, scale, (N, K))
    several = isinstance(scale, np.ndarray) and scale.ndim > 0
    if several and form.scale_per == "tensor":
        wrong = np.flatnonzero(~(np.isfinite(scale) & (scale > 0)))
        if wrong.size:
            found = f"{scale[wrong[0]]} for expert {wrong[0]}"
            raise InvalidArgumentError(op=op, argument="scale", found=found, legal="finite and above zero")
    return np.stack([form.check_scale(op, each, (N, K)) for each in (scale if several else [scale] * shape[0])])


def axes_of(weights: PackedWeights, M: int) -> dict[str, int]:
    """The axes of a product with M rows."""
    N, K = weights.matrix
    return {"M": M, "N": N, "K": K} if len(weights.shape) == 2 else {"M": M, "E": weights.shape[0], "N": N, "K": K}


def matrix_of(op: str, weights: PackedWeights) -> tuple[int, int]:
    """(N, K) of weights that are one matrix. Raises InvalidArgumentError for experts."""
    if len(weights.shape) != 2:
        found, legal = f"of shape {weights.shape}", "one matrix (N, K); experts (E, N, K) go to ternary_matmul_experts"
        raise InvalidArgumentError(op=op, argument="weights", found=found, legal=legal)
    return weights.matrix


def _check_number(scale: Any, form: Format) -> None:
    """Raise InvalidArgumentError for a number that the format cannot store, or that no product takes as a scale.
    Formats hold 0, because files of all-zero weights have it. `Format.check_scale` refuses what is no number."""
    if not isinstance(scale, Real | np.ndarray) or (isinstance(scale, np.ndarray) and scale.ndim != 0):
        return
    with np.errstate(over="ignore", under="ignore"):
        try:
            number = np.float32(scale).astype(form.scale_dtype)
        except OverflowError:  # an int above every float
            number = np.float32(np.inf)
    if form.scale_per == "tensor":
        legal, fits = f"finite and above zero as {form.scale_dtype}", number > 0
    else:  # groups may have 0 and negative scales; another number must not become 0
        legal, fits = f"finite as {form.scale_dtype}, and 0 there only if it is 0", bool(number) == bool(scale)
    if not (np.isfinite(number) and fits):
        found = "an int above every float" if isinstance(scale, int) and abs(scale) > 1e308 else f"{scale!r}"
        raise InvalidArgumentError(op="pack_weights", argument="scale", found=found, legal=legal)


def known_format(op: str, name: str) -> Format:
    """The format of that name. Raises InvalidArgumentError if there is none."""
    if not isinstance(name, str) or name not in FORMATS:
        raise InvalidArgumentError(op=op, argument="format", found=misspelt(name, FORMATS), legal=", ".join(FORMATS))
    return FORMATS[name]


def _known_device(name: str) -> Device:
    missing = dispatch.registry().number(name)
    devices = dispatch.registry().devices
    if name not in devices:
        raise InvalidArgumentError(
            op="PackedWeights.packed_as", argument="device", found=repr(name), legal=missing or ", ".join(devices)
        )
    return devices[name]


def preferred_format(
    device: str,
    shape: tuple[int, int] | None = None,
    *,
    group: int | None = None,
    threads: int | None = None,
    requirement: Requirement = Requirement.LATENCY,
    op: str = _PRODUCT,
) -> str:
    """The format of the best kernel of a device for a product with one scale, or with one for each `group` weights of a
    row; of several, the first registered. For weights of a `shape` (N, K) with one scale, the format that `tritmark
    tune variants` measured as best for the requirement with one row of activations, if it was run.

    Raises NoCompatibleKernelError for a device on which no such product runs.
    """
    dispatch.check_device("pack_weights", device)
    registry = dispatch.registry()
    registry.number(device)
    found = _formats(registry, registry.version, device, op, "float32")
    per = "tensor" if group is None else "group"
    formats = {
        format: precedence
        for format, precedence in found.items()
        if FORMATS[format].scale_per == per and group in (None, FORMATS[format].group)
    }
    if not formats:
        name = "any" if group is None else f"any with groups of {group}"
        registry.select_best(KernelKey(device, op, name, "float32"), {})  # raises, with the reason
    if shape is not None and group is None:
        axes = {"M": 1, "N": shape[0], "K": shape[1]}
        keys = [KernelKey(device, _PRODUCT, each, "float32") for each in found if FORMATS[each].interchangeable(shape)]
        best = registry.measured(keys, axes, requirement, threads) if keys else None
        if best is not None:
            return best.key.weight_format
    return max(formats, key=lambda format: formats[format])


def product_with(
    weights: PackedWeights,
    device: str,
    dtype: str,
    axes: Axes,
    name: str | None,
    threads: int | None = None,
    requirement: Requirement = Requirement.LATENCY,
    arrays: Iterable[Any] = (),
) -> Variant:
    """The variant that computes a product with these weights, of experts that of all: one that reads their own format,
    else the best one with a format that holds them unchanged. Weights with a scale for each group are computed in tiles
    instead, if these hold them (Format.tiled), unless `name` is given or the requirement is memory or exactness: tiles
    take memory besides the bytes, and their sums of the groups are float32. `name` forces a variant; otherwise a
    measured choice has precedence, as in Registry.select_best. `arrays` are the other arrays that the kernel uses, as
    in dispatch.select.

    Raises NoCompatibleKernelError, with the reason for each refused format and variant, and InvalidArgumentError for an
    invalid name or thread count.
    """
    op = _PRODUCT if len(weights.shape) == 2 else _EXPERTS
    if name is not None or threads is not None or type(device) is not str:  # most calls give neither
        dispatch.check_device(op, device)
        check_variant(op, name)
        check_threads(op, threads)
    registry = dispatch.registry()
    key = KernelKey(device, op, weights.format, dtype)
    strictest = _strictest(registry, registry.version, device, op, dtype)
    asked = (name, threads, requirement, dispatch.alignment_of(registry, device, strictest, arrays))
    content = content_for(weights, _formats(registry, registry.version, device, op, dtype))
    return _product(
        registry, dispatch.state(registry, device), weights.matrix, key, tuple(axes.items()), content, *asked
    )


def check_named(weights: PackedWeights, device: str, name: str) -> None:
    """Check that a variant of that name can compute products with these weights on that device of this machine, for
    some number of rows. Raises NoCompatibleKernelError as product_with does."""
    registry = dispatch.registry()
    own, formats = FORMATS[weights.format], _formats(registry, registry.version, device, _PRODUCT, "float32")
    content = content_for(weights, formats)
    for format in formats:
        why = _beside(own) if format == own.name else FORMATS[format].refusal(own, weights.matrix, content)
        found = registry.candidates(KernelKey(device, _PRODUCT, format, "float32")) if why is None else ()
        if any(variant.name == name and refusal is None for variant, refusal in found):
            return
    product_with(weights, device, "float32", axes_of(weights, 1), name)


@lru_cache(maxsize=4096)
def _product(
    registry: Registry,
    _state: object,
    shape: tuple[int, int],
    key: KernelKey,
    axes: tuple[tuple[str, int], ...],
    content: Content,
    name: str | None,
    threads: int | None,
    requirement: Requirement,
    alignment: int | None,
) -> Variant:
    registry.device(key.device, str(key))
    own = key.weight_format
    refused: list[tuple[str, str]] = []
    found: list[Variant] = []
    formats = _formats(registry, registry.version, key.device, key.op, key.dtype)
    tiles = _tiles(formats, own, shape, content) if name is None and requirement in _FASTEST else None
    for format in sorted(formats, key=lambda format: (format != tiles, format != own)):
        why = _beside(FORMATS[own]) if format == own else FORMATS[format].refusal(FORMATS[own], shape, content)
        if why is not None:
            refused.append((format, why))
            continue
        try:
            where = KernelKey(key.device, key.op, format, key.dtype)
            asked = registry.select_best(
                where, dict(axes), name, requirement=requirement, threads=threads, alignment=alignment
            )
            found.append(asked)
        except NoCompatibleKernelError as error:
            refused += ((f"{format}/{variant}", reason) for variant, reason in error.candidates)
        if found and format == own:
            # Of equals the first, that of tiles; but another package's kernel for its own format has precedence.
            return max(found, key=lambda variant: variant.precedence) if own in BUILT_IN else found[-1]
    if not found:
        text = ", ".join(f"{axis}={size}" for axis, size in axes)
        there = [
            variant.name
            for variant in registry.without_peers
            if (variant.key.device, variant.key.op) == (key.device, key.op)
        ]
        request = f"{key} with {text}" + (f", variant {misspelt(name, there)}" if name else "")
        raise NoCompatibleKernelError(request=request, candidates=refused)
    return max(found, key=lambda variant: variant.precedence)


_FASTEST = frozenset({Requirement.LATENCY, Requirement.THROUGHPUT})
"""The requirements for which weights are repacked into a faster layout."""


def _tiles(formats: Iterable[str], own: str, shape: tuple[int, int], content: Content) -> str | None:
    """The layout of tiles in which products with weights (N, K) of a format are computed, with the largest groups that
    hold them; None if there is none, or if the format is one."""
    form = FORMATS[own]
    if form.tiled or form.scale_per != "group":
        return None
    fit = (each for each in formats if FORMATS[each].tiled and FORMATS[each].refusal(form, shape, content) is None)
    return max(fit, key=lambda each: FORMATS[each].group, default=None)


def content_for(weights: PackedWeights, formats: Iterable[str]) -> Content:
    """What another format must hold: the content of the weights, if no kernel reads their own format; else all that
    their format can have, which needs no search."""
    form = FORMATS[weights.format]
    return form.content if weights.format in formats and _beside(form) is None else weights.content


def _beside(form: Format) -> str | None:
    """Why no kernel takes the scales of weights in that format, or None."""
    several = form.scale_per != "tensor" and not form.scale_stored
    return f"{form.name} has {form.scales} beside its bytes, and kernels take one" if several else None


@lru_cache(maxsize=64)
def _strictest(registry: Registry, version: int, device: str, op: str, dtype: str) -> int:
    """The largest alignment that a product of the device needs."""
    formats = _formats(registry, version, device, op, dtype)
    return max((registry.strictest(KernelKey(device, op, each, dtype)) for each in formats), default=1)


@lru_cache(maxsize=64)
def _formats(registry: Registry, version: int, device: str, op: str, dtype: str) -> dict[str, Any]:
    """The formats from which a device computes products, in order of registration, with the precedence of the best
    variant of each."""
    found: dict[str, Any] = {}
    for each in registry.without_peers:
        if (each.key.device, each.key.op, each.key.dtype) == (device, op, dtype):
            found[each.key.weight_format] = max(found.get(each.key.weight_format, each.precedence), each.precedence)
    return found
