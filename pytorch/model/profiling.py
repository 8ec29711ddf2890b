"""Where the time of a step goes, by layer and operation, from PyTorch's profiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import torch

from tritmark.harness.engines.engine import PROMPT
from tritmark.harness.measure.statistics import median
from tritmark.harness.models import Frame, Rates, StepPart, TimeSplit
from tritmark.torch.model.roles import IDLE, PYTHON, REST, StepFacts, part_of, title_of, work_of

_MARK = "tritmark frame "
_TIMES, _TRACED = 3, 2
"""Runs without and with the profiler."""


@dataclass(slots=True)
class _Node:
    """A frame while times are added to it; in microseconds."""

    name: str
    part: str
    number: int = 0
    module: Any = None
    rows: int = 0
    own: float = 0.0
    python: float = 0.0
    events: int = 0
    """Events inside of the operations."""
    marks: int = 0
    """Events outside of the operations: they themselves, and frames."""
    inner: dict[str, _Node] = field(default_factory=dict)

    def all(self) -> Iterator[_Node]:
        """It, and all inside it."""
        yield self
        for each in self.inner.values():
            yield from each.all()

    def total(self) -> float:
        """The time of all of them."""
        return sum(each.own + each.python for each in self.all())


def split(
    model: Any,
    call: Callable[[], None],
    *,
    work: str,
    steps: int,
    batch: int,
    prompt: int,
    limits: Rates,
    timed: Callable[[], None] | None = None,
) -> TimeSplit:
    """The time of `call`, which runs `steps` equal steps of a converted model and waits for the device. `timed`: the
    same steps in a faster way, such as by a CUDA graph, whose time is divided by the kernels of `call`.

    The profiler's events are nested intervals: an operation counts to the innermost module around it. Time outside of
    operations is Python. The profiler makes the call slower by about the same time for each event, which is subtracted
    where the event is; then all times are scaled to the untraced call. On a GPU kernels count to the module that
    launched them, and the GPU is idle for the rest of the untraced time.
    """
    call()
    run = timed or call
    run()
    untraced = []
    for _ in range(_TIMES):
        begin = perf_counter_ns()
        run()
        untraced.append(perf_counter_ns() - begin)
    whole = median(untraced) / 1e3
    cuda = model.device.type == "cuda"
    root = min((_divided(model, call, cuda) for _ in range(_TRACED)), key=_Node.total)
    if not cuda:
        nodes = list(root.all())
        slower = (root.total() - whole) / sum(node.events + node.marks for node in nodes)
        # No event takes longer than the mean of any frame's, whatever other load did to the traced call.
        means = [node.own / node.events for node in nodes if node.events]
        means += [node.python / node.marks for node in nodes if node.marks]
        each = max(0.0, min(slower, *means))
        for node in nodes:
            node.own -= each * node.events
            node.python -= each * node.marks
    busy = root.total()
    shrink = whole / busy if busy and (not cuda or busy > whole) else 1.0
    idle = max(0.0, whole - busy) if cuda else 0.0
    scale = 1e3 * steps
    decoding = work != PROMPT
    facts = StepFacts(
        config=model.config.get_text_config(),
        size=model.dtype.itemsize,
        batch=batch,
        length=1 if decoding else prompt,
        context=prompt if decoding else 0,
    )

    def frame(node: _Node) -> Frame:
        inner = tuple(frame(each) for each in node.inner.values())
        own_ms = node.own * shrink / scale
        python_ms = node.python * shrink / scale
        nbytes, operations = (0, 0)
        if node.module is not None:
            nbytes, operations = work_of(node.module, node.part, node.rows, facts)
        return Frame(
            name=node.name,
            part=node.part,
            ms=own_ms + python_ms + sum(each.ms for each in inner),
            own_ms=own_ms,
            python_ms=python_ms,
            nbytes=nbytes,
            operations=operations,
            inner=inner,
        )

    top = frame(root)
    frames = top.inner
    if top.own_ms:
        frames += (Frame(name=REST, part=REST, ms=top.own_ms, own_ms=top.own_ms),)
    if top.python_ms:
        frames += (Frame(name=PYTHON, part=PYTHON, ms=top.python_ms, own_ms=0, python_ms=top.python_ms),)
    if idle:
        frames += (Frame(name=IDLE, part=IDLE, ms=idle / scale, own_ms=idle / scale),)
    ms = whole / scale
    return TimeSplit(work=work, batch=batch, prompt=prompt, ms=ms, frames=frames, parts=_parts(frames, ms, limits))


def _divided(model: Any, call: Callable[[], None], cuda: bool) -> _Node:
    """The frames of a traced call."""
    root = _Node("step", REST)
    with _marked(model, root) as nodes:
        events = _traced(call, cuda)
    (_by_kernels if cuda else _by_operations)(events, root, nodes)
    return root


def _parts(frames: tuple[Frame, ...], whole: float, limits: Rates) -> tuple[StepPart, ...]:
    sums: dict[str, list[Any]] = {}

    def add(frame: Frame) -> None:
        for name, ms in ((frame.part, frame.own_ms), (PYTHON, frame.python_ms)):
            if ms or name == frame.part:
                entry = sums.setdefault(name, [0.0, 0, 0])
                entry[0] += ms
        entry = sums[frame.part]
        entry[1] += frame.nbytes
        entry[2] += frame.operations
        for each in frame.inner:
            add(each)

    for each in frames:
        add(each)
    found = [
        StepPart(
            name=name,
            ms=ms,
            share=ms / whole,
            nbytes=nbytes,
            operations=operations,
            least_ms=limits.least_ms(nbytes, operations) if nbytes or operations else None,
        )
        for name, (ms, nbytes, operations) in sums.items()
        if ms or nbytes
    ]
    return tuple(sorted(found, key=lambda each: -each.ms))


def _traced(call: Callable[[], None], cuda: bool) -> Any:
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities, acc_events=True) as traced, torch.profiler.record_function(f"{_MARK}0"):
        call()
    return traced.events()


@contextmanager
def _marked(model: Any, root: _Node) -> Iterator[list[_Node]]:
    """While it holds, each module that is a frame marks its calls. The nodes by the number in the mark."""
    nodes, stack, open_ = [root], [root], []

    def enter(name: str, part: str, module: Any) -> Callable[..., None]:
        def hook(_: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            node = stack[-1].inner.get(name)
            if node is None:
                node = stack[-1].inner[name] = _Node(title_of(name), part, len(nodes), module)
                nodes.append(node)
            x = next((each for each in (*given, *named.values()) if isinstance(each, torch.Tensor)), None)
            if x is not None:
                node.rows = x.numel() // x.shape[-1] if x.is_floating_point() else x.numel()
            stack.append(node)
            open_.append(torch.profiler.record_function(f"{_MARK}{node.number}"))
            open_[-1].__enter__()

        return hook

    def leave(*_: Any) -> None:
        open_.pop().__exit__(None, None, None)
        stack.pop()

    handles = []
    for name, module in model.named_modules():
        part = part_of(model, name, module)
        if part is not None:
            handles.append(module.register_forward_pre_hook(enter(name, part, module), prepend=True, with_kwargs=True))
            handles.append(module.register_forward_hook(leave))
    try:
        yield nodes
    finally:
        for handle in handles:
            handle.remove()


def _by_operations(events: Any, root: _Node, nodes: list[_Node]) -> None:
    """Divide the time of the host."""
    stack: list[tuple[float, _Node, bool]] = []
    """Of each open interval the end, the frame, and whether it is an operation."""
    marks = {f"{_MARK}{at}": node for at, node in enumerate(nodes)}
    for event in sorted(events, key=lambda each: (each.time_range.start, -each.time_range.end)):
        begin, end = event.time_range.start, event.time_range.end
        while stack and stack[-1][0] <= begin:
            stack.pop()
        node = marks.get(event.name)
        if not stack:
            if node is root:
                node.python += end - begin
                stack.append((end, root, False))
            continue  # outside of the step
        _, around, within = stack[-1]
        if within:
            around.events += 1
            continue
        around.python -= end - begin
        around.marks += 1
        if node is None:
            around.own += end - begin
        else:
            node.python += end - begin
        stack.append((end, node or around, node is None))


def _by_kernels(events: Any, root: _Node, nodes: list[_Node]) -> None:
    """Divide the time of the kernels. A kernel has the correlation id of its launch."""
    from bisect import bisect_right

    from torch.autograd import DeviceType

    marks = {f"{_MARK}{at}": node for at, node in enumerate(nodes)}
    host = [each for each in events if each.device_type == DeviceType.CPU]
    changes: list[tuple[float, _Node]] = []
    """The innermost module from each time on."""
    stack: list[tuple[float, _Node]] = []

    def close(until: float) -> None:
        while stack and stack[-1][0] <= until:
            end, _ = stack.pop()
            changes.append((end, stack[-1][1] if stack else root))

    for event in sorted(host, key=lambda each: (each.time_range.start, -each.time_range.end)):
        node = marks.get(event.name)
        if node is not None:
            close(event.time_range.start)
            stack.append((event.time_range.end, node))
            changes.append((event.time_range.start, node))
    close(float("inf"))
    times = [each for each, _ in changes]
    launched = {each.id: each.time_range.start for each in host if each.name.startswith("cu")}
    for event in events:
        if event.device_type == DeviceType.CPU or event.name.startswith(_MARK):
            continue
        at = launched.get(event.id)
        place = bisect_right(times, at) - 1 if at is not None else -1
        (changes[place][1] if place >= 0 else root).own += event.time_range.end - event.time_range.start
