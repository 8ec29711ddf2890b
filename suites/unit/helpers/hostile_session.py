"""The installed command in a session that is made hostile by lines of bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tritmark.harness.record import Record, Status
from tritmark.harness.text.outcome import outcome

COMMAND = Path(sys.executable).with_name("tritmark")
RUN = ("run", "--suite", "smoke", "--op", "i2s_dequantize", "--device", "cpu")
WITHOUT_FOLDER = {"gate", "schema"}
"""Commands that make no Record."""
LIMIT_S = 300

USER = 12345
AS_USER = f"setpriv --reuid {USER} --regid {USER} --clear-groups --inh-caps +dac_override --ambient-caps +dac_override"
"""Another user, who may read all files: a Python under /root stays within reach."""
PLAIN = "setpriv --bounding-set -sys_resource --inh-caps -sys_resource" if os.getuid() == 0 else ""
"""As processes of users are: without the right to raise a hard limit."""

as_root = pytest.mark.skipif(os.getuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
mounts = pytest.mark.skipif(
    os.getuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0,
    reason="needs root that may unshare its mounts",
)


@dataclass(frozen=True)
class Ended:
    """How it ended."""

    status: int
    out: str
    err: str
    folder: Path

    @property
    def record(self) -> Record:
        """The one that it wrote."""
        (path,) = (self.folder / "out/runs").glob("*.json")
        return Record.model_validate_json(path.read_text())

    def must_pass(self) -> None:
        """Every kernel was judged, and none was blamed."""
        assert (self.status, "Traceback" in self.out + self.err) == (0, False), self._shown()
        assert outcome(self.record).passed
        assert len(self.record.runs) > 1

    def _shown(self) -> str:
        """What it printed, and what the Record blames: its streams may be closed."""
        blamed = [
            f"{run.id}: {each.status}: {each.reason}"
            for path in (self.folder / "out/runs").glob("*.json")
            for run in Record.model_validate_json(path.read_text()).runs
            for each in (run.accuracy, run.performance, run.memory, run.cross)
            if each.status not in {Status.PASS, Status.NOT_RUN}
        ]
        return "\n".join([self.out, self.err, *blamed])

    def must_name(self, *words: str) -> None:
        """It ended with the environment's status and one message with those words; nothing was judged wrong."""
        assert (self.status, "Traceback" in self.out + self.err) == (6, False), self.out + self.err
        for word in words:
            assert word in " ".join(self.err.split()), self.err
        assert not any((self.folder / "out/runs").glob("*.json"))


def session(folder: Path, *words: str, before: str = "", under: str = "", after: str = "", **more: str) -> Ended:
    """`tritmark` with those words in `folder`: `before` are lines of bash that come first, `under` what starts it,
    `after` what stands behind it, such as >&-, and `more` environment variables."""
    folder.mkdir(exist_ok=True)
    wherever = () if words[0] in WITHOUT_FOLDER else ("--out", str(folder / "out"))
    environment = os.environ | {"TRITMARK_CACHE": str(folder / "cache"), "COLUMNS": "200", **more}
    done = subprocess.run(
        ["bash", "-c", f'{before}\n{under} "$@" {after}', "bash", str(COMMAND), *words, *wherever],
        cwd=folder,
        env={name: value for name, value in environment.items() if value},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    out, err = (each.decode("utf-8", "replace") for each in (done.stdout, done.stderr))
    return Ended(done.returncode, out, err, folder)
