"""llama-bench of bitnet.cpp, ik_llama.cpp and llama.cpp: each sample is a run of the program.

A run prints JSON (`-o json`), a list of tests with `n_prompt`, `n_gen`, `samples_ns`, `n_threads` and `build_commit`.
Flags differ between the projects, so those that are used beyond the oldest are looked up in its --help.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritmark.harness.engines.engine import DECODE, DECODED, PROMPT, EngineError, Settings, Tokens, Trials, choices
from tritmark.harness.models import EngineReport

_LIMIT_S = 1800
_DEPTH, _FLASH, _LAYERS = "-d", "-fa", "-ngl"


class LlamaBench:
    """llama-bench at `path` with a GGUF file."""

    def __init__(self, path: str, file: str, *, threads: int | None, device: str) -> None:
        self.name = f"llama-bench={path}"
        self._path, self._file, self._device = str(Path(path).expanduser()), file, device
        self._flags: frozenset[str] = frozenset()
        self._threads, self._version = threads, ""
        self._missing: dict[str, None] = {}
        self._trials: Trials | None = None

    def side(self, work: str, tokens: Tokens) -> _Run:
        """See Engine. It draws prompts of the same length itself."""
        if len(tokens) > 1:
            why = "batches above 1: llama-bench times one sequence"
            self._missing[why] = None
            raise EngineError(why)
        if self._trials is None:
            self._flags = self._known()
            flash = (False, True) if _FLASH in self._flags else (None,)
            self._trials = Trials(choices(self._threads, flash))
        if work == DECODE and _DEPTH not in self._flags:
            self._missing["decoding behind a prompt: this build has no -d, so its decoding begins at token 0"] = None
        length = len(tokens[0])
        if work not in self._trials.chosen:
            self._trials.chosen[work] = self._fastest(work, length)
        return _Run(self, work, length, self._trials.chosen[work])

    def report(self) -> EngineReport:
        """See Engine."""
        settings = "" if self._trials is None else self._trials.described()
        return EngineReport(name=self.name, version=self._version, settings=settings, missing=tuple(self._missing))

    def close(self) -> None:
        """Each run ended its own process."""

    def _known(self) -> frozenset[str]:
        """The flags in its --help."""
        text = self._ran(["--help"], needed=False)
        return frozenset(re.findall(r"(?<![\w-])(-[a-z]+)(?=,)", text))

    def _fastest(self, work: str, length: int) -> Settings:
        assert self._trials is not None
        times: dict[Settings, float] = {}
        for each in self._trials.settings:
            try:
                times[each] = self.run(work, length, each)
            except EngineError as error:
                self._trials.failures[each] = str(error)
        if not times:
            raise EngineError(next(iter(self._trials.failures.values())))
        return min(times, key=lambda each: times[each])

    def run(self, work: str, length: int, settings: Settings) -> float:
        """Nanoseconds of one test. Raises EngineError."""
        prompt, decoded = (length, 0) if work == PROMPT else (0, DECODED)
        command = ["-m", self._file, "-p", str(prompt), "-n", str(decoded), "-r", "1", "-o", "json"]
        command += ["-t", str(settings.threads)]
        if settings.flash is not None:
            command += [_FLASH, str(int(settings.flash))]
        if work == DECODE and _DEPTH in self._flags:
            command += [_DEPTH, str(length)]
        if self._device == "cpu" and _LAYERS in self._flags:
            command += [_LAYERS, "0"]
        for test in self._tests(self._ran(command)):
            if (test.get("n_prompt"), test.get("n_gen")) == (prompt, decoded):
                self._version = " ".join(str(test[key]) for key in ("build_commit", "build_number") if key in test)
                samples = test.get("samples_ns") or [test.get("avg_ns")]
                if isinstance(samples[0], int | float) and samples[0] > 0:
                    return float(samples[0])
        raise EngineError(f"{self._path}: no test with {prompt} tokens of prompt and {decoded} generated ones")

    def _tests(self, text: str) -> list[dict[str, Any]]:
        try:
            found = json.loads(text[max(0, text.find("[")) :])
        except ValueError as error:
            raise EngineError(f"{self._path}: its output is no JSON: {text.strip()[-200:]!r}") from error
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    def _ran(self, arguments: list[str], *, needed: bool = True) -> str:
        try:
            done = subprocess.run(
                [self._path, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineError(f"{self._path}: {error}") from error
        if needed and done.returncode:
            lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
            raise EngineError(f"status {done.returncode}: {' | '.join(lines[-3:]) or 'it printed nothing'}")
        return done.stdout if needed else done.stdout + done.stderr


@dataclass(frozen=True, slots=True)
class _Run:
    """A side whose samples are runs."""

    bench: LlamaBench
    work: str
    length: int
    settings: Settings

    def sample(self) -> float:
        """Nanoseconds of the work."""
        return self.bench.run(self.work, self.length, self.settings)
