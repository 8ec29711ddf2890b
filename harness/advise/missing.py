"""Evidence that rules need and a Record lacks, each with the next step. Otherwise a silent rule would look like "no
issue"."""

from __future__ import annotations

from collections import Counter

from tritmark.harness.advise.advise import forbidden, measured
from tritmark.harness.advise.evidence import Evidence, RunIndex
from tritmark.harness.advise.ladder import has, kernels
from tritmark.harness.disassembly.ncu import COMMAND
from tritmark.harness.record import HOST, Record, Run
from tritmark.harness.text.units import counted
from tritmark.harness.text.visible import quoted


def unadvised(record: Record) -> tuple[str, ...]:
    """The missing evidence, one sentence each."""
    runs = measured(record)
    if not runs:
        again = "`tritmark check FILE`" if record.environment.command[1:2] == ("check",) else "`tritmark run`"
        return (f"no Run was timed, so no rule applies; measure with {again}, and all dimensions",)
    devices = [run for run in runs if run.device != HOST]
    hosts = [run for run in runs if run.device == HOST]
    threaded = [run for run in hosts if run.threads > 1]
    return (
        *_forbidden(record, runs),
        *_counted(
            [run for run in runs if run.code is None],
            "no compiled code was read, so rules on code do not apply; `pip install nvidia-cuda-nvdisasm`, install "
            "binutils and llvm, and measure again",
        ),
        *(
            f"compiled code: {note}"
            for note in dict.fromkeys(note for run in runs if run.code is not None for note in run.code.notes)
        ),
        *_counted(
            [
                run
                for run in devices
                if run.code is None or not any(function.counters for function in run.code.functions)
            ],
            "no counters of Nsight Compute are available; put a workload, without `measure`, into ONE.toml, run "
            f"`{COMMAND}` if the driver permits it, then `tritmark advise --ncu FILE.csv`",
        ),
        *_counted(
            devices if not record.accesses else [],
            "no access patterns were traced, so the rule uncoalesced does not apply; measure again, without "
            "--in-process",
        ),
        *(f"access patterns: {note}" for note in dict.fromkeys(each.note for each in record.accesses if each.note)),
        *_counted(
            devices if all(run.plain is None for run in devices) else [],
            "individual launches were not compared with a graph; measure again, on a device with a clock for both",
        ),
        *_counted(
            [run for run in devices if run.upload is None or run.download is None],
            "copies to the device and back were not timed; measure again",
        ),
        *_counted(
            [run for run in threaded if not run.scaling], "the speed-up over one thread was not measured; measure again"
        ),
        *_counted(
            [run for run in hosts if run.memory.page_faults is None],
            "page faults were not counted; measure again, the dimension memory included",
        ),
        *_lesser(record, hosts),
    )


def _counted(runs: list[Run], what: str) -> tuple[str, ...]:
    return (f"{counted(len(runs), 'Run')}: {what}",) if runs else ()


def _forbidden(record: Record, runs: tuple[Run, ...]) -> tuple[str, ...]:
    """Runs for which a guard forbids all proposals, by guard."""
    found = [guard for run in runs if (guard := forbidden(Evidence(record, run))) is not None]
    first = {rule.name: why for rule, why in reversed(found)}
    counts = Counter(rule.name for rule, _ in found)
    return tuple(
        f"{counted(count, 'Run')}: rule {name} forbids all proposals, for example: {first[name]}"
        for name, count in counts.items()
    )


def _lesser(record: Record, runs: list[Run]) -> tuple[str, ...]:
    """Runs with a lower instruction set than the best one of processor and kernels, without a Run of a better one."""
    around, alone = RunIndex(record), dict[str, list[Run]]()
    for run in runs:
        here = [name for name in kernels(run) if has(record.machine.features, name)]
        if run.variant in here[:-1] and not any(
            each.variant in here[here.index(run.variant) + 1 :] for each in around.siblings(run)
        ):
            alone.setdefault(here[-1], []).append(run)
    return tuple(
        reported
        for best, found in alone.items()
        for reported in _counted(found, _brings(best, sorted({run.op for run in found})))
    )


def _brings(best: str, ops: list[str]) -> str:
    step = " or ".join(f"`tritmark run --op {quoted(op)} --variant {best}`" for op in ops[:3])
    return f"the processor has {best}, which was not measured; {step} measures it"
