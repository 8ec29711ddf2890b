"""The tools of the server. Each runs a command of tritmark in a process of its own, so that nothing that the command
prints reaches the protocol. Kernels of the agent are judged in a sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import tritmark
from tritmark.harness.caches import CACHE, cache_folder
from tritmark.harness.check import CheckVerdict
from tritmark.harness.errors import UsageError
from tritmark.harness.sandbox import sandboxed

_JUDGED = frozenset({0, 1})
"""Exit statuses of a command that did what it was asked to: nothing failed, or something did."""
_MOST_TEXT = 20_000
"""Characters of a command's output in an answer."""


class AgentTools:
    """The tools, with Records under one folder. Only one that measures runs at a time."""

    def __init__(self, out: Path, limit_s: float) -> None:
        self._out, self._limit_s = out.resolve(), limit_s
        self._measuring: AbstractAsyncContextManager[Any] | None = None

    async def check(
        self,
        file: str,
        op: str = "*",
        dimensions: Sequence[Literal["accuracy", "performance", "memory", "cross"]] = (),
        suite: str = "quick",
        threads: int | None = None,
        seed: int | None = None,
        inputs: str = "",
    ) -> dict[str, Any]:
        """Judge a kernel beside the best built-in one: a .c, .cpp, .cu or .so with its .toml, or a .py. Returns the
        verdict: code, guard, first difference, smallest failing input, score, percent of the ceiling, and what to try
        next. Begin with dimensions=["accuracy"], which takes seconds. `inputs`: only the .npz of an earlier verdict.
        """
        kernel = Path(file).resolve()
        given = [kernel]
        if suite.endswith(".toml"):
            given.append(Path(suite).resolve())
            suite = str(given[-1])
        words = [str(kernel), "--json=verdict", "--out", str(self._out), "--op", op, "--suite", suite]
        words += [word for each in dimensions for word in ("--dimension", each)]
        words += ["--threads", str(threads)] if threads is not None else []
        words += ["--seed", str(seed)] if seed is not None else []
        if inputs:
            given.append(Path(inputs).resolve())
            words += ["--inputs", str(given[-1])]
        caches = cache_folder("sandbox")
        for folder in (self._out, caches):
            folder.mkdir(parents=True, exist_ok=True)
        # A cache of its own: in a shared one, a kernel could replace what later commands load.
        with TemporaryDirectory(dir=caches, ignore_cleanup_errors=True) as cache:
            run = partial(
                sandboxed,
                _command("check", *words),
                writable=[self._out, Path(cache)],
                readable=[*(each.parent for each in given), *_installation()],
                environment={CACHE: cache},
                timeout_s=self._limit_s,
            )
            async with self._alone():
                done, missing = await _in_thread(run, self._limit_s)
        if done.returncode not in _JUDGED:
            raise UsageError(_cut(done.stderr.strip() or f"tritmark check ended with status {done.returncode}"))
        verdict = CheckVerdict.model_validate_json(done.stdout)
        return verdict.model_copy(update={"not_available": missing}).model_dump(mode="json")

    async def run(self, suite: str = "smoke", op: str = "*", variant: str = "*") -> str:
        """Validate and measure the built-in kernels on this machine; writes a Record. `smoke` takes seconds, `quick`
        minutes."""
        async with self._alone():
            return await self._told("run", "--suite", suite, "--op", op, "--variant", variant, "--out", str(self._out))

    async def advise(self, record: str = "") -> dict[str, Any]:
        """Proposals for the kernels of a Record, by default the newest: rule, evidence, edit and predicted gain."""
        found: dict[str, Any] = json.loads(
            await self._told("advise", *([record] if record else []), "--json", "--out", str(self._out), whole=True)
        )
        return found

    async def explain(self, rule: str) -> str:
        """Explain a rule of advice: its inputs, its formula, and the source of its thresholds."""
        return await self._told("advise", "--explain", rule, "--out", str(self._out))

    async def list(self, what: Literal["ops", "variants", "formats", "workloads"], op: str = "*") -> str:
        """List the ops, variants, formats or workloads that are installed, and what this machine can run. `op`: only
        ops that match the pattern, not for formats."""
        return await self._told("list", what, "--op", op)

    async def new(self, op: str, kind: Literal["c", "cu", "py"] = "c", format: str = "", folder: str = ".") -> str:
        """Write a simple, correct kernel to start from, with its manifest (C and CUDA), to a folder. Returns the paths
        and the sources. `format`: of the weights, for ops that take several. C is compiled with -O3 -march=native.
        """
        out = Path(folder).resolve()
        words = ["--format", format] if format else []
        told = await self._told("new", op, "--kind", kind, *words, "--out", str(out))
        made = [Path(line) for line in told.splitlines() if Path(line).parent == out]
        return "\n".join(f"{path}:\n{path.read_text(encoding='utf-8')}" for path in made)

    async def read_report(self, record: str = "") -> str:
        """The report of a Record as Markdown, by default of the newest."""
        return await self._told("report", *([record] if record else []), "--format", "md", "--out", str(self._out))

    async def _told(self, *words: str, whole: bool = False) -> str:
        run = partial(
            subprocess.run,
            _command(*words),
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=self._limit_s,
            check=False,
            env={**os.environ, "NO_COLOR": "1"},
        )
        done = await _in_thread(run, self._limit_s)
        if done.returncode not in _JUDGED:
            raise UsageError(_cut(done.stderr.strip() or f"tritmark {words[0]} ended with status {done.returncode}"))
        if whole:
            return str(done.stdout)
        return _cut("\n".join(line.rstrip() for line in done.stdout.splitlines()))

    def _alone(self) -> AbstractAsyncContextManager[Any]:
        if self._measuring is None:
            self._measuring = asyncio.Lock()
        return self._measuring


async def _in_thread(run: Any, limit_s: float) -> Any:
    try:
        return await asyncio.to_thread(run)
    except subprocess.TimeoutExpired:
        raise UsageError(f"it took longer than {limit_s:g} s; next: fewer dimensions, or a smaller suite") from None


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "tritmark", *words]


def _installation() -> list[Path]:
    """The folders that Python and tritmark are read from."""
    own = [Path(each).resolve() for each in (*tritmark.__path__, *tritmark.harness.__path__)]
    return [*map(Path, (*filter(None, sys.path), sys.prefix, sys.base_prefix)), *own, *(each.parent for each in own)]


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}\n(cut; {len(text):,} characters)"


def describe(tools: AgentTools) -> Mapping[str, Any]:
    """The tools by name, in the order of the list."""
    named = (tools.new, tools.check, tools.run, tools.advise, tools.explain, tools.list, tools.read_report)
    return {each.__name__: each for each in named}
