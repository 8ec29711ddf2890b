"""Imported first by the command line: an installed command imports nothing from the folder that it happens to be
started in, where a user's random.py or queue.py would take the place of Python's.

An empty entry of PYTHONPATH ("/a:", ":/a") and `python -m` put that folder there. One that is named stays.
"""

from __future__ import annotations

import os
import sys

_VARIABLE = "PYTHONPATH"


def leave_out_current_folder() -> None:
    """Take it out of `sys.path`, and out of PYTHONPATH, which processes that are started here read."""
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
    """Whether this process is tritmark's command, and not another program that imports it."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name).partition(".")[0] == "tritmark"
    return os.path.basename(getattr(main, "__file__", "")) == "tritmark"


if is_command():
    leave_out_current_folder()
