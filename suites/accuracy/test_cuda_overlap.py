"""Launches that begin while the one before them still runs: on a GPU, where that one writes their inputs late; and what
the compiler made of each kernel that may: nothing of the device's memory is touched before it waits but weights that
are constant."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import DeviceUnavailableError
from tritmark.harness.spec import Axes, Variant, Workload
from tritmark.harness.validate.cases import Material
from tritmark.kernels import OPS
from tritmark.kernels.activation_quantize import cuda as activations
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.driver.compile import find_nvcc, options_of
from tritmark.kernels.cuda.kernel import OVERLAPPING, ROOM, Kernel
from tritmark.kernels.cuda.launch.launch import KERNELS, CudaLaunch
from tritmark.kernels.cuda.measure import ceilings
from tritmark.kernels.hadamard_quantize import cuda as rotations
from tritmark.kernels.ternary_linear import cuda as linear
from tritmark.kernels.ternary_matmul import cuda as products
from tritmark.kernels.ternary_matmul import cuda_grouped
from tritmark.kernels.ternary_matmul_a16 import cuda as products_a16
from tritmark.kernels.ternary_matmul_a16 import cuda_grouped as cuda_grouped_a16

if TYPE_CHECKING:
    from tritmark.kernels.cuda.context import CudaContext

ROOMS = (products, cuda_grouped, products_a16, cuda_grouped_a16, linear, activations, rotations)
VARIANTS = {each.id: each for room in ROOMS for each in room.VARIANTS}
EVERY = {(each.file, each.name): each for id in VARIANTS for each in KERNELS[id] if each.overlaps}
"""One instance of each function whose launches overlap."""
CONSTANT = [each for each in EVERY.values() if "int constant" in each.path.read_text(encoding="utf-8")]
"""Kernels that may read constant weights earlier."""
READS = ceilings.READ.values()
OTHERS = [each for each in ceilings.PROBES if each.overlaps and each not in READS]
"""The other probes whose launches overlap."""
TOUCHES = re.compile(
    r"\bld\.global\.L1::no_allocate|\bld\.global\.u16|\b(ld|st|atom|red)\.(?!param|shared|const|local)"
    r"|cp\.async\.(?!bulk\.prefetch)|griddepcontrol\.wait"
)
WEIGHTS = "ld.global.L1::no_allocate"
"""How weights are read, and nothing else, except in GROUPED."""
GROUPED = {
    "gemm_grouped_rows": {WEIGHTS, "ld.global.u16"},
    "gemm_grouped_mma": {"cp.async."},
    "gemm_a16_grouped_mma": {"cp.async."},
}
"""How kernels with scales of groups read weights and scales, and nothing else."""
WAIT = "griddepcontrol.wait"
LATE = """
/* Lets the next launch begin, waits, and then copies. */
extern "C" __global__ void gemm_late(unsigned char *to, const unsigned char *from, unsigned long long bytes)
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    unsigned long long begun, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begun));
    do
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now < begun + 200000);
    for (unsigned long long i = threadIdx.x; i < bytes; i += blockDim.x)
        to[i] = from[i];
}
"""


def _first(kernel: Kernel, source: Path) -> list[str]:
    """The memory accesses and waits in its PTX, in order."""
    try:
        nvcc = find_nvcc()
    except DeviceUnavailableError as why:
        pytest.skip(str(why))
    said = subprocess.run(
        [nvcc, "-ptx", *options_of(kernel, "sm_90"), "-o", "-", str(source)], capture_output=True, text=True, check=True
    )
    body = said.stdout.split(f".entry {kernel.name}(")[1].split(".entry ")[0]
    return [match[0] for match in TOUCHES.finditer(body)]


def _told(folder: Path, kernel: Kernel, constant: bool) -> Path:
    """The kernel's source, compiled for weights that are constant, or for others."""
    body = "    extern __shared__"
    source = _moved(folder, kernel, body, f"    constexpr bool constant = {int(constant)};\n{body}")
    source.write_text(re.sub(r"\bint constant\b", "int parameter", source.read_text(encoding="utf-8")))
    return source


@pytest.mark.parametrize("kernel", [*EVERY.values(), *OTHERS], ids=lambda each: each.name)
def test_nothing_is_read_or_written_before_the_launch_before_has_ended(kernel: Kernel, tmp_path: Path) -> None:
    found = _first(kernel, _told(tmp_path, kernel, False) if kernel in CONSTANT else kernel.path)
    assert found[0] == WAIT
    assert found.count(WAIT) == 1
    assert len(found) > (1 if kernel in OTHERS else 3)


