"""What all runs with a planted fault share: the workloads to choose from, filled caches, the preloaded library."""

from __future__ import annotations

import json
import random
import shutil
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import prod
from pathlib import Path

from tritmark.harness import prefetched, tuned
from tritmark.harness.caches import CACHE
from tritmark.harness.candidate import new
from tritmark.harness.errors import BadEnvironmentError, UsageError
from tritmark.harness.providers import Installed
from tritmark.harness.record import Record
from tritmark.harness.selftest.right import keys
from tritmark.harness.soak import preload
from tritmark.harness.soak.commands import Ended, run
from tritmark.harness.spec import Axes, Device, KernelKey, Op, Workload
from tritmark.harness.store import Store, read
from tritmark.harness.validate.guards import LAYOUTS

HOST = "cpu"
_LARGEST = 1 << 16
"""The most elements of an input."""
_FAMILIES = 2
SUITE, CANDIDATE, NATIVE = "suite.toml", "candidate.py", "kernel.c"
TRITMARK = ("-m", "tritmark")

_GATE = "import sys; from tritmark.harness.gate.build import built; print(built(sys.argv[1]).digest())"
"""Takes a wheel's build from the cache of `tritmark gate`, and prints the digest of its files."""
_WHEEL = "tritmark_soak_package-1-py3-none-any.whl"


@dataclass(frozen=True)
class Command:
    """A command without a fault, and the Runs that its Record has."""

    arguments: tuple[str, ...]
    files: Mapping[str, str]
    planned: frozenset[tuple[str, str]] = frozenset()
    """Ids of kernels and workloads; empty for a command without a Record."""
    environment: Mapping[str, str] = field(default_factory=dict)
    reads: str = "**/*"
    """The files that it reads, as a glob below its folder of caches."""

    def write(self, folder: Path) -> None:
        """Write its files."""
        for name, text in self.files.items():
            (folder / name).write_text(text, encoding="utf-8")


def ended(command: Command, folder: Path, environment: Mapping[str, str]) -> Ended:
    """Run the command there."""
    return run(command.arguments, folder, {**environment, **command.environment})


def record(folder: Path) -> Record | None:
    """The Record of a command that ran in `folder`, None if there is none. Raises RecordError."""
    store = Store(folder / "out")
    return read(store.latest()) if store.records() else None


def suite(workloads: Sequence[Workload], key: KernelKey | None = None, *, timed: bool = False) -> str:
    """The text of a suite of these workloads, for a key or for every key on the host."""
    text = 'title = "soak"\n'
    for each in workloads:
        axes = ", ".join(f"{name} = {size}" for name, size in each.axes.items())
        text += (
            f"[[workloads]]\nop = {json.dumps(each.op)}\nshapes = [{{ {axes} }}]\n"
            f"families = [{json.dumps(each.family)}]\nlayouts = [{json.dumps(each.layout)}]\n"
            f"devices = [{json.dumps(key.device if key else HOST)}]\nmeasure = {str(timed).lower()}\n"
        )
        if key is not None:
            text += f"formats = [{json.dumps(key.format)}]\ndtypes = [{json.dumps(key.dtype)}]\n"
    return text


