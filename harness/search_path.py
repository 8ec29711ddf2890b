"""Imported first by the command line. It removes the current folder from the search path, so that a user's random.py or
queue.py there does not replace Python's.

An empty entry of PYTHONPATH ("/a:", ":/a") and `python -m` add the current folder. An explicit entry stays.
"""

from __future__ import annotations

import os
import sys

_VARIABLE = "PYTHONPATH"


def leave_out_current_folder() -> None:
    """Remove it from `sys.path`, and from PYTHONPATH, which child processes read."""
    reported = os.environ.get(_VARIABLE)
    named = [each for each in (reported or "").split(os.pathsep) if each]
    if reported is not None:
        os.environ[_VARIABLE] = os.pathsep.join(named)
    try:
        here = os.getcwd()
    except OSError:  # deleted
        return
    if here not in {os.path.abspath(each) for each in named}:
        sys.path[:] = [each for each in sys.path if each not in {"", here}]


def is_command() -> bool:
    """Whether this process is the tritmark command, not another program that imports tritmark."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name).partition(".")[0] == "tritmark"
    return os.path.basename(getattr(main, "__file__", "")) == "tritmark"


if is_command():
    leave_out_current_folder()
