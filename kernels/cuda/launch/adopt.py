"""Make a Variant of a user's .cu: the grid, block and arguments of its manifest become launches."""

from __future__ import annotations

import re
from functools import partial

import numpy as np

from tritmark.harness.candidate.manifest import Argument, ArgumentKind, Described
from tritmark.harness.candidate.nonfinite import first_nonfinite
from tritmark.harness.errors import InvalidArgumentError, UsageError
from tritmark.harness.nearest import nearest
from tritmark.harness.spec import Arrays, Axes, KernelKey, Launch, Tier, Variant
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.device_type import DEVICE
from tritmark.kernels.cuda.driver.compile import compile_kernel, local_sources
from tritmark.kernels.cuda.kernel import NONE_BAD, Kernel, Step
from tritmark.kernels.cuda.launch.launch import Call, CudaLaunch, code_files, compute

_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_KERNEL = re.compile(r"__global__\s+(?:__\w+__\s*\([^)]*\)\s*)?void\s+(?:__\w+__\s*\([^;{]*?\)\s*)?(\w+)\s*\(")
_MOST_THREADS, _MOST_REGISTERS = 1024, 255


def adopt(described: Described, capabilities: tuple[tuple[int, int], ...], *, compiled: bool) -> tuple[Variant, ...]:
    """The variant of a manifest; `compiled` if the device exists. Raises UsageError, and CompileError with the
    compiler's output."""
    _must_have(described)
    capability = described.capability or capabilities[0]
    if capability not in capabilities:
        at = described.located.find("capability")
        legal = nearest(f"{capability[0]}.{capability[1]}", [f"{major}.{minor}" for major, minor in capabilities])
        raise described.located.error(at, f"unknown compute capability {capability[0]}.{capability[1]}; {legal}")
    kernel = Kernel(
        file=str(described.path),
        name=described.function,
        threads=_MOST_THREADS,
        registers=_MOST_REGISTERS,
        capability=capability,
        options=described.options,
    )
    key = KernelKey(DEVICE, described.op.name, described.format, described.dtype)
    variant = Variant(
        key=key,
        name=described.name,
        tier=Tier.CANDIDATE,
        summary=f"{described.function} of {described.path.name}",
        bind=partial(_bind, described, kernel, f"{key}/{described.name}"),
        features=frozenset({compute(capability)}),
        constraints=described.constraints,
        alignment=described.alignment,
        dense=described.dense,
        reports_nonfinite=described.reports_bad,
        code=partial(code_files, (kernel,)),
    )
    if compiled:
        _must_compile(kernel)
    return (variant,)


def _must_compile(kernel: Kernel) -> None:
    """Compile the kernel without a context on the device; only a worker loads code."""
    from tritmark.kernels.cuda.context import cuda_context, simulated

    if simulated():
        from tritmark.kernels.cuda.simulator.toolchain import module

        module(kernel, cuda_context().backend.info.capability)
        return
    from tritmark.harness.machine.gpu import device_info

    info = device_info()
    if kernel.runs_on(info.capability):
        compile_kernel(kernel, info.arch)


def _must_have(described: Described) -> None:
    """Raise UsageError if the source lacks the function as extern "C". Checks only the text; nvcc decides finally."""
    text = _COMMENT.sub(
        lambda found: found[0] if found[0] == '"C"' else " ", "\n".join(local_sources(described.path).values())
    )
    at = described.located.find("function", described.function)
    names = _KERNEL.findall(text)
    if described.function not in names:
        offer = nearest(described.function, names)
        raise described.located.error(at, f"{described.path.name} has no kernel {described.function!r}; {offer}")
    if 'extern "C"' not in text:
        raise described.located.error(
            at, f'{described.path.name} has {described.function!r} as a C++ function; legal: extern "C"'
        )


def _bind(
    described: Described, kernel: Kernel, variant_id: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int
) -> Launch:
    from tritmark.kernels.cuda.context import cuda_context

    here = cuda_context()
    for name, array in (*inputs.items(), *outputs.items()):
        if isinstance(array, DeviceArray) and array.pointer % described.alignment:
            found, legal = f"at address {array.pointer:#x}", f"a multiple of {described.alignment} bytes"
            raise InvalidArgumentError(op=described.op.name, argument=name, found=found, legal=legal)
    bad = here.array((1,), np.uint64)
    bad.write(np.full(1, NONE_BAD))
    call = Call(
        inputs=inputs,
        outputs=outputs,
        axes=axes,
        info=here.backend.info,
        bad=bad,
        workspace=None,
        function=here.function,
    )
    if described.geometry is None:
        raise UsageError(f"{described.located.path}: grid and block are missing")
    grid, block, shared = described.geometry.values(axes)
    args = tuple(_value(described, argument, call) for argument in described.arguments)
    return Adopted(
        variant_id, call, (Step(kernel=kernel, grid=grid, block=block, args=args, shared=shared),), described
    )


def _value(described: Described, argument: Argument, call: Call) -> object:
    match argument.kind:
        case ArgumentKind.AXIS:
            return (np.int32 if argument.int32 else np.int64)(call.axes[argument.name])
        case ArgumentKind.THREADS:
            return np.int32(1)
        case ArgumentKind.BAD:
            return call.bad
    values = call.outputs if argument.kind is ArgumentKind.OUTPUT else call.inputs
    if argument.name not in values:
        found = f"not an argument of {described.format}"
        raise InvalidArgumentError(op=described.op.name, argument=argument.name, found=found, legal=", ".join(values))
    value = values[argument.name]
    if argument.kind is ArgumentKind.STRIDE:
        return np.int64(value.strides[0] // value.dtype.itemsize)
    return value if isinstance(value, DeviceArray) else np.dtype(described.tensor(argument.name).dtype).type(value)


class Adopted(CudaLaunch):
    """A user's kernel bound to arrays on the device."""

    def __init__(self, variant_id: str, call: Call, steps: tuple[Step, ...], described: Described) -> None:
        super().__init__(variant_id, call, steps)
        self._described = described

    @property
    def bad(self) -> int:
        """The kernel's value of `bad`; without such an argument, the first non-finite input that the harness finds."""
        if self._described.reports_bad:
            return super().bad
        return first_nonfinite(self._described.op, self._call.inputs)
