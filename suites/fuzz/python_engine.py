"""Runs one Python target for a number of seconds, in its own process: `python python_engine.py TARGET SECONDS CORPUS
CRASHES`.

Guided by coverage if atheris is installed, else hypothesis mutates the seeds. Memory is limited: an input that takes
more than MEMORY beyond the process's memory at the start gets a MemoryError, which no target expects. The last line of
the output is a JSON object.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import Any

MEMORY = 1 << 30
"""bytes"""
SLOWEST = 20
"""Seconds that one input may take."""
_EXAMPLES = 200


def main(name: str, seconds: float, folder: Path, crashes: Path) -> None:
    guided = importlib.util.find_spec("atheris") is not None
    if guided:
        import atheris

        with atheris.instrument_imports(include=["tritmark", "tomllib"]):
            import targets

            (target,) = targets.targets(name)
            checked = _Counted(target.check, crashes)
            # Import the late modules in this block too, so that they are instrumented.
            for seed in target.seeds():
                checked(seed)
    else:
        import targets

        (target,) = targets.targets(name)
        checked = _Counted(target.check, crashes)
    _limit()
    if guided:
        for seed in target.seeds():
            (folder / sha256(seed).hexdigest()[:32]).write_bytes(seed)
        options = [
            f"-max_total_time={seconds:.0f}",
            f"-timeout={SLOWEST}",
            "-rss_limit_mb=4096",
            "-print_final_stats=1",
            "-verbosity=1",
        ]
        options += [
            "-max_len=65536" if name.startswith("weights") else "-max_len=20000",
            f"-artifact_prefix={crashes}/",
        ]
        atheris.Setup([sys.argv[0], *options, str(folder)], checked)
        atheris.Fuzz()  # ends the process
    else:
        _with_hypothesis(target.seeds(), checked, seconds)


class _Counted:
    """The target with a counter; inputs that raise are stored."""

    def __init__(self, check: Callable[[bytes], object], crashes: Path) -> None:
        self._check = check
        self._crashes = crashes
        self.executions = 0

    def __call__(self, data: bytes) -> None:
        self.executions += 1
        try:
            self._check(data)
        except BaseException:
            path = self._crashes / f"crash-{sha256(data).hexdigest()[:16]}"
            path.write_bytes(data)
            path.with_suffix(".txt").write_text(traceback.format_exc(), encoding="utf-8", errors="backslashreplace")
            raise


def _limit() -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, hard))


def _with_hypothesis(seeds: list[bytes], checked: _Counted, seconds: float) -> None:
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from mutants import mutants

    end = time.monotonic() + seconds

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"one input took more than {SLOWEST} s")

    signal.signal(signal.SIGALRM, ring)
    begun = time.time_ns()
    rounds = 0
    while time.monotonic() < end:

        @seed(begun + rounds)
        @settings(
            max_examples=_EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        @given(data=mutants(seeds))
        def one(data: bytes) -> None:
            if time.monotonic() < end:
                signal.alarm(SLOWEST)
                try:
                    checked(data)
                finally:
                    signal.alarm(0)

        rounds += 1
        try:
            one()
        except BaseException:
            traceback.print_exc()
            _told(checked, 1)
            sys.exit(1)
    _told(checked, 0)


def _told(checked: _Counted, crashes: int) -> None:
    found: dict[str, Any] = {"engine": "hypothesis", "executions": checked.executions, "crashes": crashes}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
