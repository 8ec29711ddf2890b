"""The weights of a layer in the layout of the kernels: made once, and again after the weights changed.

A change shows in the tensor's address or in PyTorch's count of its writes. Where PyTorch counts no writes (tensors of
inference mode, buffers that DistributedDataParallel broadcasts), a digest of the bytes decides. The result is kept as
long as the memory of the weights exists.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Hashable
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.parallel import DistributedDataParallel

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.formats.hf_pack import HF_PACK
from tritmark.kernels.native.huge_pages import HUGE_PAGES
from tritmark.kernels.weights.packed import preferred_format
from tritmark.torch import contract

DEVICES = ("cpu", "cuda")
"""Device types with kernels."""


_WORDS = (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint16, ctypes.c_uint8)
"""Types of a sample, by size."""


class Derived(NamedTuple):
    """Weights in the layout of the kernels."""

    packed: torch.Tensor
    """uint8, in `format`; never written."""
    format: str
    digest: bytes
    """Digest of N and of the bytes that the weights were made from."""


class _Unknown:
    """Stands in for a DistributedDataParallel that does not report whether its forward pass runs: it always may."""

    broadcast_buffers = True
    _active_ddp_module: Any = None


_Unknown._active_ddp_module = _Unknown
DDP: Any = DistributedDataParallel if hasattr(DistributedDataParallel, "_active_ddp_module") else _Unknown
"""Class whose `_active_ddp_module` is the module in its forward pass, or None."""


def sample_of(tensor: torch.Tensor) -> memoryview | None:
    """A view of at most 8 bytes in the middle of a CPU tensor, which is read again in each call. Writes that PyTorch
    does not count (`.data`, NumPy, collectives) mostly replace a whole tensor. None for a tensor that is empty or not
    contiguous."""
    size = tensor.numel() * tensor.element_size()
    if not (tensor.is_cpu and tensor.is_contiguous() and size):
        return None
    word = next(word for word in _WORDS if ctypes.sizeof(word) <= size)
    width = ctypes.sizeof(word)
    # By address: a view would keep the storage alive, and with it the result. The caller compares addresses first.
    found = (word * 1).from_address(tensor.data_ptr() + size // 2 // width * width)
    return memoryview(found).cast("B").cast(word._type_)


class _MadeOf(NamedTuple):
    """The result that was made from a tensor."""

    version: Hashable
    """The tensor's count of writes (with scales for groups: both tensors'), or -1 if not all of them are counted."""
    made: Any
    sample: memoryview | None = None
    """See sample_of; only for weights on the CPU."""
    sampled: int = 0
    """Value of the sample when the result was made."""
    memory: torch.Tensor | None = None
    """The scales of groups, kept so that their address is not reused."""


_KEPT: dict[int, dict[Hashable, _MadeOf]] = {}
"""By the tensor's storage, then by the address in it and further parameters. Entries are dropped with the storage."""
_STORAGES: dict[int, weakref.ref[Any]] = {}
_NOTHING: dict[Hashable, _MadeOf] = {}


def _address_of_storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


# The same without a storage object.
_storage: Callable[[torch.Tensor], int] = getattr(torch._C, "_storage_address", _address_of_storage)


def refuse(argument: str, found: str, legal: str) -> InvalidArgumentError:
    """Build the error about a layer's state."""
    return InvalidArgumentError(op="BitLinear", argument=argument, found=found, legal=legal)


def check_width(x: torch.Tensor, weight: torch.Tensor) -> None:
    """Raise InvalidArgumentError for another width. The bytes of packed weights do not always show it."""
    if not x.ndim or x.shape[-1] != weight.shape[1]:
        raise refuse("x", f"of shape {tuple(x.shape)}", f"of shape (..., {weight.shape[1]})")


def uncounted() -> bool:
    """Whether buffers may have been written without a count: in the forward pass of a DistributedDataParallel that
    broadcasts them."""
    active = DDP._active_ddp_module
    return active is not None and active.broadcast_buffers


def version_of(tensor: torch.Tensor) -> int | None:
    """PyTorch's count of writes to a tensor; None if it does not count all of them."""
    return None if tensor.is_inference() or uncounted() else int(tensor._version)


def derived(weight: torch.Tensor, N: int, before: Derived | None = None) -> Derived:
    """Convert weights in Hugging Face's layout, uint8 (ceil(N/4), K), to the layout of the kernels on their device.
    Returns `before` if it was made from the same bytes for that device.

    Waits for the device if a conversion is necessary. Raises InvalidArgumentError for weights of another dtype or
    shape, on a device without kernels, or with a bit field that is no code; NoCompatibleKernelError.
    """
    key = weight.data_ptr(), N, tuple(weight.shape)
    version = version_of(weight)
    made: Derived = kept(weight, key, version, before, lambda earlier: _made(weight, N, earlier))
    return made


