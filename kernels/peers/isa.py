"""Peers limited to one instruction set (`tritmark run --peer-isa`): which ones support it, and why others do not.

PyTorch is limited by environment variables of oneDNN and ATen. Libraries like ggml are compiled for one set and report
it. ONNX Runtime and NumPy inspect the processor and have no setting.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from tritmark.harness.errors import DeviceUnavailableError, UsageError
from tritmark.harness.nearest import nearest
from tritmark.harness.spec import PEER_ISA
from tritmark.kernels.native.cpu import ISAS, Isa, features

_LIMITS = (
    ("sse4.1", "SSE41", "default"),
    ("avx2", "AVX2", "avx2"),
    ("avxvnni", "AVX2_VNNI", "avx2"),
    ("avx512vnni", "AVX512_CORE_VNNI", "avx512"),
    ("amx-int8", "AVX512_CORE_AMX", "avx512"),
)
"""In ascending order: a feature, and the limits of oneDNN and ATen that use it and no later one."""
_TELLS = {
    "avx": "avx",
    "avx2": "avx2",
    "fma": "fma",
    "f16c": "f16c",
    "avx_vnni": "avxvnni",
    "avx512": "avx512f",
    "avx512_vbmi": "avx512vbmi",
    "avx512_vnni": "avx512vnni",
    "avx512_bf16": "avx512bf16",
    "amx_int8": "amx-int8",
}
"""The functions ggml_cpu_has_... of ggml that report the features for which it was compiled."""
_COMES_WITH = {"avx2": {"ssse3", "sse4.1", "avx", "f16c", "fma"}, "avx512vnni": {"avx512vbmi"}}
"""Features that no step names: every processor with AVX2 has them, and every one with AVX512-VNNI except the first."""
_ASK = """
import ctypes, json, sys
*before, path = json.loads(sys.argv[1])
for each in before:
    ctypes.CDLL(each, mode=ctypes.RTLD_GLOBAL)
library = ctypes.CDLL(path)
asked = {name: getattr(library, "ggml_cpu_has_" + name, None) for name in json.loads(sys.argv[2])}
version = getattr(library, "ggml_version", None)
if version:
    version.restype = ctypes.c_char_p
has = {name: bool(function()) for name, function in asked.items() if function}
print(json.dumps([version().decode() if version else "", has]))
"""
_PATIENCE_S = 60.0

Needs = Callable[[], frozenset[str] | str]
"""The features that a peer uses, or why they are unknown."""


def asked() -> Isa | None:
    """The highest instruction set that peers may use, or None. Raises UsageError for an unknown name."""
    name = os.environ.get(PEER_ISA, "").strip().lower()
    if not name:
        return None
    if name not in ISAS:
        raise UsageError(f"{PEER_ISA} is {name!r}; {nearest(name, ISAS)}")
    return ISAS[name]


def beyond(needs: Needs) -> str | None:
    """Why a peer that cannot be masked is not run, or None."""
    isa = asked()
    if isa is None:
        return None
    found = needs()
    if isinstance(found, str):
        return f"cannot be held to {isa.name}: {found}"
    above = ", ".join(sorted(found - _allowed(isa)))
    return f"cannot be held to {isa.name}: it uses {above}" if above else None


def _allowed(isa: Isa) -> set[str]:
    """The features of that step and of lower ones."""
    steps = {name for each in ISAS.values() if each.rank <= isa.rank for name in each.features}
    return steps.union(*(more for name, more in _COMES_WITH.items() if name in steps))


def variables(isa: Isa) -> dict[str, str]:
    """The environment variables that PyTorch reads when it is loaded, for the highest limit that the instruction set
    includes; none if there is no such limit."""
    found = [each for each in _LIMITS if each[0] in isa.features]
    return {"ONEDNN_MAX_CPU_ISA": found[-1][1], "ATEN_CPU_CAPABILITY": found[-1][2]} if found else {}


def dispatches() -> frozenset[str]:
    """The features of a library that uses the best of the processor."""
    return features()


def compiled(library: Path, *before: Path) -> frozenset[str] | str:
    """The features for which a library like ggml was compiled, as it reports in a separate process. `before`: libraries
    to load first."""
    found = _asked(tuple(str(each) for each in (*before, library)))
    return found if isinstance(found, str) else found.features


def version(library: Path, *before: Path) -> str:
    """The version that a library like ggml reports, as `compiled` asks it; "" if it reports none."""
    found = _asked(tuple(str(each) for each in (*before, library)))
    return "" if isinstance(found, str) else found.version


def in_words(needs: Needs) -> str:
    """The instruction sets of a build, for reports."""
    if needs is dispatches:
        return "instruction sets chosen at run time"
    found = needs()
    return found if isinstance(found, str) else f"compiled for {', '.join(sorted(found)) or 'no extension'}"


class _Told(NamedTuple):
    """What a library reports."""

    version: str
    features: frozenset[str]


@cache
def _asked(paths: tuple[str, ...]) -> _Told | str:
    command = [sys.executable, "-P", "-c", _ASK, json.dumps(paths), json.dumps(list(_TELLS))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=True)
        version, reported = json.loads(done.stdout)
    except (subprocess.SubprocessError, ValueError):
        return f"{Path(paths[-1]).name} could not be asked for what it is compiled"
    if not reported:
        return f"{Path(paths[-1]).name} does not tell for what it is compiled"
    return _Told(version, frozenset(_TELLS[name] for name, has in reported.items() if has))


def limited(missing: Callable[[], str | None], needs: Needs) -> Callable[[], str | None]:
    """A function that returns why a peer is missing or exceeds the requested instruction set, or None."""
    return partial(_limited, missing, needs)


def _limited(missing: Callable[[], str | None], needs: Needs) -> str | None:
    return missing() or beyond(needs)


def unmaskable() -> str | None:
    """Why PyTorch cannot be limited to the requested instruction set, or None."""
    isa = asked()
    if isa is None or variables(isa) or features() <= _allowed(isa):
        return None
    known = ", ".join(each.name for each in ISAS.values() if variables(each))
    return f"cannot be held to {isa.name}: oneDNN knows {known}"


def mask() -> None:
    """Limit PyTorch before it is loaded. Raises DeviceUnavailableError if it is already loaded without the limit."""
    isa = asked()
    wanted = variables(isa) if isa is not None else {}
    if isa is None or not wanted:
        return
    if "torch" in sys.modules and any(os.environ.get(name) != value for name, value in wanted.items()):
        raise DeviceUnavailableError(
            f"PyTorch is loaded already, and cannot be held to {isa.name} any more",
            next_step="leave --in-process out, so that it is loaded in a process of its own",
        )
    os.environ.update(wanted)
