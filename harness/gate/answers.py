"""The outputs of one build's kernel in a drawn case, for every run, with the findings of the guards.

A case runs as in the accuracy verdict (see validate.drawn): on one set of data, on non-finite values, on other data
written into the same memory, then repeatedly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.gate.arrays import read, save
from tritmark.harness.gate.opened import OpenedBuild
from tritmark.harness.gate.task import GateTask
from tritmark.harness.record import Divergence
from tritmark.harness.spec import Arrays, Axes, KernelKey, Op, ToleranceKind, Variant, Workload
from tritmark.harness.validate.accuracy import NONFINITE_ROUNDS
from tritmark.harness.validate.cases import Case, Material, is_array
from tritmark.harness.validate.compare import BrokenReferenceError, Expected, compare, expectations
from tritmark.harness.validate.draw import Drawer, Drawn
from tritmark.harness.validate.drawn import DEVICE_SHARE, repeats
from tritmark.harness.validate.trial import Setting, Tally, Trial

_REPEAT_SHARE = 8
"""One in this many of the repeated runs is made: the gate has more cases instead."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The outputs and findings of one kernel in one case."""

    logical: tuple[Arrays, ...]
    """Each set of data, in the form that the reference takes."""
    outputs: Mapping[str, npt.NDArray[np.uint8]]
    """The bytes of each output after each run, uint8 (runs, bytes). The first run is on the first set of data, all
    others on the last."""
    complaints: tuple[str, ...]
    """Faults besides the outputs: writes outside of them, changed inputs, reports of values that are not there."""


def draw(build: OpenedBuild, task: GateTask, count: int, cores: int) -> list[Drawn]:
    """Draw `count` cases of the task's kernel from the task's seed. Kernels of a key often share the changed code, so
    each gets its own cases. `cores` is the thread count called "all"."""
    seed = int.from_bytes(sha256(f"{task.seed} {task.kernel}".encode()).digest()[:8], "little")
    with build.inside():
        variant, op = _variant(build, task), build.installed.ops[task.op]
        threaded = build.installed.registry.devices[task.device].memory is None
        return Drawer(op, variant, cores=cores, threaded=threaded, seed=seed).draw(count)


