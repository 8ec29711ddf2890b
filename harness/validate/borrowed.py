"""Third-party code in a candidate's process. A kernel that calls an installed kernel, or the library of a peer, is that
kernel under another name.

A candidate's process loads neither by itself. The check covers mapped files, by path, or by content if they were
renamed. Code that was copied into the candidate's own file is not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from tritmark.harness.spec import Tier, Variant

_MAPPED = re.compile(r"^\S+ ..x\S* \S+ \S+ \d+\s+(/\S.*)$", re.MULTILINE)
"""Lines of /proc/PID/maps."""
_NAMES = {
    "ggml": re.compile(r"lib(ggml|llama|ik_llama|ikllama)[^/]*\.so"),
    "ONNX Runtime": re.compile(r"(libonnxruntime|onnxruntime_pybind11)[^/]*\.so"),
    "PyTorch": re.compile(r"lib(torch|c10)(_cpu|_cuda|_python)?\.so"),
    "bitnet.cpp": re.compile(r"libbitnet[^/]*\.so"),
}
_MARKS = {
    "ggml": b"ggml_backend_cpu_reg\0",
    "ONNX Runtime": b"OrtGetApiBase\0",
    "PyTorch": b"_ZN2at4_ops\0",
}
"""Bytes that a file of that library contains under any name."""
_MOST = 1 << 28
"""Largest file in bytes that is searched for them."""


def mapped_code(maps: str) -> frozenset[str]:
    """Files with code in /proc/PID/maps."""
    return frozenset(_MAPPED.findall(maps))


def borrowed(paths: Iterable[str], installed: Iterable[Variant]) -> tuple[str, ...]:
    """Owners of the code in those files, as text. `installed`: the variants of its device."""
    own = _own(tuple(installed))
    found = (own.get(path) or _library(path) or _copied(path, own) for path in sorted(paths))
    return tuple(dict.fromkeys(each for each in found if each))


@lru_cache(maxsize=4)
def _own(installed: tuple[Variant, ...]) -> Mapping[str, str]:
    """The files with code of the installed kernels."""
    found: dict[str, str] = {}
    for variant in installed:
        if variant.tier is not Tier.CANDIDATE:
            for file in variant.code("", frozenset()):
                if file.path:
                    found.setdefault(str(Path(file.path).resolve()), f"the installed {variant.key.op}")
    return found


def _library(path: str) -> str:
    return next((name for name, pattern in _NAMES.items() if pattern.fullmatch(Path(path).name)), "")


@lru_cache(maxsize=256)
def _marked(path: str, size: int) -> str:
    data = Path(path).read_bytes()
    return next((name for name, mark in _MARKS.items() if mark in data), "")


def _copied(path: str, own: Mapping[str, str]) -> str:
    try:
        size = Path(path).stat().st_size
        for known, name in own.items():
            if Path(known).stat().st_size == size and Path(known).read_bytes() == Path(path).read_bytes():
                return name
        return _marked(path, size) if size <= _MOST else ""
    except OSError:
        return ""  # removed after it was mapped