def kept(
    weight: torch.Tensor,
    key: Hashable,
    version: Hashable,
    before: Any,
    make: Callable[[Any], Any],
    memory: torch.Tensor | None = None,
) -> Any:
    """The result that is kept for these weights, or a new one. `version`: None if writes are not counted. `memory`: of
    other tensors in the version."""
    found = _KEPT.get(_storage(weight), _NOTHING).get(key)
    if found is not None:
        if found.version == version and (found.sample is None or found.sample[0] == found.sampled):
            return found.made
        before = found.made
    sample = sample_of(weight)
    sampled = 0 if sample is None else sample[0]  # read before the bytes, like the version
    made = make(before)
    _keep(weight, key, version, made, sample, sampled, memory)
    return made


def of_state(
    weight: torch.Tensor, weight_scale: torch.Tensor, N: int, divide: bool, before: Derived | None = None
) -> tuple[Derived, float]:
    """The weights of a state in the layout of the kernels, and the value of code 1 beside them: 1 if each group of
    weights has a scale, which that layout then contains. Raises as `derived` and `scale_of`."""
    if weight_scale.numel() == 1:
        return derived(weight, N, before), scale_of(weight_scale, divide)
    # One result for these weights: a key with the scales' address would keep a result for each replaced tensor.
    key = weight.data_ptr(), N, tuple(weight.shape), "groups"
    versions = version_of(weight), version_of(weight_scale)
    of_scales = weight_scale.data_ptr(), tuple(weight_scale.shape), weight_scale.dtype, divide
    version = None if None in versions else (*versions, *of_scales)
    make = partial(_grouped, weight, weight_scale, N, divide)
    return kept(weight, key, version, before, make, weight_scale.detach()), 1.0


def forget(tensor: torch.Tensor) -> None:
    """Drop the results of a tensor's memory; the next call makes them again."""
    _KEPT.pop(_storage(tensor), None)


class KeptWeights(NamedTuple):
    """A kept result whose packed weights can be moved."""

    packed: torch.Tensor
    of_storage: dict[Hashable, _MadeOf]
    key: Hashable

    def replace(self, packed: torch.Tensor) -> None:
        """Keep the same bytes at another place."""
        known = self.of_storage[self.key]
        self.of_storage[self.key] = known._replace(made=known.made._replace(packed=packed))


def entries_of(weight: torch.Tensor) -> list[KeptWeights]:
    """What is kept for these weights, for each number of rows and kind of scales."""
    of_storage, address = _KEPT.get(_storage(weight), _NOTHING), weight.data_ptr()
    return [
        KeptWeights(each.made.packed, of_storage, key)
        for key, each in of_storage.items()
        if isinstance(key, tuple) and key[0] == address and hasattr(each.made, "packed")
    ]


def _keep(
    tensor: torch.Tensor,
    key: Hashable,
    version: Hashable,
    made: Any,
    sample: memoryview | None = None,
    sampled: int = 0,
    memory: torch.Tensor | None = None,
) -> None:
    place = _storage(tensor)
    if place not in _STORAGES:

        def gone(_: object) -> None:
            _KEPT.pop(place, None)
            _STORAGES.pop(place, None)

        # The reference is to the storage: torch.utils.swap_tensors refuses tensors with weak references.
        _STORAGES[place] = weakref.ref(tensor.untyped_storage(), gone)
    _KEPT.setdefault(place, {})[key] = _MadeOf(-1 if version is None else version, made, sample, sampled, memory)


def _made(weight: torch.Tensor, N: int, before: Derived | None) -> Derived:
    host = _bytes_of(weight, N)
    digest = blake2b(host.data, digest_size=32, salt=N.to_bytes(8, "little")).digest()
    device = weight.device
    if before is not None and before.digest == digest and before.packed.device == device:
        return before
    shape = N, host.shape[1]
    codes, _ = HF_PACK.unpack(host, shape, tail="error")
    format = preferred_format(device.type, shape)
    with torch.inference_mode(False):
        packed = torch.ops.tritmark.pack(torch.from_numpy(codes), 1.0, format).to(device)
    return Derived(packed, format, digest)


