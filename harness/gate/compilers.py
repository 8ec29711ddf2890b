"""Compiler wrappers for two concurrent builds. They use ccache, if it is installed, and compile no file twice.

A build finds the wrappers by PATH under the compilers' own names, so its commands do not change. Two revisions share
most files. Of two equal commands, the second waits for the first and gets its result from ccache.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

_SCRIPT = """#!/bin/sh
key=$(printf '%s ' "$@" | cksum | tr -d ' ')
PATH={path}
exec {flock} {locks}/"$key" {command} "$@"
"""


def cached_compilers(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Fill `folder` with wrappers. Returns the environment variables with which builds find them; none without ccache
    and flock.

    A compiler that CC or CXX names by a path gets no wrapper.
    """
    ccache, flock = shutil.which("ccache"), shutil.which("flock")
    if ccache is None or flock is None:
        return {}
    # ccache looks up the compiler in PATH. It must not find the wrapper there, which would wait for itself.
    given = environment.get("PATH", os.defpath)
    path = os.pathsep.join(each for each in given.split(os.pathsep) if Path(each) != folder)
    locks = folder / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    for variable in ("CC", "CXX"):
        name = (environment.get(variable) or str(sysconfig.get_config_var(variable) or "")).split(maxsplit=1)[0:1]
        real = shutil.which(name[0]) if name and "/" not in name[0] else None
        if real is None:
            continue
        # Some distributions put ccache into PATH under the compilers' names.
        command = [real] if Path(real).resolve().name == "ccache" else [ccache, real]
        script = folder / name[0]
        text = _SCRIPT.format(
            path=shlex.quote(path), flock=flock, locks=shlex.quote(str(locks)), command=shlex.join(command)
        )
        if not script.is_file() or script.read_bytes() != text.encode():  # as bytes: a damaged script may be no text
            fresh = script.with_suffix(f".{secrets.token_hex(8)}")  # both builds may write concurrently
            fresh.write_text(text, encoding="utf-8")
            fresh.chmod(0o755)
            fresh.replace(script)
    return {
        "PATH": f"{folder}{os.pathsep}{path}",
        # Each build has its own folder there, and the code does not depend on it.
        "CCACHE_BASEDIR": environment.get("CCACHE_BASEDIR", tempfile.gettempdir()),
        "CCACHE_NOHASHDIR": environment.get("CCACHE_NOHASHDIR", "true"),
    }
