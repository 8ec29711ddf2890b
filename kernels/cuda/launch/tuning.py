"""Which instance of a variant is launched: the built-in choice, or the one that `tritmark tune instances` found faster
on this machine (harness.tuned)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from tritmark.harness import tuned
from tritmark.harness.machine.gpu import DeviceInfo
from tritmark.harness.spec import Axes
from tritmark.kernels.cuda.context import simulated
from tritmark.kernels.cuda.driver.compile import compiler, local_sources, options_of
from tritmark.kernels.cuda.kernel import ROOM, Kernel, Step

Steps = Callable[[Any], tuple[Step, ...]]
ByName = Callable[[Axes, DeviceInfo], Mapping[str, Steps]]
"""The instances for these axes on that device by name, the built-in choice first."""


def instance_name(kernel: Kernel, **more: int) -> str:
    """The name of an instance: its function, its macros, and the parameters of its launch."""
    macros = [f"{name.lower()}={value}" for name, value in kernel.defines]
    return " ".join([kernel.name, *macros, *(f"{name}={value}" for name, value in more.items())])


@dataclass(frozen=True, slots=True)
class Tuning:
    """The steps of a variant with several instances."""

    variant: str
    """Its id."""
    kernels: tuple[Kernel, ...]
    builtin: Steps
    by_name: ByName

    def __call__(self, call: Any) -> tuple[Step, ...]:
        """The launches of the instance that is selected for the call."""
        name = self.choice(call.axes, call.info)
        return (self.by_name(call.axes, call.info)[name] if name else self.builtin)(call)

    def choice(self, axes: Axes, info: DeviceInfo) -> str:
        """The instance that was measured to be faster here than the built-in choice, "" for none."""
        found = tuned.chosen(self.variant, axes, partial(self.identity, info))
        if found is None:
            return ""
        names = list(self.by_name(axes, info))
        return found.instance if found.instance in names and found.builtin == names[0] else ""

    def identity(self, info: DeviceInfo) -> dict[str, str]:
        """See spec.Instances."""
        code = _code(self.kernels, (_file(self.by_name),), info.arch, simulated())
        return gpu_identity(info) | {"code": code}


def gpu_identity(info: DeviceInfo) -> dict[str, str]:
    """The GPU and its driver, as conditions of measured choices."""
    return {"device": f"{info.name}, {info.sms} multiprocessors", "driver": info.driver}


def source_hash(kernels: tuple[Kernel, ...], steps: Steps, arch: str) -> str:
    """SHA-256 of the sources, compiler and options of the kernels, and of the Python files that compute their launches.
    Compiles nothing."""
    folders = _file(steps.builtin if isinstance(steps, Tuning) else steps).parent, ROOM / "cuda"
    launches = dict.fromkeys(file for folder in folders for file in sorted(folder.glob("*.py")))
    return _code(kernels, tuple(launches), arch, simulated())


@cache
def _code(kernels: tuple[Kernel, ...], launches: Iterable[Path], arch: str, in_simulator: bool) -> str:
    """SHA-256 of the sources of the kernels' code, and of the files with their launches."""
    if in_simulator:
        from tritmark.kernels.cuda.simulator import toolchain

        made_by = toolchain.compiler()[1]
    else:
        made_by = compiler()
    found = sha256(made_by.encode())
    for kernel in kernels:
        found.update(repr([kernel.name, *options_of(kernel, arch), *local_sources(kernel.path).items()]).encode())
    for file in launches:
        found.update(file.read_bytes())
    return found.hexdigest()


def _file(function: Callable[..., Any]) -> Path:
    while isinstance(function, partial):
        function = function.func
    return Path(inspect.getfile(function))