def answers(build: OpenedBuild, task: GateTask, case: Drawn, logical: Sequence[Arrays] | None = None) -> Answers | None:
    """Run the task's kernel in the case, on the sets of data in `logical`. By default, the build's own op makes them.

    Returns None if the kernel's constraints or its format do not admit the case. Raises BrokenCandidateError if the
    kernel raises.
    """
    with build.inside():
        variant, op = _variant(build, task), build.installed.ops[task.op]
        device = build.installed.registry.devices[task.device]
        if any(limit.refusal(case.axes) is not None for limit in variant.constraints):
            return None
        if logical is None:
            logical = _made(op, variant.key, case)
        if logical is None:
            return None
        given = [Case(op.encode(each, case.axes, variant.key.format), (), each) for each in logical]
        expected = _unknown(op, case.axes, variant.key)
        tally = Tally(op)
        setting = Setting(op, variant, case.axes, case.placement, case.threads, device)
        trial = Trial(setting, replace(given[0], expected=expected), case.seed)
        trial.run(tally, given[0])
        found = [trial.written()]
        trial.run_nonfinite(tally, given[0], NONFINITE_ROUNDS)
        if len(given) > 1:
            if not variant.packs and _alike(given[0].inputs, given[1].inputs):
                trial.refill(given[1])
            else:
                trial = Trial(setting, replace(given[1], expected=expected), case.seed + 1)
        times = repeats(sum(each.values.nbytes for each in expected), case.axes) // _REPEAT_SHARE
        for _ in range(1 + times // (1 if device.memory is None else DEVICE_SHARE)):
            trial.run(tally, given[-1])
            found.append(trial.written())
        outputs = {each.name: np.stack([run[each.name] for run in found]) for each in expected}
        return Answers(tuple(logical), outputs, tuple(tally.reasons))


def judge(
    build: OpenedBuild, task: GateTask, case: Drawn, own: Answers, other: Answers
) -> tuple[str, Divergence | None]:
    """Faults in another build's answers that this build's answers do not have, as text; "" if there are none.

    Outputs with equal bits are the same. Where bits differ, this build's reference decides: a kernel that became
    correct does not differ.
    """
    new = [each for each in other.complaints if each not in own.complaints]
    if new:
        return "; ".join(new), None
    if own.outputs.keys() != other.outputs.keys():
        return f"its outputs are {', '.join(other.outputs)}; BASE has {', '.join(own.outputs)}", None
    runs = min(len(each) for each in (*own.outputs.values(), *other.outputs.values()))
    expected: dict[int, tuple[Expected, ...]] = {}
    for run in range(runs):
        if all(np.array_equal(own.outputs[name][run], other.outputs[name][run]) for name in own.outputs):
            continue
        data = min(run, len(own.logical) - 1)
        if data not in expected:
            with build.inside():
                op, key = build.installed.ops[task.op], _variant(build, task).key
                try:
                    made = op.reference(own.logical[data], case.axes, key)
                    expected[data] = tuple(expectations(op, case.axes, key, made))
                except BrokenReferenceError as error:
                    return f"its output differs from BASE's, and {error}", None
        for each in expected[data]:
            raw = other.outputs[each.name][run]
            if raw.size != each.values.nbytes:
                return f"{each.name} has {raw.size} bytes; legal: {each.values.nbytes}", None
            compared = compare(each, raw.view(each.values.dtype).reshape(each.values.shape))
            if compared.wrong.size:
                before = own.outputs[each.name][run].view(each.values.dtype).reshape(-1)
                return (
                    (
                        f"{compared.wrong.size} of {each.values.size} elements of {each.name} are incorrect in run "
                        f"{run + 1}"
                    ),
                    _of_base(compared.first, before, each.values.shape),
                )
    return "", None


def save_answers(folder: Path, found: Answers | None) -> dict[str, object] | None:
    """Write answers into a new folder. Returns what another process needs to read them, for JSON."""
    if found is None:
        return None
    folder.mkdir()
    reported = []
    for number, each in enumerate((*found.logical, found.outputs)):
        there = folder / str(number)
        there.mkdir()
        reported.append(save(there, each))
    return {"folder": str(folder), "told": reported, "complaints": list(found.complaints)}


def read_answers(given: Mapping[str, Any] | None) -> Answers | None:
    """Read what save_answers wrote."""
    if given is None:
        return None
    *logical, outputs = (read(Path(given["folder"], str(number)), each) for number, each in enumerate(given["told"]))
    return Answers(tuple(logical), outputs, tuple(given["complaints"]))


def _variant(build: OpenedBuild, task: GateTask) -> Variant:
    return next(each for each in build.installed.registry.variants if each.id == task.kernel)


def _made(op: Op, key: KernelKey, case: Drawn) -> tuple[Arrays, ...] | None:
    workload = Workload(op=op.name, axes=case.axes, family=case.family)
    # A format may refuse what the contract admits, such as scales below its smallest.
    for salts in (case.salts, (None, None)):
        with suppress(InvalidArgumentError):
            material = Material(op, workload, case.seed, salts=salts)
            material.encoded(key.format)
            return material.logical
    return None


def _unknown(op: Op, axes: Axes, key: KernelKey) -> tuple[Expected, ...]:
    """Expected outputs with a known shape and dtype, and no known values."""
    like = op.outputs_like(axes, key).items()
    made = {name: np.empty(shape, named_dtype(dtype)) for name, (shape, dtype) in like}
    return tuple(Expected(name, ToleranceKind.EXACT, values, values, None) for name, values in made.items())


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two sets of inputs differ at most in the contents of arrays."""
    return all(
        value.shape == other[name].shape and value.dtype == other[name].dtype
        if is_array(value)
        else np.array_equal(value, other[name])
        for name, value in one.items()
    )


def _of_base(first: Divergence | None, before: npt.NDArray[Any], shape: tuple[int, ...]) -> Divergence | None:
    """The divergence with BASE's value as the expected one."""
    if first is None:
        return None
    at = int(np.ravel_multi_index(tuple(first.index), shape)) if shape else 0
    return first.model_copy(update={"expected": str(before[at])})
