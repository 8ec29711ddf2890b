"""Turn a Variant into launches on the device: the steps that an op's cuda.py describes can be run, captured and
counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from typing import Any

import numpy as np

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.machine.gpu import DeviceInfo
from tritmark.harness.resident import ResidentArray
from tritmark.harness.spec import (
    Arrays,
    Axes,
    CodeFile,
    Constraint,
    Instances,
    KernelKey,
    Launch,
    Launched,
    Proof,
    Tier,
    Variant,
)
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.backend import DeviceFunction, RawLaunch, Stream
from tritmark.kernels.cuda.context import cuda_context, current_gpu, driver_index, simulated
from tritmark.kernels.cuda.driver.tensor_map import TensorMap
from tritmark.kernels.cuda.kernel import NONE_BAD, Kernel, Step
from tritmark.kernels.cuda.launch.counted import CountedLaunch
from tritmark.kernels.cuda.launch.params import LaunchParams, launch_params
from tritmark.kernels.cuda.launch.tuning import ByName, Tuning
from tritmark.kernels.dispatch.offload import keeps

REAL = "a real GPU"
"""Feature of devices that are not simulated."""


def compute(capability: tuple[int, int]) -> str:
    """The feature of a device with at least that compute capability."""
    return f"compute capability {capability[0]}.{capability[1]}"


def alone(capability: tuple[int, int]) -> str:
    """The feature of a device with exactly that compute capability."""
    return f"{compute(capability)} alone"


@dataclass(frozen=True, slots=True)
class Call:
    """The material of an op's steps: arguments on the device, and facts about the device."""

    inputs: Mapping[str, Any]
    """Arrays as DeviceArray, scalars as NumPy scalars."""
    outputs: Mapping[str, DeviceArray]
    axes: Axes
    info: DeviceInfo
    bad: DeviceArray
    """uint64 (1,), NONE_BAD when the steps begin."""
    workspace: DeviceArray | None
    """uint8, with the bytes of the variant's `workspace`, content undefined; None for none."""
    function: Callable[[Kernel], DeviceFunction]

    def params(
        self, kernel: Kernel, blocks: int, threads: int | None = None, *, shared: int = 0, waves: int | None = None
    ) -> LaunchParams:
        """See launch_params; `threads` defaults to the kernel's."""
        return launch_params(
            self.function(kernel), self.info, blocks, threads or kernel.threads, shared=shared, waves=waves
        )


Steps = Callable[[Call], tuple[Step, ...]]

KERNELS: dict[str, tuple[Kernel, ...]] = {}
"""The kernels of each variant by its id, for the static checks and the hash of its code."""

STEPS: dict[str, Steps] = {}
"""The function that makes the launches of each variant by its id, for plans with changing addresses."""


def variant(
    key: KernelKey,
    name: str,
    tier: Tier,
    summary: str,
    kernels: tuple[Kernel, ...],
    steps: Steps,
    *,
    constraints: tuple[Constraint, ...] = (),
    alignment: int = 1,
    workspace: Callable[[Axes], int] | None = None,
    features: frozenset[str] = frozenset(),
    rank: int = 0,
    instances: ByName | None = None,
) -> Variant:
    """A Variant on the GPU. `steps(call)` returns its launches in order; `kernels` are all that they may use.

    `alignment`: alignment of every array's address in bytes. `features`: required beyond the kernels' compute
    capability. `instances`: the instances that `steps` selects from, for `tritmark tune instances`.
    """
    if instances is not None:
        steps = Tuning(f"{key}/{name}", kernels, steps, instances)
    needed = {compute(max(kernel.capability for kernel in kernels))} | features
    needed |= {alone(kernel.capability) for kernel in kernels if kernel.specific}
    if not all(kernel.simulated for kernel in kernels):
        needed |= {REAL}
    more: dict[str, Any] = {} if workspace is None else {"workspace": workspace}
    made = Variant(
        key=key,
        name=name,
        tier=tier,
        summary=summary,
        bind=partial(_bind, f"{key}/{name}", steps, workspace, alignment),
        features=frozenset(needed),
        constraints=constraints,
        alignment=alignment,
        code=partial(code_files, kernels),
        rank=rank,
        **more,
    )
    if isinstance(steps, Tuning):
        made = replace(made, instances=partial(_instances, made, steps, workspace, alignment))
    KERNELS[made.id] = kernels
    STEPS[made.id] = steps
    return made


def _instances(
    made: Variant, tuning: Tuning, workspace: Callable[[Axes], int] | None, alignment: int, axes: Axes
) -> Instances:
    info = cuda_context().backend.info
    each = {
        name: replace(made, bind=partial(_bind, made.id, steps, workspace, alignment), instances=None)
        for name, steps in tuning.by_name(axes, info).items()
    }
    return Instances(each=each, identity=tuning.identity(info))


def code_files(
    kernels: tuple[Kernel, ...], target: str, binaries: frozenset[str] = frozenset()
) -> tuple[CodeFile, ...]:
    """The kernels' binaries for that architecture, or for the current GPU if it is "", from the cache or compiled.

    `binaries` are hashes of wanted binaries; then only these are compiled. Returns () if the GPU is simulated, because
    no binary runs then. Raises CompileError, DeviceUnavailableError.
    """
    from tritmark.harness.machine.gpu import device_info
    from tritmark.kernels.cuda.driver.compile import compile_kernel, compiled_before
    from tritmark.kernels.cuda.launch.resources import parse, runs_on

    if not target and simulated():
        return ()
    arch = target or device_info(driver_index(current_gpu())).arch
    meant = [kernel for kernel in kernels if runs_on(kernel, arch)]
    # The cache has what a worker launched.
    made = {kernel: compiled_before(kernel, arch) for kernel in meant} if binaries else {}
    for kernel in meant:
        if not binaries or not binaries <= {cubin.hash for cubin in made.values() if cubin is not None}:
            made[kernel] = made.get(kernel) or compile_kernel(kernel, arch)
    found: dict[str, CodeFile] = {}
    for kernel, cubin in made.items():
        if cubin is None or (binaries and cubin.hash not in binaries):
            continue
        entries = (*(found[cubin.hash].entries if cubin.hash in found else ()), kernel.name)
        spilled = {name: use.spill_stores + use.spill_loads for name, use in parse(cubin.report).items()}
        found[cubin.hash] = CodeFile(
            kind="cubin",
            name=kernel.file,
            entries=tuple(dict.fromkeys(entries)),
            target=arch,
            data=cubin.code,
            spilled=spilled,
        )
    return tuple(found.values())


