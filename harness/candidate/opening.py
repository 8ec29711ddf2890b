"""Opens a file as a Candidate."""

from __future__ import annotations

import ast
from hashlib import sha256
from pathlib import Path

from tritmark.harness.candidate import device_file, native
from tritmark.harness.candidate.functions import PythonFunctions, decorated, parsed
from tritmark.harness.candidate.located import Located, read_text
from tritmark.harness.candidate.python_file import PythonFile
from tritmark.harness.errors import UsageError
from tritmark.harness.nearest import nearest
from tritmark.harness.providers import Candidate
from tritmark.harness.sandbox.inside import inside

SUFFIXES = (*device_file.SUFFIXES, *native.SUFFIXES, ".py")


def manifest_of(path: Path) -> Path:
    """Path of the manifest of a source: FILE.cu has FILE.toml."""
    return path.with_suffix(".toml")


def open_candidate(path: Path) -> Candidate:
    """The candidate in a file. Raises UsageError for a missing file, an unknown suffix, or a file without a kernel."""
    what = f"a file that ends in {', '.join(SUFFIXES)}"
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path}: its name ends in {path.suffix or 'nothing'!r}; {nearest(path.suffix, SUFFIXES)}")
    if not path.is_file():
        raise UsageError(f"{path}: {'not a file' if path.exists() else 'no such file'}; legal: {what}")
    whole = path.resolve()
    if path.suffix == ".py":
        return _python(whole)
    manifest = manifest_of(whole)
    if not manifest.is_file():
        raise UsageError(
            f"{manifest}: no such file; legal: a manifest of the kernel in {path.name}; next: `tritmark new OP` "
            "writes an example"
        )
    digest = sha256(whole.read_bytes()).hexdigest()
    kind = device_file.DeviceFile if path.suffix in device_file.SUFFIXES else native.NativeFile
    return kind(str(whole), str(manifest), digest)


def _python(path: Path) -> Candidate:
    located = Located(str(path), read_text(path, "a Python file"))
    if decorated(located):
        return PythonFunctions(str(path), sha256(located.text.encode()).hexdigest())
    for node in parsed(located).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == "VARIANTS" for target in targets):
            if inside():
                raise UsageError(
                    f"{path}: VARIANTS runs in the process that judges, which a sandbox does not admit; legal: a "
                    "function with @tritmark.harness.candidate.kernel(op=..., dtype=...)"
                )
            return PythonFile(str(path))
    raise UsageError(
        f"{path}: has no kernel; legal: a function with @tritmark.harness.candidate.kernel(op=..., dtype=...), or "
        "VARIANTS"
    )
