"""The errors that a user of tritmark can meet; every one says what was found and what would have been legal."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from enum import StrEnum


def _remade(kind: type[TritmarkError], args: tuple[object, ...], state: dict[str, object]) -> TritmarkError:
    made = kind.__new__(kind, *args)
    made.args = args
    vars(made).update(state)
    return made


class TritmarkError(Exception):
    """Base of every error that tritmark raises on purpose. It can be pickled, so it passes from one process to another
    whatever its `__init__` takes."""

    def __reduce__(self) -> tuple[object, ...]:
        # By default an exception is remade by __init__(*args), which takes keywords here: a pool then counts its
        # process as dead, and the reason is lost.
        return _remade, (type(self), self.args, dict(vars(self)))


class InvalidArgumentError(TritmarkError, ValueError):
    """An argument breaks the contract of an operation; nothing has been written.

    `op`, `argument`, `found` and `legal` are kept as attributes.
    """

    def __init__(self, *, op: str, argument: str, found: str, legal: str) -> None:
        self.op = op
        self.argument = argument
        self.found = found
        self.legal = legal
        super().__init__(f"{op}: {argument} is {found}; legal: {legal}")


class NoCompatibleKernelError(TritmarkError, LookupError):
    """No registered variant fits; `candidates` pairs each one's name with why it was refused."""

    def __init__(self, *, request: str, candidates: Sequence[tuple[str, str]]) -> None:
        self.request = request
        self.candidates = tuple(candidates)
        lines = [f"no compatible kernel for {request}"]
        lines += [f"  {name}: {reason}" for name, reason in self.candidates] or ["  nothing is registered for it"]
        super().__init__("\n".join(lines))


class RegistrationError(TritmarkError, ValueError):
    """A variant could not be registered: a duplicate, or a contradiction in its description."""


class AmbiguousKernelError(RegistrationError):
    """Two variants of one key have the same tier and rank, so that nothing decides between them where both fit; one
    needs another rank."""


class UsageError(TritmarkError, ValueError):
    """A command line, suite file or environment variable that cannot be obeyed (exit status USAGE)."""


class BadEnvironmentError(TritmarkError, RuntimeError):
    """Something around tritmark is at fault, and no kernel, commit or argument: a limit, a folder, git, pip (exit
    status ENVIRONMENT). `next_step` is the remedy."""

    def __init__(self, found: str, *, next_step: str) -> None:
        self.found = found
        self.next_step = next_step
        super().__init__(f"{found}; next: {next_step}")


class RecordError(TritmarkError, ValueError):
    """A Record that cannot be read: truncated, of another version, or not a Record."""

    def __init__(self, *, path: str, found: str, legal: str) -> None:
        self.path = path
        self.found = found
        self.legal = legal
        super().__init__(f"{path}: {found}; legal: {legal}")


class NothingToCompareError(UsageError):
    """Both sides of a comparison are the same."""


class WeightFileError(TritmarkError, ValueError):
    """A weight file that cannot be trusted or read; nothing was allocated for it."""

    def __init__(self, *, path: str, found: str, legal: str) -> None:
        self.path = path
        self.found = found
        self.legal = legal
        super().__init__(f"{path}: {found}; legal: {legal}")


class DeviceError(TritmarkError, RuntimeError):
    """Something is wrong with a device; `next_step` says what to do about it."""

    def __init__(self, found: str, *, next_step: str) -> None:
        self.found = found
        self.next_step = next_step
        super().__init__(f"{found}; next: {next_step}")


class DeviceUnavailableError(DeviceError):
    """The device cannot be used here: its package is not installed, there is no driver, or no device, or it is busy."""


class CompileError(DeviceError):
    """A kernel does not compile; `found` has the compiler's own words."""


class LaunchError(DeviceError):
    """A launch was refused: more threads, registers or shared memory than the device has. Nothing ran, the device
    can be used further."""


class DeviceFaultError(DeviceError):
    """A kernel broke while it ran (an illegal address, a trap). What it wrote is lost, and on a GPU every later call
    of this process fails too; the CPU is not concerned."""


class FreedMemoryError(DeviceError):
    """Device memory was used, or given back once more, after it had been given back; `found` says where it came
    from."""


class InsufficientMemoryError(DeviceError, MemoryError):
    """The device has too little memory; nothing was allocated. `required` and `available` are bytes."""

    def __init__(self, *, what: str, required: int, available: int, next_step: str) -> None:
        self.required = required
        self.available = available
        super().__init__(
            f"{what} needs {required} bytes of device memory and {available} are available", next_step=next_step
        )


class PlacementError(DeviceError):
    """Memory could not be put on a NUMA node, or nobody may see where it lies. `number` is the system's (errno), 0
    where it accepted everything and the pages lie elsewhere all the same."""

    def __init__(self, found: str, *, next_step: str, number: int = 0) -> None:
        self.number = number
        super().__init__(found, next_step=next_step)


class Failure(StrEnum):
    """What ended a call of a candidate."""

    CRASH = "crash"
    """A signal ended its process."""
    EXIT = "exit"
    """Its process ended by itself."""
    HANG = "hang"
    """It did not return within its time."""
    MEMORY = "memory"
    """It took more memory than allowed, or asked for it."""
    PROTOCOL = "protocol"
    """What came back was no reply, or the connection was closed."""
    DEVICE = "device"
    """Its kernel broke on the device."""
    LEAK = "leak"
    """Its process had no file descriptor left."""
    ENVIRONMENT = "environment"
    """Something around it is at fault: a BadEnvironmentError."""
    ERROR = "error"
    """Any other exception."""


def failure_of(error: BaseException) -> Failure:
    """Which failure an exception is, where it was raised."""
    if isinstance(error, WorkerError | CandidateError):
        return error.kind
    if isinstance(error, BadEnvironmentError):
        return Failure.ENVIRONMENT
    if isinstance(error, MemoryError):
        return Failure.MEMORY
    if isinstance(error, OSError) and error.errno == errno.EMFILE:
        return Failure.LEAK  # the harness holds a few of them, whatever the kernel does
    return Failure.DEVICE if isinstance(error, DeviceFaultError) else Failure.ERROR


class WorkerError(TritmarkError, RuntimeError):
    """The process in which a candidate ran did not survive, or did not answer. `log` is the end of what it printed."""

    def __init__(self, kind: Failure, found: str, log: str = "") -> None:
        self.kind = kind
        self.log = log
        super().__init__(found)


class CandidateError(TritmarkError, RuntimeError):
    """A candidate raised in its worker. `name` is the exception's type, `trace` where it came from; the text is
    `name: text`."""

    def __init__(self, kind: Failure, name: str, text: str, trace: str) -> None:
        self.kind = kind
        self.name = name
        self.text = text
        self.trace = trace
        super().__init__(f"{name}: {text}")
