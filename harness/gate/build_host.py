"""Hosts of a build: this process, or a process of its own. Both have the same interface."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.gate import answers as in_drawn_case
from tritmark.harness.gate import benchmarks
from tritmark.harness.gate.answers import Answers, read_answers, save_answers
from tritmark.harness.gate.arrays import read, save
from tritmark.harness.gate.bound_kernel import BoundKernel, LocalBoundKernel
from tritmark.harness.gate.json_rpc import Child, serve
from tritmark.harness.gate.opened import OpenedBuild
from tritmark.harness.gate.task import GateTask
from tritmark.harness.record import Divergence
from tritmark.harness.spec import ToleranceKind
from tritmark.harness.validate.compare import BrokenReferenceError, compare, expectations, is_float
from tritmark.harness.validate.draw import Drawn

_START_S = 120.0
_BIND_S = 300.0
_SAMPLE_S = 60.0

_CASE = TypeAdapter(Drawn)

Outputs = Mapping[str, npt.NDArray[np.uint8]]


class BuildHost(Protocol):
    """A build that lists its kernels, binds them and runs them."""

    def facts(self) -> dict[str, Any]:
        """`packages` (versions) and `compiler`."""

    def tasks(self, wanted: benchmarks.BenchmarkFilter) -> list[GateTask]:
        """See benchmarks.tasks."""

    def refusals(self, asked: Sequence[GateTask]) -> list[benchmarks.Refusal | None]:
        """See benchmarks.refusals."""

    def bind(self, task: GateTask, beside: Any = None) -> BoundKernel:
        """Bind a kernel to data. With `beside`, a kernel of the other build, both use the same data."""

    def judge(self, task: GateTask, kernel: Any, own: Outputs, other: Outputs) -> tuple[str, Divergence | None]:
        """Faults in the outputs of another build on the data of `kernel`, whose outputs are `own`; "" if none."""

    def draw(self, task: GateTask, count: int, cores: int) -> list[Drawn]:
        """See answers.draw."""

    def answers(self, task: GateTask, case: Drawn, beside: Answers | None = None) -> Answers | None:
        """Run the kernel in a drawn case, with `beside` on the same data. See answers.answers."""

    def judge_answers(self, task: GateTask, case: Drawn, own: Answers, other: Answers) -> tuple[str, Divergence | None]:
        """See answers.judge."""


class LocalBuildHost:
    """A build in this process."""

    def __init__(self, site: Path) -> None:
        self.build = OpenedBuild(site)

    def facts(self) -> dict[str, Any]:
        with self.build.inside():
            devices = [device for device in self.build.installed.registry.devices.values() if device.missing() is None]
            compilers = dict.fromkeys(filter(None, (str(device.compiler()) for device in devices)))
        return {"packages": self.build.packages, "compiler": "; ".join(compilers)}

    def tasks(self, wanted: benchmarks.BenchmarkFilter) -> list[GateTask]:
        return benchmarks.tasks(self.build, wanted)

    def refusals(self, asked: Sequence[GateTask]) -> list[benchmarks.Refusal | None]:
        return benchmarks.refusals(self.build, asked)

    def bind(self, task: GateTask, beside: LocalBoundKernel | None = None) -> LocalBoundKernel:
        return LocalBoundKernel(self.build, task, None if beside is None else beside.logical, beside)

    def judge(
        self, task: GateTask, kernel: LocalBoundKernel, own: Outputs, other: Outputs
    ) -> tuple[str, Divergence | None]:
        """Equal bits are correct if this build's are. Where the output family admits an error, the reference of this
        build decides."""
        if own.keys() != other.keys():
            return f"its outputs are {', '.join(other)}; BASE has {', '.join(own)}", None
        if all(np.array_equal(own[name], other[name]) for name in own):
            return "", None
        op = self.build.installed.ops[task.op]
        with self.build.inside():
            key = next(each.key for each in self.build.installed.registry.variants if each.id == task.kernel)
            like = dict(op.outputs_like(task.axes, key))
            exact = [
                name
                for name in own
                if op.tolerance_kind is ToleranceKind.EXACT or not is_float(named_dtype(like[name][1]))
            ]
            for name in exact:
                reported = _first(name, own[name], other[name], like[name])
                if reported is not None:
                    return "its output differs from BASE's in some bits", reported
            try:
                expected = expectations(op, task.axes, key, op.reference(kernel.logical, task.axes, key))
            except BrokenReferenceError as error:
                return f"its output differs from BASE's, and {error}", None
        for each in expected:
            found = _shaped(other[each.name], like[each.name])
            if found is None:
                return f"{each.name} has {other[each.name].size} bytes; legal: {own[each.name].size}", None
            compared = compare(each, found)
            if compared.wrong.size:
                return (
                    (
                        f"{compared.wrong.size} elements of {each.name} differ from the exact value by more than the "
                        "op admits"
                    ),
                    compared.first,
                )
        return "", None

    def draw(self, task: GateTask, count: int, cores: int) -> list[Drawn]:
        return in_drawn_case.draw(self.build, task, count, cores)

    def answers(self, task: GateTask, case: Drawn, beside: Answers | None = None) -> Answers | None:
        return in_drawn_case.answers(self.build, task, case, None if beside is None else beside.logical)

    def judge_answers(self, task: GateTask, case: Drawn, own: Answers, other: Answers) -> tuple[str, Divergence | None]:
        return in_drawn_case.judge(self.build, task, case, own, other)


class RemoteBuildHost:
    """A build in a process of its own, which opens it at the first request. Raises WorkerError if the process dies."""

    def __init__(self, site: Path) -> None:
        self._child = Child("tritmark.harness.gate.build_host", str(site))
        self._folder = tempfile.TemporaryDirectory(prefix="tritmark-gate-")
        self.folder = Path(self._folder.name)

    def ask(self, what: str, timeout_s: float = _START_S, **further: Any) -> Any:
        return self._child.ask(what, timeout_s, **further)

    def facts(self) -> dict[str, Any]:
        return dict(self.ask("facts"))

    def tasks(self, wanted: benchmarks.BenchmarkFilter) -> list[GateTask]:
        return [GateTask.model_validate(each) for each in self.ask("tasks", wanted=wanted.model_dump())]

    def refusals(self, asked: Sequence[GateTask]) -> list[benchmarks.Refusal | None]:
        reported = self.ask("refusals", tasks=[task.model_dump() for task in asked])
        return [None if each is None else benchmarks.Refusal.model_validate(each) for each in reported]

    def bind(self, task: GateTask, beside: RemoteBoundKernel | None = None) -> RemoteBoundKernel:
        data = None if beside is None else {"folder": str(beside.folder), "told": beside.data}
        return RemoteBoundKernel(
            self, self.ask("bind", _BIND_S, task=task.model_dump(), data=data, folder=str(self.folder))
        )

    def judge(
        self, task: GateTask, kernel: RemoteBoundKernel, own: Outputs, other: Outputs
    ) -> tuple[str, Divergence | None]:
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folders = [Path(name, side) for side in ("own", "other")]
            for folder in folders:
                folder.mkdir()
            reported = [save(folder, outputs) for folder, outputs in zip(folders, (own, other), strict=True)]
            why, first = self.ask(
                "judge",
                _BIND_S,
                task=task.model_dump(),
                kernel=kernel.number,
                folders=[str(each) for each in folders],
                given=reported,
            )
        return why, Divergence.model_validate(first) if first is not None else None

    def draw(self, task: GateTask, count: int, cores: int) -> list[Drawn]:
        reported = self.ask("draw", task=task.model_dump(), count=count, cores=cores)
        return [_CASE.validate_python(each) for each in reported]

    def answers(self, task: GateTask, case: Drawn, beside: Answers | None = None) -> Answers | None:
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            reported = self.ask(
                "answers",
                _BIND_S,
                task=task.model_dump(),
                case=asdict(case),
                beside=save_answers(Path(name, "beside"), beside),
                folder=str(Path(name, "found")),
            )
            return read_answers(reported)

    def judge_answers(self, task: GateTask, case: Drawn, own: Answers, other: Answers) -> tuple[str, Divergence | None]:
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            why, first = self.ask(
                "judge_answers",
                _BIND_S,
                task=task.model_dump(),
                case=asdict(case),
                own=save_answers(Path(name, "own"), own),
                other=save_answers(Path(name, "other"), other),
            )
        return why, Divergence.model_validate(first) if first is not None else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self._child.__exit__(*problem)
        self._folder.cleanup()


class RemoteBoundKernel:
    """A BoundKernel in the process of a RemoteBuildHost."""

    def __init__(self, host: RemoteBuildHost, given: Mapping[str, Any]) -> None:
        self._host = host
        self.number = given["number"]
        self.clock, self.code = "", str(given["code"])
        self.folder, self.data = host.folder, given["data"]
        self.calls = 1

    def outputs(self) -> dict[str, npt.NDArray[np.uint8]]:
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            reported = self._host.ask("outputs", _BIND_S, kernel=self.number, folder=folder)
            return read(Path(folder), reported)

    def calibrate(self) -> float:
        call, self.calls, self.clock = self._host.ask("calibrate", _SAMPLE_S, kernel=self.number)
        return float(call)

    def take(self, calls: int) -> None:
        self.calls = calls
        self._host.ask("take", kernel=self.number, calls=calls)

    def sample(self) -> float:
        return float(self._host.ask("sample", _SAMPLE_S, kernel=self.number))

    def again(self) -> RemoteBoundKernel:
        return RemoteBoundKernel(self._host, self._host.ask("again", _BIND_S, kernel=self.number))


class _Alone:
    """The process's side: a LocalBuildHost and its bound kernels by number. Binding a task releases the kernels of the
    previous one."""

    def __init__(self, site: Path) -> None:
        self._site = site
        self._bound: list[LocalBoundKernel] = []
        self._data: dict[str, Any] = {}

    @cached_property
    def _host(self) -> LocalBuildHost:
        return LocalBuildHost(self._site)

    def handle(self, what: str, asked: dict[str, Any], stage: Any) -> Any:
        if what == "sample":
            return self._bound[asked["kernel"]].sample()
        return getattr(self, f"_{what}")(**asked)

    def _facts(self) -> Any:
        return self._host.facts()

    def _tasks(self, wanted: Any) -> Any:
        return [task.model_dump() for task in self._host.tasks(benchmarks.BenchmarkFilter.model_validate(wanted))]

    def _refusals(self, tasks: Any) -> Any:
        found = self._host.refusals([GateTask.model_validate(each) for each in tasks])
        return [None if each is None else each.model_dump() for each in found]

    def _bind(self, task: Any, data: Any, folder: str) -> Any:
        self._bound.clear()
        logical = None if data is None else read(Path(data["folder"]), data["told"])
        kernel = LocalBoundKernel(self._host.build, GateTask.model_validate(task), logical)
        self._data = save(Path(folder), kernel.logical) if data is None else {}
        return self._numbered(kernel)

    def _again(self, kernel: int) -> Any:
        return self._numbered(self._bound[kernel].again())

    def _numbered(self, kernel: LocalBoundKernel) -> Any:
        self._bound.append(kernel)
        return {"number": len(self._bound) - 1, "code": kernel.code, "data": self._data}

    def _outputs(self, kernel: int, folder: str) -> Any:
        return save(Path(folder), self._bound[kernel].outputs())

    def _calibrate(self, kernel: int) -> Any:
        here = self._bound[kernel]
        return here.calibrate(), here.calls, here.clock

    def _take(self, kernel: int, calls: int) -> None:
        self._bound[kernel].take(calls)

    def _judge(self, task: Any, kernel: int, folders: Any, given: Any) -> Any:
        own, other = (read(Path(folder), each) for folder, each in zip(folders, given, strict=True))
        why, first = self._host.judge(GateTask.model_validate(task), self._bound[kernel], own, other)
        return why, first.model_dump() if first is not None else None

    def _draw(self, task: Any, count: int, cores: int) -> Any:
        return [asdict(case) for case in self._host.draw(GateTask.model_validate(task), count, cores)]

    def _answers(self, task: Any, case: Any, beside: Any, folder: str) -> Any:
        found = self._host.answers(GateTask.model_validate(task), _CASE.validate_python(case), read_answers(beside))
        return save_answers(Path(folder), found)

    def _judge_answers(self, task: Any, case: Any, own: Any, other: Any) -> Any:
        ours, theirs = read_answers(own), read_answers(other)
        assert ours is not None
        assert theirs is not None
        why, first = self._host.judge_answers(GateTask.model_validate(task), _CASE.validate_python(case), ours, theirs)
        return why, first.model_dump() if first is not None else None


def _shaped(raw: npt.NDArray[np.uint8], like: tuple[tuple[int, ...], str]) -> npt.NDArray[Any] | None:
    """Bytes as an array of the shape and dtype; None if the size does not fit."""
    shape, dtype = tuple(like[0]), named_dtype(like[1])
    if raw.size != int(np.prod(shape)) * dtype.itemsize:
        return None
    return raw.view(dtype).reshape(shape)


def _first(
    name: str, own: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8], like: tuple[tuple[int, ...], str]
) -> Divergence | None:
    """The first element in which the bits of two outputs differ."""
    if np.array_equal(own, other):
        return None
    ours, theirs = _shaped(own, like), _shaped(other, like)
    if ours is None or theirs is None:
        return Divergence(output=name, index=(), expected=f"{own.size} bytes", found=f"{other.size} bytes")
    at = int(np.flatnonzero(own != other)[0]) // ours.dtype.itemsize
    index = tuple(int(each) for each in np.unravel_index(at, ours.shape))
    return Divergence(output=name, index=index, expected=str(ours.reshape(-1)[at]), found=str(theirs.reshape(-1)[at]))


if __name__ == "__main__":
    import sys

    from tritmark.harness.machine.cpu import bind_threads

    bind_threads()
    serve(_Alone(Path(sys.argv[1])).handle)
