"""Run a function over many tensors on several GPUs, or on the CPU (on_cpu.py), for instance to quantize the weights of
a model.

Each GPU works on PLACES tensors at a time, so that copies in both directions overlap with computation. It takes work in
proportion to its measured speed (see balance). A place keeps its bound launch until a tensor of another size comes (see
offload.kept). A GPU that fails is taken out, and others do the tensors that it had begun. A function gives the same
bits on every GPU, so results do not depend on the assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from inspect import signature
from threading import Condition, Thread
from time import perf_counter
from typing import Any, Generic

from tritmark.harness.contract import check_threads
from tritmark.harness.errors import DeviceError, InsufficientMemoryError, InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.numbered import numbered
from tritmark.kernels.cuda.device_type import DEVICE
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.dispatch.offload import kept
from tritmark.kernels.native import cpu
from tritmark.kernels.spreading.balance import Balance, GpuPlace
from tritmark.kernels.spreading.on_cpu import over_threads
from tritmark.kernels.spreading.result import FailedDevice, K, R, Spread, annotate, ordered

_OP = "spread"
_CPU = cpu.DEVICE.type
PLACES = 4
"""Tensors that a GPU works on at a time, so that copies in both directions overlap. See docs/kernels/cuda_copies.md."""


def spread(
    function: Callable[..., R],
    tensors: Mapping[K, Any] | Sequence[Any],
    *,
    devices: Iterable[str] | str | None = None,
    threads: int | None = None,
    **options: Any,
) -> Spread[Any, R]:
    """Call `function(tensor, device=..., **options)` for each tensor, on several GPUs or threads concurrently.

    `function` is one of tritmark.kernels with a `device` argument, such as i2s_quantize, ternary_quantize or
    pack_codes. `tensors` are its first arguments, by name or in sequence: NumPy arrays of any shape and dtype that it
    takes, or arrays of another library on any of the GPUs. The latter are copied to the computing GPU, directly if
    possible and otherwise through the host, and their results return to the original GPU. A tuple is several arguments.
    `devices` are the GPUs, "cuda:0" and so on, by default all; or "cpu". Results equal those of one GPU, or of one call
    after the other, bit for bit. Without tensors, nothing runs.

    On the CPU, `function` also has an argument `threads`. `threads` is the most threads of all calls together, by
    default as for one call. The largest tensors are first; kernels/spreading/on_cpu.py describes how calls share the
    threads.

    A GPU that fails is taken out: after a device error immediately, and when out of memory if no other tensor in
    progress may have used that memory. Raises DeviceError with all reasons if no GPU is left, NoCompatibleKernelError
    for a missing GPU, and InvalidArgumentError and any other error of `function` with the tensor in a note. On an
    error, work in progress is completed and no other begins; the error's attribute `spread` is the Spread of the
    tensors that were finished.
    """
    takes = signature(function).parameters
    found = getattr(function, "__name__", repr(function))
    if "device" not in takes:
        raise InvalidArgumentError(op=_OP, argument="function", found=found, legal="a function that takes a device")
    check_threads(_OP, threads)
    named: dict[Any, Any] = dict(tensors) if isinstance(tensors, Mapping) else dict(enumerate(tensors))
    chosen = _chosen(devices)
    if chosen != [_CPU]:
        return _Run(function, named, options if threads is None else {**options, "threads": threads}).over(chosen)
    if "threads" not in takes:
        legal = "a function that takes a device and threads"
        raise InvalidArgumentError(op=_OP, argument="function", found=found, legal=legal)

    def call(name: Any, count: int) -> R:
        return function(*_arguments(named[name]), device=_CPU, threads=count, **options)

    return over_threads(call, _work(named), threads, lambda name: _note(name, _CPU))


def _arguments(tensor: Any) -> tuple[Any, ...]:
    return tensor if isinstance(tensor, tuple) else (tensor,)


def _work(tensors: Mapping[K, Any]) -> dict[K, int]:
    """Bytes of the arguments of each."""
    return {
        name: max(1, sum(getattr(each, "nbytes", 0) for each in _arguments(tensor))) for name, tensor in tensors.items()
    }


def _note(name: Any, device: str) -> str:
    return f"{_OP}: tensor {name!r}, on {device}"


def _chosen(devices: Iterable[str] | str | None) -> list[str]:
    """GPUs by their numbers, or the CPU."""
    if devices is None:
        from tritmark.kernels.cuda.context import gpu_count

        given = [f"{DEVICE}:{index}" for index in range(gpu_count())]
    else:
        given = [devices] if isinstance(devices, str) else list(devices)
    if not given:
        missing = dispatch.registry().device(DEVICE, _OP).missing()
        if devices is None and missing is not None:
            raise NoCompatibleKernelError(request=f"{_OP} on {DEVICE}", candidates=[(DEVICE, missing)])
        raise InvalidArgumentError(op=_OP, argument="devices", found="none", legal="at least one")
    found: list[str] = []
    for name in given:
        kind, index = numbered(name) or (name, 0)
        dispatch.registry().device(name, f"{_OP} on {name!r}")
        if kind not in (DEVICE, _CPU):
            legal = f"{_CPU}, or {DEVICE}:0 and so on"
            raise InvalidArgumentError(op=_OP, argument="devices", found=repr(name), legal=legal)
        found.append(kind if kind == _CPU else f"{kind}:{index}")
    several = list(dict.fromkeys(found))
    if _CPU in several and len(several) > 1:
        raise InvalidArgumentError(op=_OP, argument="devices", found=", ".join(several), legal=f"{_CPU} alone, or GPUs")
    return several


class _Run(Generic[K, R]):
    """One call of `spread`."""

    def __init__(self, function: Callable[..., R], tensors: Mapping[K, Any], options: Mapping[str, Any]) -> None:
        from tritmark.kernels.cuda.sharing.peer import Moved

        self._function = function
        self._tensors = {name: _arguments(value) for name, value in tensors.items()}
        self._options = options
        self._changed = Condition()
        self._results: dict[K, R] = {}
        self._made_by: dict[K, str] = {}
        self._failed: dict[str, DeviceError] = {}
        self._error: BaseException | None = None
        self._note = ""
        self._moved = Moved()
        self._threads: dict[GpuPlace, Thread] = {}
        self._alone: set[str] = set()
        """GPUs that are left with one place, which has already retried."""

    def over(self, devices: Sequence[str]) -> Spread[K, R]:
        """Run on these GPUs."""
        there = [device for device in devices if self._begun(device)]
        began = perf_counter()
        work = _work(self._tensors)
        places = [GpuPlace(device, number) for number in range(PLACES) for device in there]
        self._balance: Balance[K] = Balance(work, places)
        while self._balance.waiting and self._balance.places and self._error is None:
            self._at(self._balance.places)
        wall_s = perf_counter() - began if work else 0.0
        finished = Spread(
            results=ordered(self._tensors, self._results),
            made_by=ordered(self._tensors, self._made_by),
            failed=tuple(FailedDevice(device, error) for device, error in self._failed.items()),
            rates=self._balance.rates(),
            copies=self._moved.ways,
            wall_s=wall_s,
            busy_s={device: seconds / PLACES for device, seconds in self._balance.seconds().items()},
        )
        if self._error is not None:
            annotate(self._error, self._note, finished)
            raise self._error
        if self._balance.waiting:
            text = "; ".join(f"{device}: {error}" for device, error in self._failed.items())
            lost = DeviceError(
                f"no GPU is left for {self._balance.waiting} of {len(work)} tensors ({text})",
                next_step="check the GPUs with nvidia-smi, or use other GPUs or the CPU",
            )
            annotate(lost, "", finished)
            raise lost
        return finished

    def _at(self, places: Sequence[GpuPlace]) -> None:
        """Work on these places until nothing waits. Tensors of a GPU that is taken out wait again at the end."""
        self._threads = {
            place: Thread(target=self._work, args=(place,), name=f"tritmark {place.device}.{place.number}")
            for place in places
        }
        try:
            for thread in self._threads.values():
                thread.start()
            for thread in self._threads.values():
                thread.join()
        except BaseException as error:  # such as KeyboardInterrupt: no place begins more work
            with self._changed:
                self._error = error
                self._changed.notify_all()
            raise

    def _begun(self, device: str) -> bool:
        """Whether the GPU has a context. Contexts are made here, one after the other."""
        from tritmark.kernels.cuda.context import cuda_context

        _, index = numbered(device) or ("", 0)
        try:
            cuda_context(index).backend.synchronize()
        except DeviceError as error:
            self._failed[device] = error
        return device not in self._failed

    def _work(self, place: GpuPlace) -> None:
        """The work of a place's thread."""
        from tritmark.kernels.cuda.context import cuda_context

        _, index = numbered(place.device) or ("", 0)
        with ExitStack() as there:
            try:
                there.enter_context(cuda_context(index).backend)
            except DeviceError as error:
                with self._changed:
                    self._lose(place.device, error)
                    self._changed.notify_all()
                return
            there.enter_context(kept())
            self._work_there(place)

    def _work_there(self, place: GpuPlace) -> None:
        while (name := self._next(place)) is not None:
            failed: DeviceError | None = None
            try:
                made = self._moved.call(self._function, self._tensors[name], place.device, self._options)
            except DeviceError as error:
                failed = error.with_traceback(None)  # its frames hold memory of the GPU
            except BaseException as error:
                with self._changed:
                    if self._error is None:
                        self._error, self._note = error, _note(name, place.device)
                    self._changed.notify_all()
                return
            if failed is not None:
                if not self._tries_again(place, failed):
                    return
                continue
            with self._changed:
                self._results[name], self._made_by[name] = made, place.device
                self._balance.done(place, perf_counter())
                self._changed.notify_all()

    def _next(self, place: GpuPlace) -> K | None:
        """The next tensor of the place, or None if nothing waits or the GPU or the function failed. The thread then
        ends while others still work; if all ended together, they would contend for the GIL."""
        with self._changed:
            while True:
                if self._error is not None or place.device in self._failed or not self._balance.waiting:
                    return None
                name = self._balance.take(place, perf_counter())
                if name is not None:
                    return name
                self._changed.wait(self._balance.patience(perf_counter()))

    def _tries_again(self, place: GpuPlace, error: DeviceError) -> bool:
        """Handle a failure of a place. Only this place closes if memory was short and another place of its GPU may have
        used it; otherwise the GPU. The last place of a GPU retries once after all its others have ended, because they
        may have held the memory."""
        beside = [each for each in self._threads if each.device == place.device and each != place]
        short = isinstance(error, InsufficientMemoryError)
        with self._changed:
            again = False
            if short and self._balance.open(place.device, other_than=place):
                self._balance.close(place)
            else:
                self._balance.back(place)
                again = short and bool(beside) and place.device not in self._alone
                if again:
                    self._alone.add(place.device)
                else:
                    self._lose(place.device, error)
            self._changed.notify_all()
        for each in beside if again else ():
            self._threads[each].join()
        return again

    def _lose(self, device: str, error: DeviceError) -> None:
        self._balance.close_device(device)
        self._failed.setdefault(device, error)