@pytest.mark.parametrize("kernel", CONSTANT, ids=lambda each: each.name)
def test_constant_weights_alone_are_read_before_the_launch_before_has_ended(kernel: Kernel, tmp_path: Path) -> None:
    found = _first(kernel, _told(tmp_path, kernel, True))
    before = found[: found.index(WAIT)]
    assert before
    assert set(before) == GROUPED.get(kernel.name, {WEIGHTS})
    assert found.count(WAIT) == 1
    assert len(found) > len(before) + 3


@pytest.mark.parametrize("kernel", READS, ids=lambda each: each.name)
def test_a_probe_reads_before_the_launch_before_has_ended_and_writes_after(kernel: Kernel) -> None:
    found = _first(kernel, kernel.path)
    at = found.index(WAIT)
    assert at
    assert set(found[:at]) == {"ld."}
    assert found[at + 1 :] == ["st."]


def test_a_kernel_that_reads_before_it_waits_is_seen(tmp_path: Path) -> None:
    kernel = EVERY["ternary_matmul/gemv_rows.cu", "gemm_gemv_rows"]
    source = _told(tmp_path, kernel, False)
    text = source.read_text(encoding="utf-8").replace("if (!constant) {", "if (constant) {")
    source.write_text(text.replace("if (constant) {\n        wait", "if (!constant) {\n        wait"))
    assert _first(kernel, source)[0] == WEIGHTS


def test_only_kernels_that_wait_may_overlap() -> None:
    """Every kernel that must wait does so: each file is checked, since a kernel of another op might not."""
    told = {file for file, _ in EVERY} | {each.file for each in ceilings.PROBES if each.overlaps}
    waits = {
        str(path.relative_to(ROOM)) for path in ROOM.rglob("*.cu") if "wait_for_the_one_before();" in path.read_text()
    }
    assert told == waits
    every = {kernel for kernels in KERNELS.values() for kernel in kernels} | set(ceilings.PROBES)
    assert {each.file for each in every if each.overlaps} == waits


def _moved(folder: Path, kernel: Kernel, right: str, wrong: str, file: str = "") -> Path:
    """The kernel's source among copies of what it includes, in one of which, `file`, or in itself, that is replaced."""
    for path in (*ROOM.rglob("*.cuh"), kernel.path):
        there = folder / path.relative_to(ROOM)
        there.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8")
        if str(path.relative_to(ROOM)) == (file or kernel.file):
            assert right in text
            text = text.replace(right, wrong)
        there.write_text(text, encoding="utf-8")
    return folder / kernel.file


CALLS: tuple[tuple[str, Axes], ...] = (
    ("cuda/ternary_matmul/row16/float32/gemv", {"M": 1, "N": 2560, "K": 2560}),
    ("cuda/ternary_matmul/row16/float32/gemv", {"M": 1, "N": 13824, "K": 2560}),
    ("cuda/ternary_matmul/row16/float32/gemv_dp4a", {"M": 1, "N": 14336, "K": 4096}),
    ("cuda/ternary_matmul/row16/bfloat16/gemv", {"M": 8, "N": 13824, "K": 2560}),
    ("cuda/ternary_matmul/row16/bfloat16/gemv", {"M": 8, "N": 2560, "K": 2560}),
    ("cuda/ternary_matmul/row16/int32/gemv", {"M": 3, "N": 14336, "K": 4081}),
    ("cuda/ternary_matmul/row16/bfloat16/gemm", {"M": 16, "N": 2560, "K": 2560}),
    ("cuda/ternary_matmul/row16/bfloat16/gemm", {"M": 16, "N": 13824, "K": 2560}),
    ("cuda/ternary_matmul/row16/bfloat16/gemm", {"M": 128, "N": 13824, "K": 2559}),
    ("cuda/ternary_matmul/row16/int32/gemm", {"M": 512, "N": 13824, "K": 2560}),
    ("cuda/ternary_matmul_bf16/row16/bfloat16/mma", {"M": 1, "N": 2560, "K": 2560}),
    ("cuda/ternary_matmul_fp16/row16/float16/mma", {"M": 1, "N": 13824, "K": 2559}),
    ("cuda/ternary_matmul_bf16/row16/bfloat16/mma", {"M": 32, "N": 2560, "K": 2560}),
    ("cuda/ternary_matmul_bf16/row16/bfloat16/gemm", {"M": 64, "N": 2560, "K": 6912}),
    ("cuda/ternary_matmul_bf16/row16/float32/gemm", {"M": 128, "N": 13824, "K": 2559}),
    ("cuda/ternary_linear_bf16/row16/bfloat16/fused", {"M": 1, "N": 2560, "K": 2560}),
    ("cuda/activation_quantize/none/int8/vector", {"M": 7, "K": 2560}),
    ("cuda/activation_quantize/none/int8/vector", {"M": 7, "K": 30000}),
)


