"""`tritmark new ternary_matmul --format F`: a correct kernel for each format with template code."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from tritmark.harness.candidate.new import readable, write
from tritmark.harness.candidate.opening import open_candidate
from tritmark.harness.cli.new import new
from tritmark.harness.errors import UsageError
from tritmark.harness.providers import load
from tritmark.harness.record import Status
from tritmark.harness.validate.drawn import judge_drawn
from tritmark.harness.validate.memory import confirmed_use, watched
from tritmark.harness.worker import Workers
from tritmark.kernels.formats import FORMATS, Format

pytestmark = [pytest.mark.long, pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")]

INSTALLED = load()
OP = "ternary_matmul"
C = sorted(readable(INSTALLED, OP, "c"))
WITHOUT_CODE = {"qk256"}
"""Formats that cannot hold the weights of the op."""
app = typer.Typer()
app.command()(new)


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITMARK_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("TRITMARK_CUDA", "simulator")
        patch.delenv("TRITMARK_FORCE_ISA", raising=False)
        yield


def test_formats_without_code_are_known() -> None:
    assert set(FORMATS) - set(C) <= WITHOUT_CODE
    assert sorted(readable(INSTALLED, OP, "cu")) == C
    assert set(readable(INSTALLED, OP, "py")) == set(FORMATS)


def shapes_of(form: Format) -> list[tuple[int, int]]:
    """A small shape, with more than one block on each axis if the format has blocks, and shapes up to 8 MB with a
    layout of their own."""
    small = 3 * max(form.row_multiple, 16), 2 * max(form.column_multiple, form.group, 128)
    published = {shape for listed in getattr(form, "presets", {}).values() for shape in listed}
    return [small, *sorted(shape for shape in published if prod(shape) < 1 << 23)]


HOLDS = INSTALLED.ops[OP].holds
JUDGED = [
    name
    for name in C
    for n, k in shapes_of(FORMATS[name])[:1]
    if HOLDS is not None and HOLDS({"M": 1, "N": n, "K": k}, name)
]
"""Formats in which products can be judged."""
PYTHON = list(
    {(each.scale_per, each.scale_stored, each.group): each.name for each in map(FORMATS.__getitem__, JUDGED)}.values()
)
"""One format for each layout of scales: the rest is `unpack`."""

DECODER = """
void decode(const uint8_t *weights, int64_t N, int64_t K, int8_t *codes, float *scales)
{
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++) {
            codes[n * K + k] = (int8_t)code(weights, N, K, n, k);
            scales[n * K + k] = scale(weights, N, K, n, k);
        }
}
"""


@pytest.mark.parametrize("name", C)
def test_the_code_reads_each_weight_as_the_format_does(tmp_path: Path, name: str) -> None:
    """Checks every weight and scale, so that a fault in a branch that products rarely take shows."""
    source, library = tmp_path / "decoder.c", tmp_path / "decoder.so"
    written = write(INSTALLED, OP, "c", tmp_path, name)[0].read_text(encoding="utf-8")
    source.write_text(written + DECODER, encoding="utf-8")
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, str(source), "-o", str(library), "-lm"], check=True)
    decode = ctypes.CDLL(str(library)).decode
    form, rng = FORMATS[name], np.random.default_rng(5)
    for shape in shapes_of(form):
        codes = form.sample(shape, rng)
        scales = np.float32(0.5) if form.scale_per == "tensor" else rng.normal(size=form.scale_shape(shape))
        packed = form.pack(codes, np.asarray(scales).astype(form.scale_dtype).astype(np.float32)[()])
        expected, stored = form.unpack(packed, shape)
        found, of_weight = np.empty(shape, np.int8), np.empty(shape, np.float32)
        pointers = [ctypes.c_void_p(each.ctypes.data) for each in (packed, found, of_weight)]
        decode(pointers[0], *map(ctypes.c_int64, shape), *pointers[1:])
        np.testing.assert_array_equal(found, expected)
        if form.scale_per == "tensor" or not form.scale_stored:
            assert (of_weight == 1).all()
        else:
            per_row = np.reshape(stored, (shape[0], -1))
            np.testing.assert_array_equal(of_weight, np.repeat(per_row, shape[1] // per_row.shape[1], axis=1))


@pytest.mark.parametrize("name", JUDGED)
def test_c_is_right_as_it_is(tmp_path: Path, name: str) -> None:
    judged(tmp_path, "c", name, 6)


@pytest.mark.parametrize("name", PYTHON)
def test_python_is_right_as_it_is(tmp_path: Path, name: str) -> None:
    judged(tmp_path, "py", name, 6)


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["i2_s_x86", "tq1_0", "tq2_0"])
def test_cuda_is_right_as_it_is(tmp_path: Path, name: str) -> None:
    judged(tmp_path, "cu", name, 4)


def judged(folder: Path, kind: str, name: str, count: int) -> None:
    (variant,) = open_candidate(write(INSTALLED, OP, kind, folder, name)[0]).variants(INSTALLED)
    assert variant.key.format == name
    device = INSTALLED.registry.devices[variant.key.device]
    own = device if device.memory is not None else None
    with np.errstate(all="ignore"):
        found = judge_drawn(
            INSTALLED.ops[OP], variant, variant.key, corners=(), count=count, seed=0, cores=2, device=own
        ).accuracy
    assert (found.status, found.reason) == (Status.PASS, "")
    assert found.cases >= 2 * count


@pytest.mark.parametrize("name", ["i2_s_arm", "tq1_0"])
def test_python_takes_the_memory_that_it_declares(tmp_path: Path, name: str) -> None:
    candidate = open_candidate(write(INSTALLED, OP, "py", tmp_path, name)[0])
    (variant,) = candidate.variants(INSTALLED)
    axes = {"M": 4, "N": 512, "K": 1024}
    op = INSTALLED.ops[OP]
    inputs = op.encode(op.generate(axes, "normal", np.random.default_rng(0)), axes, name)
    with Workers(load((candidate,)), (candidate,), timeout_s=60.0) as workers:
        found = confirmed_use(lambda again: watched(workers, variant, again), inputs, axes, threads=1)
    assert found.status is Status.PASS, found.reason


def test_what_has_no_template_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown format 'i2_s_x68'; did you mean 'i2_s_x86'"):
        write(INSTALLED, OP, "c", tmp_path, "i2_s_x68")
    with pytest.raises(
        UsageError, match=r"no template of kind 'c' of i2s_quantize takes a format; legal: ternary_matmul"
    ):
        write(INSTALLED, "i2s_quantize", "c", tmp_path, "tile64")
    other = load()
    other.formats["odd"] = FORMATS["tile64"]
    with pytest.raises(UsageError, match=r"no template of kind 'c' reads 'odd'; legal: .*i2_s_x86.*tile64"):
        write(other, OP, "c", tmp_path, "odd")
    assert not list(tmp_path.iterdir())


def test_the_command_takes_a_format(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, [OP, "--kind", "c", "--format", "i2_s_arm", "--out", str(tmp_path)])
    assert found.exit_code == 0, found.output
    assert 'format = "i2_s_arm"' in (tmp_path / "my_ternary_matmul.toml").read_text(encoding="utf-8")
    assert "@" not in (tmp_path / "my_ternary_matmul.c").read_text(encoding="utf-8")
