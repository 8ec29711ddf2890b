"""The hash of the installed wheel: equal wherever the same wheel is installed, and different for another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tritmark.harness.record.versions import environment, wheel

FILES = ("made_up/__init__.py,sha256=aaaa,10", "made_up-1.dist-info/METADATA,sha256=bbbb,20")
INSTALLED = (
    "../../../bin/made-up,sha256=cccc,200",
    "made_up/__pycache__/__init__.cpython-312.pyc,,",
    "made_up-1.dist-info/INSTALLER,sha256=dddd,4",
    "made_up-1.dist-info/RECORD,,",
)


def hash_of(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str, origin: str = "") -> str:
    """That of a made-up distribution whose RECORD has these lines."""
    info = folder / "made_up-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up\nVersion: 1\n")
    (info / "RECORD").write_text("\n".join(lines) + "\n")
    if origin:
        (info / "direct_url.json").write_text(origin)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(folder))
        return wheel("made-up")


def test_it_depends_on_the_files_of_the_wheel_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = hash_of(tmp_path / "a", monkeypatch, *FILES, *INSTALLED)
    there = hash_of(tmp_path / "b", monkeypatch, *reversed(FILES), INSTALLED[0].replace("cccc", "eeee"))
    assert here == there
    assert here.startswith("sha256:")
    changed = hash_of(tmp_path / "c", monkeypatch, FILES[0].replace("aaaa", "ffff"), *FILES[1:], *INSTALLED)
    assert changed != here


def test_an_editable_installation_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = '{"dir_info": {"editable": true}, "url": "file:///somewhere"}'
    assert hash_of(tmp_path / "a", monkeypatch, *FILES, origin=origin) == ""
    assert hash_of(tmp_path / "b", monkeypatch, *FILES, origin=origin.replace("true", "false")) != ""
    assert wheel("no-such-distribution") == ""


def test_a_record_has_it() -> None:
    assert environment(("tritmark",), 1).wheel == wheel()