def _arguments(variant: Variant, axes: Axes, seed: int) -> dict[str, Any]:
    op = next(op for op in OPS if op.name == variant.key.op)
    material = Material(op, Workload(op=op.name, axes=axes, family=op.input_families[0]), seed)
    return dict(material.encoded(variant.key.format)[0])


@pytest.fixture
def gpu(cuda: CudaContext) -> CudaContext:
    if cuda.backend.simulated or cuda.backend.info.capability < OVERLAPPING:
        pytest.skip("launches overlap on GPUs of compute capability 9.0 and newer alone")
    return cuda


def _differ(
    here: CudaContext, tmp_path: Path, variant: Variant, axes: Axes, *, constant: bool = False
) -> dict[str, bool]:
    """For each array input, whether outputs change if the previous launch writes the input while this one could begin.
    `constant`: the inputs that the launch treats as constant."""
    (tmp_path / "late.cu").write_text(LATE)
    late = here.function(Kernel(file=str(tmp_path / "late.cu"), name="gemm_late", threads=256, registers=32))
    op = next(op for op in OPS if op.name == variant.key.op)
    right, wrong = (_arguments(variant, axes, seed) for seed in (1, 2))
    there = {name: here.upload(value) if np.ndim(value) else value for name, value in right.items()}
    outputs = {
        name: here.array(shape, named_dtype(dtype))
        for name, (shape, dtype) in op.outputs_like(axes, variant.key).items()
    }
    for array in there.values():
        if isinstance(array, DeviceArray) and not constant:
            array.mark_output()
    launch = variant.bind(there, outputs, axes, 1)
    assert isinstance(launch, CudaLaunch)
    launch.run()
    wanted = {name: array.numpy() for name, array in outputs.items()}
    found, backend = {}, here.backend
    for name, array in there.items():
        if not isinstance(array, DeviceArray) or not array.nbytes:
            continue
        new = here.upload(right[name])
        array.write(wrong[name])
        for each, values in wanted.items():
            outputs[each].write(np.zeros_like(values))
        numbers = [np.uint64(value) for value in (array.pointer, new.pointer, array.nbytes)]
        arguments = backend.arguments(late, numbers)
        backend.enqueue(late, (1, 1, 1), (256, 1, 1), arguments, 0, backend.stream)
        launch.put(backend.stream)
        backend.stream.synchronize()
        found[name] = any(outputs[each].numpy().tobytes() != array.tobytes() for each, array in wanted.items())
        array.write(right[name])
    return found


@pytest.mark.cuda
@pytest.mark.parametrize(("variant", "axes"), CALLS)
def test_what_the_launch_before_writes_late_is_read(gpu: CudaContext, tmp_path: Path, variant: str, axes: Axes) -> None:
    found = _differ(gpu, tmp_path, VARIANTS[variant], axes)
    assert found
    assert not any(found.values()), found


@pytest.mark.cuda
@pytest.mark.parametrize(("variant", "axes"), CALLS)
def test_of_what_the_launch_before_writes_late_constant_weights_alone_may_be_missed(
    gpu: CudaContext, tmp_path: Path, variant: str, axes: Axes
) -> None:
    found = _differ(gpu, tmp_path, VARIANTS[variant], axes, constant=True)
    assert not any(differs for name, differs in found.items() if name != "weights"), found
    names = {each.name for each in CONSTANT}
    early = any(each.name in names for each in KERNELS[variant])
    assert early or not found.get("weights", False)


@pytest.mark.cuda
def test_a_product_reads_constant_weights_early(gpu: CudaContext, tmp_path: Path) -> None:
    variant, axes = CALLS[0]
    assert _differ(gpu, tmp_path, VARIANTS[variant], axes, constant=True)["weights"]


@pytest.mark.cuda
def test_a_product_that_does_not_wait_is_seen(
    gpu: CudaContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = products.GEMV_ROWS[products.SHORT]
    source = _moved(tmp_path, kernel, 'asm volatile("griddepcontrol.wait;" ::: "memory");', "", "cuda/overlap.cuh")
    monkeypatch.setitem(products.GEMV_ROWS, products.SHORT, replace(kernel, file=str(source)))
    variant, axes = CALLS[0]
    assert all(_differ(gpu, tmp_path, VARIANTS[variant], axes).values())
