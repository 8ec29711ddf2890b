"""Writes a page for the contract of each op, from its spec, its reference and the installed variants."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from tritmark.harness.providers import Installed, load
from tritmark.harness.spec import Axes, KernelKey, Op, Tensor, Tier, ToleranceKind, Values
from tritmark.kernels import OPS

TOLERANCES = {
    ToleranceKind.EXACT: "exact: every output has the same bits as the reference.",
    ToleranceKind.ROUNDED: "rounded: an output of floats is within 1 ulp of the exact value rounded to its dtype. "
    "Integers are exact. Where the reference returns `NAME.bound`, that bound applies.",
    ToleranceKind.BOUNDED: "bounded: the difference from the exact value is at most the bound that the reference "
    "computes from the inputs, in advance (`NAME.bound`).",
}
REFUSED = {
    Values.FINITE: "NaN and infinity",
    Values.POSITIVE: "zero, negative values, NaN and infinity",
    Values.TERNARY: "everything except -1, 0 and 1",
    Values.OFFSETS: "offsets that do not ascend from 0 to the number of rows",
}

RAISES = "A refused value raises `InvalidArgumentError`, which names the argument, the value and what is legal."
SHOWN = re.compile(r"tritmark\.kernels\.\w+\.reference")

Table = Callable[..., str]


def pages(table: Table, plain: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """The index and the page of each op: name and text in Markdown."""
    installed = load()
    ops = [op for op in installed.ops.values() if op in OPS]
    rows = [(f"[`{op.name}`]({op.name}.md)", plain(op.summary)) for op in ops]
    hidden = ":::{toctree}\n:hidden:\n\n" + "\n".join(op.name for op in ops) + "\n:::"
    lead = "An op is a contract: what its kernels take, what they compute, and how exactly."
    yield "ops/index.md", "\n\n".join(["# Ops", lead, table("op", "what it computes", rows=rows), hidden])
    for op in ops:
        yield f"ops/{op.name}.md", page(op, installed, table, plain)


def page(op: Op, installed: Installed, table: Table, plain: Callable[[str], str]) -> str:
    """The contract of one op."""
    takes = [
        (f"`{each.name}`", shape(each), dtype(each), plain(each.summary), REFUSED.get(each.values, "none"))
        for each in op.inputs
    ]
    gives = [(f"`{each.name}`", shape(each), dtype(each), plain(each.summary)) for each in op.outputs]
    strided = [f"`{each.name}`" for each in op.inputs if each.strided_rows]
    parts = [
        f"# {op.name}",
        plain(f"{op.summary}."),
        f"Source: {plain(op.source)}.",
        "## Inputs",
        table("input", "shape", "dtype", "meaning", "refused values", rows=takes),
        *([RAISES] if any(each.values in REFUSED for each in op.inputs) else []),
        *([f"Rows of {' and '.join(strided)} may be apart; other arrays are C-contiguous."] if strided else []),
        "## Outputs",
        table("output", "shape", "dtype", "meaning", rows=gives),
        *(["The dtype `key` is that of the kernel: see [Variants](#variants)."] if any_key(op) else []),
        "## Accuracy",
        plain(TOLERANCES[op.tolerance_kind]),
        "## Reference",
        source(op.reference),
        "## Least work",
        "Bytes read and written and operations, in the axes of the op. Shares of ceilings are relative to it.",
        source(op.traffic),
        *example(op, installed, table),
        "## Variants",
        table("device", "format", "output dtype", "variants, best last", rows=variants(op, installed)),
    ]
    return "\n\n".join(parts) + "\n"


def shape(tensor: Tensor) -> str:
    """(M, K); "scalar" without axes."""
    return f"({', '.join(tensor.axes)}{',' if len(tensor.axes) == 1 else ''})" if tensor.axes else "scalar"


def dtype(tensor: Tensor) -> str:
    """The dtype, or that of the kernel."""
    return "`key`" if tensor.dtype == "key" else tensor.dtype


def any_key(op: Op) -> bool:
    """Whether an output has the dtype of the kernel."""
    return any(each.dtype == "key" for each in op.outputs)


def source(function: Callable[..., Any]) -> str:
    """The code of a function, with the values of arguments that are already given."""
    given = ""
    if isinstance(function, partial):
        names = list(inspect.signature(function.func).parameters)
        bound = {**dict(zip(names, function.args, strict=False)), **function.keywords}
        given = "With " + ", ".join(f"`{name}` = {value!r}" for name, value in bound.items()) + ":\n\n"
        function = function.func
    parts: dict[str, list[str]] = {}
    for each in (function, *called(function)):
        parts.setdefault(each.__module__.removeprefix("tritmark."), []).append(inspect.getsource(each).rstrip())
    blocks = [(where, "\n\n\n".join(code)) for where, code in parts.items()]
    return given + "\n\n".join(f"`{where}`:\n\n```python\n{code}\n```" for where, code in blocks)


def called(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """The functions of references that a function calls, and those that they call."""
    found: dict[str, Callable[..., Any]] = {}
    waiting = [function]
    while waiting:
        code = waiting.pop(0)
        for name in code.__code__.co_names:
            each = code.__globals__.get(name)
            known = inspect.isfunction(each) and each is not function and SHOWN.fullmatch(each.__module__)
            if each is not None and known and name not in found:
                found[name] = each
                waiting.append(each)
    return list(found.values())


def example(op: Op, installed: Installed, table: Table) -> Iterable[str]:
    """The least work of the first workload that the suite quick measures, by format and output dtype."""
    listed = [each for each in installed.suite("quick").selected if each.workload.op == op.name and each.workload.axes]
    listed.sort(key=lambda each: not each.workload.measure)
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for variant in own(op, installed):
        key = variant.key
        axes: Axes | None = next(
            (
                each.workload.axes
                for each in listed
                if each.admits(key.format, key.dtype, key.device)
                and (op.holds is None or op.holds(each.workload.axes, key.format))
                and not any(limit.refusal(each.workload.axes) for limit in variant.constraints)
            ),
            None,
        )
        if axes is None or (key.format, key.dtype) in found:
            continue
        least = op.traffic(axes, key)
        sizes = ", ".join(f"{name} = {size:,}" for name, size in axes.items())
        cells = (f"{least.read:,}", f"{least.written:,}", f"{least.operations:,}")
        found[key.format, key.dtype] = (sizes, key.format, key.dtype, *cells)
    if found:
        heads = ("axes", "format", "output dtype", "bytes read", "bytes written", "operations")
        yield "Examples:"
        yield table(*heads, rows=found.values())


def own(op: Op, installed: Installed) -> list[Any]:
    """The variants of the op, without peers and further devices of a kind."""
    every = [each for each in installed.registry.variants if each.key.op == op.name and each.tier is not Tier.PEER]
    return [each for each in every if not re.search(r":\d+$", each.key.device)]


def variants(op: Op, installed: Installed) -> list[tuple[str, str, str, str]]:
    """A row for each device, format and output dtype."""
    found: dict[KernelKey, list[Any]] = {}
    for each in own(op, installed):
        found.setdefault(each.key, []).append(each)
    return [
        (
            key.device,
            key.format,
            key.dtype,
            ", ".join(f"`{each.name}`" for each in sorted(of, key=lambda each: each.precedence)),
        )
        for key, of in found.items()
    ]
