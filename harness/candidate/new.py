"""`tritmark new`: writes a template of a kernel to a new file."""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from tritmark.harness.errors import UsageError
from tritmark.harness.nearest import nearest

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from tritmark.harness.providers import Installed

KINDS = ("py", "c", "cu")
"""Suffixes of templates. Templates in .c and .cu have a manifest beside them: OP.c.toml and OP.cu.toml."""
TEMPLATES = "templates"
FORMATS = "formats"
"""Folder of a provider with code that reads a format, NAME.h. OP_format.KIND includes it."""
_FORMAT = "@FORMAT@"
_INCLUDE = re.compile(r'^#include "([^"]+)"\n', re.MULTILINE)


def templates(installed: Installed, op: str) -> dict[str, dict[str, str]]:
    """The templates of an op: for each kind, the files by suffix."""
    found: dict[str, dict[str, str]] = {}
    for folder in _packages(installed):
        for kind in KINDS:
            texts = _texts(folder, op, kind)
            if texts:
                found.setdefault(kind, texts)
    return found


def _packages(installed: Installed) -> list[Traversable]:
    return [resources.files(each.templates) for each in installed.providers.values() if each.templates]


def _texts(package: Traversable, op: str, kind: str) -> dict[str, str]:
    """The files of a template by suffix. They are in the package, or in a folder `templates` of one of its folders."""
    folders = (package, *(each / TEMPLATES for each in package.iterdir() if each.is_dir()))
    for folder in folders:
        files = {f".{kind}": folder / f"{op}.{kind}", ".toml": folder / f"{op}.{kind}.toml"}
        found = {suffix: file.read_text(encoding="utf-8") for suffix, file in files.items() if file.is_file()}
        if found:
            return found
    return {}


def readable(installed: Installed, op: str, kind: str) -> dict[str, dict[str, str]]:
    """The templates of that kind for an op: for each installed format, the files by suffix. Empty for an op without
    templates that take a format."""
    folders = _packages(installed)
    texts = next((found for folder in folders if (found := _texts(folder, f"{op}_format", kind))), {})
    made: dict[str, dict[str, str]] = {}
    for name in installed.formats if texts else ():
        with suppress(FileNotFoundError):
            made[name] = {
                suffix: _included(text.replace(_FORMAT, name), [folder / FORMATS for folder in folders], set())
                for suffix, text in texts.items()
            }
    return made


def _included(text: str, folders: list[Traversable], done: set[str]) -> str:
    """A source with each #include "NAME" replaced by the file, once. Raises FileNotFoundError."""

    def source(found: re.Match[str]) -> str:
        name = found[1].removeprefix(f"{FORMATS}/")
        if name in done:
            return ""
        done.add(name)
        for folder in folders:
            if (folder / name).is_file():
                return _included((folder / name).read_text(encoding="utf-8"), folders, done)
        raise FileNotFoundError(name)

    return _INCLUDE.sub(source, text)


def write(installed: Installed, op: str, kind: str, folder: Path, format: str = "") -> list[Path]:
    """Write the template of an op, optionally for weights in a format. Returns the paths.

    Raises UsageError for an op, kind or format without a template, and for an existing file.
    """
    if op not in installed.ops:
        raise UsageError(f"unknown op {op!r}; {nearest(op, installed.ops)}")
    texts = _of_format(installed, op, kind, format) if format else _plain(installed, op, kind)
    paths = {folder / f"my_{op}{suffix}": text for suffix, text in texts.items()}
    for path in paths:
        if path.exists() or path.is_symlink():
            raise _there(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be made: {error.strerror or error}; legal: a writable folder") from None
    done: list[Path] = []
    try:
        for path, text in paths.items():
            _create(path, text)
            done.append(path)
    except OSError as error:
        for path in done:
            path.unlink()
        if isinstance(error, FileExistsError):
            raise _there(Path(error.filename2 or error.filename)) from None
        raise UsageError(f"{folder}: cannot be written: {error.strerror or error}") from None
    return done


def _plain(installed: Installed, op: str, kind: str) -> dict[str, str]:
    there = templates(installed, op)
    if kind not in there:
        raise UsageError(f"no template of kind {kind!r} for {op}; {nearest(kind, there)}")
    return there[kind]


def _of_format(installed: Installed, op: str, kind: str, format: str) -> dict[str, str]:
    there = readable(installed, op, kind)
    if not there:
        others = [name for name in installed.ops if readable(installed, name, kind)]
        raise UsageError(f"no template of kind {kind!r} of {op} takes a format; legal: {', '.join(others)}")
    if format not in installed.formats:
        raise UsageError(f"unknown format {format!r}; {nearest(format, installed.formats)}")
    if format not in there:
        raise UsageError(f"no template of kind {kind!r} reads {format!r}; {nearest(format, there)}")
    return there[format]


def _create(path: Path, text: str) -> None:
    """Write the whole file or none. The link fails if the file exists, so nothing is overwritten."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.link(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink()


def _there(path: Path) -> UsageError:
    return UsageError(f"{path}: exists already, and nothing is overwritten; legal: another --out")
