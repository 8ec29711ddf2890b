"""The errors that tritmark raises. Each message states what was found, and what is legal or the next step."""

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
    """Base of all errors that tritmark raises on purpose. All can be pickled, to pass from one process to another."""

    def __reduce__(self) -> tuple[object, ...]:
        # By default, unpickling calls __init__(*args), which fails for keyword parameters. A pool would then report a
        # broken process in place of the error.
        return _remade, (type(self), self.args, dict(vars(self)))


class InvalidArgumentError(TritmarkError, ValueError):
    """An argument breaks the contract of an op; nothing was written.

    `op`, `argument`, `found` and `legal` are attributes.
    """

    def __init__(self, *, op: str, argument: str, found: str, legal: str) -> None:
        self.op = op
        self.argument = argument
        self.found = found
        self.legal = legal
        super().__init__(f"{op}: {argument} is {found}; legal: {legal}")


class NoCompatibleKernelError(TritmarkError, LookupError):
    """No registered variant fits; `candidates` has the name of each variant and why it was refused."""

    def __init__(self, *, request: str, candidates: Sequence[tuple[str, str]]) -> None:
        self.request = request
        self.candidates = tuple(candidates)
        lines = [f"no compatible kernel for {request}"]
        lines += [f"  {name}: {reason}" for name, reason in self.candidates] or ["  no variant is registered"]
        super().__init__("\n".join(lines))


class MissingPackageError(TritmarkError, ModuleNotFoundError):
    """A package that an extra of tritmark installs is missing. `name` is its name; `next_step` is the fix."""

    name: str | None = None  # ImportError keeps it outside of the object's dictionary, and pickles lose it there

    def __init__(self, found: str, *, name: str, next_step: str) -> None:
        self.found = found
        self.next_step = next_step
        super().__init__(f"{found}; next: {next_step}")
        self.name = name


class RegistrationError(TritmarkError, ValueError):
    """A variant could not be registered: a duplicate, or a contradiction in its description."""


class AmbiguousKernelError(RegistrationError):
    """Two variants of one key have the same tier and rank, so neither takes precedence; one needs another rank."""


class UsageError(TritmarkError, ValueError):
    """An invalid command line, suite file or environment variable (exit status USAGE)."""


class BadEnvironmentError(TritmarkError, RuntimeError):
    """An error of the environment, not of a kernel, commit or argument: a limit, a folder, git, pip (exit status
    ENVIRONMENT). `next_step` is the fix."""

    def __init__(self, found: str, *, next_step: str) -> None:
        self.found = found
        self.next_step = next_step
        super().__init__(f"{found}; next: {next_step}")


class ServerEndedError(BadEnvironmentError):
    """The server that processes are forked from has ended. A new one may succeed."""


class RecordError(TritmarkError, ValueError):
    """A Record that cannot be read: truncated, of another version, or not a Record."""

    def __init__(self, *, path: str, found: str, legal: str) -> None:
        self.path = path
        self.found = found
        self.legal = legal
        super().__init__(f"{path}: {found}; legal: {legal}")


class MissingSshKeygenError(BadEnvironmentError):
    """The program ssh-keygen, which makes and checks signatures, is not installed."""


class SigningError(TritmarkError, ValueError):
    """A Record could not be signed, and no signature was written; `next_step` is the fix."""

    def __init__(self, found: str, *, next_step: str) -> None:
        self.found = found
        self.next_step = next_step
        super().__init__(f"{found}; next: {next_step}")


class EncryptedKeyError(SigningError):
    """The private key is encrypted, and no ssh-agent holds it."""


class NothingToCompareError(UsageError):
    """Both sides of a comparison are the same."""


class WeightFileError(TritmarkError, ValueError):
    """A weight file that is invalid or cannot be read; nothing was allocated for it."""

    def __init__(self, *, path: str, found: str, legal: str) -> None:
        self.path = path
        self.found = found
        self.legal = legal
        super().__init__(f"{path}: {found}; legal: {legal}")


