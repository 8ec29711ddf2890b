"""Peers with no more than one instruction set (`tritmark run --peer-isa`): which can be held to it, and why others
cannot.

PyTorch can be told, by what oneDNN and ATen read from the environment. Libraries like ggml are compiled for one set,
and tell for which; ONNX Runtime and NumPy look at the processor by themselves and take no word from outside.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from tritmark.harness.errors import DeviceUnavailableError, UsageError
from tritmark.harness.nearest import nearest
from tritmark.harness.spec import PEER_ISA
from tritmark.kernels.cpu import ISAS, Isa, features

MASKS = {
    "sse41": {"ONEDNN_MAX_CPU_ISA": "SSE41", "ATEN_CPU_CAPABILITY": "default"},
    "avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
    "avxvnni": {"ONEDNN_MAX_CPU_ISA": "AVX2_VNNI", "ATEN_CPU_CAPABILITY": "avx2"},
    "avx512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI", "ATEN_CPU_CAPABILITY": "avx512"},
    "amx": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_AMX", "ATEN_CPU_CAPABILITY": "avx512"},
}
"""What PyTorch reads when it is loaded, for each of our instruction sets that it has a name for."""
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
"""What of ggml's ggml_cpu_has_... says for which features it was compiled."""
_COMES_WITH = {"avx2": {"ssse3", "sse4.1", "avx", "f16c", "fma"}, "avx512vnni": {"avx512vbmi"}}
"""Features that a step does not name: every processor with AVX2 has them, and each with AVX512-VNNI but the first."""
_ASK = """
import ctypes, json, sys
*before, path = json.loads(sys.argv[1])
for each in before:
    ctypes.CDLL(each, mode=ctypes.RTLD_GLOBAL)
library = ctypes.CDLL(path)
asked = {name: getattr(library, "ggml_cpu_has_" + name, None) for name in json.loads(sys.argv[2])}
print(json.dumps({name: bool(function()) for name, function in asked.items() if function}))
"""
_PATIENCE_S = 60.0

Needs = Callable[[], frozenset[str] | str]
"""The features that a peer uses, or why that is not known."""


def asked() -> Isa | None:
    """The instruction set that peers may use at most, or None. Raises UsageError for a name that does not exist."""
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
    """The features of that step and of those below."""
    steps = {name for each in ISAS.values() if each.rank <= isa.rank for name in each.features}
    return steps.union(*(more for name, more in _COMES_WITH.items() if name in steps))


def dispatches() -> frozenset[str]:
    """What a library uses that takes the best that the processor has."""
    return features()


def compiled(library: Path, *before: Path) -> frozenset[str] | str:
    """What a library like ggml was compiled for, as it tells in a process of its own. `before`: what it needs loaded
    first."""
    return _asked(tuple(str(each) for each in (*before, library)))


@cache
def _asked(paths: tuple[str, ...]) -> frozenset[str] | str:
    command = [sys.executable, "-P", "-c", _ASK, json.dumps(paths), json.dumps(list(_TELLS))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=True)
        reported = json.loads(done.stdout)
    except (subprocess.SubprocessError, ValueError):
        return f"{Path(paths[-1]).name} could not be asked for what it is compiled"
    if not reported:
        return f"{Path(paths[-1]).name} does not tell for what it is compiled"
    return frozenset(_TELLS[name] for name, has in reported.items() if has)


def limited(missing: Callable[[], str | None], needs: Needs) -> Callable[[], str | None]:
    """What says why a peer is missing, or that it goes beyond what was asked for."""
    return partial(_limited, missing, needs)


def _limited(missing: Callable[[], str | None], needs: Needs) -> str | None:
    return missing() or beyond(needs)


def unmaskable() -> str | None:
    """Why PyTorch cannot be held to what was asked for, or None."""
    isa = asked()
    if isa is None or isa.name in MASKS or features() <= _allowed(isa):
        return None
    return f"cannot be held to {isa.name}: oneDNN knows {', '.join(MASKS)}"


def mask() -> None:
    """Tell PyTorch, which is not loaded yet. Raises DeviceUnavailableError where it is, and was not told."""
    isa = asked()
    if isa is None or isa.name not in MASKS:
        return
    wanted = MASKS[isa.name]
    if "torch" in sys.modules and any(os.environ.get(name) != value for name, value in wanted.items()):
        raise DeviceUnavailableError(
            f"PyTorch is loaded already, and cannot be held to {isa.name} any more",
            next_step="leave --in-process out, so that it is loaded in a process of its own",
        )
    os.environ.update(wanted)
