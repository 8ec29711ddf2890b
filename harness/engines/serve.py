"""The process of an engine: `python -m tritmark.harness.engines.serve MODULE`.

MODULE has `load(model, device, threads, flash, room)`, whose result has `version`, `prompt(tokens)` and
`decode(tokens, count)`, both in nanoseconds. Answers go to standard output as it was at the start, and all that
engines print to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any


def main(module: str) -> None:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        kind = request.pop("do")
        try:
            if kind == "load":
                engine = import_module(module).load(**request)
                answer: dict[str, Any] = {"version": engine.version}
            elif kind == "prompt":
                answer = {"ns": engine.prompt(request["tokens"])}
            else:
                answer = {"ns": engine.decode(request["tokens"], request["count"])}
        except Exception as error:  # whatever a third-party engine raises is its answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