def _bind(
    variant_id: str,
    steps: Steps,
    workspace: Callable[[Axes], int] | None,
    alignment: int,
    inputs: Arrays,
    outputs: Arrays,
    axes: Axes,
    threads: int,
) -> Launch:
    for name, array in (*inputs.items(), *outputs.items()):
        if isinstance(array, DeviceArray) and array.pointer % alignment:
            op = variant_id.split("/")[1]
            raise InvalidArgumentError(
                op=op, argument=name, found=f"at address {array.pointer:#x}", legal=f"a multiple of {alignment} bytes"
            )
    for array in outputs.values():
        if isinstance(array, DeviceArray):
            array.mark_output()
    here = cuda_context()
    scratch = workspace(axes) if workspace else 0
    call = Call(
        inputs=inputs,
        outputs=outputs,
        axes=axes,
        info=here.backend.info,
        bad=here.array((1,), np.uint64),
        workspace=here.array((scratch,), np.uint8) if scratch else None,
        function=here.function,
    )
    tuned = steps.choice(axes, call.info) if isinstance(steps, Tuning) else ""
    made = CudaLaunch(variant_id, call, steps(call), tuned, armed=False)
    if not keeps():  # with kept launches, round trips set `bad` themselves
        made.arm()
    return made


class CudaLaunch(CountedLaunch):
    """A variant bound to arrays on the device."""

    def __init__(
        self, variant_id: str, call: Call, steps: tuple[Step, ...], tuned: str = "", *, armed: bool = True
    ) -> None:
        """`armed`: Call.bad is NONE_BAD already."""
        super().__init__(variant_id.rpartition("/")[2], cuda_context(), len(steps))
        self._call = call  # keeps the arrays alive
        self._armed = armed
        self._tuned = tuned
        self.foreign = any(isinstance(each, ResidentArray) for each in (*call.inputs.values(), *call.outputs.values()))
        backend = self._context.backend
        self._prepared = []
        self._functions: list[DeviceFunction] = []
        for step in steps:
            function = self._context.function(step.kernel)
            # Raises before any launch.
            threads = step.block[0] * step.block[1] * step.block[2]
            launch_params(function, backend.info, 1, threads, shared=step.shared)
            args = [self._value(arg) for arg in step.args]
            self._prepared.append((function, step.grid, step.block, backend.arguments(function, args), step.shared))
            self._functions.append(function)
        self.steps = steps

    def _value(self, arg: Any) -> Any:
        if isinstance(arg, TensorMap):
            return self._context.backend.tensor_map(arg.array.pointer, arg.numbers)
        return np.uint64(arg.pointer) if isinstance(arg, DeviceArray) else arg

    def put(self, stream: Stream) -> None:
        """Put all steps into a stream."""
        if not self._armed:
            self.arm()
        enqueue = self._context.backend.enqueue
        for function, grid, block, arguments, shared in self._prepared:
            enqueue(function, grid, block, arguments, shared, stream)

    @property
    def raw_launches(self) -> tuple[RawLaunch, ...]:
        """The launches for ArrayCopier.round_trip."""
        return tuple(
            (function.handle, grid, block, shared, arguments)
            for function, grid, block, arguments, shared in self._prepared
        )

    @property
    def bad_pointer(self) -> int:
        """Address of `bad` on the device."""
        return self._call.bad.pointer

    @property
    def bad(self) -> int:
        """Index of the first element that the contract forbids, or -1. Reading it resets it."""
        found = self._call.bad.numpy()
        if found[0] == NONE_BAD:
            return -1
        self.arm()
        return int(found[0])

    def arm(self) -> None:
        """Reset `bad`, so that it reports elements from now on."""
        self._call.bad.write(np.full(1, NONE_BAD))
        self._armed = True

    @property
    def pointer(self) -> int | None:
        """Handle of the first function, which the device's clock can launch."""
        return self._functions[0].handle

    @property
    def proof(self) -> Proof:
        """Evidence of the runs so far."""
        return replace(self._identity, launches=self._launches, device_ns=self._device_ns, timed_runs=self._timed)

    @cached_property
    def _identity(self) -> Proof:
        """The part of the evidence that is the same for all runs."""
        functions = dict.fromkeys((function.name, function.code_hash) for function in self._functions)
        return Proof(
            uuid=self._context.backend.info.uuid,
            functions=tuple(name for name, _ in functions),
            launches=0,
            device_ns=0.0,
            timed_runs=0,
            code_hash=sha256("".join(code for _, code in functions).encode()).hexdigest(),
            simulated=self._context.backend.simulated,
            tuned=self._tuned,
            launched=tuple(
                Launched(
                    function=function.name,
                    binary=function.code_hash,
                    grid=grid,
                    block=block,
                    shared=shared,
                    resident=None
                    if self._context.backend.simulated
                    else function.blocks_per_sm(block[0] * block[1] * block[2], shared),
                )
                for function, grid, block, _, shared in self._prepared
            ),
        )
