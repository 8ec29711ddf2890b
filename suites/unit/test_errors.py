"""Typed errors pass from one process to another, whatever their `__init__` takes."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor

import pytest

from tritmark.harness import errors
from tritmark.harness.worker.process import CONTEXT

_ERRORS: tuple[errors.TritmarkError, ...] = (
    errors.TritmarkError("text"),
    errors.InvalidArgumentError(op="op", argument="x", found="3", legal="4"),
    errors.NoCompatibleKernelError(request="it", candidates=[("a", "too small")]),
    errors.RegistrationError("twice"),
    errors.AmbiguousKernelError("two"),
    errors.UsageError("no"),
    errors.NothingToCompareError("the same"),
    errors.BadEnvironmentError("no room", next_step="make some"),
    errors.MissingPackageError("no torch", name="torch", next_step="install it"),
    errors.ServerEndedError("no server", next_step="look"),
    errors.RecordError(path="r", found="x", legal="y"),
    errors.WeightFileError(path="w", found="nan at [3, 7]", legal="finite"),
    errors.DeviceError("broken", next_step="mend it"),
    errors.DeviceUnavailableError("none", next_step="buy one"),
    errors.CompileError("line 3", next_step="look"),
    errors.LaunchError("too many", next_step="fewer"),
    errors.DeviceFaultError("trap", next_step="look"),
    errors.FreedMemoryError("twice", next_step="once"),
    errors.InsufficientMemoryError(what="it", required=5, available=3, next_step="less"),
    errors.PlacementError("elsewhere", next_step="look", number=7),
    errors.WorkerError(errors.Failure.CRASH, "gone", "log"),
    errors.CandidateError(errors.Failure.ERROR, "KeyError", "x", "trace"),
)
MADE = {type(error): error for error in _ERRORS}


def kinds(base: type[errors.TritmarkError]) -> set[type[errors.TritmarkError]]:
    """All of them that the module has."""
    found = {base}
    for each in base.__subclasses__():
        found |= kinds(each) if each.__module__ == errors.__name__ else set()
    return found


@pytest.mark.parametrize("kind", sorted(kinds(errors.TritmarkError), key=str))
def test_an_error_is_the_same_after_it_was_pickled(kind: type[errors.TritmarkError]) -> None:
    error = MADE[kind]
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def fail() -> None:
    raise MADE[errors.WeightFileError]


def test_a_pool_gives_the_error_of_its_process() -> None:
    with ProcessPoolExecutor(1, CONTEXT) as pool, pytest.raises(errors.WeightFileError, match=r"w: nan at \[3, 7\]"):
        pool.submit(fail).result()
