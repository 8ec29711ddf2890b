"""The result as JUnit XML for CI servers such as Jenkins: a test case for each benchmark."""

from __future__ import annotations

from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from tritmark.harness.gate.result import Benchmark, GateResult, Outcome
from tritmark.harness.gate.wording import change, name, percent, place
from tritmark.harness.text.visible import visible

_FAILURES = frozenset({Outcome.SLOWER, Outcome.DIFFERS})
_SKIPPED = frozenset({Outcome.AMBIGUOUS, Outcome.NOT_RUN, Outcome.ADDED, Outcome.REMOVED})


def junit(result: GateResult) -> str:
    """JUnit XML of the result.

    SLOWER and DIFFERS are failures, and ERROR is an error. AMBIGUOUS and benchmarks that were not compared are skipped,
    with the reason. Non-printing characters are written as escapes, such as \\x1b; XML forbids some of them.
    """
    root = ET.Element("testsuites")
    suite = ET.SubElement(
        root,
        "testsuite",
        name="tritmark gate",
        tests=str(len(result.benchmarks)),
        failures=str(sum(each.outcome in _FAILURES for each in result.benchmarks)),
        errors=str(result.count(Outcome.ERROR)),
        skipped=str(sum(each.outcome in _SKIPPED for each in result.benchmarks)),
        time=f"{result.seconds:.3f}",
        timestamp=_timestamp(result.created),
    )
    properties = ET.SubElement(suite, "properties")
    for side, build in (("base", result.base), ("head", result.head)):
        ET.SubElement(properties, "property", name=side, value=name(build.commit or build.given))
    for note in result.notes:
        ET.SubElement(properties, "property", name="note", value=name(note))
    for each in result.benchmarks:
        _case(suite, each)
    ET.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(suite: ET.Element, each: Benchmark) -> None:
    group = ".".join(name(part).replace(".", "_") for part in (each.device, each.op, each.format, each.dtype))
    case = ET.SubElement(suite, "testcase", classname=group, name=name(each.id), time=f"{each.seconds:.3f}")
    reason = visible(each.reason)
    if each.outcome in _SKIPPED:
        ET.SubElement(case, "skipped", message=f"{each.outcome.value}: {reason}")
    elif each.outcome in _FAILURES or each.outcome is Outcome.ERROR:
        kind = "failure" if each.outcome in _FAILURES else "error"
        ET.SubElement(case, kind, type=each.outcome.value, message=reason).text = _details(each)
    elif each.ratio is not None:
        ET.SubElement(case, "system-out").text = _details(each)


def _details(each: Benchmark) -> str:
    lines = [place(each), f"change {change(each.ratio)}, smallest detectable slow-down {percent(each.smallest)}"]
    if each.first is not None:
        lines.append(
            visible(f"{each.first.output}{list(each.first.index)}: BASE {each.first.expected}, HEAD {each.first.found}")
        )
    return "\n".join(lines)


def _timestamp(created: str) -> str:
    """UTC without an offset, as the schema requires."""
    return datetime.fromisoformat(created).astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds")
