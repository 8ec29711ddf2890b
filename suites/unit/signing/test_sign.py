"""`tritmark sign`: what is signed, and what is refused without a signature."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from command_line import status_of

from tritmark.harness.cli.exit_status import ENVIRONMENT, PASSED, USAGE
from tritmark.harness.errors import EncryptedKeyError, RecordError, SigningError
from tritmark.harness.record import Record, Status, with_digest
from tritmark.harness.signing import NAMESPACE, sign, signature_path


def test_the_signature_is_one_of_ssh_keygen_over_the_bytes_of_the_file(
    file: Path, keys: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = file.read_bytes()
    assert status_of(monkeypatch, "sign", file, "--key", keys["alice"]) == PASSED
    assert capsys.readouterr().out.strip() == f"{file}.sig"
    assert file.read_bytes() == before
    check = ["ssh-keygen", "-Y", "check-novalidate", "-n", NAMESPACE, "-s", f"{file}.sig"]
    assert subprocess.run(check, input=before, capture_output=True, check=False).returncode == 0
    assert subprocess.run(check, input=before + b"\n", capture_output=True, check=False).returncode != 0


def test_an_encrypted_key_is_refused_without_asking(
    file: Path, keys: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(EncryptedKeyError, match=r"encrypted, and no ssh-agent holds it; next: .*ssh-add"):
        sign(file, keys["locked"])
    assert status_of(monkeypatch, "sign", file, "--key", keys["locked"]) == USAGE
    assert "ssh-add" in capsys.readouterr().err
    assert not signature_path(file).exists()


def test_a_missing_ssh_keygen_is_named(
    file: Path,
    keys: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert status_of(monkeypatch, "sign", file, "--key", keys["alice"]) == ENVIRONMENT
    assert "ssh-keygen is not installed; next: apt-get install openssh-client" in capsys.readouterr().err


def test_keys_that_do_not_sign_are_refused(file: Path, keys: dict[str, Path], tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("not a key\n")
    text.chmod(0o600)
    readable = tmp_path / "readable"
    readable.write_bytes(keys["mallory"].read_bytes())
    Path(f"{readable}.pub").write_bytes(Path(f"{keys['mallory']}.pub").read_bytes())
    readable.chmod(0o644)
    for key, words in ((tmp_path / "none", "no such file"), (text, "does not sign with it"), (readable, "chmod 600")):
        with pytest.raises(SigningError, match=words):
            sign(file, key)
    assert not signature_path(file).exists()


def test_a_signature_is_never_overwritten(file: Path, keys: dict[str, Path]) -> None:
    path = sign(file, keys["alice"])
    before = path.read_bytes()
    with pytest.raises(SigningError, match="exists already, and signatures are never overwritten"):
        sign(file, keys["mallory"])
    assert path.read_bytes() == before


def test_only_a_record_that_can_be_believed_is_signed(
    file: Path, keys: dict[str, Path], gpu_record: Record, tmp_path: Path
) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    with pytest.raises(RecordError):
        sign(other, keys["alice"])
    text = file.read_text()
    file.write_text(text.replace("bench-03", "bench-04"))
    with pytest.raises(RecordError, match="changed after it was written"):
        sign(file, keys["alice"])
    first, *others = gpu_record.runs
    wrong = first.model_copy(update={"accuracy": first.accuracy.model_copy(update={"mismatches": 3})})
    assert wrong.accuracy.status is Status.PASS
    file.write_text(with_digest(gpu_record.model_copy(update={"runs": (wrong, *others)})))
    with pytest.raises(SigningError, match=r"`tritmark verify` refutes it: .*incorrect element"):
        sign(file, keys["alice"])
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".sig")]
