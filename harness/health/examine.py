"""One probe: all checks, compared with the last probe, and the line that it adds to the history."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from tritmark.harness.doctor import gpu as doctor_gpu
from tritmark.harness.health import gpu, host, pool, xid
from tritmark.harness.health.finding import MACHINE, HealthFinding, Severity, by_unit, overall
from tritmark.harness.health.history import AT_S, LOG_US, HealthHistory, PastFinding, PastProbe, boot_id, check, since
from tritmark.harness.machine import cpu_sensors, nvml_state
from tritmark.harness.machine import gpu as machine_gpu
from tritmark.harness.machine.nvml_state import GpuState
from tritmark.harness.numbered import numbered
from tritmark.harness.record import HOST
from tritmark.harness.spec import Device
from tritmark.harness.text.visible import visible


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The result of a probe."""

    at: str
    """UTC, ISO 8601."""
    overall: Severity
    units: dict[str, Severity]
    """The machine, and each GPU."""
    findings: tuple[HealthFinding, ...]
    last: str
    """When the last probe was; "" if this is the first."""
    notes: tuple[str, ...] = ()
    """What could not be read or kept."""
    unread: tuple[str, ...] = ()
    """Checks that this session may not make, see history.check. They do not count in `overall`."""


def examined(
    devices: Sequence[Device], out: Path, *, passive: bool = False, history: HealthHistory | None = None
) -> HealthReport:
    """PastProbe the host, if it is among the devices, and each other device. Takes 2 to 5 seconds, or less than one if
    `passive`: then nothing runs on any device and noise is not measured. Never raises for what is not in order."""
    history = history or HealthHistory()
    begun, boot = datetime.now(UTC), boot_id()
    at, now = f"{begun:%Y-%m-%dT%H:%M:%SZ}", int(begun.timestamp())
    past, notes = _past(history)
    last = past[-1] if past else None
    others = [device for device in devices if device.type != HOST]
    here = next((device for device in devices if device.type == HOST), None)
    findings: list[HealthFinding] = []
    states: list[GpuState] = []
    listed: list[GpuState] = []
    errors: list[xid.Xid] = []
    unread: tuple[str, ...] = ()
    if here is not None:
        findings.append(host.disk(out))
        findings.append(host.throttling(last.cpu_throttled_ns if last is not None and last.boot == boot else None))
        if not passive:
            findings += host.quiet(here)
    if others:
        units: dict[str, Device] = {}
        listed, absent = _listed()
        states = _chosen(others, listed)
        findings += absent
        findings += [each for state in states for each in gpu.checks(state, _counters(last, state), now)]
        for device in others:
            unit = _unit(device, states)
            why = device.missing()
            if why is None and device.memory is not None and not passive:
                units[unit] = device
            elif why is not None and states:
                findings.append(_unusable(unit, why))
        with xid.XidEvents() as events:
            findings += pool.checks(units)
        errors, unreadable = _logged()
        known = last.log_us if last is not None and last.boot == boot else -1
        seen_us = {state.uuid: _seen(last, state, boot) for state in states}
        xids = list(_xids(states, errors, events.seen, seen_us, unreadable))
        findings += xids
        unread = tuple(map(check, xids)) if unreadable is not None else ()
        findings += _unlisted(listed, errors, known)
        if states:
            notes += [f"XID events: {events.note}"] if events.note else []
            findings += _gone(listed, last, boot)
    findings = [
        each if each.severity in {Severity.OK, Severity.ABSENT} else replace(each, since=since(each, past))
        for each in findings
    ]
    worst = overall(findings)
    kept = history.add(
        PastProbe(
            at=at,
            host=platform.node(),
            boot=boot,
            overall=worst,
            # A check of which this session read only a part does not show when a fault ended.
            checked=tuple(name for name in map(check, findings) if name not in unread),
            unread=unread,
            findings=tuple(
                PastFinding(unit=each.unit, name=each.name, severity=each.severity, found=visible(each.found))
                for each in findings
                if each.severity not in {Severity.OK, Severity.ABSENT}
            ),
            gpus=_remembered(last, listed, states, errors, boot, now),
            # A probe that does not check the CPU leaves it to the next one that does.
            cpu_throttled_ns=cpu_sensors.throttled_ns()
            if here is not None
            else last.cpu_throttled_ns
            if last is not None and last.boot == boot
            else {},
            log_us=max(
                (each.at_us for each in errors if each.at_us is not None),
                default=last.log_us if last is not None and last.boot == boot else -1,
            ),
        )
    )
    if kept:
        notes.append(f"this probe is not in the history: {kept}; next: set TRITMARK_STATE to a writable folder")
    return HealthReport(
        at, worst, by_unit(findings), tuple(findings), last.at if last is not None else "", tuple(notes), unread
    )


