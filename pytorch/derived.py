"""What kernels read in place of a state's weights: made from them once, and anew when the weights have changed.

A change is found by the tensor's memory and PyTorch's count of its writes. Where writes are not counted (tensors of
inference mode, buffers that DistributedDataParallel broadcasts) the bytes' digest decides. What was made is kept for as
long as the memory of the weights lives.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Hashable
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.formats.hf_pack import HF_PACK
from tritmark.kernels.packed import preferred_format
from tritmark.torch import contract

DEVICES = ("cpu", "cuda")
"""Kinds of devices that have kernels."""


_WORDS = (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint16, ctypes.c_uint8)
"""Of which a sample is one."""


class Derived(NamedTuple):
    """Weights as kernels read them."""

    packed: torch.Tensor
    """uint8, in that format, which no one writes."""
    format: str
    digest: bytes
    """Of the bytes of the weights that they were made from, and of N."""


class _Unknown:
    """In place of a DistributedDataParallel that does not tell whether its forward pass runs: it always may."""

    broadcast_buffers = True
    _active_ddp_module: Any = None


_Unknown._active_ddp_module = _Unknown
DDP: Any = DistributedDataParallel if hasattr(DistributedDataParallel, "_active_ddp_module") else _Unknown
"""Whose `_active_ddp_module` is the one whose forward pass runs, or None."""


def sample_of(tensor: torch.Tensor) -> memoryview | None:
    """At most 8 bytes in the middle of a CPU tensor, as one number that is read again at each call: writes that PyTorch
    does not count (`.data`, NumPy, collectives) mostly replace all of a tensor. None where it is not contiguous."""
    size = tensor.numel() * tensor.element_size()
    if not (tensor.is_cpu and tensor.is_contiguous() and size):
        return None
    word = next(word for word in _WORDS if ctypes.sizeof(word) <= size)
    width = ctypes.sizeof(word)
    # By address: a view that holds the storage would keep what is made of it. The caller compares addresses first.
    found = (word * 1).from_address(tensor.data_ptr() + size // 2 // width * width)
    return memoryview(found).cast("B").cast(word._type_)


class _MadeOf(NamedTuple):
    """What was made from a tensor."""

    version: int
    """Its count of writes; -1, which is none, where not all of them are counted."""
    made: Any
    sample: memoryview | None = None
    """See sample_of; of weights on the CPU."""
    sampled: int = 0
    """What it was."""


_KEPT: dict[int, dict[Hashable, _MadeOf]] = {}
"""By the tensor's storage, then by the address in it and what else it was made for. A storage's go when it goes."""
_STORAGES: dict[int, weakref.ref[Any]] = {}
_NOTHING: dict[Hashable, _MadeOf] = {}


def _address_of_storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


# The same without making an object of the storage.
_storage: Callable[[torch.Tensor], int] = getattr(torch._C, "_storage_address", _address_of_storage)


def refuse(argument: str, found: str, legal: str) -> InvalidArgumentError:
    """The error to raise for a layer's state."""
    return InvalidArgumentError(op="BitLinear", argument=argument, found=found, legal=legal)


def uncounted() -> bool:
    """Whether buffers may have been written without PyTorch's count: within the forward pass of a
    DistributedDataParallel that broadcasts them."""
    active = DDP._active_ddp_module
    return active is not None and active.broadcast_buffers


def version_of(tensor: torch.Tensor) -> int | None:
    """PyTorch's count of writes into a tensor; None where it does not count them all."""
    return None if tensor.is_inference() or uncounted() else int(tensor._version)


def derived(weight: torch.Tensor, N: int, before: Derived | None = None) -> Derived:
    """Weights in Hugging Face's layout, uint8 (ceil(N/4), K), as the kernels of their device read them. Those made
    `before` are returned again where they were made of the same bytes for that device.

    Waits for the device where they have to be made. Raises InvalidArgumentError for weights of another dtype or shape,
    on a device without kernels, or with a field that stands for no code; NoCompatibleKernelError.
    """
    key = weight.data_ptr(), N, tuple(weight.shape)
    version = version_of(weight)
    found = _KEPT.get(_storage(weight), _NOTHING).get(key)
    if found is not None:
        if found.version == version and (found.sample is None or found.sample[0] == found.sampled):
            made: Derived = found.made
            return made
        before = found.made
    sample = sample_of(weight)
    sampled = 0 if sample is None else sample[0]  # before the bytes are read, as the version
    made = _made(weight, N, before)
    _keep(weight, key, version, made, sample, sampled)
    return made


def forget(tensor: torch.Tensor) -> None:
    """What was made from a tensor's memory is made anew at the next call, whatever its count of writes."""
    _KEPT.pop(_storage(tensor), None)


def _keep(
    tensor: torch.Tensor,
    key: Hashable,
    version: int | None,
    made: Any,
    sample: memoryview | None = None,
    sampled: int = 0,
) -> None:
    place = _storage(tensor)
    if place not in _STORAGES:

        def gone(_: object) -> None:
            _KEPT.pop(place, None)
            _STORAGES.pop(place, None)

        # Not of the tensor: torch.utils.swap_tensors refuses tensors with weak references.
        _STORAGES[place] = weakref.ref(tensor.untyped_storage(), gone)
    _KEPT.setdefault(place, {})[key] = _MadeOf(-1 if version is None else version, made, sample, sampled)


def _made(weight: torch.Tensor, N: int, before: Derived | None) -> Derived:
    device, dtype, shape = weight.device, weight.dtype, tuple(weight.shape)
    if dtype is not torch.uint8 or len(shape) != 2 or shape[0] != -(-N // 4) or not shape[1]:
        raise refuse("weight", f"{dtype} {shape}", f"torch.uint8 (ceil(N/4), K), for N = {N}")
    if device.type not in DEVICES:
        raise refuse("weight", f"on {device}", f"on {' or '.join(DEVICES)}")
    refuse_capture("weight", weight)
    host = weight.detach().cpu().contiguous().numpy()
    digest = blake2b(host.data, digest_size=32, salt=N.to_bytes(8, "little")).digest()
    if before is not None and before.digest == digest and before.packed.device == device:
        return before
    codes, _ = HF_PACK.unpack(host, (N, shape[1]), tail="error")
    format = preferred_format(device.type)
    with torch.inference_mode(False):
        packed = torch.ops.tritmark.pack(torch.from_numpy(codes), 1.0, format).to(device)
    return Derived(packed, format, digest)


def scale_of(weight_scale: torch.Tensor, divide: bool) -> float:
    """What code 1 stands for, as float32, by a scale of one number, or with `divide` by its inverse.

    Read from its tensor; on a GPU, where that waits for the device, when the tensor was written. Raises
    InvalidArgumentError for a scale that is none.
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
        raise refuse("weight_scale", repr(scale), "finite and above zero" + ", its inverse too" * divide)
    return float(np.float32(wanted))


def refuse_capture(argument: str, tensor: torch.Tensor) -> None:
    """What is read from the device cannot be while a CUDA graph is captured. Raises InvalidArgumentError."""
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        legal = "what it was at the call before: call the layer once after each change, then capture"
        raise refuse(argument, "changed while a CUDA graph is captured", legal)
