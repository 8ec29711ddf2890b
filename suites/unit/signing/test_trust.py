"""`tritmark verify --trusted`: a genuine signature passes, and each way of having none fails with its own reason."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Outcome, outcome_of
from ssh_keys import trusting

from tritmark.harness.cli.exit_status import ENVIRONMENT, FAILED, PASSED, UNTRUSTED, USAGE
from tritmark.harness.record import Record, with_digest
from tritmark.harness.signing import NAMESPACE, SignatureFault, TrustedKeys, sign, signature_path

Verify = Callable[..., Outcome]


@pytest.fixture
def verify(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Verify:
    """Runs `tritmark verify`: its status, output and errors."""

    def run(*arguments: str | Path) -> Outcome:
        return outcome_of(monkeypatch, capsys, "verify", *arguments)

    return run


@pytest.fixture
def allowed(keys: dict[str, Path], tmp_path: Path) -> Path:
    return trusting(tmp_path / "allowed_signers", ("alice@example.org", "", keys["alice"]))


def test_a_genuine_signature_passes_and_names_its_signer(
    file: Path, keys: dict[str, Path], allowed: Path, verify: Verify
) -> None:
    sign(file, keys["alice"])
    status, out, _ = verify(file, "--trusted", allowed)
    assert status == PASSED
    assert "PASS signature: by alice@example.org, ED25519 SHA256:" in out
    status, out, _ = verify(file, "--trusted", allowed, "--json")
    found = json.loads(out)
    assert (status, found["passed"], found["signature"]["signer"]) == (PASSED, True, "alice@example.org")
    assert found["signature"]["fault"] is None
    assert verify(file)[0] == PASSED  # without --trusted, as before


def test_any_changed_byte_fails(file: Path, keys: dict[str, Path], allowed: Path, verify: Verify) -> None:
    """Also one that leaves the text legal, and one in the digest."""
    sign(file, keys["alice"])
    data = file.read_bytes()
    rng = random.Random(60)
    places = [rng.randrange(len(data)) for _ in range(3)]
    for place in (*places, data.index(b"bench-03"), len(data) - 10, len(data) - 85):
        file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        status, out, _ = verify(file, "--trusted", allowed)
        assert status == FAILED, place
        assert "FAIL signature: changed: " in out, place


def test_a_forged_record_with_a_digest_of_its_own_fails(
    file: Path, keys: dict[str, Path], allowed: Path, verify: Verify, gpu_record: Record
) -> None:
    """Without the signature, nothing contradicts it."""
    sign(file, keys["alice"])
    forged = gpu_record.machine.model_copy(update={"cpu": "Another Processor"})
    file.write_text(with_digest(gpu_record.model_copy(update={"machine": forged})))
    assert verify(file)[0] == PASSED
    status, out, _ = verify(file, "--trusted", allowed)
    assert (status, "changed after it was signed" in out) == (FAILED, True)


def fault(file: Path, allowed: Path, verify: Verify) -> str:
    """The fault of a Record that is sound except for its signature."""
    status, out, _ = verify(file, "--trusted", allowed, "--json")
    found = json.loads(out)
    assert status == UNTRUSTED
    assert [each["name"] for each in found["checks"] if each["faults"]] == ["signature"]
    assert found["signature"]["signer"] == ""
    return str(found["signature"]["fault"])


def test_each_missing_trust_has_its_reason(
    file: Path, keys: dict[str, Path], allowed: Path, tmp_path: Path, verify: Verify
) -> None:
    assert fault(file, allowed, verify) == SignatureFault.ABSENT
    signature_path(file).write_text("hello\n")
    assert fault(file, allowed, verify) == SignatureFault.UNREADABLE
    signature_path(file).write_bytes(b"-" * (1 << 20))
    assert fault(file, allowed, verify) == SignatureFault.UNREADABLE
    signature_path(file).unlink()
    sign(file, keys["mallory"])
    assert fault(file, allowed, verify) == SignatureFault.UNTRUSTED
    signature_path(file).unlink()
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-n", "git", "-f", str(keys["alice"]), str(file)], check=True)
    assert fault(file, allowed, verify) == SignatureFault.PURPOSE
    signature_path(file).unlink()
    sign(file, keys["alice"])
    for options, expected in (
        ('valid-before="20200101"', SignatureFault.EXPIRED),
        ('valid-after="29990101"', SignatureFault.NOT_YET_VALID),
        ('namespaces="git"', SignatureFault.NOT_PERMITTED),
    ):
        limited = trusting(tmp_path / "limited", ("alice@example.org", options, keys["alice"]))
        assert fault(file, limited, verify) == expected


def test_a_key_trusted_for_records_by_one_of_several_lines_passes(
    file: Path, keys: dict[str, Path], tmp_path: Path, verify: Verify
) -> None:
    sign(file, keys["alice"])
    several = trusting(
        tmp_path / "several",
        ("mallory@example.org", "", keys["mallory"]),
        ("alice@example.org,*@example.net", f'namespaces="git,{NAMESPACE}",valid-before="29990101"', keys["alice"]),
    )
    several.write_text(f"# signers\n\n{several.read_text()}")
    status, out, _ = verify(file, "--trusted", several)
    assert (status, "PASS signature: by alice@example.org" in out) == (PASSED, True)


def test_lines_of_keys_that_were_not_read_are_named(
    file: Path, keys: dict[str, Path], tmp_path: Path, verify: Verify
) -> None:
    sign(file, keys["alice"])
    broken = tmp_path / "broken"
    broken.write_text(f"alice@example.org ssh-ed25519 {'A' * 68}\n")
    status, out, _ = verify(file, "--trusted", broken)
    assert (status, "lines that were not read: " in out, ":1: invalid key" in out) == (UNTRUSTED, True, True)


@pytest.mark.parametrize(("text", "words"), [(None, "cannot be read"), ("# none\n", "has no key")])
def test_keys_that_cannot_be_read_are_refused(
    file: Path, tmp_path: Path, verify: Verify, text: str | None, words: str
) -> None:
    path = tmp_path / "signers"
    if text is not None:
        path.write_text(text)
    status, _, err = verify(file, "--trusted", path)
    assert (status, words in err) == (USAGE, True)


def test_a_missing_ssh_keygen_is_an_error_of_the_machine(
    file: Path, keys: dict[str, Path], allowed: Path, tmp_path: Path, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign(file, keys["alice"])
    monkeypatch.setenv("PATH", str(tmp_path))
    status, _, err = verify(file, "--trusted", allowed)
    assert (status, "ssh-keygen is not installed" in err) == (ENVIRONMENT, True)


def test_bytes_after_the_end_are_a_change(file: Path, keys: dict[str, Path], allowed: Path) -> None:
    sign(file, keys["alice"])
    assert TrustedKeys(allowed).check(file).signer == "alice@example.org"
    file.write_bytes(file.read_bytes() + b" ")
    assert TrustedKeys(allowed).check(file).fault is SignatureFault.CHANGED