def _past(history: HealthHistory) -> tuple[list[PastProbe], list[str]]:
    """The probes of the history, and notes about what of it cannot be read."""
    try:
        past, broken = history.probes()
    except OSError as problem:
        return [], [f"the history cannot be read: {problem}"]
    return past, [f"{history.path}: {broken} lines cannot be read and are ignored"] if broken else []


def unanswered(seconds: float) -> HealthReport:
    """The report of a probe that did not end."""
    finding = HealthFinding(
        unit=MACHINE,
        name="probe",
        severity=Severity.CRITICAL,
        found=f"no answer within {seconds:.0f} s: probably a driver or a disk hangs",
        legal="a probe ends within seconds",
        next_step="see sudo dmesg and nvidia-smi; reboot the machine if they hang, too",
    )
    at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return HealthReport(at, Severity.CRITICAL, {MACHINE: Severity.CRITICAL}, (finding,), "")


def keep_unanswered(report: HealthReport, history: HealthHistory | None = None) -> str:
    """Add the report of `unanswered` to the history; what the last probe read stays what the next one compares with.
    Returns why it could not be kept, or ""."""
    history = history or HealthHistory()
    try:
        past, _ = history.probes()
    except OSError as problem:
        return f"{history.path}: {problem}"
    last = past[-1] if past else PastProbe(at="", host=platform.node(), boot=boot_id(), overall=report.overall)
    findings = tuple(
        PastFinding(unit=each.unit, name=each.name, severity=each.severity, found=each.found)
        for each in report.findings
    )
    update = {"at": report.at, "overall": report.overall, "checked": tuple(map(check, findings)), "findings": findings}
    return history.add(last.model_copy(update=update))


def _listed() -> tuple[list[GpuState], list[HealthFinding]]:
    """Every GPU of this machine, and a finding if there is none or NVML does not report them."""
    if not doctor_gpu.present() and machine_gpu.driver_problem() is not None:
        legal = "nothing, if no GPU is expected"
        return [], [HealthFinding(unit=MACHINE, name="GPU", severity=Severity.ABSENT, found="no GPU", legal=legal)]
    try:
        states = nvml_state.states()
    except LookupError as problem:
        return [], [_unread(str(problem))]
    return states, [] if states else [_unread("NVML lists no GPU")]


def _chosen(devices: Sequence[Device], listed: Sequence[GpuState]) -> list[GpuState]:
    """The GPUs that are among the devices; all of them if a device is not one of them."""
    wanted = {_uuid(device) for device in devices}
    chosen = [state for state in listed if state.uuid in wanted]
    return chosen if chosen and None not in wanted else list(listed)


def _unread(why: str) -> HealthFinding:
    found, _, step = why.partition("; next: ")
    return HealthFinding(
        unit="GPU",
        name="driver",
        severity=Severity.UNKNOWN,
        found=f"this machine has a GPU, and its health cannot be read: {found}",
        legal="NVML reads every GPU",
        next_step=step or "install or restart NVIDIA's driver; run nvidia-smi for details",
    )


def _uuid(device: Device) -> str | None:
    """The UUID of the GPU that a numbered device is; None for a type, which is all of its GPUs, and in the
    simulator."""
    known = numbered(device.type)
    if known is None or device.simulated() or device.units() or machine_gpu.driver_problem() is not None:
        return None
    return machine_gpu.device_info(known[1]).uuid if known[1] < machine_gpu.device_count() else None


def _unit(device: Device, states: Sequence[GpuState]) -> str:
    """The name of the device's unit: that of its GPU, if it is known."""
    if device.simulated():
        return f"{device.type} (simulator)"
    _, index = numbered(device.type) or (device.type, 0)
    if device.units() or machine_gpu.driver_problem() is not None or index >= machine_gpu.device_count():
        return device.type
    uuid = machine_gpu.device_info(index).uuid
    return next((gpu.name_of(state) for state in states if state.uuid == uuid), device.type)


def _unusable(unit: str, why: str) -> HealthFinding:
    found, _, step = why.partition("; next: ")
    return HealthFinding(
        unit=unit,
        name=pool.NAME,
        severity=Severity.WARNING,
        found=f"no kernel can run: {found}",
        legal="kernels run on every GPU",
        next_step=step or "see tritmark doctor",
    )


def _counters(last: PastProbe | None, state: GpuState) -> dict[str, int] | None:
    return None if last is None else last.gpus.get(state.uuid)


def _seen(last: PastProbe | None, state: GpuState, boot: str) -> int:
    """Until when the kernel's log was read for this GPU, in microseconds since the machine started; -1 for never."""
    if last is None or last.boot != boot:
        return -1
    return last.gpus.get(state.uuid, {}).get(LOG_US, last.log_us)


