"""The exit statuses of every command, and what each means. The table of docs/commands.md says the same, and a test
compares the two."""

from __future__ import annotations

PASSED = 0
FAILED = 1
USAGE = 2
UNAVAILABLE = 3
AMBIGUOUS = 4
UNJUDGED = 5
ENVIRONMENT = 6
UNTRIED = 7
INTERRUPTED = 130

MEANINGS = {
    PASSED: "no verdict fails, no kernel is slower, no format is wrong, nothing has to be mended",
    FAILED: "a verdict is FAIL or ERROR; `gate`: a kernel is SLOWER, wrong or broken; `history`: a regression stands; "
    "`formats`: a packer is wrong; `doctor`: something has to be mended; `compare`: the models differ; "
    "`precision`: none is exact enough",
    USAGE: "bad usage or input, or a disk that refuses",
    UNAVAILABLE: "a device that was asked for by name is not there",
    AMBIGUOUS: "with `--strict` (`run`, `check`, `gate`): nothing failed, but a verdict is AMBIGUOUS",
    UNJUDGED: "with `--strict` (`run`, `check`): nothing failed and nothing is AMBIGUOUS, but a dimension of a kernel "
    "was judged in none of its Runs",
    ENVIRONMENT: "the machine or the session is at fault, and no kernel or commit: a limit (`ulimit`), a refused "
    "output, git, pip, a cache; the message names the remedy",
    UNTRIED: "nothing was tried, so nothing passed: `gate`: BASE and HEAD are the same; `soak`: no fault could be "
    "planted",
    INTERRUPTED: "interrupted (Ctrl-C); what was finished is kept",
}
"""As docs/commands.md and `tritmark --help` show them."""