class DeviceError(TritmarkError, RuntimeError):
    """An error of a device; `next_step` is the fix."""

    def __init__(self, found: str, *, next_step: str) -> None:
        self.found = found
        self.next_step = next_step
        super().__init__(f"{found}; next: {next_step}")


class DeviceUnavailableError(DeviceError):
    """The device cannot be used: its package or driver is not installed, it does not exist, or it is busy."""


class CompileError(DeviceError):
    """A kernel does not compile; `found` has the message of the compiler."""


class LaunchError(DeviceError):
    """A launch was refused: it needs more threads, registers or shared memory than the device has. Nothing ran, and the
    device remains usable."""


class DeviceFaultError(DeviceError):
    """A kernel broke while it ran (an illegal address, a trap). Its outputs are lost. On a GPU, every later call of the
    process fails, too. CPU kernels still work. `code` is the driver's number of the error; 0 if unknown."""

    def __init__(self, found: str, *, next_step: str, code: int = 0) -> None:
        self.code = code
        super().__init__(found, next_step=next_step)


class FreedMemoryError(DeviceError):
    """Device memory was used or freed after it was freed; `found` states where it was allocated."""


class InsufficientMemoryError(DeviceError, MemoryError):
    """The device has too little memory; nothing was allocated. `required` and `available` are bytes."""

    def __init__(self, *, what: str, required: int, available: int, next_step: str) -> None:
        self.required = required
        self.available = available
        super().__init__(
            f"{what} needs {required} bytes of device memory, and {available} are available", next_step=next_step
        )


class PlacementError(DeviceError):
    """Memory could not be placed on a NUMA node, or its node cannot be read. `number` is the errno; 0 if all system
    calls succeeded and the pages are on another node nevertheless."""

    def __init__(self, found: str, *, next_step: str, number: int = 0) -> None:
        self.number = number
        super().__init__(found, next_step=next_step)


class Failure(StrEnum):
    """How a call of a candidate failed."""

    CRASH = "crash"
    """A signal ended its process."""
    EXIT = "exit"
    """Its process exited."""
    HANG = "hang"
    """It did not return within the time limit."""
    MEMORY = "memory"
    """It used or requested more memory than allowed."""
    PROTOCOL = "protocol"
    """The reply was invalid, or the connection was closed."""
    DEVICE = "device"
    """Its kernel broke on the device."""
    LEAK = "leak"
    """Its process had no file descriptor left."""
    ENVIRONMENT = "environment"
    """An error of the environment: a BadEnvironmentError."""
    ERROR = "error"
    """Any other exception."""


def failure_of(error: BaseException) -> Failure:
    """The failure that an exception means, in the process that raised it."""
    if isinstance(error, WorkerError | CandidateError):
        return error.kind
    if isinstance(error, BadEnvironmentError):
        return Failure.ENVIRONMENT
    if isinstance(error, MemoryError):
        return Failure.MEMORY
    if isinstance(error, OSError) and error.errno == errno.EMFILE:
        return Failure.LEAK  # the harness itself uses few descriptors
    return Failure.DEVICE if isinstance(error, DeviceFaultError) else Failure.ERROR


class WorkerError(TritmarkError, RuntimeError):
    """The process of a candidate died or did not answer. `log` is the end of its output."""

    def __init__(self, kind: Failure, found: str, log: str = "") -> None:
        self.kind = kind
        self.log = log
        super().__init__(found)


class CandidateError(TritmarkError, RuntimeError):
    """A candidate raised an exception in its worker. `name` is its type and `trace` its traceback; the message is
    `name: text`."""

    def __init__(self, kind: Failure, name: str, text: str, trace: str) -> None:
        self.kind = kind
        self.name = name
        self.text = text
        self.trace = trace
        super().__init__(f"{name}: {text}")