def _remembered(
    last: PastProbe | None,
    listed: Sequence[GpuState],
    checked: Sequence[GpuState],
    errors: Sequence[xid.Xid],
    boot: str,
    now: int,
) -> dict[str, dict[str, int]]:
    """What was read of each GPU. One that was not checked or does not respond keeps what the last probe that checked
    it read, so that the next one that does finds what happened since; until the machine starts again without it."""
    there = {state.uuid for state in listed}
    known = {} if last is None else last.gpus
    if last is not None and last.boot != boot:
        known = {uuid: each | {LOG_US: -1} for uuid, each in known.items() if not listed or uuid in there}

    def read(state: GpuState, until: int) -> dict[str, int]:
        return state.counters | {LOG_US: until, AT_S: now}

    new = {state.uuid: read(state, -1) for state in listed if state.uuid and not state.note}
    for state in checked:
        if state.uuid in new:
            own = [each.at_us for each in errors if each.bus == xid.address(state.bus) and each.at_us is not None]
            known = known | {state.uuid: read(state, max(own, default=_seen(last, state, boot)))}
    return new | known


def _logged(read: Callable[[], list[xid.Xid]] = xid.logged) -> tuple[list[xid.Xid], OSError | None]:
    """The XID errors in the kernel's log, and why it cannot be read."""
    try:
        return read(), None
    except OSError as problem:
        return [], problem


def _xids(
    states: Sequence[GpuState],
    logged: Sequence[xid.Xid],
    events: Sequence[xid.Xid],
    seen_us: Mapping[str, int],
    unreadable: OSError | None,
) -> Iterator[HealthFinding]:
    """A finding for each GPU: XID errors since the last probe, which saw the log until `seen_us`, and earlier ones.
    `seen_us`: by UUID. `unreadable`: why the log cannot be read; then only those of this probe are known."""
    legal = "no XID errors except those of faulty programs"
    for state in states:
        if not state.bus:
            continue  # it does not respond, which is a finding of its own
        bus = xid.address(state.bus)
        own = [each for each in logged if each.bus == bus]
        new = [each for each in own if each.at_us is not None and each.at_us > seen_us[state.uuid]]
        new += [each for each in events if each.bus == bus and each.number not in {one.number for one in new}]
        old = [each for each in own if each not in new]
        severity = overall_of([each.severity for each in new])
        if any(each.severity is not Severity.OK for each in old):  # what lasts is found by other checks too
            severity = overall_of([severity, Severity.WARNING])
        parts = [f"{len(each)} {when}: {_numbers(each)}" for when, each in (("new", new), ("earlier", old)) if each]
        steps = ["see sudo dmesg and NVIDIA's list of XID errors; reset the GPU or reboot"]
        if severity is Severity.OK:
            steps = []
        if unreadable is not None:
            severity = Severity.ABSENT if severity is Severity.OK else severity
            why = unreadable.strerror or unreadable
            parts.append(f"{'earlier ones ' * bool(parts)}not readable: the kernel's log cannot be read ({why})")
            steps.append(f"to read the log: {xid.made_readable(unreadable)}")
        yield HealthFinding(
            unit=gpu.name_of(state),
            name="XID errors",
            severity=severity,
            found="; ".join(parts) or "none in the kernel's log",
            legal=legal,
            next_step="; ".join(steps),
        )


def _unlisted(listed: Sequence[GpuState], logged: Sequence[xid.Xid], seen_us: int) -> Iterator[HealthFinding]:
    """XID errors of GPUs that NVML does not list, or that do not respond. A container may not see all GPUs."""
    known = {xid.address(state.bus) for state in listed if state.bus}
    found = [each for each in logged if each.bus not in known and each.severity is not Severity.OK]
    new = [each for each in found if each.at_us is not None and each.at_us > seen_us]
    if listed and found:
        buses = ", ".join(dict.fromkeys(each.bus for each in found))
        yield HealthFinding(
            unit=MACHINE,
            name="XID errors",
            severity=Severity.WARNING,
            found=f"{_numbers(found)} of GPUs that do not respond or are not listed ({buses}), {len(new)} new",
            legal="no XID errors except those of faulty programs",
            next_step="see sudo dmesg; nothing is wrong if this session may see fewer GPUs",
        )


def overall_of(severities: Sequence[Severity]) -> Severity:
    """The worst of them; OK for none."""
    return overall(HealthFinding(unit="", name="", severity=each, found="") for each in severities)


def _numbers(errors: Sequence[xid.Xid]) -> str:
    return ", ".join(dict.fromkeys(map(str, errors)))


def _gone(listed: Sequence[GpuState], last: PastProbe | None, boot: str) -> Iterator[HealthFinding]:
    """GPUs of the last probe since the machine started that are no longer listed."""
    if last is None or last.boot != boot or any(state.note and not state.uuid for state in listed):
        return  # a GPU that does not even report its UUID has a finding of its own
    gone = sorted(last.gpus.keys() - {state.uuid for state in listed})
    if gone:
        yield HealthFinding(
            unit=MACHINE,
            name="GPUs",
            severity=Severity.WARNING,
            found=f"no longer listed since the last probe: {', '.join(gone)}",
            legal="every GPU of the last probe",
            next_step="see sudo dmesg; nothing is wrong if this session may see fewer GPUs",
        )
