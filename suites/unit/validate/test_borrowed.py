"""Third-party code in a candidate's process: installed kernels and peers, by path, by name and by content."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_records import small_record

from tritmark.harness.judge.limits import accuracy_limits
from tritmark.harness.league.contenders import tables
from tritmark.harness.providers import load
from tritmark.harness.record import Accuracy, Status
from tritmark.harness.spec import Tier
from tritmark.harness.text import groups
from tritmark.harness.validate.borrowed import borrowed, mapped_code

INSTALLED = load()
VARIANTS = [each for each in INSTALLED.registry.variants if each.key.device == "cpu"]
SCALAR = next(each for each in VARIANTS if each.id == "cpu/i2s_dequantize/none/float32/scalar")
OWN = SCALAR.code("", frozenset())[0].path
SAID = "the installed i2s_dequantize"


def test_files_with_code_are_those_that_are_mapped_to_be_run() -> None:
    told = (
        "7f00-7f01 r--p 00000000 08:01 12 /usr/lib/libm.so.6\n"
        "7f01-7f02 r-xp 00001000 08:01 12     /usr/lib/libm.so.6\n"
        "7f02-7f03 r-xs 00001000 08:01 13     /a folder/mine.so\n"
        "7f03-7f04 rwxp 00000000 00:00 0 \n"
        "7f04-7f05 r-xp 00000000 00:00 0      [vdso]\n"
    )
    assert mapped_code(told) == {"/usr/lib/libm.so.6", "/a folder/mine.so"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("libggml-cpu-haswell.so", "ggml"),
        ("libllama.so.0", ""),
        ("libggml.so", "ggml"),
        ("onnxruntime_pybind11_state.cpython-312-x86_64-linux-gnu.so", "ONNX Runtime"),
        ("libonnxruntime.so.1.23.2", ""),
        ("libtorch_cpu.so", "PyTorch"),
        ("libtorchaudio.so", ""),
        ("libc.so.6", ""),
        ("my_ggml.so", ""),
    ],
)
def test_a_peers_library_is_known_by_its_name(name: str, said: str) -> None:
    assert borrowed([f"/nowhere/{name}"], VARIANTS) == ((said,) if said else ())


@pytest.mark.parametrize(
    ("holds", "said"),
    [
        (b"\0OrtGetApiBase\0", "ONNX Runtime"),
        (b"\0ggml_backend_cpu_reg\0", "ggml"),
        (b"\0my_ggml_backend\0OrtGetApi\0", ""),
    ],
)
def test_under_another_name_it_is_known_by_what_it_exports(tmp_path: Path, holds: bytes, said: str) -> None:
    file = tmp_path / "mine.so"
    file.write_bytes(b"\x7fELF" + holds)
    assert borrowed([str(file)], VARIANTS) == ((said,) if said else ())


def test_an_installed_kernel_is_known_by_its_path_and_as_a_copy(tmp_path: Path) -> None:
    copy, changed = tmp_path / "copy.so", tmp_path / "changed.so"
    shutil.copyfile(OWN, copy)
    changed.write_bytes(copy.read_bytes()[:-1] + bytes([copy.read_bytes()[-1] ^ 1]))
    assert borrowed([str(Path(OWN).resolve())], VARIANTS) == (SAID,)
    assert borrowed([str(copy), str(tmp_path / "gone.so")], VARIANTS) == (SAID,)
    assert borrowed([str(changed)], VARIANTS) == ()
    assert borrowed([str(copy)], [replace(SCALAR, tier=Tier.CANDIDATE)]) == ()


def test_it_is_a_limit_of_the_verdict() -> None:
    op, device = INSTALLED.ops[SCALAR.key.op], INSTALLED.registry.devices["cpu"]
    found = Accuracy(status=Status.PASS)
    assert accuracy_limits(found, op, SCALAR, device) == ()
    (told,) = accuracy_limits(found, op, SCALAR, device, (SAID, "ggml"))
    assert told.startswith(f"not ranked: its process holds the code of {SAID} and ggml")


def test_it_is_the_best_of_no_place_and_the_league_says_so() -> None:
    record = small_record()
    (best, *_) = groups.right(record)
    runs = tuple(
        run.model_copy(update={"accuracy": run.accuracy.model_copy(update={"borrowed": (SAID,)})})
        if run.kernel == best.kernel
        else run
        for run in record.runs
    )
    changed = record.model_copy(update={"runs": runs})
    assert best.kernel not in {run.kernel for run in groups.right(changed)}
    names = {each.variant for table in tables(changed) for each in table.contenders}
    assert f"{best.variant} (calls {SAID})" in names
