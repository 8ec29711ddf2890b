"""Engines that are Python packages, each in a process of its own: their libraries clash, and they may crash.

The process is `serve.py`; a request and its answer are a line of JSON each.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

from tritmark.harness.engines.engine import DECODED, EngineError, Settings, Tokens, Trials, choices
from tritmark.harness.models import EngineReport

ADAPTERS = {
    "llama-cpp-python": ("tritmark.harness.engines.llama_cpp", (False, True)),
    "ik-llama-cpp-python": ("tritmark.harness.engines.ik_llama_cpp", (False, True)),
    "vllm": ("tritmark.harness.engines.vllm", (None,)),
}
"""The module that runs each package, and the settings of flash attention to try."""

_TELLING = re.compile(r"error|fail|assert|abort|invalid|unsupported|not supported|exception", re.IGNORECASE)
"""Words of lines that explain a failure."""
_LINES = 4


class ServedEngine:
    """A package of ADAPTERS with a model."""

    def __init__(self, name: str, model: str, *, threads: int | None, device: str) -> None:
        self.name = name
        self._model, self._device = model, device
        module, flash = ADAPTERS[name]
        self._module, self._trials = module, Trials(choices(threads, flash))
        self._process: subprocess.Popen[str] | None = None
        self._log: BinaryIO | None = None
        self._loaded: Settings | None = None
        self._room = 0
        self._version = ""
        self._missing: dict[str, None] = {}

    def side(self, work: str, tokens: Tokens) -> _Request:
        """See Engine."""
        need = len(tokens[0]) + DECODED
        if need > self._room:
            self._room = need
            self._stop()
        if work not in self._trials.chosen:
            self._trials.chosen[work] = self._fastest(work, tokens)
        chosen = self._trials.chosen[work]
        side = _Request(self, work, tokens, chosen)
        try:
            side.sample()  # the first one loads the model
        except EngineError as error:
            if len(tokens) > 1:
                self._missing[f"batches above 1: {error}"] = None
            raise
        return side

    def report(self) -> EngineReport:
        """See Engine."""
        return EngineReport(
            name=self.name,
            version=self._version,
            settings=self._trials.described(),
            missing=tuple(self._missing),
        )

    def close(self) -> None:
        """See Engine."""
        self._stop()

    def ask(self, work: str, tokens: Tokens, settings: Settings) -> float:
        """Nanoseconds of the work with these settings. Raises EngineError."""
        if settings != self._loaded:
            self._start(settings)
        return float(self._asked({"do": work, "tokens": [list(each) for each in tokens], "count": DECODED})["ns"])

    def _fastest(self, work: str, tokens: Tokens) -> Settings:
        times: dict[Settings, float] = {}
        messages = list(self._trials.failures.values())
        for each in self._trials.settings:
            if each in self._trials.failures:
                continue
            try:
                self.ask(work, tokens, each)
                times[each] = self.ask(work, tokens, each)
            except EngineError as error:
                messages.append(str(error))
                if len(tokens) == 1:
                    self._trials.failures[each] = str(error)
        if not times:
            raise EngineError(messages[0])
        return min(times, key=lambda each: times[each])

    def _start(self, settings: Settings) -> None:
        self._stop()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115, `_stop` closes it
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tritmark.harness.engines.serve", self._module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(settings.threads)},
        )
        answer = self._asked(
            {
                "do": "load",
                "model": self._model,
                "device": self._device,
                "threads": settings.threads,
                "flash": settings.flash,
                "room": self._room,
            }
        )
        self._version, self._loaded = str(answer["version"]), settings

    def _asked(self, request: dict[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            process.wait()
            why = f"its process ended with status {process.returncode} during {request['do']}{self._printed()}"
            self._stop()
            raise EngineError(why)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            why = f"{answer['error']}{self._printed()}"
            if request["do"] == "load":
                self._stop()
            raise EngineError(why)
        return answer

    def _printed(self) -> str:
        """The last lines that the engine printed."""
        if self._log is None:
            return ""
        place = self._log.fileno()
        read = os.pread(place, os.fstat(place).st_size, 0)  # the process shares the offset
        told = dict.fromkeys(
            line.strip() for line in read.decode("utf-8", "replace").splitlines() if line.strip(" .\t")
        )
        telling = [line for line in told if _TELLING.search(line)] or list(told)
        return f"; it printed: {' | '.join(telling[-_LINES:])}" if telling else ""

    def _stop(self) -> None:
        self._loaded = None
        process, self._process = self._process, None
        log, self._log = self._log, None
        if log is not None:
            log.close()
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@dataclass(frozen=True, slots=True)
class _Request:
    """A side whose samples are requests."""

    engine: ServedEngine
    work: str
    tokens: Tokens
    settings: Settings

    def sample(self) -> float:
        """Nanoseconds of the work."""
        return self.engine.ask(self.work, self.tokens, self.settings)