class Ground:
    """The workloads, caches and libraries for all runs. Raises UsageError if no op has small workloads."""

    def __init__(self, installed: Installed, folder: Path, seed: int) -> None:
        self.installed = installed
        self.folder = folder
        self.cache = folder / "cache"
        self.cache.mkdir(mode=0o700)
        self.filled = folder / "filled"
        """What the commands in `cached` read. Other runs add to `cache`."""
        self.library: Path | None = None
        self.no_library = ""
        try:
            self.library = preload.library()
        except BadEnvironmentError as error:
            self.no_library = str(error)
        self._rng = random.Random(f"{seed}/ground")
        self.places = [(key, found) for key in self._keys() if (found := self._workloads(installed.ops[key.op], key))]
        if not self.places:
            raise UsageError("no op has a small workload on the CPU; next: install a provider of kernels")
        self.native = [
            (found, texts)
            for op in installed.ops
            if (texts := new.templates(installed, op).get("c"))
            for key, found in self.places
            if key.op == op
        ]
        self.cached: dict[str, Command] = {}
        """A command for each folder of caches that was filled: it reads this folder."""
        self.digest = ""
        """Of the build in the cache of the gate."""
        self.device: Device | None = None
        self.no_device = "no installed device can be simulated and lost"
        self.on_device: Command | None = None

    def _keys(self) -> Iterable[KernelKey]:
        for op in self.installed.ops:
            yield from keys(self.installed, op)

    def _workloads(self, op: Op, key: KernelKey) -> list[Workload]:
        """Small workloads of the smoke suite for the key, in all layouts and several families."""
        found: dict[str, Workload] = {}
        for item in self.installed.suite("smoke").selected:
            work = item.workload
            if work.op != op.name or work.drawn or not item.admits(key.format, key.dtype, key.device):
                continue
            sizes = [prod(work.axes.get(axis, 1) for axis in tensor.axes) for tensor in op.inputs]
            if max(sizes) > _LARGEST or not self._taken(key, work.axes):
                continue
            for family in (work.family, *op.input_families[:_FAMILIES]):
                for layout in LAYOUTS:
                    made = Workload(op=op.name, axes=work.axes, family=family, layout=layout)
                    found.setdefault(made.id, made)
        return list(found.values())

    def _taken(self, key: KernelKey, axes: Axes) -> bool:
        """Whether a kernel of the key takes these axes and can run here; on a device that a simulator may replace, only
        whether it takes them."""
        if key.device == HOST:
            return any(refusal is None for _, refusal in self.installed.registry.candidates(key, axes))
        of_key = [each for each in self.installed.registry.without_peers if each.key == key]
        return any(all(limit.refusal(axes) is None for limit in each.constraints) for each in of_key)

    def fill(self) -> None:
        """Run each command once without a fault, which fills the caches. Raises BadEnvironmentError if one fails."""
        if self.native:
            done = self._filled("native", self.check_native(random.Random(0)))
            # The source stays where it is: its path is part of what the cache is looked up by.
            source = str(self.folder / "fill-native" / NATIVE)
            arguments = tuple(source if each == NATIVE else each for each in done.arguments)
            self.cached["native"] = replace(done, arguments=arguments)
        key, workloads = self.places[0]
        plain = Command(
            (*TRITMARK, "run", "--suite", SUITE, "--device", HOST, "--out", "out", "--seed", "1", "--threads", "1"),
            {SUITE: suite(workloads[:1], key)},
        )
        folder = self.cache / "tuned"
        folder.mkdir(mode=0o700)
        (folder / tuned.path().name).write_text(tuned.text(()), encoding="utf-8")
        (folder / prefetched.path().name).write_text(prefetched.text(()), encoding="utf-8")
        self._filled("tuned", plain)
        self._fill_gate()
        for device in self.installed.registry.devices.values():
            if device.losing is not None and self.on_device is None:
                self._simulate(device)
        shutil.copytree(self.cache, self.filled)

    def _fill_gate(self) -> None:
        path = wheel(self.folder)
        # Beside builds, the folder has wrappers of compilers, which only a build of a revision reads.
        reads = f"**/{sha256(path.read_bytes()).hexdigest()}*/**/*"
        command = Command(("-c", _GATE, str(path)), {}, reads=reads)
        done = ended(command, self.folder, {CACHE: str(self.cache)})
        if not done.status:
            self.cached["gate"] = command
            self.digest = done.text.strip().splitlines()[-1]

    def _simulate(self, device: Device) -> None:
        assert device.losing is not None
        small = [
            (key, found)
            for op in self.installed.ops.values()
            for key in self.installed.keys(op.name)
            if key.device == device.type and (found := self._workloads(op, key))
        ]
        if not small:
            return
        # The first that any kernel takes: kernels for one layout leave the others out.
        key, workloads = min(small, key=lambda each: (len(each[1][0].axes), sum(each[1][0].axes.values())))
        workloads = [each for each in workloads if each.layout == LAYOUTS[0]]
        command = Command(
            (*TRITMARK, "run", "--suite", SUITE, "--device", device.type, "--out", "out", "--seed", "1"),
            {SUITE: suite(workloads[:2], key)},
            environment=device.losing(1 << 30),
        )
        before = {each.name for each in self.cache.iterdir()}
        try:
            done = self._filled("", command)
        except BadEnvironmentError as error:
            self.no_device = str(error)
            return
        self.device, self.on_device = device, done
        for each in self.cache.iterdir():
            if each.name not in before and any(each.iterdir()):
                self.cached[each.name] = done

    def _filled(self, name: str, command: Command) -> Command:
        folder = self.folder / f"fill-{name or 'device'}"
        folder.mkdir()
        command.write(folder)
        done = ended(command, folder, {CACHE: str(self.cache)})
        made = record(folder)
        if done.status or made is None:
            raise BadEnvironmentError(
                f"a run without a fault ended with exit status {done.status}:\n{done.shown}",
                next_step="run `tritmark doctor`",
            )
        planned = frozenset((each.kernel, each.workload.id) for each in made.runs)
        command = replace(command, planned=planned)
        if name:
            self.cached[name] = command
        return command

    def check_native(self, rng: random.Random, *, timed: bool = False) -> Command:
        """`tritmark check` of a template in C."""
        workloads, texts = rng.choice(self.native)
        chosen = rng.sample(workloads, 1 if timed else min(2, len(workloads)))
        files = {f"kernel{suffix}": text for suffix, text in texts.items()} | {SUITE: suite(chosen, timed=timed)}
        return Command(check(NATIVE, rng, "performance" if timed else "accuracy"), files)

    def copy_of_caches(self, to: Path) -> None:
        """A copy of the filled caches."""
        shutil.copytree(self.filled, to)


def check(file: str, rng: random.Random, dimension: str, *more: str) -> tuple[str, ...]:
    """The arguments of `tritmark check`, in one dimension."""
    seed = str(rng.randrange(1 << 31))
    options = ("--suite", SUITE, "--dimension", dimension, "--out", "out", "--seed", seed, "--threads", "1")
    return (*TRITMARK, "check", file, *options, *more)


def wheel(folder: Path) -> Path:
    """A wheel with a package of one module, for the cache of the gate."""
    path = folder / _WHEEL
    info = "tritmark_soak_package-1.dist-info"
    files = {
        "tritmark_soak_package/__init__.py": "ANSWER = 42\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tritmark_soak_package\nVersion: 1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tritmark\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as made:
        for name, text in (files | {f"{info}/RECORD": record}).items():
            made.writestr(name, text)
    return path
