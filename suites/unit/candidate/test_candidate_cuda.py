"""A user's .cu in the simulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from tritmark.harness.candidate.opening import open_candidate
from tritmark.harness.errors import CompileError, UsageError
from tritmark.harness.judge.accesses import traced
from tritmark.harness.providers import load
from tritmark.harness.record import Status
from tritmark.harness.spec import Variant, Workload
from tritmark.harness.validate.accuracy import Judged, judge
from tritmark.harness.validate.cases import Material
from tritmark.harness.validate.families import KINDS
from tritmark.kernels.cuda.context import CudaContext

pytestmark = pytest.mark.cuda

INSTALLED = load()
EXAMPLES = Path(__file__).parents[2] / "examples"
SOURCE = (EXAMPLES / "quantize_cuda.cu").read_text(encoding="utf-8")
MANIFEST = (EXAMPLES / "quantize_cuda.toml").read_text(encoding="utf-8")


def variant(folder: Path, source: str = SOURCE, manifest: str = MANIFEST) -> Variant:
    path = folder / "my.cu"
    path.write_text(source, encoding="utf-8")
    path.with_suffix(".toml").write_text(manifest, encoding="utf-8")
    (found,) = open_candidate(path).variants(INSTALLED)
    return found


def judged(found: Variant, n: int = 300) -> Judged:
    op = INSTALLED.ops[found.key.op]
    cases = Material(op, Workload(op=op.name, axes={"n": n}), 0).cases(found.key)
    device = INSTALLED.registry.devices[found.key.device]
    return judge(op, found, cases, {"n": n}, layout="unaligned", threads=1, seed=0, device=device)


def test_a_kernel_is_launched_as_its_manifest_says(tmp_path: Path, simulator: CudaContext) -> None:
    found = variant(tmp_path)
    assert found.id == "cuda/i2s_quantize/none/int8/my.quantize_elements"
    result = judged(found)
    assert (result.accuracy.status, result.accuracy.reason) == (Status.PASS, "")
    assert result.receipt is not None
    assert result.receipt.functions == ("quantize_elements",)
    assert result.receipt.launches == result.receipt.runs == 3 + KINDS
    assert result.receipt.simulated
    assert len(result.receipt.code_hash) == 64


def test_a_kernel_without_bad_leaves_that_to_the_harness(tmp_path: Path, simulator: CudaContext) -> None:
    source = SOURCE.replace(", unsigned long long *bad", "").replace("atomicMin(bad, (unsigned long long)i);", ";")
    assert judged(variant(tmp_path, source, MANIFEST.replace(', "bad"', ""))).accuracy.status is Status.PASS


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("ceil_div(n, 256)", "max(1, n // 256)", "never written"),
        ('"n"', '"n:int32"', "int32"),
        ("block = 256", "block = 2048", "2048 threads a block"),
    ],
)
def test_a_wrong_launch_is_failed(tmp_path: Path, simulator: CudaContext, old: str, new: str, told: str) -> None:
    result = judged(variant(tmp_path, manifest=MANIFEST.replace(old, new)))
    assert result.accuracy.status in (Status.FAIL, Status.ERROR)
    assert told in result.accuracy.reason


def test_a_write_outside_is_attributed(tmp_path: Path, simulator: CudaContext) -> None:
    result = judged(variant(tmp_path, SOURCE.replace("i >= n", "i > n")))
    assert result.accuracy.status in (Status.FAIL, Status.ERROR)


@pytest.mark.parametrize(
    ("source", "manifest", "told"),
    [
        (
            SOURCE.replace("quantize_elements", "other"),
            MANIFEST,
            "my.toml:3:13: my.cu has no kernel 'quantize_elements'; legal: other",
        ),
        (
            SOURCE.replace('extern "C"', ""),
            MANIFEST,
            "my.toml:3:13: my.cu has 'quantize_elements' as a C++ function; legal: extern \"C\"",
        ),
        ("/* " + SOURCE.replace("*/", "") + "*/", MANIFEST, "no kernel 'quantize_elements'; legal: none"),
        (SOURCE, MANIFEST + 'capability = "8.7"', "my.toml:7:1: unknown compute capability 8.7; did you mean"),
    ],
)
def test_what_is_wrong_with_the_file_is_told(
    tmp_path: Path, simulator: CudaContext, source: str, manifest: str, told: str
) -> None:
    with pytest.raises(UsageError) as caught:
        variant(tmp_path, source, manifest)
    assert told in str(caught.value)


def test_its_accesses_are_traced(tmp_path: Path, simulator: CudaContext) -> None:
    """In a process of its own, which opens the file again. Lanes that are 64 floats apart touch a sector each."""
    path = tmp_path / "my.cu"
    path.write_text(SOURCE.replace("x[i]", "x[i / 128 + i % 128 * (n / 128)]"), encoding="utf-8")
    path.with_suffix(".toml").write_text(MANIFEST, encoding="utf-8")
    candidate = open_candidate(path)
    (found,) = candidate.variants(INSTALLED)
    tracing = INSTALLED.registry.devices["cuda"].tracing
    assert tracing is not None
    facts = traced(found, tracing, (candidate,))
    assert (facts.kernel, facts.note) == (found.id, "")
    reads = {each.share for each in facts.accesses if each.kind == "read"}
    assert reads == {1 / 8}
    assert {each.share for each in facts.accesses if each.kind == "write"} == {1.0}
    assert {each.line.partition(":")[0] for each in facts.accesses} == {"my.cu"}


def test_the_compilers_words_are_told(tmp_path: Path, simulator: CudaContext) -> None:
    with pytest.raises(CompileError, match="no_such_function"):
        variant(tmp_path, SOURCE.replace("__float2int_rn", "no_such_function"))
