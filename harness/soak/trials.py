"""One run with one planted fault of each kind: draws the fault, plants it, runs the command, and judges what it
reports."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from tritmark.harness.caches import CACHE
from tritmark.harness.errors import TritmarkError
from tritmark.harness.machine.session import least_addresses
from tritmark.harness.record import Record, Run, Status
from tritmark.harness.record.verdicts import Guarded
from tritmark.harness.soak import preload
from tritmark.harness.soak.commands import Ended, is_worker, run, workers
from tritmark.harness.soak.ground import CANDIDATE, SUITE, Command, Ground, check, ended, record, suite
from tritmark.harness.soak.kinds import FaultTrial, Kind
from tritmark.harness.soak.planted import FAULTY, FaultPlan, source
from tritmark.harness.spec import KernelKey, Workload
from tritmark.harness.store import Store
from tritmark.harness.validate.compare import is_float
from tritmark.harness.validate.guard_names import Guard

TIMEOUT_S = 5.0
"""Limit of one call: a hang takes as long."""
_PATIENT_S = 60.0
"""Limit of one call for the other forms: on a busy machine, memory is allocated slowly."""
_TIMED = 0.1
"""The share of runs that also time kernels; such a run takes three times as long."""
_FIRST_CALLS = 3
"""The fault strikes in one of the first calls of a process: a small workload has few."""
_SIGNALS = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "exit")
_HANGS = ("busy", "asleep", "deaf")
_JUDGES = 0.2
"""The share of shots that may hit a judge."""
_LATEST_WORKER_S, _LATEST_COMMAND_S = 0.3, 4.0
_MOST_CALLS = {"out": 12, "cache": 4, "tmp": 2}
"""The disk is full after at most so many calls of a process that use space in the folder, about as many as a command
makes."""
_LEAST, _MOST_ADDRESSES = 0.9, 2 << 30
"""Limits of address space: from this share of what the command line needs, to these bytes. With still less, Python
cannot import NumPy."""
_FULL = "No space left on device"
_DETECTS = {
    "busy": (Guard.HANG,),
    "asleep": (Guard.HANG,),
    "deaf": (Guard.HANG,),
    "huge": (Guard.MEMORY,),
    "greedy": (Guard.MEMORY,),
    "exit": (Guard.EXIT,),
    "wrong": (Guard.VALUES, Guard.AUDIT),
    "nan": (Guard.VALUES, Guard.AUDIT),
    "swallowed": (Guard.NONFINITE,),
}
"""The guards that detect each form of fault; all others are signals."""


class TrialFolder:
    """The folder of one run, its random numbers, and what judges it."""

    def __init__(self, ground: Ground, folder: Path, rng: random.Random, legal: frozenset[int]) -> None:
        self.ground, self.folder, self.rng, self.legal = ground, folder, rng, legal
        self.marker = folder / "struck"
        self.marker.touch()
        temporary = folder / "tmp"
        temporary.mkdir()
        self.environment: dict[str, str] = {CACHE: str(ground.cache), "TMPDIR": str(temporary)}

    @property
    def struck(self) -> bool:
        return self.marker.stat().st_size > 0

    def run(self, command: Command, environment: Mapping[str, str] | None = None) -> Ended:
        """Write the files of the command and run it."""
        command.write(self.folder)
        return ended(command, self.folder, {**self.environment, **(environment or {})})


def trial(kind: Kind, place: TrialFolder) -> FaultTrial:
    """Plant a fault of that kind."""
    began = monotonic()
    found = _KINDS[kind](kind, place)
    found.seconds = monotonic() - began
    return found


def planned(key: KernelKey, names: tuple[str, ...], workloads: list[Workload]) -> frozenset[tuple[str, str]]:
    """Ids of kernels and workloads."""
    return frozenset((f"{key}/{name}", each.id) for name in names for each in workloads)


def _of_kernel(kind: Kind, place: TrialFolder) -> FaultTrial:
    """A fault of a kernel, beside a correct kernel."""
    rng, ground = place.rng, place.ground
    form = rng.choice(_FORMS[kind])
    if form == "limit":
        return _under_limit(kind, place)
    fitting = [each for each in ground.places if _admits(ground, each[0], form)]
    key, workloads = rng.choice(fitting)
    workload = rng.choice(workloads)
    timed = form not in {"swallowed", *_HANGS} and rng.random() < _TIMED
    plan = FaultPlan(
        form=form,
        marker=str(place.marker),
        call=1 if form == "swallowed" else rng.randint(20, 200) if timed else rng.randint(1, _FIRST_CALLS),
        share=1.0 if timed or form == "swallowed" else rng.choice((1.0, 0.0)),
        place=rng.choice((0.0, rng.random(), 1.0)),
        number=rng.randint(0, 99),
    )
    files = {CANDIDATE: source(key, plan), SUITE: suite([workload], key, timed=timed)}
    arguments = check(
        CANDIDATE,
        rng,
        "performance" if timed else "accuracy",
        "--timeout",
        f"{TIMEOUT_S if form in _HANGS else _PATIENT_S:g}",
    )
    found = FaultTrial(kind, f"{form} at call {plan.call} of {key}, {workload.id}{', timed' if timed else ''}")
    done = place.run(Command(arguments, files))
    found.struck = place.struck
    made = _read(found, done, place, planned(key, ("faulty", "honest"), [workload]))
    for each in made.runs if made else ():
        if each.variant != FAULTY:
            _must_pass(found, each)
            continue
        verdicts = [each.accuracy, each.performance, each.memory]
        found.named |= any(_names(verdict, form, plan) for verdict in verdicts)
        if found.struck and not any(verdict.status in {Status.FAIL, Status.ERROR} for verdict in verdicts):
            found.wrong.append(f"{each.id} with a fault: accuracy {each.accuracy.status}")
    return found


def _admits(ground: Ground, key: KernelKey, form: str) -> bool:
    """Whether a kernel of the key can have the fault, by its outputs and inputs."""
    op = ground.installed.ops[key.op]
    if form == "nan":
        axes = next(found[0].axes for each, found in ground.places if each == key)
        _, dtype = next(iter(op.outputs_like(axes, key).values()))
        from tritmark.harness.dtypes import named_dtype

        return is_float(named_dtype(dtype))
    if form == "swallowed":
        from tritmark.harness.spec import Values

        return any(each.values is Values.FINITE and each.axes for each in op.inputs)
    return True


def _names(verdict: Guarded, form: str, plan: FaultPlan) -> bool:
    if verdict.status not in {Status.FAIL, Status.ERROR}:
        return False
    guards = _DETECTS.get(form, (Guard.CRASH,))
    words = {"exit": f"exit status {plan.number}", "nan": "nan"}.get(form, form if form in _SIGNALS else "")
    return _states(verdict, words) and any(guard.value in verdict.caught_by for guard in guards)


def _states(verdict: Guarded, words: str) -> bool:
    """Whether the message for people has these words, which is what the soak judges."""
    said = verdict.reason.lower()
    return words.lower() in said


def _under_limit(kind: Kind, place: TrialFolder) -> FaultTrial:
    """A command that gets little address space."""
    command = place.ground.check_native(place.rng)
    command.write(place.folder)
    limit = place.rng.randint(int(_LEAST * least_addresses()), _MOST_ADDRESSES) >> 10
    found = FaultTrial(kind, f"ulimit -v {limit}")
    done = run(command.arguments, place.folder, place.environment, address_space_kib=limit)
    found.struck = done.status != 0
    found.named = "address space" in done.text or "out of memory" in done.text
    made = _read(found, done, place, frozenset() if found.struck else None)
    for each in made.runs if made else ():
        _must_pass(found, each)
    return found


def _device_lost(kind: Kind, place: TrialFolder) -> FaultTrial:
    ground = place.ground
    assert ground.on_device is not None
    assert ground.device is not None
    assert ground.device.losing is not None
    launch = place.rng.randint(1, 4)
    command = Command(ground.on_device.arguments, ground.on_device.files, ground.on_device.planned)
    found = FaultTrial(kind, f"{ground.device.type} lost at launch {launch}")
    done = place.run(command, ground.device.losing(launch))
    made = _read(found, done, place, command.planned)
    if made is None:
        return found
    broken = [each for each in made.runs if each.accuracy.status is Status.ERROR]
    found.struck = bool(broken)
    lane = next((each for each in made.lanes if each.device == ground.device.type), None)
    found.named = lane is not None and lane.simulated and all(_names_loss(each) for each in broken)
    for each in made.runs:
        if each.accuracy.status not in {Status.ERROR, Status.PASS}:
            found.wrong.append(f"{each.id}: accuracy {each.accuracy.status}: {each.accuracy.reason}")
        if each.performance.hot or each.performance.cold:
            found.wrong.append(f"{each.id}: a time, of a simulator")
    return found


def _names_loss(each: Run) -> bool:
    found = each.accuracy
    return Guard.DEVICE.value in found.caught_by and _states(found, "simulated") and _states(found, "lost")


def _corrupt_cache(kind: Kind, place: TrialFolder) -> FaultTrial:
    rng, ground = place.rng, place.ground
    name = rng.choice(sorted(ground.cached))
    cache = place.folder / "cache"
    ground.copy_of_caches(cache)
    files = sorted(
        each for each in (cache / name).glob(ground.cached[name].reads) if each.is_file() and _is_cached(each)
    )
    broken = rng.choice(files)
    how = rng.choice((_flipped, _truncated, _emptied, _overwritten))
    before = broken.read_bytes()
    damaged = how(before, rng)
    broken.write_bytes(damaged)
    found = FaultTrial(kind, f"{how.__name__.strip('_')} {broken.relative_to(cache)}")
    command = ground.cached[name]
    done = place.run(command, {CACHE: str(cache)})
    found.struck = damaged != before
    if command.planned:
        made = _read(found, done, place, command.planned)
        for each in made.runs if made else ():
            _must_pass(found, each)
    else:
        found.died = done.died(place.legal)
        found.seen = done.shown
        if not done.status and done.text.strip().splitlines()[-1:] != [ground.digest]:
            found.wrong.append("another build than the one that was stored")
    # A message names the file, the file beside which its digest is, or the folder of the build that it is part of.
    below = [each for each in broken.parents if cache / name in each.parents]
    found.named = any(str(each) in done.text for each in (broken.with_suffix(""), *below))
    # A worker makes its files anew as well, and its log is not shown.
    anew = not broken.exists() or broken.read_bytes() != damaged
    found.harmless = not found.named and anew and not done.status and not (found.wrong or found.lost)
    return found


def _is_cached(path: Path) -> bool:
    return path.suffix != ".lock" and path.stat().st_size > 0 and "__pycache__" not in path.parts


def _flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for place in {rng.randrange(8 * len(data)) for _ in range(rng.randint(1, 8))}:
        changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def _truncated(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def _emptied(data: bytes, rng: random.Random) -> bytes:
    return b""


def _overwritten(data: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(len(data))


def _killed(kind: Kind, place: TrialFolder) -> FaultTrial:
    rng = place.rng
    key, workloads = rng.choice(place.ground.places)
    chosen = rng.sample(workloads, min(4, len(workloads)))
    plan = FaultPlan(form="", marker="")
    command = Command(check(CANDIDATE, rng, "accuracy"), {CANDIDATE: source(key, plan), SUITE: suite(chosen, key)})
    ids = planned(key, ("honest",), chosen)
    return (_killed_command if rng.random() < 0.3 else _killed_worker)(kind, place, command, ids)


def _killed_worker(kind: Kind, place: TrialFolder, command: Command, ids: frozenset[tuple[str, str]]) -> FaultTrial:
    """SIGKILL for one worker or judge, some time after one is there."""
    after, which = place.rng.choice((0.0, place.rng.uniform(0, _LATEST_WORKER_S))), place.rng.random()
    wanted = workers if place.rng.random() < _JUDGES else _without_judges
    found = FaultTrial(
        kind, f"SIGKILL for a worker{' or judge' if wanted is workers else ''} {after:.3f} s after one began"
    )

    def shoot(process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None:
            there = wanted(process.pid)
            if there and after:
                sleep(after)
                there = wanted(process.pid)
            if there:
                with suppress(ProcessLookupError):
                    os.kill(there[int(which * len(there))], signal.SIGKILL)
                    found.struck = True
                return
            sleep(0.002)

    command.write(place.folder)
    done = run(command.arguments, place.folder, place.environment, meanwhile=shoot)
    made = _read(found, done, place, ids)
    broken = [each for each in made.runs if each.accuracy.status is not Status.PASS] if made else []
    found.harmless = made is not None and not broken
    found.named = bool(broken) and all(
        Guard.CRASH.value in each.accuracy.caught_by and _states(each.accuracy, "SIGKILL") for each in broken
    )
    if made is None:
        found.named = "SIGKILL" in done.text
    found.wrong += [
        f"{each.id}: FAIL: {each.accuracy.reason}" for each in broken if each.accuracy.status is Status.FAIL
    ]
    return found


def _without_judges(session: int) -> list[int]:
    return [pid for pid in workers(session) if is_worker(pid)]


def _killed_command(kind: Kind, place: TrialFolder, command: Command, ids: frozenset[tuple[str, str]]) -> FaultTrial:
    """SIGKILL for the command, alone or with all of its processes; then it is resumed."""
    after, group = place.rng.uniform(0, _LATEST_COMMAND_S), place.rng.random() < 0.5
    found = FaultTrial(kind, f"SIGKILL for {'all processes' if group else 'the command'} after {after:.3f} s")

    def shoot(process: subprocess.Popen[bytes]) -> None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(after)
        if process.poll() is None:
            (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)
            found.struck = True

    command.write(place.folder)
    done = run(command.arguments, place.folder, place.environment, meanwhile=shoot)
    found.died = f"it left {done.left} processes behind" if done.left else ""
    found.harmless = True  # nothing that is killed can report it
    _continued(found, place, command, ids, done)
    return found


def _full_disk(kind: Kind, place: TrialFolder) -> FaultTrial:
    rng, ground = place.rng, place.ground
    assert ground.library is not None
    command = ground.check_native(rng)
    which = rng.choice(tuple(_MOST_CALLS))
    if which == "cache":
        place.environment[CACHE] = str(place.folder / "cache")
    (place.folder / which).mkdir(mode=0o700, exist_ok=True)
    calls = rng.randint(0, _MOST_CALLS[which])
    found = FaultTrial(kind, f"no space below {which}/ after {calls} calls")
    environment = preload.full(ground.library, place.folder / which, calls, place.marker)
    done = place.run(command, environment)
    found.struck = place.struck
    found.died = done.died(place.legal)
    found.named = _FULL in done.text
    made = _record(found, place)
    html = list((place.folder / "out" / "html").glob("*.html"))
    found.harmless = not found.named and done.status == 0 and made is not None and bool(html)
    _continued(found, place, command, None, done)
    return found


def _clock_jump(kind: Kind, place: TrialFolder) -> FaultTrial:
    rng, ground = place.rng, place.ground
    assert ground.library is not None
    timed = rng.random() < 2 * _TIMED
    if rng.random() < 0.7:
        command = ground.check_native(rng, timed=timed)
        found = FaultTrial(kind, f"the clock of the system jumps{', timed' if timed else ''}")
        done = place.run(command, preload.jumping(ground.library, rng.randrange(1 << 31)))
        found.struck = True
        found.named = "clock" in done.text and "was set" in done.text
        ids = None
    else:
        key, workloads = rng.choice(ground.places)
        workload = rng.choice(workloads)
        hours = rng.choice((-1, 1)) * rng.randint(3600, 12 * 3600)
        plan = FaultPlan(form="jump", marker=str(place.marker), call=rng.randint(1, 3), share=0.0, number=hours)
        files = {CANDIDATE: source(key, plan), SUITE: suite([workload], key, timed=timed)}
        command = Command(check(CANDIDATE, rng, "performance" if timed else "accuracy"), files)
        found = FaultTrial(kind, f"the clock of a kernel's process jumps by {hours} s{', timed' if timed else ''}")
        done = place.run(command, preload.loaded(ground.library))
        found.struck = place.struck
        ids = planned(key, ("faulty", "honest"), [workload])
    made = _read(found, done, place, ids)
    for each in made.runs if made else ():
        _must_pass(found, each)
    # A clock that jumps for one process, and changes nothing there, is no event to report.
    found.harmless = found.form.startswith("the clock of a kernel") and made is not None and not found.wrong
    return found


def _continued(
    found: FaultTrial, place: TrialFolder, command: Command, ids: frozenset[tuple[str, str]] | None, done: Ended
) -> None:
    """Resume, or repeat, a command that was ended. Runs that were finished must be in the Record."""
    store = Store(place.folder / "out")
    kept: dict[str, Run] = {}
    more: tuple[str, ...] = ()
    again = done
    if not store.records():
        interrupted = store.partials()
        if interrupted:
            with store.resume(interrupted[-1]) as partial:
                kept = partial.finished_runs()
            more = ("--resume", interrupted[-1])
        again = place.run(Command((*command.arguments, *more), command.files))
        found.died = found.died or again.died(place.legal)
        if again.status:
            found.died = found.died or f"it ended with exit status {again.status} after the fault was gone"
    found.seen = again.shown if found.died else done.shown
    made = _record(found, place)
    if made is None:
        found.lost.append("the whole Record")
        return
    there = {each.id: each for each in made.runs}
    found.lost += [id for id, each in kept.items() if there.get(id) != each]
    if ids is not None:
        found.lost += [f"{kernel}, {work}" for kernel, work in ids - {(e.kernel, e.workload.id) for e in made.runs}]
    for each in made.runs:
        _must_pass(found, each)


def _read(found: FaultTrial, done: Ended, place: TrialFolder, ids: frozenset[tuple[str, str]] | None) -> Record | None:
    """The Record of a command, which must have these Runs. `ids` empty: none is expected; None: any Runs."""
    found.died = found.died or done.died(place.legal)
    found.seen = done.shown
    made = _record(found, place)
    if made is None:
        if ids is None or ids:
            found.lost.append("the whole Record")
        return None
    there = {(each.kernel, each.workload.id) for each in made.runs}
    found.lost += [f"{kernel}, {work}" for kernel, work in (ids or frozenset()) - there]
    for each in made.runs:
        for temperature in (each.performance.hot, each.performance.cold):
            # The harness cannot have measured more time than passed.
            median = temperature.timing.median_ns if temperature is not None else 1.0
            if not 0 < median < 1e9 * done.seconds:
                found.wrong.append(f"{each.id}: {median} ns in a command of {done.seconds:.1f} s")
    return made


def _record(found: FaultTrial, place: TrialFolder) -> Record | None:
    try:
        return record(place.folder)
    except TritmarkError as error:
        found.died = found.died or f"its Record cannot be read: {error}"
        return None


def _must_pass(found: FaultTrial, each: Run) -> None:
    """A correct kernel must be correct, whatever happens around it."""
    if each.accuracy.status is not Status.PASS:
        found.wrong.append(f"{each.id}, a correct kernel: {each.accuracy.status}: {each.accuracy.reason}")
    elif each.performance.status in {Status.FAIL, Status.ERROR}:
        found.wrong.append(f"{each.id}, a correct kernel: {each.performance.status}: {each.performance.reason}")


_FORMS: Mapping[Kind, tuple[str, ...]] = {
    Kind.CRASH: _SIGNALS,
    Kind.HANG: _HANGS,
    Kind.WRONG: ("wrong",),
    Kind.NAN: ("nan", "swallowed"),
    Kind.MEMORY: ("huge", "greedy", "limit"),
}
_KINDS: Mapping[Kind, Callable[[Kind, TrialFolder], FaultTrial]] = {
    **dict.fromkeys(_FORMS, _of_kernel),
    Kind.DEVICE: _device_lost,
    Kind.CACHE: _corrupt_cache,
    Kind.KILLED: _killed,
    Kind.DISK: _full_disk,
    Kind.CLOCK: _clock_jump,
}


def absent(ground: Ground) -> Iterator[tuple[Kind, str]]:
    """Kinds that cannot be planted here, and why."""
    if ground.on_device is None:
        yield Kind.DEVICE, ground.no_device
    if ground.library is None or not ground.native:
        why = ground.no_library or "no op has a template in C"
        yield Kind.DISK, why
        yield Kind.CLOCK, why
