"""A whole made-up model through `tritmark convert`, `compare` and `run --weights`, with times and peaks of memory.

    python suites/large/large_weights.py FOLDER [--model small] [--kills 50] [--run]

By default bitnet-b1.58-2B-4T: all 210 linear layers of the published shapes, as GGUF I2_S and as packed safetensors,
written by the formats' own libraries (2 GB of disk). Both are compared, converted into each other, compared again, and
converted once more while the process is killed at random moments. With --run both are judged. Judging may take memory
for two of the largest matrices in float32 more than the suite smoke, in the process and in all processes together, and
ten minutes. Exits with status 1 if a check fails.

The peak of a process is its VmHWM; the peak of all processes is the largest observed sum of their proportional set
sizes.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from hashlib import file_digest
from importlib import import_module
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "unit" / "helpers"))
models = import_module("made_up_models")
MODELS = {"small": models.SMALL, "2B": models.TWO_B}
TRITMARK = (sys.executable, "-m", "tritmark.harness")
_GLANCE_S = 0.02
_SECONDS = 600


class Measured:
    """A finished command: its time, and the peak memory of its process and of its process tree."""

    def __init__(self, *arguments: object) -> None:
        began = time.monotonic()
        self.peak = self.tree = 0
        with subprocess.Popen([*TRITMARK, *map(str, arguments)], stdout=subprocess.PIPE, text=True) as process:
            watch = threading.Thread(target=self._watch, args=(process,))
            watch.start()
            assert process.stdout is not None
            self.told = process.stdout.read()
            self.status = process.wait()
            watch.join()
        self.seconds = time.monotonic() - began

    def _watch(self, process: subprocess.Popen[str]) -> None:
        while process.poll() is None:
            self.peak = max(self.peak, _kib(process.pid, "status", "VmHWM:") * 1024)
            self.tree = max(self.tree, sum(_kib(pid, "smaps_rollup", "Pss:") for pid in _tree(process.pid)) * 1024)
            time.sleep(_GLANCE_S)

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s, peak {self.peak / 1e6:.0f} MB, with other processes {self.tree / 1e6:.0f} MB"


def _kib(pid: int, file: str, field: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(field)), 0)


def _tree(pid: int) -> set[int]:
    found = {pid}
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = path.read_text().split()
        except OSError:
            continue
        found |= {each for child in children for each in _tree(int(child))}
    return found


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def killed(source: Path, out: Path, format: str, times: int, rng: random.Random) -> list[str]:
    """Convert `source` several times over an existing file `out`, and kill each conversion. Returns the faults."""
    new = digest(out)
    old = out.with_name(f"old{out.suffix}")
    old.write_bytes(b"what was there before")
    arguments = [*TRITMARK, "convert", str(source), str(out), "--format", format]
    began = time.monotonic()
    subprocess.run(arguments, check=True, capture_output=True)
    whole = time.monotonic() - began
    wrong = [] if digest(out) == new else ["a second conversion gives other bytes"]
    before, after, written = digest(old), 0, 0
    for _ in range(times):
        out.write_bytes(old.read_bytes())
        moment = rng.uniform(0, 1.05 * whole)
        with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(moment)
            process.kill()
        found = digest(out)
        after += found == new
        written += bool(list(out.parent.glob(f".{out.stem}.*.tmp{out.suffix}")))
        if found not in {before, new}:
            wrong.append(f"killed after {moment:.2f} s: the file is neither the old nor the new one")
    print(f"killed {times} times in {whole:.1f} s: {written} left a temporary file, {after} were done", flush=True)
    subprocess.run(arguments, check=True, capture_output=True)
    left = list(out.parent.glob(".*.tmp.*"))
    return wrong + ([f"left over: {left}"] if left else []) + ([] if digest(out) == new else ["the last one differs"])


def main(arguments: list[str] | None = None) -> int:
    """0 if all checks pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", choices=MODELS, default="2B")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--run", action="store_true")
    asked = parser.parse_args(arguments)
    model, folder = MODELS[asked.model], asked.folder
    folder.mkdir(parents=True, exist_ok=True)
    wrong: list[str] = []

    def expect(what: str, found: Measured, right: Callable[[Measured], bool]) -> None:
        print(f"{what}: {found}: {found.told.strip().splitlines()[-1:]}", flush=True)
        if found.status or not right(found):
            wrong.append(f"{what}: status {found.status}: {found.told}")

    gguf, packed = folder / "model.gguf", folder / "model.safetensors"
    models.write_gguf(gguf, model)
    models.write_safetensors(packed, model)
    there, back = folder / "there.safetensors", folder / "back.gguf"
    matrices = len(list(model.matrices()))

    def same(found: Measured) -> bool:
        return found.told.startswith(f"The same model: {matrices} ternary matrices")

    expect("compare", Measured("compare", gguf, packed), same)
    for source, out, format in ((gguf, there, "hf_pack"), (there, back, "i2_s_x86")):
        expect(f"convert to {format}", Measured("convert", source, out, "--format", format), lambda found: True)
        expect(f"compare with {source.name}", Measured("compare", source, out), same)
        expect("compare with the other kind", Measured("compare", packed if out == back else gguf, out), same)
        wrong += killed(source, out, format, asked.kills // 2, random.Random(asked.seed))
    if asked.run:
        floor = Measured("run", "--suite", "smoke", "--out", folder / "results")
        expect("run --suite smoke", floor, lambda found: True)
        two = 2 * 4 * max(rows * columns for _, (rows, columns) in model.matrices())
        for path in (gguf, packed):
            done = Measured("run", "--weights", path, "--device", "cpu", "--out", folder / "results")
            print(done.told, flush=True)
            what = f"run --weights {path.name}"
            expect(what, done, lambda found: f"{matrices} of {matrices} layers" in found.told)
            for kind, most, taken in (("peak", floor.peak, done.peak), ("of all processes", floor.tree, done.tree)):
                if taken > most + two and asked.model != "small":  # negligible beside the outputs of 512 tokens
                    wrong.append(f"{what}: {kind} {taken} bytes, legal: {most} as for smoke, and {two} for two tensors")
            if done.seconds > _SECONDS:
                wrong.append(f"{what}: {done.seconds:.0f} s, legal: {_SECONDS}")
    print("\n".join(wrong) or "all checks pass")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
