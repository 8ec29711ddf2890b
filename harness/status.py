"""The exit statuses of every command: here and nowhere else. README's table says the same, and a test compares the two."""

from __future__ import annotations

PASSED = 0
"""All is well."""
FAILED = 1
"""A verdict is FAIL or ERROR; gate: SLOWER, wrong or broken; history: a regression stands; doctor: something has to be mended."""
USAGE = 2
"""Bad usage or input, or a disk that refuses."""
UNAVAILABLE = 3
"""A device that was asked for by name is not there."""
AMBIGUOUS = 4
"""With --strict: nothing failed, but a verdict is AMBIGUOUS."""
UNJUDGED = 5
"""With --strict, run and check: nothing failed and nothing is AMBIGUOUS, but a dimension of a kernel was judged in none of its Runs."""
INTERRUPTED = 130
"""Ctrl-C; what was finished is kept."""
