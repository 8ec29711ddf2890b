"""Command lines that repeat a Record or a part of it, safe to paste into a shell."""

from __future__ import annotations

from glob import escape

from tritmark.harness.machine.cpu import BINDING
from tritmark.harness.record import Record, Run
from tritmark.harness.text.visible import quoted


def whole(record: Record) -> str:
    """The invocation with the seed of the Record, so that it repeats the same data."""
    words = record.environment.command
    reported = any(word == "--seed" or word.startswith("--seed=") for word in words)
    seeded = words[1:2] in {("run",), ("check",), ("sweep",)} and not reported
    return _line(record, *words, *(("--seed", str(record.environment.seed)) if seeded else ()))


def of_run(record: Record, run: Run) -> str:
    """The Runs of this Run's kernel with the same thread count, suite and seed; of `tritmark check` and `sweep` the
    invocation."""
    seeded = ("--threads", str(run.threads), "--seed", str(record.environment.seed))
    if record.environment.command[1:2] in {("check",), ("sweep",)}:  # their workloads are those of no suite file
        return _line(record, *_without(record.environment.command, "--threads", "--seed"), *seeded)
    words = ["tritmark", "run"]
    if record.suite:
        words += ["--suite", record.suite]
    words += ["--op", escape(run.op), "--variant", escape(run.kernel)]
    return _line(record, *words, *seeded)


def of_layers(record: Record) -> str:
    """Only the layers of the weights."""
    return _line(record, "tritmark", "run", "--weights", record.weights_path, "--seed", str(record.environment.seed))


def of_machine(record: Record) -> str:
    """The machine's facts and ceilings."""
    return _line(record, "tritmark", "machine")


def of_failure(record: Record) -> str:
    """The first failed kernel on the same data; the whole invocation for a user's kernel or a layer."""
    failed = next((run for run in record.runs if not run.passed and not run.peer), None)
    if failed is None or record.environment.command[1:2] != ("run",):
        return whole(record)
    return of_run(record, failed)


def of_advice(record: Record) -> str:
    """Proposals for the Record."""
    return " ".join(map(quoted, ("tritmark", "advise", *_out(record.environment.command), record.id)))


def of_report(record: Record) -> str:
    """The report of the Record."""
    return " ".join(map(quoted, ("tritmark", "report", *_out(record.environment.command), record.id)))


def of_verify(record: Record) -> str:
    """Whether the Record can be believed."""
    simulated = any(lane.simulated for lane in record.lanes)
    words = (
        "tritmark",
        "verify",
        *_out(record.environment.command),
        *(["--allow-simulated"] if simulated else []),
        record.id,
    )
    return " ".join(map(quoted, words))


def _without(words: tuple[str, ...], *options: str) -> list[str]:
    """The words without these options and their values."""
    kept: list[str] = []
    value = False
    for word in words:
        if not value and word not in options and not word.startswith(tuple(f"{option}=" for option in options)):
            kept.append(word)
        value = not value and word in options
    return kept


def _out(given: tuple[str, ...]) -> tuple[str, ...]:
    """The option for the folder of Records; `tritmark sweep` calls it --results, as --out is its picture."""
    name = "--results" if given[1:2] == ("sweep",) else "--out"
    for index, word in enumerate(given):
        if word == name:
            return ("--out", *given[index + 1 : index + 2])
        if word.startswith(f"{name}="):
            return (f"--out={word.partition('=')[2]}",)
    return ()


def _line(record: Record, *words: str) -> str:
    # Environment variables change what runs, such as a forced instruction set. The command line sets BINDING itself.
    variables = [
        f"{name}={value}" for name, value in sorted(record.environment.variables.items()) if (name, value) != BINDING
    ]
    return " ".join(map(quoted, (*(["env", *variables] if variables else []), *words)))
