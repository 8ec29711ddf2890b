"""The exit statuses of all commands and their meanings. A test compares them with the table of docs/commands.md."""

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
    PASSED: "no verdict is FAIL or ERROR, no kernel is SLOWER, no packer is incorrect, nothing must be fixed "
    "or is critical",
    FAILED: "a verdict is FAIL or ERROR; `gate`: a kernel is SLOWER, incorrect or broken; `history`: a regression is "
    "not reverted; `formats`: a packer is incorrect; `doctor`: something must be fixed; `health`: something is "
    "critical; `compare`: the models differ; `precision`: no mode is exact enough; `criteria`: a criterion is not met; "
    "`monitor`: a kernel is SLOWER in its newest session; `fleet compare`: a figure is slower than in the earlier set; "
    "`verify`: the Record contradicts itself; `selftest`: too few "
    "mutants are detected, or a correct kernel fails; `soak`: a result is incorrect, a Run is lost or breaks without a "
    "fault, a process is left over, or the harness crashes; `tune`: a kernel is incorrect or breaks",
    USAGE: "invalid usage or input, or a file that cannot be written",
    UNAVAILABLE: "a requested device is missing",
    AMBIGUOUS: "with `--strict` (`run`, `check`, `gate`, `fleet run`): nothing failed, but a verdict is AMBIGUOUS; "
    "`health --strict`: a warning",
    UNJUDGED: "with `--strict` (`run`, `check`, `fleet run`): nothing failed and nothing is AMBIGUOUS, but a dimension "
    "of a kernel was judged in none of its Runs; `health`: nothing is critical, but something could not be read",
    ENVIRONMENT: "an error of the machine or the session, not of a kernel or commit: a limit (`ulimit`), a closed "
    "output, git, pip, a cache; the message names the fix; `fleet run`: no worker fits, or a job was not run",
    UNTRIED: "nothing was tested, so nothing passed: `gate`: BASE and HEAD are the same; `soak`: no fault could be "
    "planted, or a kind took no effect; `run`: the Record has neither Runs nor layers; `criteria`: none was judged",
    INTERRUPTED: "interrupted (Ctrl-C); finished Runs are kept",
}
"""As docs/commands.md and `tritmark --help` show them."""