def _grouped(weight: torch.Tensor, weight_scale: torch.Tensor, N: int, divide: bool, before: Derived | None) -> Derived:
    """As _made, with a scale for each group of a row's weights."""
    host, device = _bytes_of(weight, N), weight.device
    K = host.shape[1]
    scales = group_scales(weight_scale, (N, K), divide)
    mark = N.to_bytes(8, "little") + scales.shape[1].to_bytes(8, "little")
    digest = blake2b(host.data, digest_size=32, salt=mark, person=b"groups")
    digest.update(scales.data)
    found = digest.digest()
    if before is not None and before.digest == found and before.packed.device == device:
        return before
    codes, _ = HF_PACK.unpack(host, (N, K), tail="error")
    format = preferred_format(device.type, (N, K), group=K // scales.shape[1])
    stored = FORMATS[format].scale_dtype
    with np.errstate(over="ignore"):
        wrong = np.argwhere(scales.astype(stored).astype(np.float32) != scales)
    if len(wrong):
        at = tuple(map(int, wrong[0]))
        raise refuse("weight_scale", f"{scales[at]} at {at}", f"numbers that {stored} holds, as kernels read them")
    with torch.inference_mode(False):
        packed = torch.from_numpy(HUGE_PAGES.copied(FORMATS[format].pack(codes, scales, tail="error"))).to(device)
    return Derived(packed, format, found)


def group_scales(weight_scale: torch.Tensor, shape: tuple[int, int], divide: bool) -> npt.NDArray[np.float32]:
    """The value of code 1 for each group of a row's weights (N, K): float32 (N, K / group), or the inverse of these
    numbers with `divide`. Raises InvalidArgumentError for another shape, and for numbers that are not finite."""
    N, K = shape
    found, floating = tuple(weight_scale.shape), weight_scale.is_floating_point()
    if len(found) != 2 or found[0] != N or not found[1] or K % found[1] or not floating:
        legal = f"one number, or floats ({N}, {K} / group), one for each group of a row's weights"
        raise refuse("weight_scale", f"{weight_scale.dtype} {found}", legal)
    if weight_scale.device.type not in DEVICES:
        raise refuse("weight_scale", f"on {weight_scale.device}", f"on {' or '.join(DEVICES)}")
    refuse_capture("weight_scale", weight_scale)
    given: npt.NDArray[np.float32] = weight_scale.detach().float().cpu().contiguous().numpy()
    with np.errstate(divide="ignore"):
        scales = np.ascontiguousarray((1 / given.astype(np.float64)).astype(np.float32) if divide else given)
    wrong = np.argwhere(~np.isfinite(scales) | ~np.isfinite(given))
    if len(wrong):
        at = tuple(map(int, wrong[0]))
        raise refuse("weight_scale", f"{given[at]} at {at}", "finite" + ", like its inverse" * divide)
    return scales


def _bytes_of(weight: torch.Tensor, N: int) -> npt.NDArray[np.uint8]:
    """The bytes of weights in Hugging Face's layout, on the host. Raises InvalidArgumentError."""
    device, dtype, shape = weight.device, weight.dtype, tuple(weight.shape)
    if dtype is not torch.uint8 or len(shape) != 2 or shape[0] != -(-N // 4) or not shape[1]:
        raise refuse("weight", f"{dtype} {shape}", f"torch.uint8 (ceil(N/4), K), for N = {N}")
    if device.type not in DEVICES:
        raise refuse("weight", f"on {device}", f"on {' or '.join(DEVICES)}")
    refuse_capture("weight", weight)
    host: npt.NDArray[np.uint8] = weight.detach().cpu().contiguous().numpy()
    return host


def scale_of(weight_scale: torch.Tensor, divide: bool) -> float:
    """The value of code 1 in float32: the one number in `weight_scale`, or its inverse with `divide`.

    Reads the tensor in each call on the CPU. On a GPU, where reading waits for the device, only after a write. Raises
    InvalidArgumentError for an invalid scale.
    """
    if weight_scale.is_cpu:
        return _scale(weight_scale, divide)
    key = weight_scale.data_ptr(), divide, weight_scale.dtype
    version = version_of(weight_scale)
    found = _KEPT.get(_storage(weight_scale), _NOTHING).get(key)
    if found is not None and found.version == version:
        made: float = found.made
        return made
    made = _scale(weight_scale, divide)
    _keep(weight_scale, key, version, made)
    return made


def _scale(weight_scale: torch.Tensor, divide: bool) -> float:
    if weight_scale.numel() != 1 or not weight_scale.is_floating_point():
        found = f"{weight_scale.dtype} {tuple(weight_scale.shape)}"
        raise refuse("weight_scale", found, "one number of a floating dtype")
    if weight_scale.device.type not in DEVICES:
        raise refuse("weight_scale", f"on {weight_scale.device}", f"on {' or '.join(DEVICES)}")
    refuse_capture("weight_scale", weight_scale)
    scale = float(weight_scale)
    wanted = 1 / scale if divide and scale else scale
    if not contract.LEAST < wanted < contract.PAST:
        raise refuse("weight_scale", repr(scale), "finite and above zero" + ", like its inverse" * divide)
    return float(np.float32(wanted))


def refuse_capture(argument: str, tensor: torch.Tensor) -> None:
    """Raise InvalidArgumentError during the capture of a CUDA graph, in which the device cannot be read."""
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        legal = "no change since the last call; after a change call the layer once, then capture"
        raise refuse(argument, "changed while a CUDA graph is captured", legal)
